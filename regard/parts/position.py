"""Where a token stands. A position can enter in two ways: added to the embedding, or by turning
queries and keys. Every scheme answers both calls; the default of each is to do nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class NoPosition(nn.Module):
    """A sentence as a bag of words."""

    turns = False  # whether attention must hand its queries and keys over

    def __init__(self, width: int = 0, heads: int = 1, size: int = 0) -> None:
        super().__init__()

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings with their positions.  (B, T, D), (T,) or (B, T) -> (B, T, D)"""
        return x

    def turn(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys with their positions.  (B, H, T, K), (T,) or (B, T) -> same"""
        return x


class Sinusoid(NoPosition):
    """PE(t, 2i) = sin(t / 10000^(2i/D)), PE(t, 2i+1) = cos(same); PE(t + s) is a linear map of
    PE(t).

    Vaswani et al. 2017, section 3.5. Computed, not stored: any length.
    """

    rates: Tensor

    def __init__(self, width: int, heads: int = 1, size: int = 0) -> None:
        super().__init__()
        assert width % 2 == 0, f"an odd width ({width}) cannot hold pairs of sine and cosine"
        rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        self.register_buffer("rates", rates.float(), persistent=False)

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None].float() * self.rates.float()  # (…, T, D/2)
        table = torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)  # (…, T, D)
        return x + table.to(x.dtype)


class Halves(Sinusoid):
    """The same sines and cosines, but all sines before all cosines (Marian, Pegasus)."""

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None].float() * self.rates.float()  # (…, T, D/2)
        return x + torch.cat((angles.sin(), angles.cos()), -1).to(x.dtype)


class LearnedPosition(NoPosition):
    """One trained vector a place, up to `size` places."""

    def __init__(self, width: int, heads: int = 1, size: int = 1024) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, width) * width**-0.5)

    def add(self, x: Tensor, positions: Tensor) -> Tensor:
        # Padding may stand beyond the last place; whoever asks has checked that words do not.
        placed = positions.clamp_max(len(self.weight) - 1)
        return x + nn.functional.embedding(placed, self.weight)


class Rotary(NoPosition):
    """Turns each pair (x_i, x_{i+K/2}) by the angle t / 10000^(2i/K), so that q·k depends on
    distance alone.

    Su et al. 2021, eq. 34, in the half-split layout of Llama.
    """

    turns = True
    rates: Tensor

    def __init__(
        self,
        width: int,
        heads: int = 1,
        size: int = 0,
        base: float = 10000.0,
        stretch: str = "none",
        factor: float = 1.0,
    ) -> None:
        """`size` places are `factor` times as many as were learned."""
        super().__init__()
        head_width = width // heads
        assert head_width % 2 == 0, f"an odd head width ({head_width}) cannot be turned in pairs"
        rates, self.scale = STRETCHES[stretch](head_width, base, factor, size)
        self.register_buffer("rates", rates.float(), persistent=False)

    def turn(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None].float() * self.rates.float()  # (T, K/2) or (B, T, K/2)
        if angles.dim() == 3:
            angles = angles[:, None]  # one for all heads
        cos, sin = ((self.scale * part).to(x.dtype) for part in (angles.cos(), angles.sin()))
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


# How pairs turn where a text is longer than those that were learned: head width, base, how many
# times as long, places -> how fast each pair turns (K / 2,), and what lengths are multiplied by.


def turning(width: int, base: float, factor: float, size: int) -> tuple[Tensor, float]:
    """As was learned."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width), 1.0


def interpolated(width: int, base: float, factor: float, size: int) -> tuple[Tensor, float]:
    """All turn more slowly: no place lies beyond those that were learned (Chen et al. 2023)."""
    return turning(width, base, factor, size)[0] / factor, 1.0


def by_base(width: int, base: float, factor: float, size: int) -> tuple[Tensor, float]:
    """The slowest pair turns `factor` times as slowly, the quickest as ever: neighbours stay as
    far apart as they were (NTK-aware; of a head of two there is one pair, which is both)."""
    return turning(width, base * factor ** (width / max(width - 2, 1)), factor, size)


def by_parts(width: int, base: float, factor: float, size: int) -> tuple[Tensor, float]:
    """Pairs that turned 32 times or more in what was learned stay, those that did not turn once are
    interpolated, the others lie between (YaRN, Peng et al. 2023, section 3.2); scores grow with
    the length (eq. 22)."""
    plain, learned = turning(width, base, factor, size)[0], size / factor

    def pair(turns: float) -> float:
        """The pair that turns so often in what was learned."""
        return width * math.log(learned / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), width - 1)
    number = torch.arange(width // 2, dtype=torch.float64)
    slowed = ((number - low) / max(high - low, 1e-3)).clamp(0, 1)
    scale = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    return plain / factor * slowed + plain * (1 - slowed), scale


STRETCHES: dict[str, Callable[[int, float, float, int], tuple[Tensor, float]]] = {
    "none": turning,
    "linear": interpolated,
    "ntk": by_base,
    "yarn": by_parts,
}


POSITIONS = {
    "sinusoid": Sinusoid,
    "halves": Halves,
    "learned": LearnedPosition,
    "rotary": Rotary,
    "none": NoPosition,
}
