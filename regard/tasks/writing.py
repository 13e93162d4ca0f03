"""What all tasks that read one text and write another share: vocabularies, searches, answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Batch, Ids, Sizes, Words, pad
from ..data.cut import Plan
from ..data.examples import Data
from ..data.order import Order, Rows, longest_first
from ..data.store import Field, Store, ids_below
from ..decode import Hypothesis, Limits, with_cuda_graphs, write
from ..decode import Settings as Decode
from ..errors import InputError
from ..model import Model
from ..text import Settings as TextSettings
from ..text import Text
from ..text.dropout import Dropout
from .growing import cut_at
from .prediction import Prediction
from .task import Axis, P, R, Rng, S, Sections, Task

GREEDY: dict[str, Any] = {
    "kind": "greedy",
    "num_return_sequences": 1,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
}


class WritingTask(Task[S, R, P]):
    """A text in, a text out; a task says where both come from."""

    sections: ClassVar[Mapping[str, type]] = {"text": TextSettings}
    loss = "tokens"
    unit: str = "target token"
    looks_at_answer = True

    def __init__(self, settings: S, source: Text, target: Text, dropout: float = 0.0) -> None:
        self.settings, self.source, self.target = settings, source, target
        # Two ways of cutting text may still number the same pieces alike.
        self.shared = (
            source is target or source.tokenizer.get_vocab() == target.tokenizer.get_vocab()
        )
        self.dropouts = (Dropout(source, dropout), Dropout(target, dropout)) if dropout else None
        self.draws = dropout > 0  # words are cut anew in every batch

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.source.size, self.target.size, self.shared, read=Ids, asked=Words)

    @classmethod
    def imported(
        cls, settings: S, texts: Sequence[Text], labels: list[str], config: Mapping[str, Any]
    ) -> Self:
        return cls(settings, texts[0], texts[-1])

    @property
    def texts(self) -> Mapping[str, Text]:
        if self.source is self.target:
            return {"tokenizer.json": self.source}
        return {"source.json": self.source, "target.json": self.target}

    @property
    def notes(self) -> list[str]:
        return [text.note for text in self.texts.values() if text.note]

    def artefacts(self) -> Mapping[str, str]:
        return {name: text.tokenizer.to_str(pretty=True) for name, text in self.texts.items()}

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(text.tokenizer.to_str() for text in (self.source, self.target))

    # Batches.

    def pairs(
        self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]
    ) -> Batch[Ids, Words]:
        """Lists of ids as a batch."""
        source = [[*ids, self.source.eos] for ids in source]
        target = [[self.target.bos, *ids, self.target.eos] for ids in target]
        read = Ids(pad(source), torch.tensor([len(ids) for ids in source]))
        return Batch(read, Words(pad(target), torch.tensor([len(ids) - 1 for ids in target])))

    # Answers.

    def read_source(self, lines: Sequence[str]) -> list[list[int]]:
        """What a user types as ids, without an end."""
        return self.source.encode(lines)

    def predict(
        self, model: Model, inputs: Sequence[str], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """A translation for each line; an empty line has an empty one."""
        ids = self.checked_source(inputs, longest, first)
        return self.translate(model, inputs, ids, decode)

    def translate(
        self, model: Model, inputs: Sequence[str], ids: Sequence[Sequence[int]], decode: Decode
    ) -> list[Prediction]:
        """The same, of lines that are tokens already."""
        answers: list[Prediction] = [Prediction(line, "", 0.0, seconds=0.0) for line in inputs]
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]))
        while order:
            # The longest first: what runs out of memory does so at once.
            count = max(1, decode.batch_tokens // ((len(ids[order[-1]]) + 1) * decode.rows))
            rows, order = order[-count:], order[:-count]
            began = time.perf_counter()
            batch, limits = self.begin(model, [ids[i] for i in rows], decode)
            found = write(with_cuda_graphs(model, decode), batch, limits, decode)
            seconds = time.perf_counter() - began
            for i, hypotheses in zip(rows, found, strict=True):
                answers[i] = self.answer(inputs[i], ids[i], hypotheses, decode, seconds)
        return answers

    @property
    def written(self) -> Text:
        return self.target

    @property
    def writes_on(self) -> bool:
        return False

    def read_ids(self, given: str, number: int = 1) -> list[int]:
        return self.read_source([given])[0]

    def read_input(
        self, model: Model, given: str, decode: Decode, longest: int, number: int = 1
    ) -> list[int]:
        return self.checked_source([given], longest, number)[0]

    def checked_source(
        self, inputs: Sequence[str], longest: int, first: int = 1
    ) -> list[list[int]]:
        """What a user types as ids, without an end; not too long."""
        ids = self.read_source(inputs)
        for number, row in enumerate(ids, first):
            if len(row) >= longest:
                raise InputError(
                    f"input {number}: a line may have {longest} tokens with its end "
                    f"(data.max_length), "
                    f"but has {len(row) + 1}; split it into sentences."
                )
        return ids

    def begin(
        self, model: Model, rows: Sequence[Sequence[int]], decode: Decode
    ) -> tuple[Batch[Ids, Words], Limits]:
        device = next(model.parameters()).device
        batch = self.pairs(rows, [[] for _ in rows]).to(device)
        lengths = batch.read.lengths
        longest = torch.full_like(lengths, decode.max_new_tokens)
        if decode.max_ratio:
            reach = (lengths * decode.max_ratio).clamp_max(2**40).long() + 10
            longest = longest.minimum(reach)
        if model.longest is not None:
            longest = longest.clamp_max(model.longest)
        text = self.target
        return batch, Limits.begin(text.bos, text.eos, longest, banned=self.never_written)

    @property
    def never_written(self) -> tuple[int, ...]:
        """Entries of the vocabulary that are no text."""
        text = self.target
        return tuple(sorted({text.pad, text.bos, text.unk} - {-1, text.eos}))

    def answer(
        self,
        given: str,
        read: Sequence[int],
        hypotheses: Sequence[Hypothesis],
        decode: Decode,
        seconds: float,
    ) -> Prediction:
        found = self.target.decode([hypothesis.ids for hypothesis in hypotheses])
        texts = [cut_at(text, decode.stop)[0] for text in found]
        return Prediction.written(given, texts, [h.score for h in hypotheses], seconds)

    def trace(self, given: str, target: str) -> tuple[Batch[Ids, Words], dict[str, Axis]]:
        """One pair as a batch, and the tokens that its rows and columns stand for."""
        ids, written = self.read_source([given])[0], self.target.encode([target])[0]
        if not ids:
            raise InputError("input: there must be something to look at, but the line is empty.")
        begin, end = self.target.tokens([self.target.bos, self.target.eos])
        tokens = self.target.tokens(written)
        sides = {
            "source": Axis([*self.source.tokens(ids), *self.source.tokens([self.source.eos])]),
            "inputs": Axis([begin, *tokens]),
            "outputs": Axis([*tokens, end]),
        }
        return self.pairs([ids], [written]), sides


class PairsTask(WritingTask[S, R, Rows]):
    """The same of pairs that are examples, each a row of the store."""

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"source": ids_below(self.source.size), "target": ids_below(self.target.size)}

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Which rows make up which batch."""
        return Order(self.lengths(store), budget, seed)

    def lengths(self, store: Store) -> NDArray[np.int32]:
        """Columns that each row fills on either side, its end counted.  -> (N, 2)"""
        return np.stack((store.lengths("source"), store.lengths("target")), 1) + 1

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Ids, Words]]:
        """Every row once, the longest first."""
        for rows in longest_first(self.lengths(store).max(1), budget):
            yield self.batch(store, rows)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Ids, Words]:
        """Rows of a store as a batch; drawn, words are cut as BPE dropout says."""
        if self.dropouts is not None and rng is not None:
            sides = zip(self.dropouts, ("source", "target"), strict=True)
            return self.pairs(
                *(d.recut([store.row(name, int(r)) for r in rows], rng) for d, name in sides)
            )
        bos, eos = self.target.bos, self.target.eos
        source, source_lengths = store.padded("source", rows, [], [self.source.eos])
        target, target_lengths = store.padded("target", rows, [bos], [eos])
        put = torch.from_numpy
        asked = Words(put(target), put(target_lengths - 1))
        return Batch(Ids(put(source), put(source_lengths)), asked)

    @staticmethod
    def sample_batch(
        settings: S, budget: int, sections: Sections | None = None
    ) -> Batch[Ids, Words]:
        """Lines of 32 tokens."""
        rows = max(1, budget // 32)
        ids, lengths = torch.zeros(rows, 33, dtype=torch.long), torch.full((rows,), 32)
        return Batch(Ids(ids[:, 1:], lengths), Words(ids, lengths))

    def answers(
        self, model: Model, data: Data, decode: Decode, rows: Sequence[int]
    ) -> tuple[list[str], list[str], list[str]]:
        """Some examples' inputs, answers and references."""
        assert len(data.examples) == data.store.rows, "a row must be its example's"
        some = [data.examples[row] for row in rows]
        inputs = [example.source for example in some]
        ids = [data.store.row("source", row) for row in rows]
        answers = self.translate(model, inputs, ids, decode)
        return inputs, [a.output for a in answers], [example.target for example in some]
