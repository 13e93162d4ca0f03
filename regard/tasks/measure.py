"""Scores that take batches as they come and keep no more of them than they need.

What is right is added before what a model gave; a score that is undefined is 0.
An interval is (low, high), by a bootstrap of 95 %, and the same for the same seed.
"""

from __future__ import annotations

import re
import string
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
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


def overlap(given: Sequence[Hashable], right: Sequence[Hashable]) -> float:
    """F1 of two bags of things."""
    return ratio(2 * (Counter(given) & Counter(right)).total(), len(given) + len(right))


def bootstrap(draw: Draw, draws: int, seed: int) -> tuple[float, float]:
    """The interval of a statistic whose examples are drawn anew, with replacement, each time."""
    rng = np.random.default_rng(seed)
    low, high = np.quantile([draw(rng) for _ in range(draws)], (0.025, 0.975))
    return float(low), float(high)


class Confusion:
    """How often each class was given for each: (C, C) counts are kept, whatever the examples."""

    def __init__(self, classes: int) -> None:
        self.matrix: Counts = np.zeros((classes, classes), np.int64)  # (right, given)

    def add(self, right: ArrayLike, given: ArrayLike) -> None:
        """Count class indices, both of the same shape."""
        rows, columns = np.asarray(right, np.int64), np.asarray(given, np.int64)
        assert rows.shape == columns.shape, (rows.shape, columns.shape)
        # Too large an index fails by itself; a negative one would count from the end.
        assert min(rows.min(initial=0), columns.min(initial=0)) >= 0, "a class below 0"
        np.add.at(self.matrix, (rows, columns), 1)

    def accuracy(self) -> float:
        return ratio(self.matrix.trace(), self.matrix.sum())

    def f1(self, positive: int = 1) -> float:
        """F1 of one class against the others."""
        hits, given, right = self._totals()
        return ratio(2 * hits[positive], given[positive] + right[positive])

    def macro_f1(self) -> float:
        """The mean F1 of the classes that are right or given anywhere."""
        hits, given, right = self._totals()
        occurs = (given + right) > 0
        return ratio((2 * hits[occurs] / (given + right)[occurs]).sum(), occurs.sum())

    def matthews(self) -> float:
        """Correlation of the right and the given class (Gorodkin 2004, R_K)."""
        hits, given, right = self._totals()
        total = right.sum()
        spread = np.sqrt(float(total**2 - given @ given)) * np.sqrt(float(total**2 - right @ right))
        return ratio(total * hits.sum() - given @ right, spread)

    def per_class(self) -> list[dict[str, float]]:
        """Precision, recall, F1 and number of examples of each class."""
        return [scores(*counts) for counts in zip(*self._totals(), strict=True)]

    def interval(
        self, statistic: Callable[[Confusion], float], draws: int = DRAWS, seed: int = SEED
    ) -> tuple[float, float]:
        """The interval of a statistic, such as `Confusion.accuracy`.

        Drawing examples with replacement is drawing the cells' counts from a multinomial.
        """
        cells, total = np.flatnonzero(self.matrix), self.matrix.sum()
        if not total:
            return 0.0, 0.0
        drawn = Confusion(len(self.matrix))  # one at a time: with many classes it is large

        def draw(rng: np.random.Generator) -> float:
            drawn.matrix.flat[cells] = rng.multinomial(total, self.matrix.flat[cells] / total)
            return statistic(drawn)

        return bootstrap(draw, draws, seed)

    def _totals(self) -> tuple[Counts, Counts, Counts]:
        """Of each class, how often it was hit, given and right: (C,) each."""
        return self.matrix.diagonal(), self.matrix.sum(0), self.matrix.sum(1)


class ManyLabels:
    """Any number of labels to an example: three counts a label are kept."""

    def __init__(self, classes: int) -> None:
        # Of each label the true positives, false positives and false negatives.
        self.counts: Counts = np.zeros((3, classes), np.int64)
        self.matches = self.examples = 0

    def add(self, right: ArrayLike, given: ArrayLike) -> None:
        """Count whether each label is right and whether it was given, (N, C) both."""
        wanted, found = np.asarray(right, bool), np.asarray(given, bool)
        assert wanted.shape == found.shape == (len(found), self.counts.shape[1]), wanted.shape
        self.counts += [x.sum(0) for x in (wanted & found, ~wanted & found, wanted & ~found)]
        self.matches += int((wanted == found).all(1).sum())
        self.examples += len(found)

    def micro_f1(self) -> float:
        """F1 of all labels' counts together."""
        hits, extra, missed = self.counts.sum(1)
        return ratio(2 * hits, 2 * hits + extra + missed)

    def macro_f1(self) -> float:
        """The mean F1 of all labels; one that never occurs counts as 0."""
        return ratio(sum(label["f1"] for label in self.per_class()), self.counts.shape[1])

    def exact(self) -> float:
        """The share of examples with every label right."""
        return ratio(self.matches, self.examples)

    def per_class(self) -> list[dict[str, float]]:
        """Precision, recall, F1 and number of examples of each label."""
        return [scores(hits, hits + extra, hits + missed) for hits, extra, missed in self.counts.T]


def pearson(right: Numbers, given: Numbers) -> float:
    """Linear correlation of two columns (N,); 0 where one of them is constant."""
    # Compared before centring: a constant less its rounded mean need not be 0.
    if len(right) < 2 or right.min() == right.max() or given.min() == given.max():
        return 0.0
    columns = []
    for column in (right, given):
        centred = column - column.mean()
        centred /= np.abs(centred).max()  # or squares of very small or large numbers are lost
        columns.append(centred / np.linalg.norm(centred))
    return float(np.clip(columns[0] @ columns[1], -1, 1))


def ranks(values: Numbers) -> Numbers:
    """Places in ascending order from 1, (N,) → (N,); equal values share their mean place."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    mean: Numbers = np.cumsum(sizes) - (sizes - 1) / 2
    return mean[group]


def spearman(right: Numbers, given: Numbers) -> float:
    """Correlation of the ranks of two columns (N,)."""
    return pearson(ranks(right), ranks(given))


def mean_squared_error(right: Numbers, given: Numbers) -> float:
    return ratio(((right - given) ** 2).sum(), len(right))


PAIRED = {"pearson": pearson, "spearman": spearman, "mean_squared_error": mean_squared_error}


class Correlation:
    """How well given numbers follow the right ones: ranks need all of them, 16 bytes an example."""

    def __init__(self) -> None:
        self.right, self.given = array("d"), array("d")

    def add(self, right: ArrayLike, given: ArrayLike) -> None:
        """Keep pairs of numbers, (N,) both."""
        wanted, found = np.asarray(right, np.float64), np.asarray(given, np.float64)
        assert wanted.shape == found.shape, (wanted.shape, found.shape)
        self.right.frombytes(wanted.tobytes())
        self.given.frombytes(found.tobytes())

    @property
    def examples(self) -> int:
        return len(self.right)

    def scores(self) -> dict[str, float]:
        columns = self._columns()
        return {name: statistic(*columns) for name, statistic in PAIRED.items()}

    def interval(self, name: str, draws: int = DRAWS, seed: int = SEED) -> tuple[float, float]:
        """The interval of one of `PAIRED`."""
        columns, statistic, size = self._columns(), PAIRED[name], len(self.right)
        return bootstrap(lambda by: statistic(*by.choice(columns, size, axis=1)), draws, seed)

    def _columns(self) -> Numbers:
        return np.stack([np.asarray(self.right), np.asarray(self.given)])  # (2, N)


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
