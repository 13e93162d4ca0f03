"""What tasks of understanding share: texts framed by specials, in batches of about one length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Sizes, Texts, pad
from ..data.cut import Plan
from ..data.order import Order
from ..data.read import is_text
from ..data.store import Store
from ..errors import InputError
from ..text import Text

CHUNK = 1000  # examples tokenised or answered at a time
Rows = NDArray[np.integer[Any]]
Item = TypeVar("Item")


class TokenRow:
    """A row of ids with its specials, and where its second text begins."""

    def __init__(self, ids: list[int], split: int) -> None:
        self.ids, self.split = ids, split

    def __len__(self) -> int:
        return len(self.ids)


class TextTask:
    """One text or two in a row, each row by itself; a task says what is asked of them."""

    looks_at_answer = False
    unit = "text"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "text": {"kind": "wordpiece", "lowercase": True},
        "train": {"smoothing": 0.0, "evaluate_examples": 100_000},
    }
    text: Text

    def save(self, folder: Path) -> None:
        self.text.save(folder / "tokenizer.json")

    def sizes_for(self, asked: Any, classes: int = 0) -> Sizes:
        return Sizes(self.text.size, self.text.size, True, asked, classes)

    def frame(self, one: Sequence[int], two: Sequence[int] | None, room: int) -> TokenRow:
        """Specials around a text or a pair; of a pair too long, the longer is cut first.

        `[CLS] one [SEP]` or `[CLS] one [SEP] two [SEP]`; the second segment begins after the first
        separator.
        """
        f = self.text.frame
        if two is None:
            kept = one[: room - len(f.first) - len(f.last)]
            ids = [*f.first, *kept, *f.last] or [self.text.eos]  # nothing at all cannot be read
            return TokenRow(ids, len(ids))
        left = room - len(f.first) - len(f.between) - len(f.end)
        short = min(len(one), len(two), left // 2)
        keep = (short, left - short) if len(one) <= len(two) else (left - short, short)
        ids = [*f.first, *one[: keep[0]], *f.between]
        return TokenRow([*ids, *two[: keep[1]], *f.end], len(ids))

    def texts(self, framed: Sequence[TokenRow]) -> tuple[Tensor, Tensor, Tensor]:
        """Rows as ids, lengths and segments."""
        ids = pad([row.ids for row in framed])
        lengths = torch.tensor([len(row) for row in framed])
        splits = torch.tensor([row.split for row in framed])
        return ids, lengths, segments(ids.shape[1], splits, lengths)

    # Batches.

    def plan(self, store: Store, budget: int, seed: int) -> Plan:
        """Which rows make up which batch."""
        return Order(store.lengths("ids")[:, None], budget, seed)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Any]:
        """Every row once, the longest first."""
        lengths = store.lengths("ids")
        rows = np.argsort(lengths, kind="stable")
        while len(rows):
            count = max(1, budget // max(1, int(lengths[rows[-1]])))
            yield self.batch(store, rows[-count:])
            rows = rows[:-count]

    def batch(self, store: Store, rows: Rows, rng: np.random.Generator | None = None) -> Any:
        raise NotImplementedError

    def stored(self, store: Store, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of a store as ids, lengths and segments."""
        ids, lengths = (torch.from_numpy(x) for x in store.padded("ids", rows, [], []))
        splits = torch.from_numpy(store.padded("split", rows, [], [])[0][:, 0])
        return ids, lengths, segments(ids.shape[1], splits, lengths)

    # Answers.

    def each(
        self,
        model: torch.nn.Module,
        framed: Sequence[TokenRow],
        answer: Callable[[Tensor, int], Item],
        budget: int,
    ) -> list[Item]:
        """The model's scores of each row, in order, made in batches of about one length."""
        device = next(model.parameters()).device
        order = sorted(range(len(framed)), key=lambda i: len(framed[i]))
        found: dict[int, Item] = {}
        while order:
            count = max(1, budget // len(framed[order[-1]]))
            some, order = order[-count:], order[:-count]
            with torch.inference_mode():
                batch = Texts(*self.texts([framed[i] for i in some]))
                scores = model(self.asking(batch).to(device)).float().cpu()
            for place, i in enumerate(some):
                found[i] = answer(scores[place], i)
        return [found[i] for i in range(len(framed))]

    def asking(self, batch: Texts) -> Texts:
        """The same texts as the kind of batch that this task makes."""
        return batch

    def trace(self, source: str, target: str) -> tuple[Texts, dict[str, list[str]]]:
        """One input as a batch, and the tokens that its rows and columns are."""
        framed = self.framed_input(source)
        names = [name.replace("Ġ", "▁") for name in self.text.tokens(framed.ids)]
        batch = self.asking(Texts(*self.texts([framed])))
        return batch, {"inputs": names, "outputs": names}

    def framed_input(self, line: str, number: int = 1) -> TokenRow:
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


def two_texts(line: str, number: int, pair: bool, names: str) -> tuple[str, str | None]:
    """A typed input: one text, or two with a tab between."""
    if not is_text(line):
        raise InputError(f"input {number}: the text must be UTF-8, but is not.")
    one, tab, two = line.partition("\t")
    if pair and not tab:
        raise InputError(
            f"input {number}: there must be {names} with a tab between, but there is no tab."
        )
    if not pair and tab:
        raise InputError(f"input {number}: there must be one text, but a tab divides it in two.")
    return one, two if pair else None
