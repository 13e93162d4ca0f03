"""Recurrent nets, layer by layer, with the dropouts that keep one mask through time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .precision import autocast_dtype

# h_t = tanh(W x_t + U h_{t-1}); the gated two add an input, a forget and an output gate with a cell
# (LSTM), or an update and a reset gate (GRU).
CELLS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def locked_dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """The same units of a row are dropped at every step (Gal & Ghahramani 2016).  (B, T, D)"""
    if not training or not rate:
        return x
    keep = x.new_empty(len(x), 1, x.shape[2]).bernoulli_(1 - rate)
    return x * (keep / (1 - rate))


def word_dropout(weight: Tensor, rate: float, training: bool) -> Tensor:
    """Whole words are dropped from an embedding, wherever they occur.  (V, D) -> (V, D)"""
    if not training or not rate:
        return weight
    keep = weight.new_empty(len(weight), 1).bernoulli_(1 - rate)
    return weight * (keep / (1 - rate))


class Recurrent(nn.Module):
    """One layer after the other; each layer's hidden vector is its state.

    (B, T, widths[0]) -> (B, T, widths[-1]). `layer_dropout` falls between layers and is
    locked within a call, `weight_drop` on the recurrent weights U (Merity et al. 2018).
    """

    def __init__(
        self, cell: str, widths: list[int], layer_dropout: float = 0.0, weight_drop: float = 0.0
    ) -> None:
        super().__init__()
        self.gated = cell == "lstm"  # then a state is two vectors: hidden and cell
        self.layer_dropout, self.weight_drop = layer_dropout, weight_drop
        self.widths = widths[1:]
        self.layers = nn.ModuleList(
            CELLS[cell](into, out, batch_first=True) for into, out in pairwise(widths)
        )

    def begin(self, like: Tensor, rows: int) -> list[Tensor]:
        """Zeros, (B, W) each: one for each layer, an LSTM's two."""
        each = 2 if self.gated else 1
        return [like.new_zeros(rows, width) for width in self.widths for _ in range(each)]

    def top(self, past: list[Tensor]) -> Tensor:
        """The last layer's hidden vector.  -> (B, W)"""
        return past[-2 if self.gated else -1]

    def forward(self, x: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        after: list[Tensor] = []
        each = 2 if self.gated else 1
        for number, layer in enumerate(self.layers):
            if number:
                x = locked_dropout(x, self.layer_dropout, self.training)
            own = [
                vector[None].contiguous() for vector in past[number * each : (number + 1) * each]
            ]
            x, new = run(layer, x, own, self.weight_drop if self.training else 0.0)
            after += [vector[0] for vector in new]
        return x, after


def run(
    layer: nn.Module, x: Tensor, past: list[Tensor], weight_drop: float = 0.0
) -> tuple[Tensor, list[Tensor]]:
    """One layer over all steps, from its state (1, B, W), an LSTM's two; an empty one is zeros.

    Autocast would have cuDNN work in float16 whatever was asked for, and small gradients vanish
    there; so what it asks for is done here. Changed weights lie in one piece, without which a GPU
    would copy them at every call and could not capture it; the layer itself never gets hold of
    them, for it would keep them, and with them the way back through them.
    """
    assert isinstance(layer, nn.RNNBase)
    weights: list[Tensor] = list(layer.parameters())  # to the input, to the state, two biases
    lower = autocast_dtype(x)
    if lower or weight_drop:
        dtype = lower or x.dtype
        weights[1] = F.dropout(weights[1], weight_drop)
        x, past, weights = x.to(dtype), [v.to(dtype) for v in past], in_one_piece(weights, dtype)
    gated = layer.mode == "LSTM"
    past = past or [x.new_zeros(1, x.shape[0], layer.hidden_size) for _ in range(1 + gated)]
    steps = getattr(torch, layer.mode.lower())
    with torch.autocast(x.device.type, enabled=False) if lower else nullcontext():
        out, *new = steps(
            x, past if gated else past[0], weights, True, 1, 0.0, layer.training, False, True
        )
    return out, new


def in_one_piece(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The same weights, as parts of one tensor in their order."""
    whole = torch.cat([weight.to(dtype).flatten() for weight in weights])
    parts = whole.split([weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


class Reader(nn.Module):
    """Reads a whole source, forwards and perhaps backwards too, and never its padding.

    x (B, S, D), lengths (B,) -> states (B, S, W), each layer's last state (B, W), and the lengths.
    Read both ways, half of a state has seen what comes before, half what comes after; the last
    state is where each way ended.
    """

    def __init__(
        self, cell: str, width: int, hidden: int, depth: int, both_ways: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        ways = 2 if both_ways else 1
        assert hidden % ways == 0, f"a width of {hidden} cannot be read in halves"
        self.dropout = dropout
        self.layers = nn.ModuleList(
            nn.ModuleList(CELLS[cell](into, hidden // ways, batch_first=True) for _ in range(ways))
            for into in [width, *[hidden] * (depth - 1)]
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        places = torch.arange(x.shape[1], device=x.device)
        end = lengths[:, None] - 1  # (B, 1)
        # The words backwards, the padding where it is: turning twice changes nothing.
        turned = torch.where(places <= end, end - places, places)  # (B, S)
        lasts = []
        for number, layer in enumerate(self.layers):
            if number:
                x = F.dropout(x, self.dropout, self.training)
            ways: Any = layer
            sides = [turn(x, turned) if back else x for back in range(len(ways))]
            read = [run(way, side, [])[0] for way, side in zip(ways, sides, strict=True)]
            lasts.append(torch.cat([turn(states, end)[:, 0] for states in read], -1))
            x = torch.cat([turn(y, turned) if back else y for back, y in enumerate(read)], -1)
        return x, lasts, lengths


class Pyramid(nn.Module):
    """Reads both ways, and after each layer but the last two vectors become one (Chan et al. 2016).

    x (B, S, D), lengths (B,) -> states (B, S', W), each layer's last state (B, W), lengths (B,)
    """

    def __init__(
        self, cell: str, width: int, hidden: int, depth: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(
            Reader(cell, into, hidden, 1, both_ways=True)
            for into in [width, *[2 * hidden] * (depth - 1)]
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        lasts: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            if number:
                real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
                x = F.pad(x * real[..., None], (0, 0, 0, x.shape[1] % 2))
                x = x.unflatten(1, (-1, 2)).flatten(2)
                x = F.dropout(x, self.dropout, self.training)
                lengths = (lengths + 1) // 2
            x, last, _ = layer(x, lengths)
            lasts += last
        return x, lasts, lengths


def turn(x: Tensor, places: Tensor) -> Tensor:
    """The vectors at these places.  (B, S, D), (B, P) -> (B, P, D)"""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


def activation_penalty(x: Tensor, size: float, change: float) -> Tensor:
    """What is large, and what changes from step to step (Merity et al. 2018, section 4.8)."""
    penalty = torch.zeros((), device=x.device)
    if size:
        penalty = penalty + size * x.float().pow(2).mean()
    if change and x.shape[1] > 1:
        penalty = penalty + change * (x[:, 1:] - x[:, :-1]).float().pow(2).mean()
    return penalty
