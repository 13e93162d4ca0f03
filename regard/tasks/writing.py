"""What all tasks that read one text and write another share: vocabularies, searches, answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Batch, Ids, Sizes, Tensors, Words, pad
from ..data.cut import Plan
from ..data.examples import Data
from ..data.order import Order, Rows, longest_first
from ..data.store import Field, Store, ids_below
from ..decode import Hypothesis, Limits, with_cuda_graphs, write
from ..decode import Settings as Decode
from ..errors import InputError
from ..model import Model
from ..progress import tell
from ..score.bertscore import Read, bertscore
from ..text import Settings as TextSettings
from ..text import Text
from ..text.dropout import Dropout
from .growing import cut_at
from .prediction import Prediction
from .task import Axis, P, R, Rng, S, Scores, Sections, Task

T = TypeVar("T")
GREEDY: dict[str, Any] = {
    "kind": "greedy",
    "num_return_sequences": 1,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
}


def drained(turns: Generator[None, None, T]) -> T:
    """What comes of it, without a pause."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            found: T = end.value
            return found


class WritesTarget(Task[S, R, P]):
    """Something in, a text out; what is read is another's."""

    loss = "tokens"
    unit: str = "target token"
    looks_at_answer = True
    target: Text

    @property
    def written(self) -> Text:
        return self.target

    @property
    def writes_on(self) -> bool:
        return False

    @property
    def never_written(self) -> tuple[int, ...]:
        """Entries of the vocabulary that are no text."""
        text = self.target
        return tuple(sorted({text.pad, text.bos, text.unk} - {-1, text.eos}))

    def words(self, rows: Sequence[Sequence[int]]) -> Words:
        """What is asked: texts, or where they are empty their first word alone."""
        framed = [[self.target.bos, *ids, self.target.eos] for ids in rows]
        return Words(pad(framed), torch.tensor([len(row) - 1 for row in framed]))

    def limits(self, model: Model, longest: Tensor, decode: Decode) -> Limits:
        """How far answers may go that may have so many tokens."""
        longest = longest.clamp_max(decode.max_new_tokens)
        if model.longest is not None:
            longest = longest.clamp_max(model.longest)
        text = self.target
        return Limits.begin(text.bos, text.eos, longest, banned=self.never_written)

    def begin(
        self, model: Model, rows: Sequence[Any], decode: Decode
    ) -> tuple[Batch[Tensors, Words], Limits]:
        """What `start` takes, and how far an answer may go."""
        raise NotImplementedError

    def write(
        self,
        model: Model,
        inputs: Sequence[Any],
        reads: Sequence[Any],
        sizes: Sequence[int],
        decode: Decode,
    ) -> list[Prediction]:
        """An answer to each of what `begin` takes; what has no size has an empty one."""
        return drained(self.write_in_turns(model, inputs, reads, sizes, decode))

    def write_in_turns(
        self,
        model: Model,
        inputs: Sequence[Any],
        reads: Sequence[Any],
        sizes: Sequence[int],
        decode: Decode,
    ) -> Generator[None, None, list[Prediction]]:
        """The same, a batch at a time."""
        show = self.gives.show
        answers = [Prediction(show(given), "", 0.0, seconds=0.0) for given in inputs]
        order = sorted((i for i, size in enumerate(sizes) if size), key=lambda i: sizes[i])
        done, wanted = 0, len(order)
        while order:
            tell("answering", done, wanted)
            # The longest first: what runs out of memory does so at once.
            count = max(1, decode.batch_tokens // ((sizes[order[-1]] + 1) * decode.rows))
            rows, order = order[-count:], order[:-count]
            began = time.perf_counter()
            batch, limits = self.begin(model, [reads[i] for i in rows], decode)
            found = self.search(model, batch, limits, decode)
            seconds = time.perf_counter() - began
            for i, hypotheses in zip(rows, found, strict=True):
                answers[i] = self.answer(inputs[i], reads[i], hypotheses, decode, seconds)
            done += len(rows)
            tell("answering", done, wanted)
            yield
        return answers

    def search(
        self, model: Model, batch: Batch[Any, Words], limits: Limits, decode: Decode
    ) -> list[list[Hypothesis]]:
        """The answers to a batch."""
        return write(with_cuda_graphs(model, decode), batch, limits, decode)

    def answer(
        self,
        given: Any,
        read: object,
        hypotheses: Sequence[Hypothesis],
        decode: Decode,
        seconds: float,
    ) -> Prediction:
        found = self.target.decode([hypothesis.ids for hypothesis in hypotheses])
        texts = [cut_at(text, decode.stop)[0] for text in found]
        scores = [h.score for h in hypotheses]
        return Prediction.written(self.gives.show(given), texts, scores, seconds)

    def written_axes(self, target: str) -> tuple[list[int], dict[str, Axis]]:
        """A text's tokens, and what they stand for where they are read and where they are told."""
        ids = self.target.encode([target])[0]
        begin, end = self.target.tokens([self.target.bos, self.target.eos])
        tokens = self.target.tokens(ids)
        return ids, {"inputs": Axis([begin, *tokens]), "outputs": Axis([*tokens, end])}


class WritingTask(WritesTarget[S, R, P]):
    """A text in, a text out; a task says where both come from."""

    sections: ClassVar[Mapping[str, type]] = {"text": TextSettings}

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
        cls,
        settings: S,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, Any],
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
        read = Ids(pad(source), torch.tensor([len(ids) for ids in source]))
        return Batch(read, self.words(target))

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
        return self.write(model, inputs, ids, [len(row) for row in ids], decode)

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
        return batch, self.limits(model, longest, decode)

    def trace(self, given: str, target: str) -> tuple[Batch[Ids, Words], dict[str, Axis]]:
        """One pair as a batch, and the tokens that its rows and columns stand for."""
        ids = self.read_source([given])[0]
        if not ids:
            raise InputError("input: there must be something to look at, but the line is empty.")
        written, sides = self.written_axes(target)
        names = [*self.source.tokens(ids), *self.source.tokens([self.source.eos])]
        return self.pairs([ids], [written]), {"source": Axis(names), **sides}


class PairsTask(WritingTask[S, R, Rows]):
    """The same of pairs that are examples, each a row of the store."""

    compares: tuple[Callable[[Sequence[str]], list[Read]], str] | None = None

    def compare_by(self, read: Callable[[Sequence[str]], list[Read]], signature: str) -> None:
        """Let an encoder say, too, how near its answers are."""
        self.compares = read, signature

    def compared(self, outputs: Sequence[str], references: Sequence[str]) -> Scores:
        """BERTScore, where an encoder is asked."""
        if self.compares is None:
            return {}
        read, signature = self.compares
        return {**bertscore(read(outputs), read(references)), "bertscore_f1_signature": signature}

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
