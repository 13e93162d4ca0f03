"""Spans: pieces of a text are left out, and are to be told."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt

from ..batch import Pairs
from ..data.cut import Plan
from ..data.read import Faults
from ..data.store import Store, cached
from ..decode import Settings as Decode
from ..errors import DataError
from ..text import Settings as TextSettings
from ..text import Text, learn
from .masked import WHERE, Documents, documents_of
from .text_to_text import SENTINELS, TextToText


@dataclass(frozen=True)
class SpansSettings:
    """How much is left out; the defaults are T5's."""

    context: Annotated[int, Gt(8), Le(2**20), "tokens that the encoder reads of a row"] = 512
    documents: Annotated[Documents, WHERE] = "blank"
    hidden: Annotated[float, Gt(0), Lt(1), "the part of a text that is left out"] = 0.15
    span: Annotated[float, Ge(1), "tokens that are left out in one place, in the mean"] = 3.0


SENTINEL = re.compile(r"(<extra_id_\d\d?>)")


class Pieces(Plan):
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


class Spans(TextToText):
    """T5's pre-training (Raffel et al. 2020, section 3.1.4): sentinels stand for what is left out.

    `Thank you <0> me to your party <1> week .` is read, `<0> for inviting <1> last <2>` is written.
    """

    Settings = SpansSettings
    recuts = False
    metric, higher_is_better = "perplexity", False
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "train": {"smoothing": 0.0},
        "decode": {"kind": "greedy"},
    }

    def __init__(
        self, settings: Any, text: Text, target: Text | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__(settings, text, target, dropout)
        ids = [text.tokenizer.token_to_id(name) for name in SENTINELS]
        if any(i is None for i in ids):
            raise DataError(f"the vocabulary must have {SENTINELS[0]} to {SENTINELS[-1]}.")
        self.sentinels: list[int] = [i for i in ids if i is not None]

    @classmethod
    def learn(
        cls, settings: Any, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> Spans:
        return cls(settings, learn(documents_of(files, settings, faults), text, SENTINELS))

    # Batches.

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' texts as ids, from the cache where their content has not changed."""
        marks = ("spans", self.text.tokenizer.to_str(), self.settings.documents)
        documents = documents_of(files, self.settings, faults)
        rows = ({"text": self.text.encode([document])} for document in documents)
        return cached(cache, files, marks, rows, self.text.size, faults, "a text")

    def plan(self, store: Store, budget: int, seed: int) -> Plan:
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
    ) -> Iterator[Pairs]:
        """Every piece once, always the same left out, however many are read at a time."""
        rows, flat = max(1, budget // self.settings.context), store.flat("text")
        pieces = Pieces(store.starts("text"), self.length, rows, 0).pieces
        for first in range(0, len(pieces), rows):
            both = [
                self.corrupt(flat[a:b].tolist(), np.random.default_rng(a))
                for a, b in pieces[first : first + rows]
            ]
            yield self.pairs([source for source, _ in both], [target for _, target in both])

    def batch(self, store: Store, rows: Any, rng: np.random.Generator | None = None) -> Pairs:
        rng = rng or np.random.default_rng(0)
        flat = store.flat("text")
        both = [self.corrupt(flat[a:b].tolist(), rng) for a, b in rows]
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
    def sample_batch(settings: Any, budget: int) -> Pairs:
        """A batch of the usual shape, to reckon with."""
        rows = max(1, budget // settings.context)
        source = torch.zeros(rows, settings.context, dtype=torch.long)
        width = max(4, round(settings.context * settings.hidden * (1 + 1 / settings.span)))
        target = torch.zeros(rows, width + 1, dtype=torch.long)
        return Pairs(
            source, torch.full((rows,), settings.context), target, torch.full((rows,), width)
        )

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

    def quick_scores(
        self, model: Any, files: Sequence[Path], decode: Decode, faults: Faults, count: int
    ) -> dict[str, Any]:
        """The loss says it."""
        return {}

    def evaluate(
        self,
        model: Any,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """How likely what was left out is found."""
        return {
            "perplexity": round(math.exp(min(nll / tokens, 700.0)), 4),
            "perplexity_unit": "token of what was left out, sentinels counted",
            "loss": round(nll / tokens, 5),
            "examples": sum(1 for _ in documents_of(files, self.settings, faults)),
        }

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        for document in documents_of(files, self.settings, Faults(skip=True)):
            words = document.split()[:12]
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
