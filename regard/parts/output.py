"""Vectors to vocabulary scores."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Output(nn.Module):
    """The final linear layer; handed an embedding, it writes with the vectors that it reads with.

    (…, D) -> logits (…, V)
    """

    def __init__(
        self, width: int, size: int, tied: nn.Embedding | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        self.weight: Tensor = (
            nn.Parameter(torch.empty(size, width)) if tied is None else tied.weight
        )
        if tied is None:
            nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)
