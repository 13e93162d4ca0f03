"""Rows of two halves, of which the second follows on the first or does not (BERT)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..errors import DataError
from .cut import Plan
from .store import Store


class Half(NamedTuple):
    """Where the two halves of a row begin and end in the running text."""

    one: int
    middle: int
    two: int
    end: int
    follows: int  # 1 or 0; -1: there is one text


class Halves(Plan[list[Half]]):
    """Rows as full as can be: each goes on where the one before it in its text ended.

    Half of the pairs are cut out of one text at the end of a sentence; the others have a second
    half from another text, drawn anew in every epoch.
    """

    def __init__(self, store: Store, pairs: bool, rows: int, room: int, seed: int) -> None:
        self.pairs, self.room, self.seed = pairs, room, seed
        self.starts = np.asarray(store.starts("text"))  # of sentences
        first = np.flatnonzero(store.flat("begins"))  # sentences that begin a text
        self.texts = np.append(self.starts[first], self.starts[-1])
        if pairs and len(first) < 2:
            raise DataError(
                "task.next needs two texts or more, to draw what does not follow from, but there "
                f"is {len(first)}; set task.documents, or task.next=false."
            )
        self.pieces = [
            (text, *piece)
            for text, (begin, end) in enumerate(zip(self.texts[:-1], self.texts[1:], strict=True))
            for piece in self.cut(int(begin), int(end))
        ]
        if not self.pieces:
            raise DataError("the data must hold a text of two tokens or more, but hold none.")
        self.rows = min(rows, len(self.pieces))
        self.batches = len(self.pieces) // self.rows

    def cut(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """A text in pieces of a row's room, each from the beginning of a sentence."""
        while begin < end:
            stop = min(begin + self.room, end)
            if stop - begin > 1:
                yield begin, stop
            before = int(self.starts[np.searchsorted(self.starts, stop, "right") - 1])
            begin = before if stop < end and before > begin else stop

    def epoch(self, number: int) -> list[list[Half]]:
        rng = np.random.default_rng((self.seed, number))
        order = rng.permutation(len(self.pieces))[: self.batches * self.rows]
        drawn = [self.row(self.pieces[i], rng) for i in order]
        return [drawn[i : i + self.rows] for i in range(0, len(drawn), self.rows)]

    def row(self, piece: tuple[int, int, int], rng: np.random.Generator) -> Half:
        text, begin, end = piece
        if not self.pairs:
            return Half(begin, end, end, end, -1)
        low, high = np.searchsorted(self.starts, (begin + 1, end))
        middle = int(self.starts[rng.integers(low, high)]) if high > low else (begin + end) // 2
        if rng.random() < 0.5:
            return Half(begin, middle, middle, end, 1)
        other = int(rng.integers(len(self.texts) - 2))
        other += other >= text  # any but this one
        low, high = np.searchsorted(self.starts, self.texts[other : other + 2])
        two = int(self.starts[rng.integers(low, high)])
        return Half(
            begin,
            middle,
            two,
            min(two + self.room - (middle - begin), int(self.texts[other + 1])),
            0,
        )

    def largest(self) -> list[Half]:
        begin = min(int(self.pieces[0][1]), int(self.starts[-1]) - 2)
        end = min(begin + self.room, int(self.starts[-1]))
        middle = (begin + end) // 2
        return [Half(begin, middle, middle, end, 1 if self.pairs else -1)] * self.rows
