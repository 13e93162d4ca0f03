"""Translation: a sentence in, a sentence out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Batch, Ids, Sizes, Words, pad
from ..data import parallel
from ..data.cut import Plan
from ..data.examples import Data, Examples
from ..data.order import Order
from ..data.read import Faults, parcels
from ..data.store import Chunk, Field, Store, ids_below
from ..decode import DECODERS, Hypothesis, Limits, with_cuda_graphs
from ..decode import Settings as Decode
from ..errors import InputError
from ..model import Model
from ..score import bleu
from ..score.length import buckets
from ..text import Settings as TextSettings
from ..text import Text, learn
from ..text.dropout import Dropout
from .form import Form, TextForm
from .growing import cut_at
from .prediction import Prediction
from .task import Axis, Measured, Rng, Scores, Task
from .texts import longest_first

CHUNK = 10_000  # lines tokenised at a time
GREEDY: dict[str, Any] = {
    "kind": "greedy",
    "num_return_sequences": 1,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
}


@dataclass(frozen=True)
class TranslateSettings:
    """What is translated, and how it is scored."""

    source: Annotated[str, "the source language; names its field in JSONL"] = "source"
    target: Annotated[str, "the target language; names its field in JSONL"] = "target"
    bleu_tokenize: Annotated[
        Literal["13a", "intl", "zh", "ja-mecab", "char", "none"], "sacreBLEU's tokenisation"
    ] = "13a"
    bleu_lowercase: Annotated[bool, "score without regard to case; the signature says so"] = False


class Translate(Task):
    """Pairs of sentences; scored by BLEU; answers with text."""

    Settings: ClassVar[type] = TranslateSettings
    Example: ClassVar[type] = parallel.Pair
    sections: ClassVar[Mapping[str, type]] = {"text": TextSettings}
    keeps: ClassVar[tuple[str, ...]] = ("tokenizer.json", "source.json", "target.json")
    loss = "tokens"
    metric = "bleu"
    unit = "target token"
    wanted = "a line that can be used"
    looks_at_answer = True
    recuts = True
    settings: Any

    def __init__(self, settings: Any, source: Text, target: Text, dropout: float = 0.0) -> None:
        self.settings, self.source, self.target = settings, source, target
        # Two ways of cutting text may still number the same pieces alike.
        self.shared = (
            source is target or source.tokenizer.get_vocab() == target.tokenizer.get_vocab()
        )
        self.dropouts = (Dropout(source, dropout), Dropout(target, dropout)) if dropout else None
        self.draws = dropout > 0  # words are cut anew in every batch

    @property
    def gives(self) -> Form[str]:
        return TextForm("text to translate")

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.source.size, self.target.size, self.shared, read=Ids, asked=Words)

    # Vocabularies: learned from the training examples, kept in the run folder.

    @staticmethod
    def read(settings: Any, files: Sequence[Path], faults: Faults) -> Iterator[Any]:
        return parallel.read(files, (settings.source, settings.target), faults)

    @staticmethod
    def reads_by(settings: Any) -> str:
        return repr((settings.source, settings.target))

    @classmethod
    def learn(cls, settings: Any, sections: Mapping[str, Any], examples: Examples[Any]) -> Self:
        text: TextSettings = sections["text"]
        if text.joint:
            both = (line for example in examples for line in (example.source, example.target))
            shared = learn(both, text)
            return cls(settings, shared, shared, text.dropout)
        source = learn((example.source for example in examples), text)
        target = learn((example.target for example in examples), text)
        return cls(settings, source, target, text.dropout)

    @classmethod
    def imported(
        cls, settings: Any, texts: Sequence[Text], labels: list[str], config: Mapping[str, Any]
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

    @classmethod
    def load(cls, settings: Any, sections: Mapping[str, Any], folder: Path) -> Self:
        text: TextSettings = sections["text"]
        one = text.joint and not (folder / "source.json").is_file()
        names = ["tokenizer.json"] if one else ["source.json", "target.json"]
        texts = [Text.load(folder / name) for name in names]
        return cls(settings, texts[0], texts[-1], text.dropout)

    # Batches: tokenised once into a store, then cut out of it.

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"source": ids_below(self.source.size), "target": ids_below(self.target.size)}

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(text.tokenizer.to_str() for text in (self.source, self.target))

    def encode(self, examples: Examples[Any], longest: int, faults: Faults) -> Iterator[Chunk]:
        for chunk in parcels(examples, lambda e: len(e.source) + len(e.target), CHUNK):
            source = self.read_source([example.source for example in chunk])
            target = self.target.encode([example.target for example in chunk])
            fits = [max(len(s), len(t)) < longest for s, t in zip(source, target, strict=True)]
            for example, s, t, fit in zip(chunk, source, target, fits, strict=True):
                if not fit:
                    faults.report(
                        example.where,
                        f"a line may have {longest} tokens with its end (data.max_length), "
                        f"but has {max(len(s), len(t)) + 1}",
                    )
            kept = [i for i, fit in enumerate(fits) if fit]
            yield {"source": [source[i] for i in kept], "target": [target[i] for i in kept]}

    def plan(self, store: Store, budget: int, seed: int) -> Plan:
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

    def batch(self, store: Store, rows: Any, rng: Rng | None = None) -> Batch[Ids, Words]:
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

    def pairs(
        self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]
    ) -> Batch[Ids, Words]:
        """Lists of ids as a batch."""
        source = [[*ids, self.source.eos] for ids in source]
        target = [[self.target.bos, *ids, self.target.eos] for ids in target]
        read = Ids(pad(source), torch.tensor([len(ids) for ids in source]))
        return Batch(read, Words(pad(target), torch.tensor([len(ids) - 1 for ids in target])))

    @staticmethod
    def sample_batch(settings: Any, budget: int) -> Batch[Ids, Words]:
        """Lines of 32 tokens."""
        rows = max(1, budget // 32)
        ids, lengths = torch.zeros(rows, 33, dtype=torch.long), torch.full((rows,), 32)
        return Batch(Ids(ids[:, 1:], lengths), Words(ids, lengths))

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
        width = decode.num_beams if decode.kind == "beam" else decode.num_return_sequences
        while order:
            # The longest first: what runs out of memory does so at once.
            count = max(1, decode.batch_tokens // ((len(ids[order[-1]]) + 1) * width))
            rows, order = order[-count:], order[:-count]
            began = time.perf_counter()
            batch, limits = self.begin(model, [ids[i] for i in rows], decode)
            search = DECODERS[decode.kind]
            found = search(with_cuda_graphs(model, decode), batch, limits, decode)
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

    def input_ids(
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
        ids: Sequence[int],
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

    # Scores.

    def example(self, examples: Examples[Any], longest: int | None = None) -> str:
        """The first input of middling length."""
        inputs = [example.source for example in islice(examples, 1000)]
        return next((i for i in inputs if 4 <= len(i.split()) <= 9), inputs[0] if inputs else "")

    def answers(
        self, model: Model, data: Data, decode: Decode, rows: Sequence[int]
    ) -> tuple[list[str], list[str], list[str]]:
        """Some examples' inputs, answers and references."""
        some = [data.examples[row] for row in rows]
        inputs = [example.source for example in some]
        ids = [data.store.row("source", row) for row in rows]
        answers = self.translate(model, inputs, ids, decode)
        return inputs, [a.output for a in answers], [example.target for example in some]

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        """BLEU of the first lines, by greedy decoding."""
        rows = range(min(count, data.store.rows))
        _, outputs, references = self.answers(model, data, replace(decode, **GREEDY), rows)
        return self.score(outputs, references, quick=True)

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """BLEU and its kin of all lines, and the references' perplexity."""
        began = time.perf_counter()
        rows = range(data.store.rows)
        inputs, outputs, references = self.answers(model, data, decode, rows)
        seconds = time.perf_counter() - began
        written = sum(map(len, self.target.encode(outputs)))
        search = {k: v for k, v in asdict(decode).items() if k not in ("batch_tokens", "compile")}
        return {
            **self.score(outputs, references),
            "perplexity": round(math.exp(min(loss.nll / loss.tokens, 700.0)), 4),
            "perplexity_unit": self.unit,
            "by_length": self.by_length(inputs, outputs, references),
            "by_length_unit": "words of the source",
            "decode": search,
            "predict_tokens_per_second": round(written / seconds, 1),
            "examples": len(inputs),
        }

    def by_length(
        self, inputs: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> list[Scores]:
        """BLEU of the sentences of about one length, each bucket a corpus of its own."""
        lengths = [len(line.split()) for line in inputs]
        rows = []
        for low, high in buckets(lengths):
            some = [i for i, length in enumerate(lengths) if low <= length <= high]
            found = self.score([outputs[i] for i in some], [references[i] for i in some], True)
            rows.append({"from": low, "to": high, "examples": len(some), **found})
        return rows

    def score(
        self, outputs: Sequence[str], references: Sequence[str], quick: bool = False
    ) -> Scores:
        """BLEU and its kin, against the references as they stand in the file."""
        measure = bleu.bleu_alone if quick else bleu.translation_scores
        return measure(
            outputs, references, self.settings.bleu_tokenize, self.settings.bleu_lowercase
        )
