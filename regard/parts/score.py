"""How well a query and a key fit: raw scores, before mask and softmax."""

from __future__ import annotations

from torch import Tensor, nn


class Dot(nn.Module):
    """q·k times a scale.  (B, H, T, K), (B, H, S, K) -> (B, H, T, S)

    The only score with a fused kernel: `Attend` asks for the scale and takes it.
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) * self.scale


class ScaledDot(Dot):
    """q·k / √K, which keeps the scores' variance at one (Vaswani et al. 2017, eq. 1).

    Scores 112 and 96 with K = 64 become 14 and 12, and the softmax 0.88 and 0.12.
    """

    def __init__(self, head_width: int) -> None:
        super().__init__(head_width**-0.5)


SCORES = {"scaled-dot": ScaledDot}
