"""Sound as pictures: how loud it is, in bands as the ear divides them, some hundred times a second.

The scale is Slaney's (Auditory Toolbox 1998), which librosa and Whisper use: linear up to 1,000 Hz
and logarithmic above, each band's triangle of the same area.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KNEE, STEP = 1000.0, 200.0 / 3  # Hz where the scale bends, and Hz of a mel below
BEND = math.log(6.4) / 27  # of a mel above
AT_ONCE = 4096  # frames whose spectra are held


def to_mel(hertz: float) -> float:
    return KNEE / STEP + math.log(hertz / KNEE) / BEND if hertz > KNEE else hertz / STEP


def to_hertz(mels: Tensor) -> Tensor:
    above = KNEE * (BEND * (mels - KNEE / STEP)).exp()
    return torch.where(mels > KNEE / STEP, above, mels * STEP)


def filters(rate: int, size: int, bands: int, low: float = 0.0, high: float = 0.0) -> Tensor:
    """How much each frequency of a spectrum counts in each band.  -> (bands, size // 2 + 1)"""
    edges = torch.linspace(to_mel(low), to_mel(high or rate / 2), bands + 2, dtype=torch.float64)
    edges = to_hertz(edges)
    places = torch.linspace(0, rate / 2, size // 2 + 1, dtype=torch.float64)
    width = edges.diff()
    apart = edges[:, None] - places  # (bands + 2, F)
    rising, falling = -apart[:-2] / width[:-1, None], apart[2:] / width[1:, None]
    table = torch.minimum(rising, falling).clamp_min(0)
    return (table * (2 / (edges[2:] - edges[:-2]))[:, None]).float()


def pieces(x: Tensor, size: int, hop: int) -> Tensor:
    """What lies around every `hop`-th sample.  (B, N) -> (B, N // hop + 1, size)

    Before its begin and after its end a sound is its own mirror image.
    """
    half = size // 2
    kind = "reflect" if x.shape[1] > half else "constant"
    return F.pad(x[:, None], (half, half), kind)[:, 0].unfold(-1, size, hop)


def power(pieces: Tensor, window: Tensor) -> Tensor:
    """How much there is of each frequency.  (B, T, size) -> (B, size // 2 + 1, T)"""
    left = (pieces.shape[-1] - len(window)) // 2
    window = F.pad(window, (left, pieces.shape[-1] - len(window) - left))
    found: Tensor = torch.fft.rfft(pieces * window).abs().square().transpose(1, 2)
    return found


def natural(power: Tensor) -> Tensor:
    """The logarithm, of nothing less than a ten-millionth."""
    return power.clamp_min(1e-7).log()


def whisper(power: Tensor) -> Tensor:
    """Whisper's (Radford et al. 2022): no more than 80 dB below the loudest, around zero."""
    loud = power[..., :-1].clamp_min(1e-10).log10()  # the last piece is left out
    return (torch.maximum(loud, loud.amax((1, 2), keepdim=True) - 8) + 4) / 4


LOUDNESS: dict[str, Callable[[Tensor], Tensor]] = {"log": natural, "whisper": whisper}


class Mel(nn.Module):
    """Samples to bands of frequencies.  (B, N) -> (B, T, bands)"""

    table: Tensor
    window: Tensor

    def __init__(
        self, rate: int, bands: int, size: int, hop: int, loudness: str = "log", window: int = 0
    ) -> None:
        """`size`: samples of a piece whose spectrum is taken; `window`: those it looks at."""
        super().__init__()
        self.size, self.hop, self.loudness = size, hop, LOUDNESS[loudness]
        self.register_buffer("table", filters(rate, size, bands), persistent=False)
        self.register_buffer("window", torch.hann_window(window or size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        # Some frames at a time: the spectra of hours would not fit.
        parts = pieces(x, self.size, self.hop).split(AT_ONCE, 1)
        bands = torch.cat([self.table @ power(part, self.window) for part in parts], 2)
        return self.loudness(bands).transpose(1, 2)
