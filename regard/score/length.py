"""Buckets of lengths, for scores that fall with them."""

from __future__ import annotations

from collections.abc import Sequence

EDGES = (1, 4, 7, 10, 13, 16, 20, 25, 30, 40, 60)
FEWEST = 20  # examples without which a bucket's score would say little


def buckets(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """From and to, both included; what has too few examples is joined with its neighbour.

    Lengths 0 to 3 stand in the first, and the last has no end but the longest there is.
    """
    most = max(lengths, default=0)
    found: list[tuple[int, int]] = []
    low = 0
    for edge in (*(e for e in EDGES[1:] if e <= most), most + 1):
        if sum(low <= length < edge for length in lengths) >= FEWEST:
            found.append((low, edge - 1))
            low = edge
    if found and low <= most:  # the few longest
        found[-1] = (found[-1][0], most)
    return found or [(0, most)]
