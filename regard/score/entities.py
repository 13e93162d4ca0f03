"""Entities: pieces of a sentence that its tags mark, scored whole, as seqeval does."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .interval import DRAWS, SEED, bootstrap, scores


def entities(tags: Sequence[str], strict: bool = False) -> list[tuple[str, int, int]]:
    """The entities (type, first, last) of a sentence's tags, both ends included.

    An I- that continues nothing of its type begins an entity, as conlleval has it; `strict` passes
    it over, as IOB2 demands. O I-x I-y gives x and y, strictly nothing.
    """
    found: list[tuple[str, int, int]] = []
    inside = ""  # the type of the entity that may go on
    for place, tag in enumerate(tags):
        prefix, kind = tag[:2], tag[2:]
        if tag != "O" and not (prefix in ("B-", "I-") and kind):
            raise ValueError(f"tag {place + 1}: it must be O, B-type or I-type, but is {tag!r}.")
        if prefix == "I-" and kind == inside:
            found[-1] = (kind, found[-1][1], place)
        elif tag == "O" or (strict and prefix == "I-"):
            inside = ""
        else:
            found.append((kind, place, place))
            inside = kind
    return found


def to_bio(tags: Sequence[str]) -> list[str]:
    """Tags in which B- begins every entity, from IOB1, where it only parts neighbours of a type."""
    changed = ["O"] * len(tags)
    for kind, first, last in entities(tags):
        changed[first : last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
    return changed


class Entities:
    """Entities found whole and of the right type: three small integers a sentence are kept."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.counts = array("i")  # of each sentence: hits, given, right
        self.types: dict[str, list[int]] = {}  # the same, of each type

    def add(self, right: Sequence[str], given: Sequence[str]) -> None:
        """Count the entities of one sentence's tags, as many right as given."""
        assert len(right) == len(given), (len(right), len(given))
        wanted, found = set(entities(right, self.strict)), set(entities(given, self.strict))
        for column, some in enumerate((wanted & found, found, wanted)):
            self.counts.append(len(some))
            for kind, _, _ in some:
                self.types.setdefault(kind, [0, 0, 0])[column] += 1

    def scores(self) -> dict[str, float]:
        """Precision, recall, F1 and number of examples of all types together."""
        return scores(*self._rows().sum(0))

    def per_type(self) -> dict[str, dict[str, float]]:
        """Precision, recall, F1 and number of examples of each type, by name."""
        return {kind: scores(*counts) for kind, counts in sorted(self.types.items())}

    def interval(self, name: str, draws: int = DRAWS, seed: int = SEED) -> tuple[float, float]:
        """The interval of precision, recall or f1; what is drawn are sentences."""
        rows = self._rows()
        return bootstrap(lambda by: scores(*by.choice(rows, len(rows)).sum(0))[name], draws, seed)

    def _rows(self) -> NDArray[np.int32]:
        return np.asarray(self.counts).reshape(-1, 3)
