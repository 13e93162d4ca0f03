"""Drawing the next token, each row by dice of its own, so that neighbours change nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import rules
from .greedy import walk
from .settings import Generator, Hypothesis, Limits, Settings


def sample(
    model: Generator, batch: Any, limits: Limits, settings: Settings
) -> list[list[Hypothesis]]:
    """`num_return_sequences` draws for each row, in the order drawn."""
    copies = settings.num_return_sequences
    dice = [
        torch.Generator().manual_seed(settings.seed * 1_000_003 + copy)
        for _ in range(len(limits.longest))
        for copy in range(copies)
    ]

    def choose(scores: Tensor, rows: Tensor) -> Tensor:
        likely = rules.keep_likely(scores, settings)
        # The largest of log p + Gumbel noise is a draw from p.
        noise = torch.stack(
            [torch.rand(scores.shape[-1], generator=dice[row]) for row in rows.tolist()]
        )
        return (likely - (-noise.clamp_min(1e-20).log()).log().to(likely.device)).argmax(-1)

    drawn = walk(model, batch, limits, settings, choose, copies)
    return [drawn[i : i + copies] for i in range(0, len(drawn), copies)]
