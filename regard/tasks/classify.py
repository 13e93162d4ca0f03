"""Classification: a text or a pair in; a class, several, or a number out."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from ..batch import Labelled, Sizes, Texts
from ..data.read import Faults, is_text, read_json
from ..data.store import Chunk, Store, cached
from ..decode import Settings as Decode
from ..errors import DataError, RecipeError, RunError
from ..text import Settings as TextSettings
from ..text import Text, learn
from .measure import Confusion, Correlation, ManyLabels
from .prediction import Prediction
from .rows import rows
from .texts import CHUNK, Rows, TextTask, TokenRow, two_texts

Predicts = Literal["class", "classes", "number"]


class Example(NamedTuple):
    """A text or a pair, what is right, and where it stands."""

    text: str
    pair: str | None
    label: Any
    where: str


@dataclass(frozen=True)
class ClassifySettings:
    """Which columns hold what, and how it is scored."""

    text: Annotated[str, "the column of the text; numbers count in a file without header"] = "text"
    pair: Annotated[str, "the column of a second text; empty: there is none"] = ""
    label: Annotated[str, "the column of what is to be predicted"] = "label"
    predicts: Annotated[
        Literal["auto", "class", "classes", "number"],
        "classes: several at once; auto: a number where all are, and one has a decimal point",
    ] = "auto"
    separator: Annotated[str, "what stands between several classes in one cell"] = "|"
    class_weights: Annotated[
        Literal["none", "balanced"] | list[Annotated[float, Ge(0)]],
        "balanced: rare classes count more; or a weight for each, in the order of their names",
    ] = "none"
    metric: Annotated[
        Literal["auto", "accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"],
        "the headline; auto: accuracy, f1 of several classes, spearman of a number",
    ] = "auto"
    positive: Annotated[str, "f1 of two classes: which is found; empty: the second by name"] = ""
    context: Annotated[
        int, Gt(3), Le(2**20), "longest text or pair in tokens; the longer of a pair is cut first"
    ] = 128


def read(files: Sequence[Path], settings: ClassifySettings, faults: Faults) -> Iterator[Example]:
    """The rows of labelled files; what cannot be used is told to `faults`."""
    s = settings
    columns = [("task.text", s.text), *([("task.pair", s.pair)] if s.pair else [])]
    for path in files:
        for where, (*texts, label) in rows(path, [*columns, ("task.label", s.label)], faults):
            if not all(isinstance(text, str) and text.strip() for text in texts):
                faults.report(where, "there must be text to classify, but there is none")
            elif not all(map(is_text, texts)):
                faults.report(where, "the text must be UTF-8, but is not")
            elif label is None or label == "":
                faults.report(where, f"there must be a label ('{s.label}'), but there is none")
            else:
                yield Example(texts[0], texts[1] if s.pair else None, label, where)


def as_number(label: Any) -> float | None:
    try:
        value = float(label)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and not isinstance(label, bool) else None


class Classify(TextTask):
    """Labelled texts; scored as GLUE scores them; answers with a label and its probability."""

    Settings = ClassifySettings
    asked = "text"
    loss = "classes"  # where it is a class

    def __init__(
        self,
        settings: ClassifySettings,
        text: Text,
        predicts: Predicts,
        labels: Sequence[str],
        weights: Sequence[float] = (),
    ) -> None:
        self.settings, self.text, self.predicts = settings, text, predicts
        self.labels, self.number = list(labels), {name: i for i, name in enumerate(labels)}
        self.weights = torch.tensor(weights or [1.0] * max(1, len(labels)))
        self.loss = {"class": "classes", "classes": "labels", "number": "number"}[predicts]
        usual = {"class": "accuracy", "classes": "f1", "number": "spearman"}[predicts]
        self.metric = usual if settings.metric == "auto" else settings.metric
        self.higher_is_better = True
        known = {
            "class": ("accuracy", "macro_f1", "matthews", *(("f1",) if len(labels) == 2 else ())),
            "classes": ("f1", "macro_f1", "accuracy"),
            "number": ("pearson", "spearman"),
        }[predicts]
        if self.metric not in known:
            raise RecipeError(
                f"task.metric must be one of {', '.join(known)} where a {predicts} is predicted, "
                f"but is {self.metric}."
            )

    # The vocabulary and the labels: from the training files, kept in the run folder.

    @classmethod
    def learn(
        cls, settings: ClassifySettings, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> Classify:
        lines = (t for row in read(files, settings, faults) for t in (row.text, row.pair or ""))
        return cls.adopt(settings, learn(lines, text), files, faults)

    @classmethod
    def adopt(
        cls, settings: ClassifySettings, text: Text, files: Sequence[Path], faults: Faults
    ) -> Classify:
        """With a vocabulary that is there already; what the labels are is learned."""
        given = [row.label for row in read(files, settings, Faults(faults.skip))]
        if not given:
            raise DataError(f"{files[0]}: there must be a row to learn from, but there is none.")
        predicts = settings.predicts if settings.predicts != "auto" else guess(given)
        if predicts == "number":
            return cls(settings, text, predicts, [])
        every = [split(label, predicts, settings.separator) for label in given]
        counts: dict[str, int] = {}
        for label in (label for some in every for label in some):
            counts[label] = counts.get(label, 0) + 1
        names = sorted(counts, key=lambda name: (as_number(name) is None, as_number(name), name))
        if len(names) < 2 and predicts == "class":
            raise DataError(
                f"{files[0]}: there must be two classes or more to tell apart, but all rows are "
                f"'{names[0]}'."
            )
        if settings.positive and settings.positive not in counts:
            raise RecipeError(
                f"task.positive must be one of the labels, {some_of(names)}, but is "
                f"'{settings.positive}'."
            )
        weights: list[float] = []
        if settings.class_weights != "none" and predicts != "class":
            raise RecipeError("task.class_weights: only where a row has one label; leave it out.")
        if settings.class_weights == "balanced":
            weights = [len(given) / len(names) / counts[name] for name in names]
        elif isinstance(settings.class_weights, list):
            weights = settings.class_weights
            if len(weights) != len(names):
                raise RecipeError(
                    f"task.class_weights must have a weight for each of {len(names)} classes "
                    f"({some_of(names)}), but has {len(weights)}."
                )
        return cls(settings, text, predicts, names, weights)

    @classmethod
    def imported(
        cls, settings: ClassifySettings, text: Text, labels: list[str], config: dict[str, Any]
    ) -> Classify:
        """As somebody else's config.json has it."""
        kinds: dict[Any, Predicts] = {
            "multi_label_classification": "classes",
            "regression": "number",
        }
        predicts = kinds.get(config.get("problem_type"), "class")
        if len(labels) == 1:
            predicts = "number"
        return cls(settings, text, predicts, [] if predicts == "number" else labels)

    def save(self, folder: Path) -> None:
        super().save(folder)
        kept = {"predicts": self.predicts, "labels": self.labels, "weights": self.weights.tolist()}
        said = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
        (folder / "labels.json").write_text(said, encoding="utf-8")

    @classmethod
    def load(cls, settings: ClassifySettings, text: TextSettings, folder: Path) -> Classify:
        kept = read_labels(folder)
        return cls(
            settings,
            Text.load(folder / "tokenizer.json"),
            kept["predicts"],
            kept["labels"],
            kept["weights"],
        )

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for("text", len(self.labels) if self.labels else 1)

    # Batches.

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' rows as ids, from the cache where their content has not changed."""
        marks = ("classify", self.text.tokenizer.to_str(), repr(self.settings), repr(self.labels))
        # Numbers are kept as the 32 bits of a float, so entries must be as wide.
        size = 2**17 if self.predicts == "number" else max(self.text.size, len(self.labels))
        rows = self._encode(files, faults)
        return cached(cache, files, marks, rows, size, faults, "a row that can be used")

    def _encode(self, files: Sequence[Path], faults: Faults) -> Iterator[Chunk]:
        for chunk in chunks(self.examples(files, faults)):
            framed = self.framed([example for example, _ in chunk])
            yield {
                "ids": [row.ids for row in framed],
                "split": [[row.split] for row in framed],
                "label": [label for _, label in chunk],
            }

    def examples(
        self, files: Sequence[Path], faults: Faults
    ) -> Iterator[tuple[Example, list[int]]]:
        """Rows with their labels as numbers; a label never met is a fault."""
        for example in read(files, self.settings, faults):
            if self.predicts == "number":
                value = as_number(example.label)
                if value is None:
                    faults.report(
                        example.where, f"the label must be a number, but is '{example.label}'"
                    )
                    continue
                yield example, [int(np.float32(value).view(np.uint32))]
                continue
            named = split(example.label, self.predicts, self.settings.separator)
            odd = [name for name in named if name not in self.number]
            if odd:
                faults.report(
                    example.where,
                    f"the label must be one that training has ({some_of(self.labels)}), but is "
                    f"'{odd[0]}'",
                )
                continue
            yield example, [self.number[name] for name in named]

    def framed(self, examples: Sequence[Example]) -> list[TokenRow]:
        ones = self.text.encode([example.text for example in examples])
        twos: list[Any] = [None] * len(examples)
        if self.settings.pair:
            twos = self.text.encode([example.pair or "" for example in examples])
        return [self.frame(*both, self.settings.context) for both in zip(ones, twos, strict=True)]

    def batch(self, store: Store, rows: Rows, rng: np.random.Generator | None = None) -> Labelled:
        texts = self.stored(store, rows)
        found, counts = store.padded("label", rows, [], [])
        if self.predicts == "number":
            values = torch.from_numpy(found[:, 0].astype(np.uint32).view(np.float32))
            return Labelled.of(texts, values, torch.ones(len(rows)))
        if self.predicts == "class":
            label = torch.from_numpy(found[:, 0])
            return Labelled.of(texts, label, self.weights[label])
        real = np.arange(found.shape[1]) < counts[:, None]
        holds = torch.zeros(len(rows), len(self.labels))
        holds[torch.from_numpy(np.nonzero(real)[0]), torch.from_numpy(found[real])] = 1.0
        return Labelled.of(texts, holds, torch.ones(len(rows)))

    @staticmethod
    def sample_batch(settings: ClassifySettings, budget: int) -> Labelled:
        """A batch of the usual shape, texts of 32 tokens, to reckon with."""
        width = min(32, settings.context)
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        lengths = torch.full((len(ids),), width)
        return Labelled.of((ids, lengths, ids), lengths * 0, torch.ones(len(ids)))

    # Answers.

    def predict(
        self,
        model: torch.nn.Module,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """A label for each text; of a pair, the two have a tab between."""
        began = time.perf_counter()
        framed = [self.framed_input(line, number) for number, line in enumerate(inputs, first)]

        def answer(scores: Tensor, i: int) -> Prediction:
            seconds = round(time.perf_counter() - began, 6)
            return self.answer(inputs[i], scores[0], seconds)

        return self.each(model, framed, answer, decode.batch_tokens)

    def framed_input(self, line: str, number: int = 1) -> TokenRow:
        one, two = two_texts(line, number, bool(self.settings.pair), "two texts")
        return self.framed([Example(one, two, None, "")])[0]

    def answer(self, line: str, scores: Tensor, seconds: float) -> Prediction:
        if self.predicts == "number":
            value = float(scores[0])
            return Prediction(line, f"{value:.4f}", value, seconds=seconds)
        chances = scores.softmax(-1) if self.predicts == "class" else scores.sigmoid()
        probabilities = {
            name: round(p, 6) for name, p in zip(self.labels, chances.tolist(), strict=True)
        }
        if self.predicts == "class":
            label = self.labels[int(scores.argmax())]
        else:
            label = self.settings.separator.join(n for n, p in probabilities.items() if p > 0.5)
        score = probabilities[label] if self.predicts == "class" else None
        return Prediction(
            line, label, score, seconds=seconds, label=label, probabilities=probabilities
        )

    def asking(self, batch: Texts) -> Labelled:
        rows = torch.zeros(len(batch), dtype=torch.long)
        texts = (batch.ids, batch.lengths, batch.segments)
        return Labelled.of(texts, rows, torch.ones(len(batch)))

    # Scores.

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        first = next(read(files, self.settings, Faults(skip=True)), None)
        if first is None:
            return ""
        return first.text if first.pair is None else f"{first.text}\t{first.pair}"

    def quick_scores(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        count: int,
    ) -> dict[str, Any]:
        judged = self.judge(model, files, faults, decode.batch_tokens, count)
        return {name: round(value, 4) for name, value in self.metrics(judged).items()}

    def evaluate(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """The usual scores with their intervals; of classes, a table and who is taken for whom."""
        began = time.perf_counter()
        judged = self.judge(model, files, faults, decode.batch_tokens)
        seconds = time.perf_counter() - began
        found: dict[str, Any] = {}
        for name, value in self.metrics(judged).items():
            found[name] = round(value, 4)
            if (around := self.interval(judged, name)) is not None:
                found[f"{name}_interval"] = [round(100 * edge, 2) for edge in around]
        found["loss"] = round(nll / tokens, 5)
        if isinstance(judged, Confusion):
            found["confusion"] = {"labels": self.labels, "matrix": judged.matrix.tolist()}
        if not isinstance(judged, Correlation):
            found["per_class"] = dict(zip(self.labels, judged.per_class(), strict=True))
        examples = count_of(judged)
        rate = {"predict_texts_per_second": round(examples / seconds, 1)}
        return {**found, **rate, "examples": examples}

    def judge(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        faults: Faults,
        budget: int,
        most: int | None = None,
    ) -> Confusion | ManyLabels | Correlation:
        """Answers counted as they come: nothing is kept of them but what the scores need."""
        kinds = {"class": Confusion, "classes": ManyLabels}
        judged: Any = (
            kinds[self.predicts](len(self.labels)) if self.predicts in kinds else Correlation()
        )
        for chunk in chunks(islice(self.examples(files, faults), most)):
            framed = self.framed([example for example, _ in chunk])
            given = self.each(model, framed, lambda scores, i: scores[0], budget)
            scores = torch.stack(given).numpy()
            if self.predicts == "class":
                judged.add([label[0] for _, label in chunk], scores.argmax(1))
            elif self.predicts == "number":
                bits = np.array([label[0] for _, label in chunk], np.uint32)
                judged.add(bits.view(np.float32), scores[:, 0])
            else:
                right = np.zeros(scores.shape, bool)
                for row, (_, label) in enumerate(chunk):
                    right[row, label] = True
                judged.add(right, scores > 0)
        if not count_of(judged):
            raise DataError(f"{files[0]}: there must be a row to score, but there is none.")
        return judged  # type: ignore[no-any-return]

    def metrics(self, judged: Any) -> dict[str, float]:
        """In hundredths, the headline first."""
        if isinstance(judged, Confusion):
            found = {"accuracy": judged.accuracy(), "macro_f1": judged.macro_f1()}
            found["matthews"] = judged.matthews()
            if len(self.labels) == 2:
                found["f1"] = judged.f1(self.positive)
        elif isinstance(judged, ManyLabels):
            found = {"f1": judged.micro_f1(), "macro_f1": judged.macro_f1()}
            found["accuracy"] = judged.exact()
        else:
            found = {k: v for k, v in judged.scores().items() if k in ("pearson", "spearman")}
        order = sorted(found, key=lambda name: name != self.metric)
        return {name: 100 * found[name] for name in order}

    @property
    def positive(self) -> int:
        return self.number.get(self.settings.positive, 1)

    def interval(self, judged: Any, name: str) -> tuple[float, float] | None:
        if isinstance(judged, Correlation):
            return judged.interval(name)
        if isinstance(judged, Confusion):
            statistics = {
                "accuracy": Confusion.accuracy,
                "macro_f1": Confusion.macro_f1,
                "matthews": Confusion.matthews,
                "f1": lambda drawn: drawn.f1(self.positive),
            }
            return judged.interval(statistics[name])
        return None


def count_of(judged: Any) -> int:
    if isinstance(judged, Confusion):
        return int(judged.matrix.sum())
    return int(judged.examples)


def guess(labels: Sequence[Any]) -> Predicts:
    """What is predicted, from how the labels are written."""
    if any(isinstance(label, list) for label in labels):
        return "classes"
    numbers = all(as_number(label) is not None for label in labels)
    return "number" if numbers and any("." in str(label) for label in labels) else "class"


def split(label: Any, predicts: str, separator: str) -> list[str]:
    """The classes in one cell."""
    if isinstance(label, list):
        return [str(part) for part in label]
    text = json.dumps(label) if isinstance(label, bool) else str(label).strip()
    return [part.strip() for part in text.split(separator)] if predicts == "classes" else [text]


def some_of(names: Sequence[str]) -> str:
    """Names for a message, the first few of many."""
    shown = ", ".join(f"'{name}'" for name in names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"


def chunks(items: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(items, CHUNK)):
        yield some


def read_labels(folder: Path) -> dict[str, Any]:
    """What `save` kept of the labels."""
    path = folder / "labels.json"
    try:
        kept: dict[str, Any] = {"predicts": "class", "weights": [], **read_json(path)}
        names, weights = kept["labels"], kept["weights"]
        whole = all(isinstance(name, str) for name in names) and kept["predicts"] in KINDS
        if not (whole and all(isinstance(weight, float) for weight in weights)):
            raise ValueError("it says something else")
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path}: the labels must be there and readable, but are not ({error})."
        ) from error
    return kept


KINDS = get_args(Predicts)
