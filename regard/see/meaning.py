"""Context to word: one word in several sentences, as vectors, layer by layer.

"broke" is one entry of a vocabulary; in "the vase broke" and "the news broke" it begins as the same
vector, and every layer mixes in what stands around it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError
from ..tasks.task import Traces
from ..training.run import Run
from . import figure
from .brief import counted, quoted
from .capture import check_lengths, named
from .field import as_word, kept_inputs, looking_at_itself
from .save import save

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Meaning:
    """A word's vectors in several sentences; saves itself as a picture or numbers."""

    word: str
    sentences: list[str]
    vectors: Array  # (L + 1, N, D): into each layer, and at the top

    def __repr__(self) -> str:
        return f"<Meaning of {quoted(self.word)} in {counted(len(self.sentences), 'sentence')}>"

    def similarities(self) -> Array:
        """Cosines of every two sentences' vectors.  -> (L + 1, N, N)"""
        return cosines(self.vectors)

    def plane(self, layer: int) -> Array:
        """The two directions in which they differ most.  -> (N, 2)"""
        return plane(self.vectors[layer])

    def apart(self) -> list[float]:
        """The mean distance (1 - cosine) of two sentences, by layer."""
        pairs = np.triu_indices(len(self.sentences), 1)
        return [round(float(1 - table[pairs].mean()), 6) for table in self.similarities()]

    def data(self) -> dict[str, object]:
        layers = [
            {"into": layer, "distance": far, "similarities": table.round(5).tolist(),
             "plane": self.plane(layer).round(5).tolist()}
            for layer, (far, table) in enumerate(
                zip(self.apart(), self.similarities(), strict=True)
            )
        ]  # fmt: skip
        return {"word": self.word, "sentences": self.sentences, "layers": layers}

    def save(self, path: str | Path) -> Path:
        """Write .json, .png, .svg or .pdf, as the name says."""
        return save(self, Path(path), WRITERS)


WRITERS: dict[str, Callable[[Meaning, Path], object]] = {
    ".json": lambda found, path: path.write_text(
        json.dumps(found.data(), ensure_ascii=False), encoding="utf-8"
    ),
    **{kind: lambda found, path: figure.planes(found, path) for kind in (".png", ".svg", ".pdf")},
}


def cosines(vectors: Array) -> Array:
    """Of every two points of a layer.  (L, N, D) -> (L, N, N)"""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units = vectors / np.maximum(lengths, 1e-12)
    found: Array = units @ units.transpose(0, 2, 1)
    return found


def plane(points: Array) -> Array:
    """The two directions in which points differ most.  (N, D) -> (N, 2)"""
    left, sizes, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    found = np.zeros((len(points), 2))
    shown = (left * sizes)[:, :2]
    found[:, : shown.shape[1]] = shown
    return found


def vectors(run: Run, source: object) -> tuple[list[str], Array]:
    """Every token of an input, into each layer and at the top.  -> names, (L + 1, T, D)"""
    task = run.task
    if not isinstance(task, Traces):
        raise InputError(f"a run for the task {run.recipe.task_kind} cannot be looked into.")
    stack, side = looking_at_itself(run)
    given = task.looked_at(run.given(source))
    batch, sides = task.trace(given, "")
    sides = named(run, sides)
    check_lengths(run, sides)
    with kept_inputs(getattr(run.model, stack)) as (inputs, top), torch.no_grad():
        run.model(batch.to(run.device))
    layers = [one[0].detach().double().cpu().numpy() for one in (*inputs, top[0])]
    return sides[side].names, np.stack(layers)


def meaning(run: Run, word: str, sentences: Sequence[str]) -> Meaning:
    """A word's vectors in sentences that have it; of several pieces, their mean."""
    if len(sentences) < 2:
        raise InputError(
            f"there must be two sentences or more to compare, but are {len(sentences)}."
        )
    found = []
    for number, sentence in enumerate(sentences, 1):
        names, layers = vectors(run, sentence)
        places = pieces_of(names, word)
        if not places:
            raise InputError(f"sentence {number} must have the word '{word}', but is {sentence!r}.")
        found.append(layers[:, places].mean(1))
    return Meaning(word, list(sentences), np.stack(found, 1))


def pieces_of(names: Sequence[str], word: str) -> list[int]:
    """The first tokens that are the word when put together."""
    plain = [as_word(name).removeprefix("##") for name in names]
    for start in range(len(names)):
        joined = ""
        for end in range(start, len(names)):
            joined += plain[end]
            if joined.lower() == word.lower():
                return list(range(start, end + 1))
            if not word.lower().startswith(joined.lower()):
                break
    return []
