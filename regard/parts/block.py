"""A block: attention, perhaps attention to a memory, and a feed-forward, each with its residual."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from .attention import Attention
from .norm import PostNorm
from .state import State


class Block(nn.Module):
    """An encoder's block; with `cross`, a decoder's (Vaswani 2017, 3.1).  (B, T, D) -> (B, T, D)"""

    def __init__(
        self,
        attention: Attention,
        feedforward: nn.Module,
        residual: Callable[[], PostNorm],
        cross: Attention | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, residual()
        self.cross, self.cross_residual = cross, residual() if cross is not None else None
        self.feedforward, self.feedforward_residual = feedforward, residual()

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        look = partial(self.attention, mask=mask, causal=causal, positions=positions)
        recall = self.cross and partial(self.cross, memory=memory, mask=memory_mask)
        return self.through(x, look, recall)

    def step(self, x: Tensor, state: State, layer: int) -> Tensor:
        """Only the newest tokens go through; the rest is in the state."""
        look = partial(self.attention.step, cache=state.cache, layer=layer)
        recall = None
        if self.cross is not None and state.memory is not None:
            recall = partial(self.cross.recall, memory=state.memory, layer=layer)
        return self.through(x, look, recall)

    def through(
        self,
        x: Tensor,
        look: Callable[[Tensor], Tensor],
        recall: Callable[[Tensor], Tensor] | None,
    ) -> Tensor:
        x = self.attention_residual(x, look)
        if self.cross_residual is not None and recall is not None:
            x = self.cross_residual(x, recall)
        out: Tensor = self.feedforward_residual(x, self.feedforward)
        return out
