"""Stems of sound: from frames to fewer vectors, each of which has seen a few frames.

A sound's padding stays zero between layers, so that nothing of an answer depends on it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FrameStem(nn.Module):
    """(B, S, F), lengths (B,) -> (B, S', D), lengths (B,)"""

    stride = 1  # frames that become one vector

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(self.stride * bands, width)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Some frames side by side through one layer; what the last has too few of is silence."""
        x = F.pad(x, (0, 0, 0, -x.shape[1] % self.stride))
        return self.out(x.unflatten(1, (-1, self.stride)).flatten(2)), fewer(lengths, self.stride)


class Stacked(FrameStem):
    """Four frames side by side."""

    stride = 4


class Convolved(FrameStem):
    """Two convolutions over time and frequency, each of which halves both (Dong et al. 2018)."""

    stride = 4

    def __init__(self, bands: int, width: int) -> None:
        nn.Module.__init__(self)
        channels = min(width, 256)
        self.first = nn.Conv2d(1, channels, 3, 2, 1)
        self.second = nn.Conv2d(channels, channels, 3, 2, 1)
        self.out = nn.Linear(channels * -(-bands // 4), width)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = x[:, None]  # (B, 1, S, F)
        for layer in (self.first, self.second):
            lengths = fewer(lengths, 2)
            x = layer(x).relu()
            x = x * is_real(lengths, x.shape[2])[:, None, :, None]
        return self.out(x.transpose(1, 2).flatten(2)), lengths


class Whispered(FrameStem):
    """Two convolutions over time, of which the second halves (Radford et al. 2022)."""

    stride = 2

    def __init__(self, bands: int, width: int) -> None:
        nn.Module.__init__(self)
        self.first = nn.Conv1d(bands, width, 3, 1, 1)
        self.second = nn.Conv1d(width, width, 3, 2, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = F.gelu(self.first(x.transpose(1, 2)))  # (B, D, S)
        x = x * is_real(lengths, x.shape[2])[:, None]
        return F.gelu(self.second(x)).transpose(1, 2), fewer(lengths, 2)


FRAME_STEMS: dict[str, type[FrameStem]] = {
    "linear": FrameStem,
    "stack": Stacked,
    "conv": Convolved,
    "whisper": Whispered,
}


def fewer(lengths: Tensor, stride: int) -> Tensor:
    """How many there are of so many at a time, the last perhaps in part."""
    found: Tensor = -(-lengths // stride)
    return found


def is_real(lengths: Tensor, size: int) -> Tensor:
    """Which places are no padding.  -> (B, S)"""
    return torch.arange(size, device=lengths.device) < lengths[:, None]
