"""Where a query may look: everywhere, or in a window around a place of its own.

Every window has the same shapes: queries (B, H, T, K), padding mask (B, 1, 1, S), places (B, T) of
the queries -> which keys may be seen (B, H, T, S), and by how much each weight is then lessened.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .score import by_head

Seen = tuple[Tensor, Tensor | None]


class Everywhere(nn.Module):
    """Global attention: every word of the source."""

    def __init__(self, head_width: int, heads: int = 1, reach: int = 1) -> None:
        super().__init__()

    def forward(self, q: Tensor, mask: Tensor, places: Tensor) -> Seen:
        return mask, None


class Monotonic(nn.Module):
    """Local attention that moves along the source: word t of the target looks around word t of the
    source, and around its last where the source has ended (Luong et al. 2015, section 3.2)."""

    def __init__(self, head_width: int, heads: int = 1, reach: int = 10) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, q: Tensor, mask: Tensor, places: Tensor) -> Seen:
        centre = places[:, None].minimum(last(mask))  # (B, 1, T)
        return mask & (distance(centre, mask) <= self.reach), None


class Predictive(nn.Module):
    """Local attention whose centre is learned: p = (S - 1) sigmoid(v·tanh(W q)), and a Gaussian
    with σ = reach / 2 around it lessens the weights (Luong et al. 2015, eq. 9 and 10)."""

    def __init__(self, head_width: int, heads: int = 1, reach: int = 10) -> None:
        super().__init__()
        self.reach = reach
        bound = (3 / head_width) ** 0.5
        self.weight = nn.Parameter(torch.empty(heads, head_width, head_width))
        self.value = nn.Parameter(torch.empty(heads, head_width, 1))
        for part in (self.weight, self.value):
            nn.init.uniform_(part, -bound, bound)

    def forward(self, q: Tensor, mask: Tensor, places: Tensor) -> Seen:
        where = by_head(by_head(q, self.weight).tanh(), self.value)[..., 0].float().sigmoid()
        apart = distance(where * last(mask), mask)
        taper = (-(apart**2) / (2 * (self.reach / 2) ** 2)).exp()
        return mask & (apart <= self.reach), taper


WINDOWS: dict[str, Callable[..., nn.Module]] = {
    "global": Everywhere,
    "monotonic": Monotonic,
    "predictive": Predictive,
}


def last(mask: Tensor) -> Tensor:
    """The last real place.  (B, 1, 1, S) -> (B, 1, 1)"""
    return mask.sum(-1).clamp_min(1) - 1


def distance(centre: Tensor, mask: Tensor) -> Tensor:
    """How far each key is from a centre.  (B, H, T), (…, S) -> (B, H, T, S)"""
    return (torch.arange(mask.shape[-1], device=mask.device) - centre[..., None]).abs()
