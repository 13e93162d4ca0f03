"""Shares and intervals, which all scores are made of.

An interval is (low, high), of 95 %, and the same for the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Draw = Callable[[np.random.Generator], float]

DRAWS = 1000
SEED = 12345


def ratio(part: float, whole: float) -> float:
    """A share, or 0 of nothing."""
    return float(part / whole) if whole else 0.0


def scores(hits: int, given: int, right: int) -> dict[str, float]:
    """Precision, recall and F1 of `hits` among what was given and what was right."""
    return {
        "precision": ratio(hits, given),
        "recall": ratio(hits, right),
        "f1": ratio(2 * hits, given + right),
        "examples": int(right),
    }


def bootstrap(draw: Draw, draws: int, seed: int) -> tuple[float, float]:
    """The interval of a statistic whose examples are drawn anew, with replacement, each time."""
    rng = np.random.default_rng(seed)
    low, high = np.quantile([draw(rng) for _ in range(draws)], (0.025, 0.975))
    return float(low), float(high)


def proportion(hits: int, whole: int) -> list[float]:
    """A 95 % interval of a share, in hundredths (Wilson 1927)."""
    if not whole:
        return [0.0, 0.0]
    z, p = 1.96, hits / whole
    middle = (p + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z * math.sqrt(p * (1 - p) / whole + z * z / (4 * whole**2)) / (1 + z * z / whole)
    return [round(100 * (middle - half), 2), round(100 * (middle + half), 2)]


def hundredths(edges: tuple[float, float]) -> list[float]:
    """An interval as it is written down."""
    return [round(100 * edge, 2) for edge in edges]
