"""Drawing the next token, each row by dice of its own, so that neighbours change nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import rules
from .greedy import Choice, walk
from .settings import Generator, Hypothesis, Limits, Settings


def sample(
    model: Generator, batch: Any, limits: Limits, settings: Settings
) -> list[list[Hypothesis]]:
    """`num_return_sequences` draws for each row, in the order drawn."""
    copies = settings.num_return_sequences
    drawn = walk(model, batch, limits, settings, drawing(limits, settings), copies)
    return [drawn[i : i + copies] for i in range(0, len(drawn), copies)]


def drawing(limits: Limits, settings: Settings) -> Choice:
    """A choice by dice: the same for every row, another for each of its copies."""
    rows, most = len(limits.longest), int(limits.longest.max())
    copies = settings.num_return_sequences
    thrown = torch.stack([throws(settings.seed, copy, most) for copy in range(copies)])
    thrown = thrown.repeat(rows, 1).to(limits.longest.device)  # (R, steps)
    step = iter(range(most))

    def choose(scores: Tensor, rows: Tensor) -> Tensor:
        return draw(rules.keep_likely(scores, settings), thrown[rows, next(step)])

    return choose


def throws(seed: int, copy: int, count: int) -> Tensor:
    """Numbers in [0, 1), which seed and copy alone decide."""
    dice = torch.Generator().manual_seed(seed * 1_000_003 + copy)
    return torch.rand(count, generator=dice, dtype=torch.float64)


def draw(scores: Tensor, thrown: Tensor) -> Tensor:
    """The token at which the probabilities, summed up, pass the number thrown.  (R, V), (R,)"""
    sums = scores.double().softmax(-1).cumsum(-1)
    places = torch.searchsorted(sums, (thrown * sums[:, -1])[:, None], right=True)
    return places[:, 0].clamp_max(scores.shape[-1] - 1)
