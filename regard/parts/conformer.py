"""The Conformer's block: attention for what is far, convolution for what is near."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention, Bias
from .block import Block
from .norm import PostNorm


class Convolution(nn.Module):
    """A gate, a convolution of each channel over time, and a norm.  (B, S, D) -> (B, S, D)

    Gulati et al. 2020, figure 2, with a layer norm for the batch's, so that no answer depends on
    its neighbours.
    """

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        assert kernel % 2, f"a kernel has a middle, so its width must be odd: {kernel}"
        self.into = nn.Linear(width, 2 * width)
        self.over_time = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (B, 1, 1, S): True where there is no padding, which is silent here."""
        x = F.glu(self.into(x))
        if mask is not None:
            x = x * mask[:, 0, 0, :, None]
        x = self.over_time(x.transpose(1, 2)).transpose(1, 2)
        out: Tensor = self.out(F.silu(self.norm(x)))
        return out


class ConformerBlock(Block):
    """Half a feed-forward, attention, convolution, the other half, a norm (Gulati et al. 2020).

    (B, S, D) -> (B, S, D)
    """

    def __init__(
        self,
        attention: Attention,
        feedforward: Callable[[], nn.Module],
        residual: Callable[[], PostNorm],
        convolution: Convolution,
        norm: nn.Module,
    ) -> None:
        super().__init__(attention, feedforward(), residual)
        self.feedforward_first, self.first_residual = feedforward(), residual()
        self.convolution, self.convolution_residual = convolution, residual()
        self.norm = norm

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Bias | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        assert not causal and memory is None, "a Conformer's block reads, it does not write"
        look = partial(self.attention, mask=mask, bias=bias, positions=positions)
        x = self.first_residual(x, lambda y: self.feedforward_first(y) / 2)
        x = self.attention_residual(x, look)
        x = self.convolution_residual(x, partial(self.convolution, mask=mask))
        x = self.feedforward_residual(x, lambda y: self.feedforward(y) / 2)
        out: Tensor = self.norm(x)
        return out
