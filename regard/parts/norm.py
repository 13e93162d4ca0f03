"""Norms, and the two places a norm can stand around a sub-layer with its residual connection."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

# `none` is there to show what a norm is for.
NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "none": nn.Identity,
}


class DropPath(nn.Module):
    """What a sub-layer adds, of some examples nothing at all (Huang et al. 2016)."""

    rate: Tensor  # not a number, so that one compiled block stands for those of all rates

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("rate", torch.tensor(rate), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = torch.rand(len(x), *(1,) * (x.dim() - 1), device=x.device) >= self.rate
        return x * kept / (1 - self.rate)


class PostNorm(nn.Module):
    """norm(x + sublayer(x)), as in 2017.  (B, T, D) -> (B, T, D)"""

    final = False  # the last sub-layer's output is already normed

    def __init__(self, norm: nn.Module, dropout: float, leave_out: float | None = None) -> None:
        """`leave_out`: how often, in training, an example goes around the sub-layer."""
        super().__init__()
        self.norm = norm
        self.dropout: nn.Module = nn.Dropout(dropout)
        if leave_out is not None:
            self.dropout = nn.Sequential(self.dropout, DropPath(leave_out))

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return out

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer is given of x."""
        return x


class PreNorm(PostNorm):
    """x + sublayer(norm(x)), as in 2019: the residual path stays untouched."""

    final = True  # so the stack needs a norm of its own at the end

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return out

    def before(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x)
        return out


class NoResidual(PostNorm):
    """norm(sublayer(x)): no way around a sub-layer, to show what that way is for."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = self.norm(self.dropout(sublayer(x)))
        return out


RESIDUALS: dict[str, type[PostNorm]] = {"post": PostNorm, "pre": PreNorm, "none": NoResidual}
