"""What tasks of understanding share: texts framed by specials, in batches of about one length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ..batch import Asked, Batch, Ids, Nothing, Sizes, pad
from ..data.examples import Examples
from ..data.order import Rows, longest_first
from ..data.store import Field as StoreField
from ..data.store import Store, ids_below
from ..errors import InputError
from ..model import Encodes, Model, answers_of
from ..progress import counted
from ..score.bertscore import Read
from ..text import Text
from .task import Axis, P, R, S, Sections
from .vocabulary import OneVocabulary


class TokenRow(NamedTuple):
    """A row of ids with its specials, and where its second text begins."""

    ids: list[int]
    split: int
    left_out: int = 0  # tokens that there was no room for


class TextTask(OneVocabulary[S, R, P]):
    """One text or two in a row, each row by itself; a task says what is asked of them."""

    unit: str = "text"
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "text": {"kind": "wordpiece", "lowercase": True},
        "train": {"smoothing": 0.0, "evaluate_examples": 100_000},
    }

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.text.tokenizer.to_str(), repr(self.settings))

    @property
    def ids_field(self) -> StoreField:
        return ids_below(self.text.size)

    def sizes_for(self, asked: type[Asked], classes: int = 0) -> Sizes:
        return Sizes(self.text.size, self.text.size, True, classes, Ids, asked)

    def frame(self, one: Sequence[int], two: Sequence[int] | None, room: int) -> TokenRow:
        """Specials around a text or a pair; of a pair too long, the longer is cut first.

        `[CLS] one [SEP]` or `[CLS] one [SEP] two [SEP]`; the second segment begins after the first
        separator.
        """
        f = self.text.frame
        if two is None:
            kept = one[: room - len(f.first) - len(f.last)]
            ids = [*f.first, *kept, *f.last] or [self.text.eos]  # nothing at all cannot be read
            return TokenRow(ids, len(ids), len(one) - len(kept))
        left = room - len(f.first) - len(f.between) - len(f.end)
        short = min(len(one), len(two), left // 2)
        keep = (short, left - short) if len(one) <= len(two) else (left - short, short)
        ids = [*f.first, *one[: keep[0]], *f.between]
        left_out = max(0, len(one) - keep[0]) + max(0, len(two) - keep[1])
        return TokenRow([*ids, *two[: keep[1]], *f.end], len(ids), left_out)

    def rows_as_ids(self, framed: Sequence[TokenRow]) -> Ids:
        ids = pad([row.ids for row in framed])
        lengths = torch.tensor([len(row.ids) for row in framed])
        splits = torch.tensor([row.split for row in framed])
        return Ids(ids, lengths, segments(ids.shape[1], splits, lengths))

    @torch.inference_mode()
    def read_tokens(self, model: Model, lines: Sequence[str], budget: int) -> list[Read]:
        """A vector for each token of each line, and which tokens are the line's own."""
        if not isinstance(model, Encodes):
            raise InputError("only an encoder has a vector for each token, but this run is none.")
        frame, device = self.text.frame, next(model.parameters()).device
        specials = torch.tensor([*frame.first, *frame.last], dtype=torch.long)
        room = vars(self.settings)["context"]
        framed = [self.frame(ids, None, room) for ids in self.text.encode(list(lines))]
        found: dict[int, Read] = {}
        for rows in longest_first(np.array([len(row.ids) for row in framed]), budget):
            read = self.rows_as_ids([framed[row] for row in rows.tolist()])
            vectors, _ = model.encode(Batch(read, Nothing()).to(device).read)
            for row, own in zip(rows.tolist(), vectors.float().cpu(), strict=True):
                ids = torch.tensor(framed[row].ids)
                found[row] = Read(own[: len(ids)], ~torch.isin(ids, specials))
        return [found[row] for row in range(len(framed))]

    @classmethod
    def adopt_from(
        cls, settings: S, sections: Sections, origin: Path, examples: Examples[R]
    ) -> Self:
        return cls.adopt(settings, Text.load(origin / "tokenizer.json"), examples)

    @classmethod
    def adopt(cls, settings: S, text: Text, examples: Examples[R]) -> Self:
        """With a vocabulary that is there already; what is asked is learned."""
        raise NotImplementedError

    # Batches.

    def stored(self, store: Store, rows: Rows) -> Ids:
        """Rows of a store that were framed when they were written."""
        ids, lengths = (torch.from_numpy(x) for x in store.padded("ids", rows, [], []))
        splits = torch.from_numpy(store.first("split", rows).astype(np.int64))
        return Ids(ids, lengths, segments(ids.shape[1], splits, lengths))

    # Answers.

    def scores(self, model: Model, framed: Sequence[TokenRow], budget: int) -> list[Tensor]:
        """The model's scores of each row, in order, made in batches of about one length."""
        lengths = np.array([len(row.ids) for row in framed], np.int32)
        found: dict[int, Tensor] = {}
        for rows in counted(longest_first(lengths, budget), "answering", len(lengths), len):
            batch = Batch(self.rows_as_ids([framed[i] for i in rows.tolist()]), Nothing())
            found.update(zip(rows.tolist(), answers_of(model, batch), strict=True))
        return [found[i] for i in range(len(framed))]

    def stored_scores(self, model: Model, store: Store, count: int, budget: int) -> list[Tensor]:
        """The same of the first rows of a store."""
        lengths = store.lengths("ids")[:count]
        found: dict[int, Tensor] = {}
        for rows in counted(longest_first(lengths, budget), "answering", len(lengths), len):
            batch = Batch(self.stored(store, rows), Nothing())
            found.update(zip(rows.tolist(), answers_of(model, batch), strict=True))
        return [found[i] for i in range(len(lengths))]

    def trace(self, given: object, target: str) -> tuple[Batch[Ids, Any], dict[str, Axis]]:
        """One input as a batch, and the tokens that its rows and columns are."""
        framed = self.framed_input(given)
        names = [name.replace("Ġ", "▁") for name in self.text.tokens(framed.ids)]
        batch = Batch(self.rows_as_ids([framed]), Nothing())
        return batch, {"inputs": Axis(names), "outputs": Axis(names)}

    def framed_input(self, given: Any, number: int = 1) -> TokenRow:
        """An input as a row of ids."""
        raise NotImplementedError


def segments(width: int, splits: Tensor, lengths: Tensor) -> Tensor:
    """1 from the split to the end of each row.  (B,), (B,) -> (B, T)"""
    places = torch.arange(width)
    return ((places >= splits[:, None]) & (places < lengths[:, None])).long()


def windows(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Pieces of `room` that cover a length, each `stride` on from the one before.

    Of 10 with room 6 and stride 3: 0–6, 3–9, 6–10.
    """
    if length <= room:
        return [(0, length)]
    starts = range(0, length - room + stride, stride)
    return [(start, min(start + room, length)) for start in starts]
