"""Translation: a sentence in, a sentence out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Pairs, Sizes, pad
from ..data.cut import Plan
from ..data.order import Order
from ..data.read import Faults, is_text, kind_of, lines, parcels, records, table
from ..data.store import Chunk, Store, cached
from ..decode import DECODERS, Hypothesis, Limits, with_cuda_graphs
from ..decode import Settings as Decode
from ..errors import DataError, InputError
from ..text import Settings as TextSettings
from ..text import Text, learn
from ..text.dropout import Dropout
from . import bleu
from .growing import cut_at
from .length import buckets
from .prediction import Prediction

CHUNK = 10_000  # lines tokenised at a time
ANY_LENGTH = 10**9  # what is only scored may be as long as it likes
GREEDY: dict[str, Any] = {
    "kind": "greedy",
    "num_return_sequences": 1,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
}


class Example(NamedTuple):
    """A sentence and its translation, and where they stand, for messages."""

    source: str
    target: str
    where: str


@dataclass(frozen=True)
class TranslateSettings:
    """What is translated, and how it is scored."""

    source: Annotated[str, "the source language; names its field in JSONL"] = "source"
    target: Annotated[str, "the target language; names its field in JSONL"] = "target"
    bleu_tokenize: Annotated[
        Literal["13a", "intl", "zh", "ja-mecab", "char", "none"], "sacreBLEU's tokenisation"
    ] = "13a"
    bleu_lowercase: Annotated[bool, "score without regard to case; the signature says so"] = False


def read(files: Sequence[Path], settings: TranslateSettings, faults: Faults) -> Iterator[Example]:
    """Examples of two aligned files, a TSV, or JSONL; unusable lines are told to `faults`."""
    rows = read_aligned(files, faults) if len(files) == 2 else read_single(files, settings, faults)
    for row in rows:
        if not row.source.strip() or not row.target.strip():
            faults.report(row.where, "both sides must have text, but one is empty")
            continue
        if not is_text(row.source) or not is_text(row.target):
            faults.report(row.where, "the text must be UTF-8, but is not")
            continue
        yield row


def read_aligned(files: Sequence[Path], faults: Faults) -> Iterator[Example]:
    left, right = files
    pairs = zip_longest(lines(left, faults.skip), lines(right, faults.skip))
    for number, (source, target) in enumerate(pairs, 1):
        if source is None or target is None:
            longer, shorter = (right, left) if source is None else (left, right)
            raise DataError(
                f"{longer}:{number}: the two files must have the same number of lines, "
                f"but {shorter.name} ends here."
            )
        yield Example(source, target, f"{left}:{number}")


def read_tsv(path: Path, settings: TranslateSettings, faults: Faults) -> Iterator[Example]:
    for number, cells in table(path, "\t", faults.skip):
        if len(cells) < 2:
            faults.report(
                f"{path}:{number}",
                "the line must have a tab between source and target, but has none",
            )
            continue
        yield Example(cells[0], cells[1], f"{path}:{number}")


def read_jsonl(path: Path, settings: TranslateSettings, faults: Faults) -> Iterator[Example]:
    for number, record in records(path, faults):
        pair = record.get("translation", record)
        sides = (settings.source, settings.target)
        if not isinstance(pair, dict) or not all(isinstance(pair.get(side), str) for side in sides):
            known = ", ".join(pair) if isinstance(pair, dict) else "none"
            faults.report(
                f"{path}:{number}",
                f"the object must have texts '{sides[0]}' and '{sides[1]}', but has {known} "
                "(task.source and task.target name the fields)",
            )
            continue
        yield Example(pair[sides[0]], pair[sides[1]], f"{path}:{number}")


def read_single(
    files: Sequence[Path], settings: TranslateSettings, faults: Faults
) -> Iterator[Example]:
    readers: dict[str, Callable[[Path, TranslateSettings, Faults], Iterator[Example]]] = {
        ".tsv": read_tsv,
        ".jsonl": read_jsonl,
    }
    if len(files) != 1 or kind_of(files[0]) not in readers:
        named = ", ".join(str(file) for file in files)
        raise DataError(
            f"{named}: translation data must be two aligned files, [source, target], "
            f"or one .tsv or .jsonl."
        )
    return readers[kind_of(files[0])](files[0], settings, faults)


class Translate:
    """Pairs of sentences; scored by BLEU; answers with text."""

    Settings: Any = TranslateSettings
    loss = "tokens"
    metric, higher_is_better = "bleu", True
    unit = "target token"
    looks_at_answer = True  # `see` looks at the pass that writes the answer
    recuts = True  # words are cut anew in every batch, where text.dropout says so
    defaults: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(
        self, settings: TranslateSettings, source: Text, target: Text, dropout: float = 0.0
    ) -> None:
        self.settings, self.source, self.target = settings, source, target
        # Two ways of cutting text may still number the same pieces alike.
        self.shared = (
            source is target or source.tokenizer.get_vocab() == target.tokenizer.get_vocab()
        )
        self.dropouts = (Dropout(source, dropout), Dropout(target, dropout)) if dropout else None

    # Vocabularies: learned from the training files, kept in the run folder.

    @classmethod
    def learn(
        cls, settings: TranslateSettings, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> Translate:
        def side(number: int) -> Iterator[str]:
            return (example[number] for example in read(files, settings, faults))

        def both() -> Iterator[str]:
            return (line for example in read(files, settings, faults) for line in example[:2])

        if text.joint:
            shared = learn(both(), text)
            return cls(settings, shared, shared, text.dropout)
        return cls(settings, learn(side(0), text), learn(side(1), text), text.dropout)

    def save(self, folder: Path) -> None:
        if self.source is self.target:
            self.source.save(folder / "tokenizer.json")
        else:
            self.source.save(folder / "source.json")
            self.target.save(folder / "target.json")

    @classmethod
    def load(cls, settings: TranslateSettings, text: TextSettings, folder: Path) -> Translate:
        one = text.joint and not (folder / "source.json").is_file()
        names = ["tokenizer.json"] if one else ["source.json", "target.json"]
        texts = [Text.load(folder / name) for name in names]
        return cls(settings, texts[0], texts[-1], text.dropout)

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.source.size, self.target.size, self.shared)

    # Batches: tokenised once into a store, then cut out of it.

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' examples as ids, from the cache where their content has not changed."""
        texts = [text.tokenizer.to_str() for text in (self.source, self.target)]
        marks = ("translate", *texts, str(longest), repr(self.settings))
        size = max(self.source.size, self.target.size)
        rows = self._encode(files, longest, faults)
        return cached(cache, files, marks, rows, size, faults, "a line that can be used")

    def _encode(self, files: Sequence[Path], longest: int, faults: Faults) -> Iterator[Chunk]:
        examples = read(files, self.settings, faults)
        for chunk in parcels(examples, lambda e: len(e.source) + len(e.target), CHUNK):
            source = self.source.encode([example.source for example in chunk])
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
    ) -> Iterator[Pairs]:
        """Every row once, the longest first."""
        lengths = self.lengths(store).max(1)
        rows = np.argsort(lengths, kind="stable")
        while len(rows):
            count = max(1, budget // int(lengths[rows[-1]]))
            yield self.batch(store, rows[-count:])
            rows = rows[:-count]

    def batch(
        self,
        store: Store,
        rows: NDArray[np.integer[Any]],
        rng: np.random.Generator | None = None,
    ) -> Pairs:
        """Rows of a store as a batch; with `rng`, words are cut as BPE dropout says."""
        if self.dropouts is not None and rng is not None:
            sides = zip(self.dropouts, ("source", "target"), strict=True)
            return self.pairs(
                *(d.recut([store.row(name, int(r)) for r in rows], rng) for d, name in sides)
            )
        bos, eos = self.target.bos, self.target.eos
        source, source_lengths = store.padded("source", rows, [], [self.source.eos])
        target, target_lengths = store.padded("target", rows, [bos], [eos])
        arrays = (source, source_lengths, target, target_lengths - 1)
        return Pairs(*(torch.from_numpy(array) for array in arrays))

    def pairs(self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> Pairs:
        """Lists of ids as a batch."""
        source = [[*ids, self.source.eos] for ids in source]
        target = [[self.target.bos, *ids, self.target.eos] for ids in target]
        return Pairs(
            pad(source),
            torch.tensor([len(ids) for ids in source]),
            pad(target),
            torch.tensor([len(ids) - 1 for ids in target]),
        )

    @staticmethod
    def sample_batch(settings: TranslateSettings, budget: int) -> Pairs:
        """A batch of the usual shape, lines of 32 tokens, to reckon with."""
        rows = max(1, budget // 32)
        ids, lengths = torch.zeros(rows, 33, dtype=torch.long), torch.full((rows,), 32)
        return Pairs(ids[:, 1:], lengths, ids, lengths)

    # Answers.

    def read_source(self, lines: Sequence[str]) -> list[list[int]]:
        """What a user types as ids, without an end."""
        return self.source.encode(lines)

    def predict(
        self,
        model: torch.nn.Module,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """A translation for each line; an empty line has an empty one."""
        ids = self.checked_source(inputs, longest, first)
        answers: list[Prediction] = [Prediction(line, "", 0.0, seconds=0.0) for line in inputs]
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]))
        width = decode.num_beams if decode.kind == "beam" else decode.num_return_sequences
        while order:
            # The longest first: what runs out of memory does so at once.
            count = max(1, decode.batch_tokens // ((len(ids[order[-1]]) + 1) * width))
            rows, order = order[-count:], order[:-count]
            began = time.perf_counter()
            found = self.search(model, [ids[i] for i in rows], decode)
            seconds = time.perf_counter() - began
            for i, hypotheses in zip(rows, found, strict=True):
                answers[i] = self.answer(inputs[i], ids[i], hypotheses, decode, seconds)
        return answers

    def checked_source(
        self, inputs: Sequence[str], longest: int, first: int = 1
    ) -> list[list[int]]:
        """What a user types as ids, without an end; not too long, and nothing but text."""
        for number, line in enumerate(inputs, first):
            if not is_text(line):
                raise InputError(f"input {number}: the text must be UTF-8, but is not.")
        ids = self.read_source(inputs)
        for number, row in enumerate(ids, first):
            if len(row) >= longest:
                raise InputError(
                    f"input {number}: a line may have {longest} tokens with its end "
                    f"(data.max_length), "
                    f"but has {len(row) + 1}; split it into sentences."
                )
        return ids

    def search(
        self, model: torch.nn.Module, source: Sequence[Sequence[int]], decode: Decode
    ) -> list[list[Hypothesis]]:
        """Decode one batch."""
        batch, limits = self.search_limits(model, source, decode)
        return DECODERS[decode.kind](with_cuda_graphs(model, decode), batch, limits, decode)

    def search_limits(
        self, model: torch.nn.Module, source: Sequence[Sequence[int]], decode: Decode
    ) -> tuple[Pairs, Limits]:
        """What is searched, and how far."""
        device = next(model.parameters()).device
        batch = self.pairs(source, [[] for _ in source]).to(device)
        longest = torch.full_like(batch.source_lengths, decode.max_new_tokens)
        if decode.max_ratio:
            reach = (batch.source_lengths * decode.max_ratio).clamp_max(2**40).long() + 10
            longest = longest.minimum(reach)
        if (most := getattr(model, "longest", None)) is not None:
            longest = longest.clamp_max(most)
        text = self.target
        return batch, Limits.begin(text.bos, text.eos, longest, banned=self.never_written)

    @property
    def never_written(self) -> tuple[int, ...]:
        """Entries of the vocabulary that are no text."""
        text = self.target
        return tuple(sorted({text.pad, text.bos, text.unk} - {-1, text.eos}))

    def answer(
        self,
        line: str,
        ids: Sequence[int],
        hypotheses: Sequence[Hypothesis],
        decode: Decode,
        seconds: float,
    ) -> Prediction:
        found = self.target.decode([hypothesis.ids for hypothesis in hypotheses])
        texts = [cut_at(text, decode.stop)[0] for text in found]
        return Prediction.written(line, texts, [h.score for h in hypotheses], seconds)

    def trace(self, source: str, target: str) -> tuple[Pairs, dict[str, list[str]]]:
        """One pair as a batch, and the tokens that its rows and columns stand for."""
        ids, written = self.read_source([source])[0], self.target.encode([target])[0]
        if not ids:
            raise InputError("input: there must be something to look at, but the line is empty.")
        begin, end = self.target.tokens([self.target.bos, self.target.eos])
        tokens = self.target.tokens(written)
        sides = {
            "source": [*self.source.tokens(ids), *self.source.tokens([self.source.eos])],
            "inputs": [begin, *tokens],
            "outputs": [*tokens, end],
        }
        return self.pairs([ids], [written]), sides

    # Scores.

    def examples(
        self, files: Sequence[Path], faults: Faults, most: int | None = None
    ) -> tuple[list[str], list[str]]:
        """Inputs and references of a file, or the first of them."""
        rows = list(islice(read(files, self.settings, faults), most))
        return [row.source for row in rows], [row.target for row in rows]

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        """The first input of middling length."""
        inputs, _ = self.examples(files, Faults(skip=True), 1000)
        return next((i for i in inputs if 4 <= len(i.split()) <= 9), inputs[0] if inputs else "")

    def quick_scores(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        count: int,
    ) -> dict[str, Any]:
        """BLEU of the first lines, by greedy decoding."""
        inputs, references = self.examples(files, faults, count)
        greedy = replace(decode, **GREEDY)
        answers = self.predict(model, inputs, greedy, ANY_LENGTH)
        return self.score([answer.output for answer in answers], references, quick=True)

    def evaluate(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """BLEU and its kin of all lines, and the references' perplexity."""
        inputs, references = self.examples(files, faults)
        if not inputs:
            raise DataError(f"{files[0]}: there must be a line to score, but there is none.")
        began = time.perf_counter()
        outputs = [a.output for a in self.predict(model, inputs, decode, ANY_LENGTH)]
        seconds = time.perf_counter() - began
        written = sum(map(len, self.target.encode(outputs)))
        search = {k: v for k, v in asdict(decode).items() if k not in ("batch_tokens", "compile")}
        return {
            **self.score(outputs, references),
            "perplexity": round(math.exp(min(nll / tokens, 700.0)), 4),
            "perplexity_unit": self.unit,
            "by_length": self.by_length(inputs, outputs, references),
            "by_length_unit": "words of the source",
            "decode": search,
            "predict_tokens_per_second": round(written / seconds, 1),
            "examples": len(inputs),
        }

    def by_length(
        self, inputs: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> list[dict[str, Any]]:
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
    ) -> dict[str, Any]:
        """BLEU and its kin, against the references as they stand in the file."""
        measure = bleu.bleu_alone if quick else bleu.translation_scores
        return measure(
            outputs, references, self.settings.bleu_tokenize, self.settings.bleu_lowercase
        )
