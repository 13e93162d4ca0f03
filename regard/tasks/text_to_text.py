"""Text to text: every task is a text in and a text out, told apart by what stands before it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from ..data.cut import Plan
from ..data.order import Order, Rows
from ..data.read import Faults, is_text, parcels
from ..data.store import Chunk, Store, cached
from ..decode import Settings as Decode
from ..errors import DataError, RecipeError
from ..text import Settings as TextSettings
from ..text import Text, learn
from . import bleu
from .measure import Mean, rouge
from .rows import rows
from .translate import ANY_LENGTH, GREEDY, Example, Translate

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
    sample: Annotated[
        Literal["size", "equal"], "of several files: each as often as it has rows, or all alike"
    ] = "size"

    def of(self, field: str, number: int) -> str:
        """What is said of one file."""
        value: Any = getattr(self, field)
        return value if isinstance(value, str) else value[number]


def read(
    files: Sequence[Path], settings: TextToTextSettings, faults: Faults
) -> Iterator[tuple[int, Example]]:
    """Rows with the number of their task; each file is one."""
    for field in ("source", "target", "prefix", "metric"):
        value = getattr(settings, field)
        if isinstance(value, list) and len(value) != len(files):
            raise RecipeError(
                f"task.{field} must say something of each of {len(files)} files, but has "
                f"{len(value)} entries."
            )
    for task, path in enumerate(files):
        columns = [(f"task.{side}", settings.of(side, task)) for side in ("source", "target")]
        for where, (source, target) in rows(path, columns, faults):
            if not all(isinstance(text, str) and text.strip() for text in (source, target)):
                faults.report(where, "both sides must have text, but one has none")
            elif not is_text(source) or not is_text(target):
                faults.report(where, "the text must be UTF-8, but is not")
            else:
                yield task, Example(settings.of("prefix", task) + source, target, where)


class TextToText(Translate):
    """Any mix of tasks; scored task by task; answers with text (Raffel et al. 2020)."""

    Settings: Any = TextToTextSettings
    settings: Any
    metric, higher_is_better = "score", True
    defaults: ClassVar[dict[str, dict[str, Any]]] = {"decode": {"kind": "greedy"}}

    def __init__(
        self, settings: Any, text: Text, target: Text | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__(settings, text, target or text, dropout)
        self.text = text

    @classmethod
    def learn(
        cls, settings: Any, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> TextToText:
        every = (line for _, row in read(files, settings, faults) for line in row[:2])
        return cls(settings, learn(every, text, SENTINELS), None, text.dropout)

    @classmethod
    def load(cls, settings: Any, text: TextSettings, folder: Path) -> TextToText:
        return cls(settings, Text.load(folder / "tokenizer.json"), None, text.dropout)

    # Batches: those of a translator, and which task each row is of.

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' rows as ids, from the cache where their content has not changed."""
        marks = ("text-to-text", self.text.tokenizer.to_str(), str(longest), repr(self.settings))
        size, rows = max(self.text.size, len(files)), self._rows(files, longest, faults)
        return cached(cache, files, marks, rows, size, faults, "a row that can be used")

    def _rows(self, files: Sequence[Path], longest: int, faults: Faults) -> Iterator[Chunk]:
        every = read(files, self.settings, faults)
        for chunk in parcels(every, lambda e: len(e[1].source) + len(e[1].target), 5000):
            sides = [self.text.encode([row[i] for _, row in chunk]) for i in (0, 1)]
            kept: list[tuple[list[int], list[int], int]] = []
            for (task, row), source, target in zip(chunk, *sides, strict=True):
                if max(len(source), len(target)) >= longest:
                    faults.report(
                        row.where,
                        f"a text may have {longest} tokens with its end (data.max_length), but "
                        f"one has {max(len(source), len(target)) + 1}",
                    )
                    continue
                kept.append((source, target, task))
            yield {
                "source": [source for source, _, _ in kept],
                "target": [target for _, target, _ in kept],
                "task": [[task] for _, _, task in kept],
            }

    def plan(self, store: Store, budget: int, seed: int) -> Plan:
        """Which rows make up which batch; where tasks count alike, small ones are repeated."""
        if self.settings.sample == "size":
            return super().plan(store, budget, seed)
        tasks = np.asarray(store.flat("task"))
        members = [np.flatnonzero(tasks == task) for task in np.unique(tasks)]
        most = max(map(len, members))
        index = np.concatenate([np.resize(rows, most) for rows in members])
        return Repeated(Order(self.lengths(store)[index], budget, seed), index)

    # Scores.

    def examples(
        self, files: Sequence[Path], faults: Faults, most: int | None = None
    ) -> tuple[list[str], list[str]]:
        found = [row for _, row in islice(read(files, self.settings, faults), most)]
        return [row.source for row in found], [row.target for row in found]

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        return next((row.source for _, row in read(files, self.settings, Faults(skip=True))), "")

    def quick_scores(
        self, model: Any, files: Sequence[Path], decode: Decode, faults: Faults, count: int
    ) -> dict[str, Any]:
        """The first rows of every task."""
        judged = self.judge(model, files, replace(decode, **GREEDY), faults, count)
        return {"score": round(float(np.mean([s["score"] for s in judged.values()])), 4)}

    def evaluate(
        self,
        model: Any,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """Each task by its own metric, and the mean of all."""
        began = time.perf_counter()
        judged = self.judge(model, files, decode, faults)
        count = sum(scores.pop("examples") for scores in judged.values())
        found: dict[str, Any] = {
            "score": round(float(np.mean([scores["score"] for scores in judged.values()])), 4),
            "score_unit": "mean over the tasks of their metrics",
        }
        for name, scores in judged.items():
            for key, value in scores.items():
                if key != "score":
                    found[key if len(judged) == 1 else f"{name}: {key}"] = value
        rate = round(count / (time.perf_counter() - began), 2)
        loss = {"loss": round(nll / tokens, 5)}
        return {**found, **loss, "predict_texts_per_second": rate, "examples": count}

    def judge(
        self,
        model: Any,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        most: int | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Scores by task, named as its file is."""
        by_task: dict[int, list[Example]] = {}
        for task, row in read(files, self.settings, faults):
            if most is None or len(by_task.get(task, [])) < most:
                by_task.setdefault(task, []).append(row)
        if not by_task:
            raise DataError(f"{files[0]}: there must be a row to score, but there is none.")
        found = {}
        for task, some in by_task.items():
            answers = self.predict(model, [row.source for row in some], decode, ANY_LENGTH)
            outputs = [answer.output for answer in answers]
            scores = measure(
                self.settings.of("metric", task), outputs, [row.target for row in some]
            )
            name = (self.settings.of("prefix", task) or files[task].name).strip(" :")
            if name in found:  # two of one name are two all the same
                name = f"{name} {task + 1}"
            found[name] = {**scores, "examples": len(some)}
        return found


def measure(metric: str, outputs: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
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
    scores: dict[str, Any] = {}
    for name, value in judged.means().items():
        scores[name] = round(100 * value, 4)
        scores[f"{name}_interval"] = [round(100 * edge, 2) for edge in judged.interval(name)]
    return {"score": scores["rougeL" if metric == "rouge" else "accuracy"], **scores}


class Repeated(Plan):
    """An order over rows of which some stand in it more than once."""

    def __init__(self, order: Order, index: Rows) -> None:
        self.order, self.index, self.batches = order, index, order.batches

    def epoch(self, number: int) -> list[Rows]:
        return [self.index[rows] for rows in self.order.epoch(number)]

    def largest(self) -> Rows:
        return self.index[self.order.largest()]

    def usual(self) -> Rows:
        return self.index[self.order.usual()]
