"""Translation: a sentence in, a sentence out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from ..data import parallel
from ..data.examples import Data, Examples
from ..data.parts import source_of
from ..data.read import Faults, parcels
from ..data.store import Chunk
from ..decode import Settings as Decode
from ..model import Model
from ..score import bleu
from ..score.length import buckets
from ..text import Text, learn
from .form import Form, TextForm
from .task import Measured, Scores, Sections
from .writing import GREEDY, PairsTask

CHUNK = 10_000  # lines tokenised at a time


@dataclass(frozen=True)
class TranslateSettings:
    """What is translated, and how it is scored."""

    source: Annotated[str, "the source language; names its field in JSONL"] = "source"
    target: Annotated[str, "the target language; names its field in JSONL"] = "target"
    tag: Annotated[
        str | list[str],
        "what sources of data.train begin with, such as '<BT> '; a list: for each corpus its own",
    ] = ""
    bleu_tokenize: Annotated[
        Literal["13a", "intl", "zh", "ja-mecab", "char", "none"], "sacreBLEU's tokenisation"
    ] = "13a"
    bleu_lowercase: Annotated[bool, "score without regard to case; the signature says so"] = False
    bertscore: Annotated[
        str, Path, "an encoder's run (`regard import`) that says how near answers are; empty: none"
    ] = ""


class Translate(PairsTask[TranslateSettings, parallel.Pair]):
    """Pairs of sentences; scored by BLEU."""

    Settings = TranslateSettings
    Example = parallel.Pair
    keeps: ClassVar[tuple[str, ...]] = ("tokenizer.json", "source.json", "target.json")
    metric = "bleu"
    wanted = "a line that can be used"
    recuts = True
    encodes_apart = True

    @property
    def gives(self) -> Form[str]:
        return TextForm("text to translate")

    # Vocabularies: learned from the training examples, kept in the run folder.

    @staticmethod
    def read(
        settings: TranslateSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[parallel.Pair]:
        tags = settings.tag if source_of(files).part == "train" else ""
        every = [tags] * len(list(parallel.corpora(files))) if isinstance(tags, str) else tags
        return parallel.read(files, (settings.source, settings.target), faults, every)

    @classmethod
    def columns(cls, settings: TranslateSettings) -> tuple[str, ...]:
        return (settings.source, settings.target)

    @staticmethod
    def reads_by(settings: TranslateSettings) -> str:
        return repr((settings.source, settings.target, settings.tag, "no header"))

    @classmethod
    def divides(cls, settings: TranslateSettings, files: Sequence[Path]) -> tuple[str, ...]:
        return (source_of(files).part,) if settings.tag else ()

    @classmethod
    def learn(
        cls, settings: TranslateSettings, sections: Sections, examples: Examples[parallel.Pair]
    ) -> Self:
        text = sections["text"]
        if text.joint:
            both = (line for example in examples for line in (example.source, example.target))
            shared = learn(both, text)
            return cls(settings, shared, shared, text.dropout)
        source = learn((example.source for example in examples), text)
        target = learn((example.target for example in examples), text)
        return cls(settings, source, target, text.dropout)

    @classmethod
    def load(cls, settings: TranslateSettings, sections: Sections, folder: Path) -> Self:
        text = sections["text"]
        one = text.joint and not (folder / "source.json").is_file()
        names = ["tokenizer.json"] if one else ["source.json", "target.json"]
        texts = [Text.load(folder / name) for name in names]
        return cls(settings, texts[0], texts[-1], text.dropout)

    def encode(
        self, examples: Examples[parallel.Pair], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
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

    # Scores.

    def example(self, examples: Examples[parallel.Pair], longest: int | None = None) -> str:
        """The first input of middling length."""
        inputs = [example.source for example in islice(examples, 1000)]
        return next((i for i in inputs if 4 <= len(i.split()) <= 9), inputs[0] if inputs else "")

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
            **self.compared(outputs, references),
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
