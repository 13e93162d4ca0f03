"""Probes: what a linear classifier can read off frozen vectors, layer by layer.

Beside each stands the same classifier with control labels, drawn once for each word (or text) and
learned as well as they can be: what it gets right of those is memory, not what the layers know
(Hewitt and Liang 2019).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from .. import config
from ..data import conll, labelled
from ..data.read import Faults
from ..errors import InputError
from ..score.interval import proportion
from ..tasks import TASKS
from ..training.recipe import Recipe, resolve
from ..training.run import Run
from . import figure
from .brief import counted
from .heads import words_of
from .meaning import vectors
from .save import save

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # of the decay, of which a held-out tenth chooses
SEED = 0


class Item(NamedTuple):
    """A vector of each layer, what is to be read off it, and what it is a vector of."""

    vectors: NDArray[np.float32]  # (L + 1, D)
    label: str
    of: str


@dataclass(frozen=True)
class ProbedLayer:
    """What was right, in hundredths."""

    name: str
    accuracy: float
    interval: list[float]
    control: float
    strength: float


@dataclass(frozen=True, repr=False)
class Probed:
    """Every layer's probe; saves itself as a picture or numbers."""

    layers: list[ProbedLayer]
    train: int
    test: int
    most: float  # of the commonest label, in hundredths
    labels: list[str]
    on: str

    def __repr__(self) -> str:
        layers = counted(len(self.layers), "layer")
        return f"<Probed: {layers}, {counted(len(self.labels), 'label')} on {self.on}>"

    def data(self) -> dict[str, object]:
        return {**vars(self), "layers": [vars(one) for one in self.layers]}

    def save(self, path: str | Path) -> Path:
        """Write .json, .png, .svg or .pdf, as the name says."""
        return save(self, Path(path), WRITERS)


WRITERS: dict[str, Callable[[Probed, Path], object]] = {
    ".json": lambda found, path: path.write_text(
        json.dumps(found.data(), ensure_ascii=False), encoding="utf-8"
    ),
    **{kind: lambda found, path: figure.probes(found, path) for kind in (".png", ".svg", ".pdf")},
}


def of_words(run: Run, one: conll.Sentence) -> Iterator[Item]:
    """Every word of a tagged sentence: the mean of its pieces."""
    names, layers = vectors(run, " ".join(one.words))
    for word, tag, pieces in zip(one.words, one.tags, words_of(names, one.words), strict=True):
        if pieces:
            yield Item(layers[:, pieces].mean(1).astype(np.float32), tag, word.lower())


def of_texts(run: Run, one: labelled.Example) -> Iterator[Item]:
    """A labelled text: the mean of its tokens."""
    given = one.text if one.pair is None else f"{one.text}\t{one.pair}"
    _, layers = vectors(run, given)
    yield Item(layers.mean(1).astype(np.float32), str(one.label), given)


READERS: dict[type, Callable[[Run, Any], Iterator[Item]]] = {
    conll.Sentence: of_words,
    labelled.Example: of_texts,
}


def read_task(run: Run, recipe: str, overrides: Sequence[str]) -> Recipe:
    """What is to be read off, by a recipe of which only [task] and [data] count."""
    path = config.find(recipe)
    given = config.read(path, overrides)
    model = {"kind": config.Value(run.recipe.model_kind, "default", str(path), path.parent)}
    return resolve(path.stem, {**given, "model": model})


def items(run: Run, recipe: Recipe, part: str, most: int) -> list[Item]:
    """The vectors of the first examples of a part."""
    task, faults = TASKS[recipe.task_kind], Faults(recipe.data.skip_bad)
    if task.Example not in READERS:
        raise InputError(
            f"a probe reads off tags of words or classes of texts, but the task is "
            f"{recipe.task_kind}."
        )
    cache = run.folder.parent / ".cache"
    examples = task.examples(recipe.task, recipe.data.files(part), cache, faults)
    read = READERS[task.Example]
    return [
        item for number in range(min(most, len(examples))) for item in read(run, examples[number])
    ]


