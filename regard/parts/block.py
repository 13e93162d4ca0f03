"""A block: attention, perhaps attention to a memory, and a feed-forward, each with its residual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from .attention import Attention, Bias
from .norm import PostNorm
from .state import Slot, Source


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
        bias: Bias | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        look = partial(self.attention, mask=mask, bias=bias, causal=causal, positions=positions)
        recall = self.cross and partial(self.cross, memory=memory, mask=memory_mask)
        return self.through(x, look, recall)

    def step(self, x: Tensor, slot: Slot, source: Source | None = None) -> Tensor:
        """Only the newest tokens go through; the rest is in the state."""
        recall = self.cross and source and partial(self.cross.recall, source=source)
        return self.through(x, partial(self.attention.step, slot=slot), recall)

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


@contextmanager
def compiled_steps(parts: Iterable[nn.Module]) -> Iterator[None]:
    """Steps as they are compiled: one block stands for all of its kind, so it takes seconds."""
    blocks = [part for part in parts if isinstance(part, Block)]
    for block in blocks:
        vars(block)["step"] = torch.compile(block.step, dynamic=False)
    try:
        yield
    finally:
        for block in blocks:
            del vars(block)["step"]
