"""Which rows make up which batch: a pure function of seed and epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Rows = NDArray[np.integer[Any]]


NOTHING = "the training data hold no usable line; nothing can be learned from them."


class Order:
    """Batches by token budget in length buckets.

    Rows of about one length are cut into batches of the same number of rows; what is left over of
    a bucket moves up into the next, so every epoch has the same number of batches and only the last
    can be short. A batch is as wide as the bucket's bound at most, and rows × bound ≤ `budget`.
    """

    def __init__(self, lengths: NDArray[np.int32], budget: int, seed: int) -> None:
        """`lengths` (N, fields): the longest field of a row decides its bucket."""
        widest = lengths.max(1)
        if len(widest) == 0:
            raise DataError(NOTHING)
        if int(widest.max()) > budget:
            raise DataError(
                f"train.batch_tokens is {budget}, but the longest line has "
                f"{int(widest.max())} tokens; "
                "raise it, or lower data.max_length."
            )
        self.seed, self.budget = seed, budget
        self.second = lengths.min(1)
        self.bounds = np.array(bounds(int(widest.max()), budget))
        self.bucket = np.searchsorted(self.bounds, widest).astype(np.int16)
        self.counts = np.bincount(self.bucket, minlength=len(self.bounds))
        self.rows_at = np.maximum(budget // self.bounds, 1)
        self.batches = self._count()

    def _count(self) -> int:
        left = total = 0
        for count, rows in zip(self.counts, self.rows_at, strict=True):
            whole, left = divmod(int(count) + left, int(rows))
            total += whole
        return total + (left > 0)

    def epoch(self, number: int) -> list[Rows]:
        """All batches of one epoch, in the order they are used."""
        rng = np.random.default_rng((self.seed, number))
        shuffled = rng.permutation(np.arange(len(self.bucket), dtype=np.int32))
        by_bucket = shuffled[np.argsort(self.bucket[shuffled], kind="stable")]
        batches: list[Rows] = []
        left = by_bucket[:0]
        start = 0
        for count, rows in zip(self.counts.tolist(), self.rows_at.tolist(), strict=True):
            members = np.concatenate((left, by_bucket[start : start + count]))
            start += count
            whole = len(members) // rows * rows
            left = members[whole:]
            # Neighbours in the other field's length share a batch, within pools that stay random.
            for pool in np.split(members[:whole], range(rows * 16, whole, rows * 16)):
                pool = pool[np.argsort(self.second[pool], kind="stable")]
                batches += np.split(pool, range(rows, len(pool), rows)) if len(pool) else []
        if len(left):
            batches.append(left)
        return [batches[i] for i in rng.permutation(len(batches))]

    def usual(self) -> Rows:
        """A batch to count FLOPs a token on: here they hardly depend on the length."""
        return self.largest()

    def largest(self) -> Rows:
        """The worst batch there can be, to try memory with before the work begins."""
        areas = self.rows_at * self.bounds * (self.counts > 0)
        widest = np.flatnonzero(areas == areas.max())[-1]
        rows = np.flatnonzero(self.bucket == widest)
        rows = rows[np.argsort(-self.second[rows], kind="stable")]
        return np.resize(rows[: self.rows_at[widest]], self.rows_at[widest]).astype(np.int64)


class Shuffled:
    """Batches of so many rows each; those of a few batches (`pool`) are sorted by length among
    themselves, so that little is padded. Where a length tells something of what is asked, a pool of
    one keeps batches alike."""

    def __init__(self, lengths: NDArray[np.int32], rows: int, seed: int, pool: int = 8) -> None:
        if len(lengths) == 0:
            raise DataError(NOTHING)
        self.lengths, self.rows, self.seed = lengths, min(rows, len(lengths)), seed
        self.batches, self.pool = len(lengths) // self.rows, pool * self.rows

    def epoch(self, number: int) -> list[Rows]:
        """All batches of one epoch; the few rows left over have their turn in another."""
        rng = np.random.default_rng((self.seed, number))
        rows = rng.permutation(len(self.lengths))[: self.batches * self.rows]
        batches: list[Rows] = []
        for pool in np.split(rows, range(self.pool, len(rows), self.pool)):
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            batches += list(pool.reshape(-1, self.rows))
        return [batches[i] for i in rng.permutation(len(batches))]

    def largest(self) -> Rows:
        return np.argsort(-self.lengths, kind="stable")[: self.rows]

    def usual(self) -> Rows:
        """A batch of middling rows."""
        first = (len(self.lengths) - self.rows) // 2
        return np.argsort(self.lengths, kind="stable")[first : first + self.rows]


def bounds(longest: int, budget: int) -> list[int]:
    """Upper bounds of the buckets: they widen by an eighth, and by one at least."""
    edges = [1]
    while edges[-1] < longest:
        edges.append(edges[-1] + max(1, edges[-1] // 8))
    return [min(edge, budget) for edge in edges]


class Repeated:
    """An order over rows of which some stand in it more than once."""

    def __init__(self, order: Order, index: Rows) -> None:
        self.order, self.index, self.batches = order, index, order.batches

    def epoch(self, number: int) -> list[Rows]:
        return [self.index[rows] for rows in self.order.epoch(number)]

    def largest(self) -> Rows:
        return self.index[self.order.largest()]

    def usual(self) -> Rows:
        return self.index[self.order.usual()]


def longest_first(lengths: NDArray[np.integer[Any]], budget: int) -> Iterator[Rows]:
    """Every row once, in batches of about one length that are `budget` wide at most."""
    rows = np.argsort(lengths, kind="stable")
    while len(rows):
        count = max(1, budget // max(1, int(lengths[rows[-1]])))
        yield rows[-count:]
        rows = rows[:-count]
