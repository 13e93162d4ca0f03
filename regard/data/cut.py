"""Running text cut into batches: pieces of one stream, random windows, or packed documents.

Each way is a plan: a number of batches an epoch, and for every epoch where each batch's rows begin,
which is a pure function of seed and epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

Ids = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Cut:
    """Where the rows of a batch begin in the text, and how long they are."""

    starts: NDArray[np.int64]  # (B,)
    length: int  # inputs a row; one label more is read
    continues: bool = False  # each row goes on where the same row of the batch before ended

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice) -> Cut:
        """Some of its rows."""
        return replace(self, starts=self.starts[rows])


Picked = TypeVar("Picked", covariant=True)


class Plan(Protocol[Picked]):
    """Which rows make up which batch; what is picked for one is whatever the task makes it of."""

    batches: int  # an epoch

    def epoch(self, number: int) -> Sequence[Picked]:
        """The rows of every batch, in the order they are used."""

    def largest(self) -> Picked:
        """The worst batch there can be, to try memory with before the work begins."""

    def usual(self) -> Picked:
        """A batch to count FLOPs a token on; running text is all alike."""
        return self.largest()


class Stream(Plan[Cut]):
    """The text as `rows` long strips, read side by side, `context` tokens at a time.

    What a model carries from one batch it takes into the next. With `vary`, lengths are drawn
    anew each epoch around the context (Merity et al. 2018, section 4.1), so that words do not
    always stand at the same place.
    """

    def __init__(self, size: int, rows: int, context: int, seed: int, vary: float = 0.0) -> None:
        self.rows = max(1, min(rows, (size - 1) // context))
        self.strip = (size - 1) // self.rows  # inputs of a row; the last label is one further
        self.context, self.seed, self.vary = context, seed, vary
        self.batches = -(-self.strip // context)

    def lengths(self, number: int) -> list[int]:
        """They sum to the strip, and there are always as many."""
        usual = [self.context] * (self.batches - 1)
        usual.append(self.strip - sum(usual))
        if not self.vary or self.batches < 3:
            return usual
        rng = np.random.default_rng((self.seed, number))
        drawn = rng.normal(1.0, self.vary, self.batches).clip(0.2, 3.0)
        drawn[rng.random(self.batches) < 0.05] /= 2
        ends = np.round(drawn.cumsum() / drawn.sum() * self.strip).astype(int)
        lengths: list[int] = np.diff(ends, prepend=0).tolist()
        return lengths if min(lengths) > 0 else usual

    def epoch(self, number: int) -> list[Cut]:
        strips = np.arange(self.rows, dtype=np.int64) * self.strip
        lengths = self.lengths(number)
        starts = np.cumsum([0, *lengths[:-1]])
        return [
            Cut(strips + start, length, continues=place > 0)
            for place, (start, length) in enumerate(zip(starts, lengths, strict=True))
        ]

    def largest(self) -> Cut:
        longest = max(self.lengths(0))
        return Cut(np.arange(self.rows, dtype=np.int64) * self.strip, longest)


class Windows(Plan[Cut]):
    """Pieces of `context` tokens, from anywhere: each epoch shifts the grid, then shuffles it."""

    def __init__(self, size: int, rows: int, context: int, seed: int) -> None:
        self.size, self.context, self.seed = size, min(context, size - 1), seed
        self.rows = rows
        # The shift may cost one window.
        self.windows = max(1, (size - 1) // self.context - 1)
        self.batches = max(1, self.windows // rows)

    def epoch(self, number: int) -> list[Cut]:
        rng = np.random.default_rng((self.seed, number))
        slack = self.size - 1 - self.windows * self.context
        starts = int(rng.integers(slack + 1)) + rng.permutation(self.windows) * self.context
        # A text of less than one batch is read more than once.
        starts = np.resize(starts, self.batches * self.rows)
        return [Cut(batch, self.context) for batch in starts.reshape(self.batches, self.rows)]

    def largest(self) -> Cut:
        return Cut(np.zeros(self.rows, np.int64), self.context)


Packs = list[list[tuple[int, int]]]  # pieces of documents, row by row: from, and how many tokens


class Packed(Plan[Packs]):
    """Whole documents packed into rows, best fit first; longer ones are cut into rows of their own.

    A document lies between two of `starts`. Its end begins the next in its row, so behind a piece
    of text that has no end (`ended`) nothing is packed.
    """

    def __init__(
        self,
        starts: NDArray[np.int64],
        ended: NDArray[np.bool_],
        rows: int,
        context: int,
        seed: int,
    ) -> None:
        self.rows, self.context, self.seed = rows, context, seed
        bounds = zip(starts[:-1].tolist(), starts[1:].tolist(), ended.tolist(), strict=True)
        pieces: list[tuple[int, int]] = []
        alone: list[tuple[int, int]] = []
        for begin, end, whole in bounds:
            for place in range(begin, end, context):
                piece = place, min(context, end - place)
                (pieces if whole else alone).append(piece)
        self.packs = [*pack(pieces, context), *([piece] for piece in alone)]
        self.batches = max(1, len(self.packs) // rows)

    def epoch(self, number: int) -> list[list[list[tuple[int, int]]]]:
        order = np.random.default_rng((self.seed, number)).permutation(len(self.packs))
        order = np.resize(order, self.batches * self.rows)
        return [[self.packs[i] for i in batch] for batch in order.reshape(self.batches, self.rows)]

    def largest(self) -> list[list[tuple[int, int]]]:
        return [self.packs[0]] * self.rows


def pack(pieces: list[tuple[int, int]], room: int) -> list[list[tuple[int, int]]]:
    """Pieces into rows of `room`, the longest first, each where it fits best."""
    open_rows: dict[int, list[int]] = {}  # room left -> rows
    packs: list[list[tuple[int, int]]] = []
    for piece in sorted(pieces, key=lambda p: (-p[1], p[0])):
        left = next((r for r in range(piece[1], room + 1) if open_rows.get(r)), None)
        if left is None:
            packs.append([piece])
            left, row = room, len(packs) - 1
        else:
            row = open_rows[left].pop()
            packs[row].append(piece)
        if left > piece[1]:
            open_rows.setdefault(left - piece[1], []).append(row)
    return packs


def check_size(size: int, where: str) -> None:
    if size < 2:
        raise DataError(
            f"{where}: there must be at least two tokens of text, but there "
            f"{'is one' if size else 'are none'}; nothing can be predicted from that."
        )


class Pieces(Plan[list[tuple[int, int]]]):
    """Pieces of one length out of each text, so that no row holds two; shuffled in every epoch."""

    def __init__(self, starts: Any, length: int, rows: int, seed: int) -> None:
        self.seed, self.length = seed, length
        texts = [(int(a), int(b)) for a, b in pairwise(starts)]
        self.pieces = [
            (begin, min(begin + length, end))
            for first, end in texts
            for begin in range(first, end, length)
            if min(begin + length, end) - begin > 3  # of which something can be left out
        ]
        if not self.pieces:
            raise DataError("the training data hold no text of four tokens or more.")
        self.rows = min(rows, len(self.pieces))
        self.batches = len(self.pieces) // self.rows

    def epoch(self, number: int) -> list[list[tuple[int, int]]]:
        order = np.random.default_rng((self.seed, number)).permutation(len(self.pieces))
        order = order[: self.batches * self.rows].reshape(self.batches, self.rows)
        return [[self.pieces[i] for i in rows] for rows in order]

    def largest(self) -> list[tuple[int, int]]:
        return [max(self.pieces, key=lambda piece: piece[1] - piece[0])] * self.rows
