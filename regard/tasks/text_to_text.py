"""Text to text: every task is a text in and a text out, told apart by what stands before it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from ..data.cut import Plan
from ..data.examples import Data, Examples
from ..data.order import Order, Repeated, Rows
from ..data.read import Faults, is_text, parcels
from ..data.store import Chunk, Field, Store, ids_below
from ..data.table import rows
from ..decode import Settings as Decode
from ..errors import RecipeError
from ..model import Model
from ..score import bleu
from ..score.interval import hundredths
from ..score.texts import Mean, rouge
from ..text import Text, learn
from .form import Form, TextForm
from .task import Measured, Scores, Sections
from .writing import GREEDY, PairsTask

SENTINELS = [f"<extra_id_{i}>" for i in range(100)]  # T5's, which stand for what is left out
Metric = Literal["bleu", "rouge", "accuracy"]


@dataclass(frozen=True)
class TextToTextSettings:
    """Which columns hold what; lists say it for each file of `data.train` in turn."""

    source: Annotated[str | list[str], "the column of the text that is read"] = "source"
    target: Annotated[str | list[str], "the column of the text that is written"] = "target"
    prefix: Annotated[str | list[str], "what is put before the text, such as 'summarise: '"] = ""
    metric: Annotated[
        Metric | list[Metric], "how answers are scored; accuracy: the whole text must be right"
    ] = "rouge"
    bertscore: Annotated[
        str, Path, "an encoder's run (`regard import`) that says how near answers are; empty: none"
    ] = ""
    sample: Annotated[
        Literal["size", "equal"], "of several files: each as often as it has rows, or all alike"
    ] = "size"

    def of(self, field: str, number: int) -> str:
        """What is said of one file."""
        value: Any = vars(self)[field]
        return value if isinstance(value, str) else value[number]


class Row(NamedTuple):
    """A text and what is to be written of it, the number of its task, and where it stands."""

    source: str
    target: str
    task: int
    where: str


def read(files: Sequence[Path], settings: TextToTextSettings, faults: Faults) -> Iterator[Row]:
    """The rows of files, each of which is a task."""
    for task, path in enumerate(files):
        columns = [(f"task.{side}", settings.of(side, task)) for side in ("source", "target")]
        for where, (source, target) in rows(path, columns, faults):
            if not all(isinstance(text, str) and text.strip() for text in (source, target)):
                faults.report(where, "both sides must have text, but one has none")
            elif not is_text(source) or not is_text(target):
                faults.report(where, "the text must be UTF-8, but is not")
            else:
                yield Row(settings.of("prefix", task) + source, target, task, where)


def check_lists(files: Sequence[Path], settings: TextToTextSettings) -> None:
    """What is said in a list must be said of every file."""
    for field in ("source", "target", "prefix", "metric"):
        value = vars(settings)[field]
        if isinstance(value, list) and len(value) != len(files):
            raise RecipeError(
                f"task.{field} must say something of each of {len(files)} files, but has "
                f"{len(value)} entries."
            )


class TextToText(PairsTask[TextToTextSettings, Row]):
    """Any mix of tasks; scored task by task; answers with text (Raffel et al. 2020)."""

    Settings = TextToTextSettings
    Example = Row
    keeps = ("tokenizer.json",)
    metric = "score"
    recuts = True
    encodes_apart = True
    wanted = "a row that can be used"
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {"decode": {"kind": "greedy"}}

    def __init__(
        self,
        settings: TextToTextSettings,
        text: Text,
        target: Text | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(settings, text, target or text, dropout)
        self.text = text

    @property
    def gives(self) -> Form[str]:
        return TextForm("text, with its task's prefix")

    @staticmethod
    def read(settings: TextToTextSettings, files: Sequence[Path], faults: Faults) -> Iterator[Row]:
        check_lists(files, settings)  # now, and not when the first row is wanted
        return read(files, settings, faults)

    @classmethod
    def columns(cls, settings: TextToTextSettings) -> tuple[str, ...]:
        return (settings.of("source", 0), settings.of("target", 0))

    @staticmethod
    def reads_by(settings: TextToTextSettings) -> str:
        return repr((settings.source, settings.target, settings.prefix))

    @classmethod
    def learn(
        cls, settings: TextToTextSettings, sections: Sections, examples: Examples[Row]
    ) -> Self:
        every = (line for row in examples for line in (row.source, row.target))
        text = sections["text"]
        return cls(settings, learn(every, text, SENTINELS), None, text.dropout)

    @classmethod
    def imported(
        cls,
        settings: TextToTextSettings,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> Self:
        return cls(settings, texts[0])

    @classmethod
    def load(cls, settings: TextToTextSettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, Text.load(folder / "tokenizer.json"), None, sections["text"].dropout)

    # Batches: those of a translator, and which task each row is of.

    @property
    def fields(self) -> Mapping[str, Field]:
        return {**super().fields, "task": ids_below(2**20)}

    def encode(self, examples: Examples[Row], longest: int, faults: Faults) -> Iterator[Chunk]:
        for chunk in parcels(examples, lambda row: len(row.source) + len(row.target), 5000):
            sources = self.text.encode([row.source for row in chunk])
            targets = self.text.encode([row.target for row in chunk])
            kept: list[tuple[list[int], list[int], int]] = []
            for row, source, target in zip(chunk, sources, targets, strict=True):
                if max(len(source), len(target)) >= longest:
                    faults.report(
                        row.where,
                        f"a text may have {longest} tokens with its end (data.max_length), but "
                        f"one has {max(len(source), len(target)) + 1}",
                    )
                    continue
                kept.append((source, target, row.task))
            yield {
                "source": [source for source, _, _ in kept],
                "target": [target for _, target, _ in kept],
                "task": [[task] for _, _, task in kept],
            }

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Which rows make up which batch; where tasks count alike, small ones are repeated."""
        if self.settings.sample == "size":
            return super().plan(store, budget, seed)
        tasks = np.asarray(store.flat("task"))
        members = [np.flatnonzero(tasks == task) for task in np.unique(tasks)]
        most = max(map(len, members))
        index = np.concatenate([np.resize(rows, most) for rows in members])
        return Repeated(Order(self.lengths(store)[index], budget, seed), index)

    # Scores.

    def example(self, examples: Examples[Row], longest: int | None = None) -> str:
        first: str = next(iter(examples)).source
        return first

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        """The first rows of every task."""
        judged = self.judge(model, data, replace(decode, **GREEDY), count)
        return {"score": round(float(np.mean([s["score"] for s in judged.values()])), 4)}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """Each task by its own metric, and the mean of all."""
        began = time.perf_counter()
        judged = self.judge(model, data, decode)
        count = sum(scores.pop("examples") for scores in judged.values())
        found: Scores = {
            "score": round(float(np.mean([scores["score"] for scores in judged.values()])), 4),
            "score_unit": "mean over the tasks of their metrics",
        }
        for name, scores in judged.items():
            for key, value in scores.items():
                if key != "score":
                    found[key if len(judged) == 1 else f"{name}: {key}"] = value
        rate = round(count / (time.perf_counter() - began), 2)
        mean = {"loss": round(loss.nll / loss.tokens, 5)}
        return {**found, **mean, "predict_texts_per_second": rate, "examples": count}

    def judge(
        self, model: Model, data: Data, decode: Decode, most: int | None = None
    ) -> dict[str, Scores]:
        """Scores by task, named as its file is."""
        tasks = np.asarray(data.store.flat("task"))
        found: dict[str, Scores] = {}
        for task in np.unique(tasks).tolist():
            some = np.flatnonzero(tasks == task)[:most].tolist()
            _, outputs, references = self.answers(model, data, decode, some)
            scores = measure(self.settings.of("metric", task), outputs, references)
            name = self.settings.of("prefix", task) or data.examples.files[task].name
            name = name.strip(" :")
            if name in found:  # two of one name are two all the same
                name = f"{name} {task + 1}"
            found[name] = {**scores, **self.compared(outputs, references), "examples": len(some)}
        return found


def measure(metric: str, outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """One task's scores, in hundredths; `score` is the one that counts."""
    if metric == "bleu":
        found = bleu.translation_scores(outputs, references, "13a", False)
        return {"score": found["bleu"], **found}
    judged = Mean()
    for output, reference in zip(outputs, references, strict=True):
        if metric == "rouge":
            judged.add(rouge(output, reference))
        else:
            judged.add({"accuracy": float(output.strip() == reference.strip())})
    scores: Scores = {}
    for name, value in judged.means().items():
        scores[name] = round(100 * value, 4)
        scores[f"{name}_interval"] = hundredths(judged.interval(name))
    return {"score": scores["rougeL" if metric == "rouge" else "accuracy"], **scores}
