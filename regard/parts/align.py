"""Attention of a recurrent decoder to its source: any score, window and pick, with its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .attention import Attend, weigh
from .score import Score
from .state import Source


class Looked(NamedTuple):
    """What was mixed, and by which weights."""

    mixed: Tensor  # (B, H, T, K)
    weights: Tensor  # (B, H, T, S) before a pick
    picked: Tensor  # (B, H, T, S) what the values were mixed by


class AlignedAttend(Attend):
    """Scores of prepared keys, a window, softmax, a pick, the weighted sum."""

    def __init__(self, score: Score, window: nn.Module, pick: nn.Module) -> None:
        super().__init__(score)
        self.window, self.pick = window, pick

    def forward(  # type: ignore[override]
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, places: Tensor
    ) -> Looked:
        allowed, taper = self.window(q, mask, places)
        weights = weigh(q, k, self.score.compare, allowed)  # type: ignore[arg-type]
        weights = weights if taper is None else weights * taper
        picked = self.pick(weights)
        return Looked(picked @ v, weights, picked)

    def zero_heads(self, result: Any, heads: list[int]) -> object:
        return result._replace(mixed=super().zero_heads(result.mixed, heads))

    def seen(
        self,
        inputs: tuple[object, ...],
        result: Any,
        heads: list[int],
        rows: Sequence[int] | None = None,
    ) -> Tensor:
        """What `watch` gets: the weights that were used."""
        picked: Tensor = result.picked[:, heads]
        return picked if rows is None else picked[:, :, list(rows)]


class Aligned(NamedTuple):
    """What a decoder gets of its source."""

    context: Tensor  # (B, T, D) c_t = Σ w_i(t) h_i
    weights: Tensor  # (B, H, T, S)
    picked: Tensor  # (B, H, T, S)
    query: Tensor  # (B, T, D) who looked


class Align(nn.Module):
    """Heads around `AlignedAttend`. Keys and values are the source's states themselves (`plain`),
    or have projections of their own (`separate`).

    With coverage, the sum of all weights so far is added to each key along a learned direction, so
    that the score can tell what has been translated already (Tu et al. 2016, See et al. 2017).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        look: AlignedAttend,
        separate: bool = False,
        coverage: bool = False,
    ) -> None:
        super().__init__()
        assert width % heads == 0, f"{heads} heads cannot share a width of {width}"
        self.heads = heads
        project = nn.Linear if separate else nn.Identity
        self.query, self.key = project(width, width), project(width, width)
        self.value, self.output = project(width, width), project(width, width)
        self.attend = look
        self.coverage = (
            nn.Parameter(torch.randn(heads, 1, width // heads) * 0.1) if coverage else None
        )

    def split(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, K)"""
        heads: Tensor = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return heads

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What is needed of a source, computed once.  (B, S, D) -> keys and values (B, H, S, K)"""
        score: Any = self.attend.score
        return score.prepare(self.split(self.key(memory))), self.split(self.value(memory))

    def forward(
        self, query: Tensor, source: Source, places: Tensor, covered: Tensor | None = None
    ) -> Aligned:
        """query (M·G, T, D) of M sources that G rows each read, covered (M·G, H, S)."""
        keys, values, mask, group = source
        if covered is not None and self.coverage is not None:
            keys, values, mask = (x.repeat_interleave(group, 0) for x in (keys, values, mask))
            keys, group = keys + covered[..., None] * self.coverage, 1
        rows, steps = query.shape[:2]
        q, places = (x.reshape(rows // group, group * steps, *x.shape[2:]) for x in (query, places))
        mixed, weights, picked = self.attend(self.split(self.query(q)), keys, values, mask, places)
        context = self.output(mixed.transpose(1, 2).flatten(-2)).reshape(rows, steps, -1)
        return Aligned(context, self.apart(weights, group), self.apart(picked, group), query)

    @staticmethod
    def apart(weights: Tensor, group: int) -> Tensor:
        """Rows that shared a source, side by side again.  (M, H, G·T, S) -> (M·G, H, T, S)"""
        rows: Tensor = weights.unflatten(2, (group, -1)).transpose(1, 2).flatten(0, 1)
        return rows
