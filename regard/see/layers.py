"""Hierarchy: all tokens of an input as points, layer by layer.

Every layer mixes a token with those it looks at, so neighbours come closer, points gather in
clouds, and fewer directions are needed to tell them apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..training.run import Run
from . import figure
from .brief import counted
from .meaning import Array, cosines, plane, vectors
from .save import save


@dataclass(frozen=True, repr=False)
class Layers:
    """The tokens of an input as vectors; saves itself as a picture or numbers."""

    tokens: list[str]
    vectors: Array  # (L + 1, T, D): into each layer, and at the top

    def __repr__(self) -> str:
        layers = counted(len(self.vectors) - 1, "layer")
        return f"<Layers: {counted(len(self.tokens), 'token')} through {layers}>"

    def neighbours(self) -> list[float]:
        """The mean cosine of two tokens that stand side by side, by layer."""
        return [float(np.diagonal(table, 1).mean()) for table in cosines(self.vectors)]

    def others(self) -> list[float]:
        """The same of two that do not; a text of two tokens has none."""
        pairs = np.triu_indices(len(self.tokens), 2)
        if not len(pairs[0]):
            return [float("nan")] * len(self.vectors)
        return [float(table[pairs].mean()) for table in cosines(self.vectors)]

    def directions(self) -> list[float]:
        """In how many directions the points differ: e to the entropy of the singular values' shares
        (effective rank, Roy and Vetterli 2007)."""
        found = []
        for layer in self.vectors:
            sizes = np.linalg.svd(layer - layer.mean(0), compute_uv=False)
            shares = sizes / max(float(sizes.sum()), 1e-30)
            shares = shares[shares > 1e-12]
            found.append(float(np.exp(-(shares * np.log(shares)).sum())))
        return found

    def planes(self) -> list[Array]:
        """The two directions in which the points of each layer differ most.  -> (T, 2) each"""
        return [plane(layer) for layer in self.vectors]

    def data(self) -> dict[str, object]:
        told = zip(self.neighbours(), self.others(), self.directions(), strict=True)
        layers = [
            {"into": layer, "neighbours": round(near, 5),
             "others": None if np.isnan(far) else round(far, 5), "effective_rank": round(rank, 4),
             "plane": places.round(5).tolist()}
            for layer, ((near, far, rank), places) in enumerate(
                zip(told, self.planes(), strict=True)
            )
        ]  # fmt: skip
        return {"tokens": self.tokens, "layers": layers}

    def save(self, path: str | Path) -> Path:
        """Write .json, .png, .svg or .pdf, as the name says."""
        return save(self, Path(path), WRITERS)


WRITERS: dict[str, Callable[[Layers, Path], object]] = {
    ".json": lambda found, path: path.write_text(
        json.dumps(found.data(), ensure_ascii=False), encoding="utf-8"
    ),
    **{kind: lambda found, path: figure.clouds(found, path) for kind in (".png", ".svg", ".pdf")},
}


def layers(run: Run, source: object) -> Layers:
    """The vectors of an input's tokens, into each layer and at the top."""
    names, found = vectors(run, source)
    if len(names) < 2:
        raise InputError(f"there must be two tokens or more to compare, but are {len(names)}.")
    return Layers(names, found)
