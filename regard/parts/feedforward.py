"""What each token does by itself between two attentions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2.  (B, T, D) -> (B, T, D), through (B, T, F)

    Vaswani et al. 2017, eq. 2.
    """

    activation: Callable[[Tensor], Tensor] = staticmethod(F.relu)

    def __init__(self, width: int, hidden: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.widen = nn.Linear(width, hidden, bias)
        self.narrow = nn.Linear(hidden, width, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.narrow(self.dropout(self.activation(self.widen(x))))
        return out


class Gelu(FeedForward):
    activation = staticmethod(F.gelu)


class GeluTanh(FeedForward):
    """GELU by the formula with tanh that GPT-2 was trained with."""

    activation = staticmethod(partial(F.gelu, approximate="tanh"))


class Silu(FeedForward):
    activation = staticmethod(F.silu)


class GatedSilu(Silu):
    """W2 (silu(Wg x) ⊙ W1 x): a gate beside the activation (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__(width, hidden, dropout, bias)
        self.gate = nn.Linear(width, hidden, bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.narrow(self.dropout(self.activation(self.gate(x)) * self.widen(x)))
        return out


class GatedGelu(GatedSilu):
    """The same gate with GELU (T5 v1.1)."""

    activation = GeluTanh.activation


FEEDFORWARDS = {
    "relu": FeedForward,
    "gelu": Gelu,
    "gelu-tanh": GeluTanh,
    "silu": Silu,
    "gated-silu": GatedSilu,
    "gated-gelu": GatedGelu,
}
