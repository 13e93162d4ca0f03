"""Who was taken for whom: one class of several, or several at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .interval import DRAWS, SEED, bootstrap, ratio, scores

Counts = NDArray[np.int64]


class Confusion:
    """How often each class was given for each: (C, C) counts are kept, whatever the examples."""

    def __init__(self, classes: int) -> None:
        self.matrix: Counts = np.zeros((classes, classes), np.int64)  # (right, given)

    def add(self, right: ArrayLike, given: ArrayLike) -> None:
        """Count class indices, both of the same shape."""
        rows, columns = np.asarray(right, np.int64), np.asarray(given, np.int64)
        assert rows.shape == columns.shape, (rows.shape, columns.shape)
        # Too large an index fails by itself; a negative one would count from the end.
        assert min(rows.min(initial=0), columns.min(initial=0)) >= 0, "a class below 0"
        np.add.at(self.matrix, (rows, columns), 1)

    @property
    def examples(self) -> int:
        return int(self.matrix.sum())

    def accuracy(self) -> float:
        return ratio(self.matrix.trace(), self.matrix.sum())

    def f1(self, positive: int = 1) -> float:
        """F1 of one class against the others."""
        hits, given, right = self._totals()
        return ratio(2 * hits[positive], given[positive] + right[positive])

    def macro_f1(self) -> float:
        """The mean F1 of the classes that are right or given anywhere."""
        hits, given, right = self._totals()
        occurs = (given + right) > 0
        return ratio((2 * hits[occurs] / (given + right)[occurs]).sum(), occurs.sum())

    def matthews(self) -> float:
        """Correlation of the right and the given class (Gorodkin 2004, R_K)."""
        hits, given, right = self._totals()
        total = right.sum()
        spread = np.sqrt(float(total**2 - given @ given)) * np.sqrt(float(total**2 - right @ right))
        return ratio(total * hits.sum() - given @ right, spread)

    def per_class(self) -> list[dict[str, float]]:
        """Precision, recall, F1 and number of examples of each class."""
        return [scores(*counts) for counts in zip(*self._totals(), strict=True)]

    def interval(
        self, statistic: Callable[[Confusion], float], draws: int = DRAWS, seed: int = SEED
    ) -> tuple[float, float]:
        """The interval of a statistic, such as `Confusion.accuracy`.

        Drawing examples with replacement is drawing the cells' counts from a multinomial.
        """
        cells, total = np.flatnonzero(self.matrix), self.matrix.sum()
        if not total:
            return 0.0, 0.0
        drawn = Confusion(len(self.matrix))  # one at a time: with many classes it is large

        def draw(rng: np.random.Generator) -> float:
            drawn.matrix.flat[cells] = rng.multinomial(total, self.matrix.flat[cells] / total)
            return statistic(drawn)

        return bootstrap(draw, draws, seed)

    def _totals(self) -> tuple[Counts, Counts, Counts]:
        """Of each class, how often it was hit, given and right: (C,) each."""
        return self.matrix.diagonal(), self.matrix.sum(0), self.matrix.sum(1)


class ManyLabels:
    """Any number of labels to an example: three counts a label are kept."""

    def __init__(self, classes: int) -> None:
        # Of each label the true positives, false positives and false negatives.
        self.counts: Counts = np.zeros((3, classes), np.int64)
        self.matches = self.examples = 0

    def add(self, right: ArrayLike, given: ArrayLike) -> None:
        """Count whether each label is right and whether it was given, (N, C) both."""
        wanted, found = np.asarray(right, bool), np.asarray(given, bool)
        assert wanted.shape == found.shape == (len(found), self.counts.shape[1]), wanted.shape
        self.counts += [x.sum(0) for x in (wanted & found, ~wanted & found, wanted & ~found)]
        self.matches += int((wanted == found).all(1).sum())
        self.examples += len(found)

    def micro_f1(self) -> float:
        """F1 of all labels' counts together."""
        hits, extra, missed = self.counts.sum(1)
        return ratio(2 * hits, 2 * hits + extra + missed)

    def macro_f1(self) -> float:
        """The mean F1 of all labels; one that never occurs counts as 0."""
        return ratio(sum(label["f1"] for label in self.per_class()), self.counts.shape[1])

    def exact(self) -> float:
        """The share of examples with every label right."""
        return ratio(self.matches, self.examples)

    def per_class(self) -> list[dict[str, float]]:
        """Precision, recall, F1 and number of examples of each label."""
        return [scores(hits, hits + extra, hits + missed) for hits, extra, missed in self.counts.T]
