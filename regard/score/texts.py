"""How near a written text is to the references."""

from __future__ import annotations

import re
import string
from array import array
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from .interval import DRAWS, SEED, bootstrap, ratio


class Mean:
    """The means of named numbers: 8 bytes a number are kept, for the intervals."""

    def __init__(self) -> None:
        self.values: dict[str, array[float]] = {}

    def add(self, numbers: Mapping[str, float]) -> None:
        """Keep the numbers of one example."""
        for name, number in numbers.items():
            self.values.setdefault(name, array("d")).append(number)

    def means(self) -> dict[str, float]:
        return {name: float(np.asarray(kept).mean()) for name, kept in self.values.items()}

    def interval(self, name: str, draws: int = DRAWS, seed: int = SEED) -> tuple[float, float]:
        kept = np.asarray(self.values[name])
        return bootstrap(lambda by: float(by.choice(kept, len(kept)).mean()), draws, seed)


def overlap(given: Sequence[Hashable], right: Sequence[Hashable]) -> float:
    """F1 of two bags of things."""
    return ratio(2 * (Counter(given) & Counter(right)).total(), len(given) + len(right))


def normalise_answer(text: str) -> str:
    """Lower case without punctuation, articles and superfluous spaces (SQuAD 1.1)."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(given: str, references: Sequence[str]) -> float:
    """1 where the answer is one of the references; no reference means that "" is right."""
    answer = normalise_answer(given)
    return float(any(answer == normalise_answer(reference) for reference in references or [""]))


def token_f1(given: str, references: Sequence[str]) -> float:
    """The best F1 of the answer's words against a reference's; two empty ones agree (SQuAD 2.0)."""
    found = normalise_answer(given).split()
    wanted = [normalise_answer(reference).split() for reference in references or [""]]
    return max(overlap(found, words) if found or words else 1.0 for words in wanted)


def rouge(given: str, reference: str) -> dict[str, float]:
    """F-measures of words, pairs of words and longest common subsequences (Lin 2004), no stemming.

    rougeL takes a whole text as a sentence, rougeLsum a line as one.
    """
    found, wanted = _tokens(given), _tokens(reference)
    lines = [_tokens(line) for line in given.split("\n")]
    # A word of the reference is hit where any line has it in common, a given word only once.
    union = Counter(
        sentence[place]
        for sentence in map(_tokens, reference.split("\n"))
        for place in set().union(*(_common(sentence, line) for line in lines))
    )
    both = len(found) + len(wanted)
    return {
        "rouge1": overlap(found, wanted),
        "rouge2": overlap([*pairwise(found)], [*pairwise(wanted)]),
        "rougeL": ratio(2 * len(_common(wanted, found)), both),
        "rougeLsum": ratio(2 * (union & Counter(found)).total(), both),
    }


def _tokens(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


def _common(reference: list[str], given: list[str]) -> set[int]:
    """The places in the reference of a longest common subsequence."""
    words = np.array(given, str)
    lengths = np.zeros((len(reference) + 1, len(given) + 1), np.int32)  # of the first i and j words
    for i, word in enumerate(reference):
        longer = np.where(words == word, lengths[i, :-1] + 1, lengths[i, 1:])
        lengths[i + 1, 1:] = np.maximum.accumulate(longer)
    places = set()
    i, j = len(reference), len(given)
    while i and j:
        if reference[i - 1] == given[j - 1]:
            i, j = i - 1, j - 1
            places.add(i)
        elif lengths[i, j - 1] > lengths[i - 1, j]:
            j -= 1
        else:  # also where both are as long: the union of several depends on which is taken
            i -= 1
    return places
