"""Word and character error rates: how much must be changed to make what was said of what was heard.

The fewest substitutions, deletions and insertions (Levenshtein 1966), over the words of all
references; the interval is drawn over utterances.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from .interval import DRAWS, SEED, bootstrap, ratio


def edits(right: Sequence[Hashable], given: Sequence[Hashable]) -> tuple[int, int, int]:
    """The fewest substitutions, deletions and insertions that make `given` of `right`.

    Where several ways are as short, the one that keeps the most.
    """
    names = {thing: at for at, thing in enumerate(dict.fromkeys((*right, *given)))}
    wanted, found = ([names[thing] for thing in side] for side in (right, given))
    # Each edit costs more than all things together, and each thing kept takes one off.
    kept = len(wanted) + len(found) + 1
    across = np.arange(len(found) + 1)
    heard = np.array(found, np.int64)
    costs: NDArray[np.int64] = across * kept
    for row, thing in enumerate(wanted, 1):
        change = np.where(heard == thing, -1, kept)
        best = np.minimum(costs[1:] + kept, costs[:-1] + change)  # deleted; kept or changed
        # Insertions run along the row: each place from the cheapest one before it.
        line = np.concatenate(([row * kept], best)) - across * kept
        costs = np.minimum.accumulate(line) + across * kept
    cost = int(costs[-1])
    hits = -cost % kept
    distance = (cost + hits) // kept
    # What is kept, changed or deleted is all of `right`; kept, changed or inserted all of `given`.
    inserted = distance - (len(wanted) - hits)
    deleted = len(wanted) - len(found) + inserted
    return distance - deleted - inserted, deleted, inserted


class ErrorRate:
    """Edits of many utterances: 32 bytes each are kept, for the interval."""

    def __init__(self) -> None:
        self.counts = array("q")

    def add(self, right: Sequence[Hashable], given: Sequence[Hashable]) -> None:
        self.counts.extend((*edits(right, given), len(right)))

    @property
    def table(self) -> NDArray[np.int64]:
        """(N, 4) substitutions, deletions, insertions, things in the reference"""
        return np.array(self.counts, np.int64).reshape(-1, 4)

    def rate(self) -> float:
        return self._rate(self.table)

    def parts(self) -> dict[str, int]:
        names = ("substitutions", "deletions", "insertions", "of")
        return dict(zip(names, self.table.sum(0).tolist(), strict=True))

    def interval(self, draws: int = DRAWS, seed: int = SEED) -> tuple[float, float]:
        table = self.table
        return bootstrap(lambda by: self._rate(by.choice(table, len(table))), draws, seed)

    @staticmethod
    def _rate(table: NDArray[np.int64]) -> float:
        return ratio(float(table[:, :3].sum()), float(table[:, 3].sum()))