def probe(run: Run, recipe: str, *overrides: str, examples: int = 1000, on: str = "") -> Probed:
    """Read a task's labels off a run's vectors, layer by layer."""
    asked = read_task(run, recipe, overrides)
    on = on or next((part for part in ("valid", "test") if vars(asked.data)[part]), "")
    if on not in ("valid", "test"):
        raise InputError("a probe needs data.valid or data.test to be judged on; name one.")
    learned = items(run, asked, "train", examples)
    judged = items(run, asked, on, examples)
    if not learned or not judged:
        raise InputError("there must be words to read labels off, but are none.")
    labels = sorted({item.label for item in learned})
    if len(labels) < 2:
        raise InputError(f"there must be two labels or more, but there is '{labels[0]}' alone.")
    common = Counter(item.label for item in learned)
    right, control = (
        [numbers_of(part, labels, None) for part in (learned, judged)],
        [numbers_of(part, labels, common) for part in (learned, judged)],
    )
    found = []
    for layer in range(len(learned[0].vectors)):
        x, test = (
            torch.from_numpy(np.stack([item.vectors[layer] for item in part]))
            for part in (learned, judged)
        )
        middle, spread = x.mean(0), x.std(0).clamp_min(1e-6)
        x, test = (x - middle) / spread, (test - middle) / spread
        hits, strength = told_right(x, right[0], test, right[1], len(labels))
        guessed, _ = told_right(x, control[0], test, control[1], len(labels))
        count = len(judged)
        last = layer == len(learned[0].vectors) - 1
        found.append(
            ProbedLayer(
                "at the top" if last else f"into layer {layer + 1}", 100 * hits / count,
                proportion(hits, count), 100 * guessed / count, strength,
            )
        )  # fmt: skip
    usual = common.most_common(1)[0][0]
    most = 100 * sum(item.label == usual for item in judged) / len(judged)
    return Probed(found, len(learned), len(judged), most, labels, on)


def numbers_of(
    part: Sequence[Item], labels: Sequence[str], drawn_from: Counter[str] | None
) -> Tensor:
    """The labels by number, -1 for one that was not learned; or, drawn as often as they come, one
    for each word, always the same."""
    if drawn_from is None:
        known = {label: number for number, label in enumerate(labels)}
        return torch.tensor([known.get(item.label, -1) for item in part])
    edges = np.cumsum([drawn_from[label] for label in labels]) / drawn_from.total()
    lots = [
        int.from_bytes(hashlib.sha256(f"{SEED} {item.of}".encode()).digest()[:8]) / 2**64
        for item in part
    ]
    return torch.from_numpy(np.searchsorted(edges, lots, "right").clip(0, len(labels) - 1))


def told_right(
    x: Tensor, y: Tensor, test: Tensor, wanted: Tensor, labels: int
) -> tuple[int, float]:
    """How many of the test a linear classifier tells, and how strongly its weights were held."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(SEED))
    held, kept = order[: len(x) // 10], order[len(x) // 10 :]
    strength = STRENGTHS[1]
    if len(held) >= 10:
        tried = [classifier(x[kept], y[kept], labels, one)(x[held]) for one in STRENGTHS]
        strength = STRENGTHS[int(np.argmax([float((t == y[held]).sum()) for t in tried]))]
    told = classifier(x, y, labels, strength)(test)
    return int((told == wanted).sum()), strength


def classifier(x: Tensor, y: Tensor, labels: int, strength: float) -> Callable[[Tensor], Tensor]:
    """Logistic regression with weights held towards zero, to its optimum."""
    weight = torch.zeros(labels, x.shape[1], requires_grad=True)
    bias = torch.zeros(labels, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ weight.T + bias, y) + strength * weight.square().sum() / 2
        loss.backward()
        return float(loss.detach())

    with torch.enable_grad():
        optimizer.step(closure)
    fixed, shift = weight.detach(), bias.detach()
    return lambda other: (other @ fixed.T + shift).argmax(-1)
