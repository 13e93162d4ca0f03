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


class Coverage(nn.Module):
    """The sum of all weights so far, along a learned direction: what has been translated already
    (Tu et al. 2016, See et al. 2017)."""

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(heads, 1, head_width) * 0.1)

    def grow(self, before: Tensor, picked: Tensor) -> Tensor:
        """What is remembered after some looks.  (B, H, S), (B, H, T, S) -> (B, H, S)"""
        return before + picked.sum(2)

    def forward(self, before: Tensor) -> Tensor:
        """What each key is told of it.  (B, H, S) -> (B, H, S, K)"""
        return before[..., None] * self.direction


class LastLook(Coverage):
    """The last weights, seen through convolutions: with the additive score, location-aware
    attention, which moves along a source from where it was (Chorowski et al. 2015)."""

    def __init__(self, heads: int, head_width: int, filters: int = 10, reach: int = 50) -> None:
        nn.Module.__init__(self)
        self.filters = nn.Conv1d(heads, heads * filters, 2 * reach + 1, padding=reach, groups=heads)
        self.out = nn.Parameter(torch.randn(heads, filters, head_width) * filters**-0.5)

    def grow(self, before: Tensor, picked: Tensor) -> Tensor:
        return picked[:, :, -1]

    def forward(self, before: Tensor) -> Tensor:
        seen = self.filters(before).unflatten(1, (before.shape[1], -1))  # (B, H, C, S)
        told: Tensor = seen.transpose(-2, -1) @ self.out
        return told


COVERAGES: dict[object, type[Coverage] | None] = {
    False: None,
    True: Coverage,
    "location": LastLook,
}


class Align(nn.Module):
    """Heads around `AlignedAttend`. Keys and values are the source's states themselves (`plain`),
    or have projections of their own (`separate`); a coverage tells each key how it was looked at.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        look: AlignedAttend,
        separate: bool = False,
        coverage: bool | str = False,
    ) -> None:
        super().__init__()
        assert width % heads == 0, f"{heads} heads cannot share a width of {width}"
        self.heads = heads
        project = nn.Linear if separate else nn.Identity
        self.query, self.key = project(width, width), project(width, width)
        self.value, self.output = project(width, width), project(width, width)
        self.attend = look
        covers = COVERAGES[coverage]
        self.coverage = covers(heads, width // heads) if covers is not None else None

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
            keys, group = keys + self.coverage(covered), 1
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
