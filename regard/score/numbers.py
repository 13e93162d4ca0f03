"""How numbers that were given agree with those that are right."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .interval import DRAWS, SEED, bootstrap, ratio

Numbers = NDArray[np.float64]


def pearson(right: Numbers, given: Numbers) -> float:
    """Linear correlation of two columns (N,); 0 where one of them is constant."""
    # Compared before centring: a constant less its rounded mean need not be 0.
    if len(right) < 2 or right.min() == right.max() or given.min() == given.max():
        return 0.0
    columns = []
    for column in (right, given):
        centred = column - column.mean()
        centred /= np.abs(centred).max()  # or squares of very small or large numbers are lost
        columns.append(centred / np.linalg.norm(centred))
    return float(np.clip(columns[0] @ columns[1], -1, 1))


def ranks(values: Numbers) -> Numbers:
    """Places in ascending order from 1, (N,) → (N,); equal values share their mean place."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    mean: Numbers = np.cumsum(sizes) - (sizes - 1) / 2
    return mean[group]


def spearman(right: Numbers, given: Numbers) -> float:
    """Correlation of the ranks of two columns (N,)."""
    return pearson(ranks(right), ranks(given))


def root_mean_squared_error(right: Numbers, given: Numbers) -> float:
    return float(ratio(((right - given) ** 2).sum(), len(right)) ** 0.5)


PAIRED = {"pearson": pearson, "spearman": spearman, "rmse": root_mean_squared_error}


class Correlation:
    """How well given numbers follow the right ones: ranks need all of them, 16 bytes an example."""

    def __init__(self) -> None:
        self.right, self.given = array("d"), array("d")

    def add(self, right: ArrayLike, given: ArrayLike) -> None:
        """Keep pairs of numbers, (N,) both."""
        wanted, found = np.asarray(right, np.float64), np.asarray(given, np.float64)
        assert wanted.shape == found.shape, (wanted.shape, found.shape)
        self.right.frombytes(wanted.tobytes())
        self.given.frombytes(found.tobytes())

    @property
    def examples(self) -> int:
        return len(self.right)

    def scores(self) -> dict[str, float]:
        columns = self._columns()
        return {name: statistic(*columns) for name, statistic in PAIRED.items()}

    def interval(self, name: str, draws: int = DRAWS, seed: int = SEED) -> tuple[float, float]:
        """The interval of one of `PAIRED`."""
        columns, statistic, size = self._columns(), PAIRED[name], len(self.right)
        return bootstrap(lambda by: statistic(*by.choice(columns, size, axis=1)), draws, seed)

    def _columns(self) -> Numbers:
        return np.stack([np.asarray(self.right), np.asarray(self.given)])  # (2, N)
