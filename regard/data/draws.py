"""Random numbers of a step: those of a row depend on seed, step and row alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray


class Draws(Sequence[np.random.Generator]):
    """A generator for each row of a step's batch; or numbers for all rows at once."""

    def __init__(self, seed: int, step: int, rows: Sequence[int]) -> None:
        self.seed, self.step, self.rows = seed, step, rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> np.random.Generator: ...
    @overload
    def __getitem__(self, place: slice) -> Draws: ...
    def __getitem__(self, place: int | slice) -> np.random.Generator | Draws:
        if isinstance(place, slice):
            return Draws(self.seed, self.step, self.rows[place])
        return np.random.default_rng((self.seed, self.step, self.rows[place]))

    def uniform(self, count: int) -> NDArray[np.float64]:
        """So many numbers in [0, 1) for each row.  -> (B, count)

        A counter well mixed (Steele et al. 2014, SplitMix64): making a generator for each row would
        take longer than a small model's step.
        """
        with np.errstate(over="ignore"):
            start = mix(mix(np.uint64(self.seed) + GOLDEN) + np.uint64(self.step))
            rows = mix(start + np.asarray(self.rows, np.uint64) * GOLDEN)
            places = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
            bits = mix(rows[:, None] + places)
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(x: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Each bit changes about half of the others."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)
