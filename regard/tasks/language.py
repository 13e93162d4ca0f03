"""Language: a text in, how it goes on out; and how likely a text is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt

from ..batch import Batch, Running, Sizes, Tensors, Tokens
from ..data import running
from ..data.cut import Cut, Packed, Packs, Plan, Stream, Windows, check_size
from ..data.examples import Data, Examples
from ..data.read import Faults, parcels
from ..data.store import Chunk, Column, Field, Store, ids_below
from ..decode import Settings as Decode
from ..errors import DataError, InputError
from ..model import Model
from ..text import PAD, Text, learn
from ..text import Settings as TextSettings
from ..text.chat import Chat, ChatFormat
from .task import Axis, Measured, Rng, Scores, Sections
from .writer import ContinuationTask, load_text

STREAMS = 10  # strips that validation data are read in while training; a final score reads one


@dataclass(frozen=True)
class LanguageSettings:
    """How running text is cut, and how much of it a model sees."""

    cut: Annotated[
        Literal["windows", "stream", "documents"],
        "windows: from anywhere; stream: in order, the state carried on; documents: packed, apart",
    ] = "windows"
    context: Annotated[int, Gt(0), Le(2**20), "tokens that a row of a batch has"] = 256
    lines: Annotated[bool, "every line is a text of its own and has an end (PTB, WikiText)"] = False
    vary: Annotated[float, Ge(0), Lt(1), "stream: how much a batch's length varies, as a part"] = (
        0.0
    )
    stride: Annotated[
        int, Ge(0), "scoring windows: tokens that each adds to those before; 0: context, no overlap"
    ] = 0


class Language(ContinuationTask[LanguageSettings, running.Piece, Cut | Packs]):
    """One stream of tokens; scored by perplexity; answers with how a text goes on."""

    Settings: ClassVar[type] = LanguageSettings
    Example: ClassVar[type] = running.Piece
    loss = "tokens"
    metric, higher_is_better = "perplexity", False
    unit = "token"
    encodes_apart = True
    wanted = "text"
    asks: ClassVar[type[Tensors]] = Running  # what a model must be able to read
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0},
        "decode": {"kind": "sample"},
    }

    def __init__(
        self,
        settings: LanguageSettings,
        text: Text,
        kind: str = "",
        chat_format: ChatFormat | None = None,
    ) -> None:
        self.settings, self.text, self.kind = settings, text, kind
        self.chat = None if chat_format is None else Chat(chat_format, text)
        self.lines = settings.lines
        self.begins = settings.lines or settings.cut == "documents"

    # The vocabulary: learned from the training files, kept in the run folder.

    @staticmethod
    def read(
        settings: LanguageSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[running.Piece]:
        return running.pieces(files, settings.lines, faults)

    @classmethod
    def columns(cls, settings: LanguageSettings) -> tuple[str, ...]:
        return ("text",)

    @staticmethod
    def reads_by(settings: LanguageSettings) -> str:
        return str(settings.lines)

    @classmethod
    def learn(
        cls, settings: LanguageSettings, sections: Sections, examples: Examples[running.Piece]
    ) -> Self:
        text = learn((piece.text for piece in examples), sections["text"])
        return cls(settings, text, unit_of(sections["text"]))

    @classmethod
    def load(cls, settings: LanguageSettings, sections: Sections, folder: Path) -> Self:
        text, chat_format = load_text(folder)
        return cls(settings, text, unit_of(sections["text"]), chat_format)

    @classmethod
    def imported(
        cls,
        settings: LanguageSettings,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, Any],
    ) -> Self:
        return cls(settings, texts[0], chat_format=config.get("chat"))

    @property
    def sizes(self) -> Sizes:
        size = self.text.size
        return Sizes(size, size, True, read=self.asks, asked=Tokens)

    # Batches: tokenised once into a store, then cut out of it.

    def amount(self, store: Store) -> str:
        return running.amount(store)

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"text": ids_below(self.text.size)}

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.text.tokenizer.to_str(),)

    def encode(
        self, examples: Examples[running.Piece], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        for pieces in parcels(examples, lambda piece: len(piece.text), 1000):
            rows = self.text.encode([piece.text for piece in pieces])
            yield {
                "text": [
                    [*row, self.text.eos] if piece.ends else row
                    for row, piece in zip(rows, pieces, strict=True)
                ]
            }

    def check(self, store: Store, where: str) -> None:
        check_size(len(store.flat("text")), where)

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Cut | Packs]:
        """Which rows make up which batch."""
        s, size = self.settings, len(store.flat("text"))
        rows = budget // s.context
        if rows < 1:
            raise DataError(
                f"train.batch_tokens ({budget}) must be at least task.context ({s.context})."
            )
        if s.cut == "documents":
            return self._pack(store, rows, seed)
        if s.cut == "stream":
            return Stream(size, rows, s.context, seed, s.vary)
        return Windows(size, rows, s.context, seed)

    def _pack(self, store: Store, rows: int, seed: int) -> Packed:
        starts, flat = np.asarray(store.starts("text")), store.flat("text")
        starts = starts[np.diff(starts, prepend=-1) > 0]  # an empty piece is none
        ended = flat[starts[1:] - 1] == self.text.eos
        return Packed(starts, ended, rows, self.settings.context, seed)

    def batch(self, store: Store, rows: Cut | Packs, rng: Rng | None = None) -> Batch[Any, Tokens]:
        flat = store.flat("text")
        if not isinstance(rows, Cut):
            return self._packed(flat, rows)
        places = rows.starts[:, None] + np.arange(rows.length + 1)  # (B, T + 1)
        label_range = torch.tensor([[0, rows.length]] * len(places)).view(len(places), 2)
        ids = torch.from_numpy(flat[places].astype(np.int64))
        # A gradient from fewer steps back is worth less (Merity et al. 2018, section 5).
        scale = rows.length / self.settings.context if self.settings.vary else 1.0
        read, asked = Running(ids[:, :-1]), Tokens(ids[:, 1:], label_range)
        return Batch(read, asked, continues=rows.continues, rate_scale=scale)

    def _packed(
        self, flat: Column, rows: Sequence[Sequence[tuple[int, int]]]
    ) -> Batch[Running, Tokens]:
        """Documents side by side: each is read behind an end, and predicted to its own.

        A piece of n tokens is n inputs (an end, then all but the last) and n labels; so that ids
        can be shifted by one, the label of a piece's last input is the next one's first token's
        place: `eos` stands there, which is what begins the next piece.
        """
        width = self.settings.context
        ids = np.full((len(rows), width + 1), PAD, np.int64)
        numbers = np.zeros((len(rows), width), np.int64)
        label_range = torch.zeros(len(rows), 2, dtype=torch.long)
        for row, pieces in enumerate(rows):
            place = 0
            ids[row, 0] = self.text.eos
            for number, (start, length) in enumerate(pieces, 1):
                ids[row, place + 1 : place + 1 + length] = flat[start : start + length]
                numbers[row, place : place + length] = number
                place += length
            label_range[row, 1] = place
        whole = torch.from_numpy(ids)
        read = Running(whole[:, :-1], torch.from_numpy(numbers))
        return Batch(read, Tokens(whole[:, 1:], label_range))

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Any, Tokens]]:
        """The whole text in order, each token predicted once, but for the very first."""
        s, size = self.settings, len(store.flat("text"))
        rows = max(1, budget // s.context)
        if s.cut == "documents":
            packs = self._pack(store, 1, 0).packs
            for start in range(0, len(packs), rows):
                yield self.batch(store, packs[start : start + rows])
            return
        if s.cut == "stream":
            strips = self._strips(size, budget, thorough)
            for cut in strips.epoch(0):
                yield self.batch(store, cut)
            # What the strips leave over, so that every token counts.
            over = strips.rows * strips.strip
            if over < size - 1:
                yield self.batch(store, Cut(np.array([over]), size - 1 - over))
            return
        starts, context = self._windows(size)
        ends = [0, *(start + context for start in starts)]
        for first in range(0, len(starts), rows):
            some = starts[first : first + rows]
            batch = self.batch(store, Cut(np.array(some, np.int64), context))
            # A window counts from where the one before it ended.
            new = [max(0, ends[first + i] - start) for i, start in enumerate(some)]
            new_range = torch.tensor([[n, context] for n in new])
            yield replace(batch, asked=replace(batch.asked, label_range=new_range))

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        s, size = self.settings, len(store.flat("text"))
        if s.cut == "documents":
            return None
        if s.cut == "stream":
            strips = self._strips(size, budget, thorough)
            return strips.rows * -(-strips.strip // s.context)
        return len(self._windows(size)[0])

    def _strips(self, size: int, budget: int, thorough: bool) -> Stream:
        rows = max(1, budget // self.settings.context)
        return Stream(size, 1 if thorough else min(rows, STREAMS), self.settings.context, 0)

    def _windows(self, size: int) -> tuple[list[int], int]:
        """Where windows begin, and how long they are."""
        s = self.settings
        context, stride = min(s.context, size - 1), min(s.stride or s.context, s.context)
        return [*range(0, size - 1 - context, stride), size - 1 - context], context

    @staticmethod
    def sample_batch(
        settings: LanguageSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Any, Tokens]:
        rows = max(1, budget // settings.context)
        ids = torch.zeros(rows, settings.context, dtype=torch.long)
        return Batch(Running(ids), Tokens(ids, torch.tensor([[0, settings.context]] * rows)))

    def trace(self, given: str, target: str) -> tuple[Batch[Any, Tokens], dict[str, Axis]]:
        """A text and how it goes on as a batch, and the tokens that its rows and columns are."""
        ids = self.ids(given + target)
        if len(ids) < 2:
            raise InputError("input: there must be two tokens to look at, but there are fewer.")
        tokens = [name.replace("Ġ", "▁").replace("Ċ", "⏎") for name in self.text.tokens(ids)]
        labels = torch.tensor([[*ids[1:], self.text.eos]])
        asked = Tokens(labels, torch.tensor([[0, len(ids)]]))
        sides = {"inputs": Axis(tokens), "outputs": Axis([*tokens[1:], "…"])}
        return Batch(Running(torch.tensor([ids])), asked), sides

    # Scores.

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """The text's -log p, `nll` in all, in the usual units, each told which it is."""
        nll, tokens = loss
        size, words, ends, texts = 0, 0, 0, 0
        for piece in data.examples:
            size += len(piece.text.encode("utf-8")) + (piece.last and self.settings.lines)
            words += len(piece.text.split())
            ends += piece.last and self.settings.lines
            texts += piece.last
        s = self.settings
        # What is unknown is cheap, so that a smaller vocabulary would seem the better one.
        whole = self.kind in ("words", "spaced", "characters")
        unknown = f", vocabulary of {self.text.size}" if whole else ""
        context = {
            "stream": "whole set in order, state carried"
            if model.carries
            else f"whole set in order, pieces of {s.context}, nothing carried",
            "windows": f"windows of {s.context}, each adding {s.stride or s.context}",
            "documents": f"each text by itself, at most {s.context} tokens",
        }
        return {
            "loss": round(nll / tokens, 5),
            "loss_unit": f"nats a token ({self.kind or 'of text.vocabulary'})",
            "perplexity": round(math.exp(min(nll / tokens, 700.0)), 4),
            "perplexity_unit": f"token ({self.kind or 'of text.vocabulary'}), {context[s.cut]}",
            "word_perplexity": round(math.exp(min(nll / max(words + ends, 1), 700.0)), 4),
            "word_perplexity_unit": "word between spaces"
            + (", line ends counted" if ends else "")
            + unknown,
            "bits_per_byte": round(nll / math.log(2) / max(size, 1), 5),
            "bits_per_byte_unit": "byte of the file's text"
            + (" with line ends" if ends else "")
            + unknown,
            "headline": "word_perplexity" if self.kind in ("words", "spaced") else "bits_per_byte",
            "tokens": tokens,
            "words": words + ends,
            "bytes": size,
            "examples": texts,
            "scored": f"{tokens:,} tokens in {texts:,} text{'s' * (texts != 1)}",
        }

    def example(self, examples: Examples[running.Piece], longest: int | None = None) -> str:
        """A prompt: the first words of a line of middling length, as many as can be placed."""
        for piece in examples:
            for line in piece.text.split("\n"):
                words = line.split()[:6]
                while words and longest and len(self.ids(" ".join(words))) > longest:
                    words.pop()
                if len(words) > 1:
                    return " ".join(words)
        return ""


def unit_of(text: TextSettings) -> str:
    """What a token is; of a vocabulary that was brought along, nobody knows."""
    return "" if text.vocabulary else text.kind
