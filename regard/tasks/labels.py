"""What is asked of each example: a class, several, or a number. What they are of is another's."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, get_args

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from ..batch import Label
from ..data.examples import Data, Examples
from ..data.order import Rows
from ..data.read import Faults, read_json
from ..data.store import Field, Store, ids_below
from ..decode import Settings as Decode
from ..errors import DataError, RecipeError, RunError
from ..model import Model
from ..score.classes import Confusion, ManyLabels
from ..score.interval import hundredths
from ..score.numbers import Correlation
from .prediction import Prediction
from .task import Measured, P, R, Scores, Task

Predicts = Literal["class", "classes", "number"]
Judged = Confusion | ManyLabels | Correlation


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """What is predicted, and how it is scored."""

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
        Literal["auto", "accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman", "rmse"],
        "the headline; auto: accuracy, f1 of several classes, spearman of a number",
    ] = "auto"
    positive: Annotated[str, "f1 of two classes: which is found; empty: the second by name"] = ""


class Labelled(Protocol):
    """An example that has a label."""

    @property
    def label(self) -> object:
        """As the file has it."""

    @property
    def where(self) -> str: ...


Asks = TypeVar("Asks", bound=LabelSettings)


class LabelTask(Task[Asks, R, P]):
    """Labels of examples; scored as GLUE scores them; answers with a label and its probability.

    A task says how its examples are read; each of them has a `label` and a `where`.
    """

    keeps: ClassVar[tuple[str, ...]] = ("labels.json",)
    loss = "classes"  # where it is a class
    gets = "label"
    unit: str = "example"

    def set_labels(
        self, predicts: Predicts, labels: Sequence[str], weights: Sequence[float] = ()
    ) -> None:
        """What can be answered; called once, when the task is made."""
        self.predicts = predicts
        self.labels, self.number = list(labels), {name: i for i, name in enumerate(labels)}
        self.weights = torch.tensor(weights or [1.0] * max(1, len(labels)))
        self.loss = {"class": "classes", "classes": "labels", "number": "number"}[predicts]
        usual = {"class": "accuracy", "classes": "f1", "number": "spearman"}[predicts]
        self.metric = usual if self.settings.metric == "auto" else self.settings.metric
        known = {
            "class": ("accuracy", "macro_f1", "matthews", *(("f1",) if len(labels) == 2 else ())),
            "classes": ("f1", "macro_f1", "accuracy"),
            "number": ("pearson", "spearman", "rmse"),
        }[predicts]
        self.higher_is_better = self.metric != "rmse"
        if self.metric not in known:
            raise RecipeError(
                f"task.metric must be one of {', '.join(known)} where a {predicts} is predicted, "
                f"but is {self.metric}."
            )

    @property
    def classes(self) -> int:
        """How many numbers a model must say."""
        return max(1, len(self.labels))

    def label_artefacts(self) -> Mapping[str, str]:
        kept = {"predicts": self.predicts, "labels": self.labels, "weights": self.weights.tolist()}
        return {"labels.json": json.dumps(kept, indent=1, ensure_ascii=False) + "\n"}

    # In the store and in a batch.

    @property
    def label_field(self) -> Field:
        return Field("float32") if self.predicts == "number" else ids_below(len(self.labels))

    def label_of(self, example: Labelled, faults: Faults) -> list[object] | None:
        """What is right, as numbers; a label never met is a fault."""
        if self.predicts == "number":
            value = as_number(example.label)
            if value is None:
                faults.report(
                    example.where, f"the label must be a number, but is '{example.label}'"
                )
            return None if value is None else [value]
        named = split(example.label, self.predicts, self.settings.separator)
        odd = [name for name in named if name not in self.number]
        if odd:
            faults.report(
                example.where,
                f"the label must be one that training has ({some_of(self.labels)}), but is "
                f"'{odd[0]}'",
            )
            return None
        return [self.number[name] for name in named]

    def asked(self, store: Store, rows: Rows) -> Label:
        """What is asked of some rows."""
        ones = torch.ones(len(rows))
        if self.predicts == "classes":
            found, counts = store.padded("label", rows, [], [])
            real = np.arange(found.shape[1]) < counts[:, None]
            holds = torch.zeros(len(rows), len(self.labels))
            holds[torch.from_numpy(np.nonzero(real)[0]), torch.from_numpy(found[real])] = 1.0
            return Label(holds, ones)
        label = store.first("label", rows)
        if self.predicts == "number":
            return Label(torch.from_numpy(label.astype(np.float32)), ones)
        classes = torch.from_numpy(label.astype(np.int64))
        return Label(classes, self.weights[classes])

    # Answers and scores.

    def stored_scores(self, model: Model, store: Store, count: int, budget: int) -> list[Tensor]:
        """What a model says of the first rows of a store, in order: (1, C) each."""
        raise NotImplementedError

    def label_answer(self, line: str, scores: Tensor, seconds: float) -> Prediction:
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

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        judged = self.judge(model, data.store, decode.batch_tokens, count)
        return {name: round(value, 4) for name, value in self.metrics(judged).items()}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """The usual scores with their intervals; of classes, a table and who is taken for whom."""
        began = time.perf_counter()
        judged = self.judge(model, data.store, decode.batch_tokens, data.store.rows)
        seconds = time.perf_counter() - began
        found: Scores = {}
        for name, value in self.metrics(judged).items():
            found[name] = round(value, 4)
            if (around := self.interval(judged, name)) is not None:
                told = [round(end, 4) for end in around] if name == "rmse" else hundredths(around)
                found[f"{name}_interval"] = told
        found["loss"] = round(loss.nll / loss.tokens, 5)
        if isinstance(judged, Confusion):
            found["confusion"] = {"labels": self.labels, "matrix": judged.matrix.tolist()}
        if not isinstance(judged, Correlation):
            found["per_class"] = dict(zip(self.labels, judged.per_class(), strict=True))
        rate = {"predict_texts_per_second": round(judged.examples / seconds, 1)}
        return {**found, **rate, "examples": judged.examples}

    def judge(self, model: Model, store: Store, budget: int, most: int) -> Judged:
        """The first rows' answers against what is right."""
        rows = np.arange(min(most, store.rows))
        scores = torch.stack(self.stored_scores(model, store, len(rows), budget))[:, 0].numpy()
        if self.predicts == "number":
            judged = Correlation()
            judged.add(store.first("label", rows), scores[:, 0])
            return judged
        if self.predicts == "class":
            confusion = Confusion(len(self.labels))
            confusion.add(store.first("label", rows).astype(np.int64), scores.argmax(1))
            return confusion
        right = np.zeros(scores.shape, bool)
        for row in rows.tolist():
            right[row, store.row("label", row)] = True
        several = ManyLabels(len(self.labels))
        several.add(right, scores > 0)
        return several

    def metrics(self, judged: Judged) -> dict[str, float]:
        """In hundredths, but for errors of numbers; the headline first."""
        if isinstance(judged, Confusion):
            found = {"accuracy": judged.accuracy(), "macro_f1": judged.macro_f1()}
            found["matthews"] = judged.matthews()
            if len(self.labels) == 2:
                found["f1"] = judged.f1(self.positive)
        elif isinstance(judged, ManyLabels):
            found = {"f1": judged.micro_f1(), "macro_f1": judged.macro_f1()}
            found["accuracy"] = judged.exact()
        else:
            found = judged.scores()
        order = sorted(found, key=lambda name: name != self.metric)
        return {name: found[name] if name == "rmse" else 100 * found[name] for name in order}

    @property
    def positive(self) -> int:
        return self.number.get(self.settings.positive, 1)

    def interval(self, judged: Judged, name: str) -> tuple[float, float] | None:
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


