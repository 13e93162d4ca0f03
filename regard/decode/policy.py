"""How one token is chosen, by everybody who decodes: the likeliest, or one drawn.

Each answer is drawn by dice of its own, so that neighbours change nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .rules import NEVER, keep_likely
from .settings import Settings


def choose(
    scores: Tensor, settings: Settings, thrown: Tensor | None, eos: int
) -> tuple[Tensor, Tensor]:
    """A token for each row and its log-probability; where all is forbidden, the end.

    scores (R, V), what is forbidden at -inf; thrown (R,) where tokens are drawn -> (R,), (R,)
    """
    if settings.kind == "greedy" or thrown is None:
        chosen = scores.argmax(-1)
    else:
        chosen = draw(keep_likely(scores, settings), thrown)
    nothing = scores.amax(-1) == NEVER
    chosen = chosen.masked_fill(nothing, eos)
    gain = scores.gather(-1, chosen[:, None])[:, 0] - scores.logsumexp(-1)
    return chosen, gain.masked_fill(nothing, 0.0)


def throws(seed: int, copy: int, count: int) -> Tensor:
    """Numbers in [0, 1), which seed and copy alone decide."""
    dice = torch.Generator().manual_seed(seed * 1_000_003 + copy)
    return torch.rand(count, generator=dice, dtype=torch.float64)


def draw(scores: Tensor, thrown: Tensor) -> Tensor:
    """The token at which the probabilities, summed up, pass the number thrown.  (R, V), (R,)"""
    sums = scores.double().softmax(-1).cumsum(-1)
    places = torch.searchsorted(sums, (thrown * sums[:, -1])[:, None], right=True)
    return places[:, 0].clamp_max(scores.shape[-1] - 1)
