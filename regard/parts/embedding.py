"""Token ids to vectors with their positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .position import NoPosition


class Embedding(nn.Module):
    """Look up, scale by √D, add positions, drop out.  ids (B, T), (T,) or (B, T) -> (B, T, D)

    The scale gives small tied vectors the size of a position (Vaswani et al. 2017, section 3.4).
    """

    def __init__(
        self,
        size: int,
        width: int,
        position: NoPosition,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size, width)
        nn.init.normal_(self.tokens.weight, std=width**-0.5)
        self.position = position
        self.dropout = nn.Dropout(dropout)
        self.scale = width**0.5 if scale is None else scale

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
        out: Tensor = self.dropout(self.position.add(self.tokens(ids) * self.scale, positions))
        return out