def learn_labels(
    settings: LabelSettings, examples: Examples[Any]
) -> tuple[Predicts, list[str], list[float]]:
    """What is predicted, the names of its classes, and how much each counts."""
    given = [row.label for row in examples]
    if not given:
        raise DataError(f"{examples.first_file}: there must be a label to learn from, but is none.")
    predicts = settings.predicts if settings.predicts != "auto" else guess(given)
    if predicts == "number":
        return predicts, [], []
    every = [split(label, predicts, settings.separator) for label in given]
    counts: dict[str, int] = {}
    for label in (label for some in every for label in some):
        counts[label] = counts.get(label, 0) + 1
    names = sorted(counts, key=lambda name: (as_number(name) is None, as_number(name), name))
    if len(names) < 2 and predicts == "class":
        raise DataError(
            f"{examples.first_file}: there must be two classes or more to tell apart, but all "
            f"rows are "
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
    return predicts, names, weights


def as_number(label: Any) -> float | None:
    try:
        value = float(label)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and not isinstance(label, bool) else None


def guess(labels: Sequence[object]) -> Predicts:
    """What is predicted, from how the labels are written."""
    if any(isinstance(label, list) for label in labels):
        return "classes"
    numbers = all(as_number(label) is not None for label in labels)
    return "number" if numbers and any("." in str(label) for label in labels) else "class"


def split(label: object, predicts: str, separator: str) -> list[str]:
    """The classes in one cell."""
    if isinstance(label, list):
        return [str(part) for part in label]
    text = json.dumps(label) if isinstance(label, bool) else str(label).strip()
    return [part.strip() for part in text.split(separator)] if predicts == "classes" else [text]


def some_of(names: Sequence[str]) -> str:
    """Names for a message, the first few of many."""
    shown = ", ".join(f"'{name}'" for name in names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"


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
