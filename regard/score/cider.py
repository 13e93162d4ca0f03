"""CIDEr-D: how much a caption has of what is said of this picture and rarely of others.

N-grams of one to four words, each weighed by how few pictures have it; a caption is compared with
each reference by the cosine of what both have, less where their lengths differ; times ten
(Vedantam et al. 2015).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

ORDERS = 4
SPREAD = 6.0  # of the penalty on lengths, in words


def words(text: str) -> list[str]:
    """Small letters without punctuation."""
    return re.findall(r"[\w']+", text.lower())


def grams(text: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(text[i : i + order]) for i in range(len(text) - order + 1))


def cider(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean over pictures.  Two or more pictures, or nothing is rare."""
    told, wanted = [words(o) for o in outputs], [[words(r) for r in row] for row in references]
    total = 0.0
    for order in range(1, ORDERS + 1):
        counts = [[grams(r, order) for r in row] for row in wanted]
        pictures: Counter[tuple[str, ...]] = Counter()
        for row in counts:
            pictures.update(set().union(*row))
        rare = {gram: math.log(len(outputs) / count) for gram, count in pictures.items()}
        unseen = math.log(len(outputs))

        def weigh(found: Counter[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
            return {gram: count * rare.get(gram, unseen) for gram, count in found.items()}  # noqa: B023

        for said, row, texts in zip(told, counts, wanted, strict=True):
            mine = weigh(grams(said, order))
            score = 0.0
            for found, text in zip(row, texts, strict=True):
                theirs = weigh(found)
                shared = sum(min(value, theirs.get(gram, 0.0)) * theirs.get(gram, 0.0)
                             for gram, value in mine.items())  # fmt: skip
                norms = math.hypot(*mine.values()) * math.hypot(*theirs.values())
                apart = len(said) - len(text)
                score += shared / norms * math.exp(-(apart**2) / (2 * SPREAD**2)) if norms else 0.0
            total += score / len(row)
    return 10 * total / ORDERS / len(outputs)
