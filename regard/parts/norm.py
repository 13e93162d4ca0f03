"""Norms, and the two places a norm can stand around a sub-layer with its residual connection."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

# `none` is there to show what a norm is for.
NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "none": nn.Identity,
}


class PostNorm(nn.Module):
    """norm(x + sublayer(x)), as in 2017.  (B, T, D) -> (B, T, D)"""

    final = False  # the last sub-layer's output is already normed

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

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
