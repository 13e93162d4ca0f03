"""Spans: pieces of a text are left out, and are to be told."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt

from ..batch import Batch, Ids, Words
from ..data import running
from ..data.cut import Pieces, Plan
from ..data.examples import Data, Examples
from ..data.read import Faults
from ..data.running import WHERE, Documents
from ..data.store import Chunk, Field, Store, ids_below
from ..decode import Settings as Decode
from ..errors import DataError
from ..model import Model
from ..text import Text, learn
from .form import Form, TextForm
from .task import Measured, Rng, Scores, Sections
from .text_to_text import SENTINELS
from .writing import WritingTask


@dataclass(frozen=True)
class SpansSettings:
    """How much is left out; the defaults are T5's."""

    context: Annotated[int, Gt(8), Le(2**20), "tokens that the encoder reads of a row"] = 512
    documents: Annotated[Documents, WHERE] = "blank"
    hidden: Annotated[float, Gt(0), Lt(1), "the part of a text that is left out"] = 0.15
    span: Annotated[float, Ge(1), "tokens that are left out in one place, in the mean"] = 3.0


Piece = list[tuple[int, int]]  # from one token, up to another, row by row

SENTINEL = re.compile(r"(<extra_id_\d\d?>)")


class Spans(WritingTask[SpansSettings, running.Document, Piece]):
    """T5's pre-training (Raffel et al. 2020, section 3.1.4): sentinels stand for what is left out.

    `Thank you <0> me to your party <1> week .` is read, `<0> for inviting <1> last <2>` is written.
    """

    Settings = SpansSettings
    Example = running.Document
    metric, higher_is_better = "perplexity", False
    wanted = "a text"
    encodes_apart = True
    keeps = ("tokenizer.json",)
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0},
        "decode": {"kind": "greedy"},
    }

    def __init__(
        self,
        settings: SpansSettings,
        text: Text,
        target: Text | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(settings, text, target or text, dropout)
        self.text = text
        ids = [text.tokenizer.token_to_id(name) for name in SENTINELS]
        if any(i is None for i in ids):
            raise DataError(f"the vocabulary must have {SENTINELS[0]} to {SENTINELS[-1]}.")
        self.sentinels: list[int] = [i for i in ids if i is not None]
        self.draws = True

    @property
    def gives(self) -> Form[str]:
        return TextForm("text with <extra_id_0> where something is left out")

    @staticmethod
    def read(
        settings: SpansSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[running.Document]:
        return running.texts(files, settings.documents, faults)

    @classmethod
    def columns(cls, settings: SpansSettings) -> tuple[str, ...]:
        return ("text",)

    @staticmethod
    def reads_by(settings: SpansSettings) -> str:
        return str(settings.documents)

    @classmethod
    def load(cls, settings: SpansSettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, Text.load(folder / "tokenizer.json"))

    @classmethod
    def imported(
        cls,
        settings: SpansSettings,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> Self:
        return cls(settings, texts[0])

    @classmethod
    def learn(
        cls, settings: SpansSettings, sections: Sections, examples: Examples[running.Document]
    ) -> Self:
        texts = (document.text for document in examples)
        return cls(settings, learn(texts, sections["text"], SENTINELS))

    # Batches.

    def amount(self, store: Store) -> str:
        return running.amount(store)

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"text": ids_below(self.text.size)}

    def encode(
        self, examples: Examples[running.Document], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        return ({"text": self.text.encode([document.text])} for document in examples)

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Piece]:
        context = self.settings.context
        if budget < context:
            raise DataError(
                f"train.batch_tokens ({budget}) must be at least task.context ({context})."
            )
        return Pieces(store.starts("text"), self.length, budget // context, seed)

    @property
    def length(self) -> int:
        """Tokens of a text whose rest, with sentinels and an end, fills the context."""
        s = self.settings
        fits = [n for n in range(4, 2 * s.context) if sum(left_out(n, s)[1:]) + 1 <= s.context]
        return fits[-1]

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Ids, Words]]:
        """Every piece once, always the same left out, however many are read at a time."""
        rows = max(1, budget // self.settings.context)
        pieces = Pieces(store.starts("text"), self.length, rows, 0).pieces
        for first in range(0, len(pieces), rows):
            some = pieces[first : first + rows]
            yield self.batch(store, some, [np.random.default_rng(begin) for begin, _ in some])

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        return None

    def batch(self, store: Store, rows: Piece, rng: Rng | None = None) -> Batch[Ids, Words]:
        flat, own = store.flat("text"), rng or [np.random.default_rng(0) for _ in rows]
        both = [
            self.corrupt(flat[a:b].tolist(), draw) for (a, b), draw in zip(rows, own, strict=True)
        ]
        return self.pairs([source for source, _ in both], [target for _, target in both])

    def corrupt(self, ids: list[int], rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """What is read and what is written of a text."""
        hidden, kept, spans = left_out(len(ids), self.settings, len(self.sentinels) - 1)
        sizes = zip(divide(kept, spans, rng), divide(hidden, spans, rng), strict=True)
        source: list[int] = []
        target: list[int] = []
        place = 0
        for number, (stays, goes) in enumerate(sizes):
            mark = self.sentinels[number]
            source += [*ids[place : place + stays], mark]
            place += stays
            target += [mark, *ids[place : place + goes]]
            place += goes
        return source, [*target, self.sentinels[spans]]

    @staticmethod
    def sample_batch(
        settings: SpansSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Ids, Words]:
        rows = max(1, budget // settings.context)
        source = torch.zeros(rows, settings.context, dtype=torch.long)
        width = max(4, round(settings.context * settings.hidden * (1 + 1 / settings.span)))
        target = torch.zeros(rows, width + 1, dtype=torch.long)
        read = Ids(source, torch.full((rows,), settings.context))
        return Batch(read, Words(target, torch.full((rows,), width)))

    def read_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Sentinels may be typed by their names."""
        found = []
        for line in lines:
            ids: list[int] = []
            for piece in SENTINEL.split(line):
                if piece in SENTINELS:
                    ids.append(self.sentinels[SENTINELS.index(piece)])
                elif piece.strip():
                    ids += self.source.encode([piece.strip()])[0]
            found.append(ids)
        return found

    # Scores.

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        """The loss says it."""
        return {}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """How likely what was left out is found."""
        mean = loss.nll / loss.tokens
        return {
            "perplexity": round(math.exp(min(mean, 700.0)), 4),
            "perplexity_unit": "token of what was left out, sentinels counted",
            "loss": round(mean, 5),
            "examples": len(data.examples),
            "scored": f"{loss.tokens:,} tokens that were left out",
        }

    def example(self, examples: Examples[running.Document], longest: int | None = None) -> str:
        for document in examples:
            words = document.text.split()[:12]
            if len(words) >= 6:
                middle = len(words) // 2
                return " ".join([*words[:middle], SENTINELS[0], *words[middle + 2 :]])
        return ""


def left_out(length: int, settings: SpansSettings, most: int = 99) -> tuple[int, int, int]:
    """Of a text's tokens: how many are left out, how many stay, and in how many places."""
    hidden = min(max(1, round(length * settings.hidden)), length - 1)
    spans = min(max(1, round(hidden / settings.span)), hidden, length - hidden, most)
    return hidden, length - hidden, spans


def divide(count: int, parts: int, rng: np.random.Generator) -> list[int]:
    """A number as a sum of so many, none of them nothing, each way as likely."""
    cuts = np.sort(rng.choice(count - 1, parts - 1, replace=False)) + 1
    sizes: list[int] = np.diff(np.concatenate(([0], cuts, [count]))).astype(int).tolist()
    return sizes
