"""The learning rate at each step, as a part of the highest."""

from __future__ import annotations

import math
from collections.abc import Callable


def inverse_sqrt(step: int, steps: int, warmup: int, final: float) -> float:
    """√(warmup / step): Vaswani et al. 2017, eq. 3."""
    return math.sqrt(max(warmup, 1) / max(step, warmup, 1))


def cosine(step: int, steps: int, warmup: int, final: float) -> float:
    """Half a cosine down to `final`."""
    return final + (1 - final) * (1 + math.cos(math.pi * _progress(step, steps, warmup))) / 2


def linear(step: int, steps: int, warmup: int, final: float) -> float:
    """A straight line down to `final`."""
    return 1 - (1 - final) * _progress(step, steps, warmup)


def constant(step: int, steps: int, warmup: int, final: float) -> float:
    return 1.0


def _progress(step: int, steps: int, warmup: int) -> float:
    return min(1.0, max(0, step - warmup) / max(1, steps - warmup))


SCHEDULES: dict[str, Callable[[int, int, int, float], float]] = {
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}


def rate_at(name: str, step: int, steps: int, warmup: int, final: float) -> float:
    """The part of the highest rate at step 1, 2, …: a rise, then the schedule."""
    rise = min(1.0, step / warmup) if warmup else 1.0
    return rise * SCHEDULES[name](step, steps, warmup, final)
