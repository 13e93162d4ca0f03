"""Scores against the packages that others trust, and the numbers that can be worked by hand."""

import string

import numpy as np
import pytest
import scipy.stats
import seqeval.metrics
import sklearn.metrics as sk
from rouge_score.rouge_scorer import RougeScorer
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2
from seqeval.scheme import Entities as Reference

from regard.score.classes import Confusion, ManyLabels
from regard.score.entities import Entities, entities, to_bio
from regard.score.numbers import Correlation, pearson, ranks
from regard.score.texts import Mean, exact_match, normalise_answer, rouge, token_f1

TAGS = ["O", "B-a", "I-a", "B-b", "I-b", "B-b-c", "I-b-c"]
ROUGES = ["rouge1", "rouge2", "rougeL", "rougeLsum"]


def confusion(classes, right, given):
    """Counted in three uneven batches."""
    counts = Confusion(classes)
    for some in np.array_split(np.arange(len(right)), [1, len(right) // 3]):
        counts.add(right[some], given[some])
    return counts


def sentences(seed, count=60, longest=9):
    """Pairs of random tags, right and given, many of them broken; some sentences are empty."""
    chance = np.random.default_rng(seed)
    for size in chance.integers(longest, size=count):
        right = chance.choice(TAGS, size)
        given = np.where(chance.random(size) < 0.7, right, chance.choice(TAGS, size))
        yield right.tolist(), given.tolist()


def counted(pairs, strict=False):
    found = Entities(strict)
    for right, given in pairs:
        found.add(right, given)
    return found


# Classes.


@pytest.mark.parametrize("classes", [2, 3, 7, 40])  # of 40 some never occur
@pytest.mark.parametrize("seed", range(5))
def test_classes_score_as_in_scikit_learn(classes, seed):
    chance = np.random.default_rng(seed)
    right = chance.integers(classes, size=60)
    given = np.where(chance.random(60) < 0.5, right, chance.integers(classes, size=60))
    counts = confusion(classes, right, given)
    every = list(range(classes))
    assert counts.matrix.tolist() == sk.confusion_matrix(right, given, labels=every).tolist()
    assert counts.accuracy() == pytest.approx(sk.accuracy_score(right, given))
    assert counts.matthews() == pytest.approx(sk.matthews_corrcoef(right, given))
    assert counts.macro_f1() == pytest.approx(sk.f1_score(right, given, average="macro"))
    for positive in (0, 1):
        assert counts.f1(positive) == pytest.approx(
            sk.f1_score(right == positive, given == positive, zero_division=0)
        )
    columns = sk.precision_recall_fscore_support(right, given, labels=every, zero_division=0)
    table = [[*row.values()] for row in counts.per_class()]
    np.testing.assert_allclose(table, np.transpose(columns))
    assert list(counts.per_class()[0]) == ["precision", "recall", "f1", "examples"]


def test_classes_worked_by_hand():
    counts = Confusion(2)
    counts.add([1, 1, 1, 0, 0], [1, 1, 0, 1, 0])
    assert counts.matrix.tolist() == [[1, 1], [1, 2]]
    assert (counts.accuracy(), counts.f1()) == (0.6, pytest.approx(2 / 3))
    assert counts.f1(0) == 0.5 and counts.macro_f1() == pytest.approx(7 / 12)
    assert counts.matthews() == pytest.approx((2 * 1 - 1 * 1) / 6)


def test_matthews_is_0_where_it_is_undefined():
    for right, given in (([0, 1], [1, 1]), ([1, 1], [0, 1]), ([1, 1], [1, 1])):
        counts = Confusion(2)
        counts.add(right, given)
        assert counts.matthews() == 0.0


def test_a_million_examples_take_the_room_of_one():
    counts, chance = Confusion(3), np.random.default_rng(0)
    size = counts.matrix.nbytes
    for _ in range(100):
        counts.add(chance.integers(3, size=10**4), chance.integers(3, size=10**4))
    assert counts.matrix.sum() == 10**6 and counts.matrix.nbytes == size == 9 * 8
    assert set(vars(counts)) == {"matrix"}
    low, high = counts.interval(Confusion.accuracy)
    assert low < counts.accuracy() < high and high - low < 0.003
    assert abs(counts.matthews()) < 0.01  # its squares do not overflow


def test_a_class_that_is_none_is_refused():
    with pytest.raises(AssertionError, match="below 0"):
        Confusion(2).add([-100, 1], [0, 1])
    with pytest.raises(IndexError):
        Confusion(2).add([2], [0])
    with pytest.raises(AssertionError):
        Confusion(2).add([1, 1], [1])


@pytest.mark.parametrize("seed", range(5))
def test_many_labels_score_as_in_scikit_learn(seed):
    chance = np.random.default_rng(seed)
    right, given = chance.random((2, 50, 6)) < 0.4
    right[:, 4], given[:, 4:] = False, False  # one label is never there, one never given
    counts = ManyLabels(6)
    for some in np.array_split(np.arange(50), [0, 7]):
        counts.add(right[some], given[some])
    for ours, average in ((counts.micro_f1(), "micro"), (counts.macro_f1(), "macro")):
        assert ours == pytest.approx(sk.f1_score(right, given, average=average, zero_division=0))
    columns = sk.precision_recall_fscore_support(right, given, zero_division=0)
    table = [[*row.values()] for row in counts.per_class()]
    np.testing.assert_allclose(table, np.transpose(columns))
    given[::2] = right[::2]
    counts.add(right, given)
    assert counts.examples == 100 and counts.exact() >= 0.25
    alone = ManyLabels(6)
    alone.add(right, given)
    assert alone.exact() == sk.accuracy_score(right, given)


# Numbers.


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_correlations_are_those_of_scipy(tied, seed):
    chance = np.random.default_rng(seed)
    right = chance.integers(5, size=80).astype(float) if tied else chance.normal(size=80)
    given = (-1) ** seed * right + chance.normal(size=80).round(0 if tied else 9)
    pairs = Correlation()
    for some in np.array_split(np.arange(80), [1, 30]):
        pairs.add(right[some], given[some])
    found = pairs.scores()
    assert found == pytest.approx(
        {
            "pearson": scipy.stats.pearsonr(right, given).statistic,
            "spearman": scipy.stats.spearmanr(right, given).statistic,
            "rmse": sk.root_mean_squared_error(right, given),
        }
    )
    for scale in (1e-200, 1e200):  # whose squares are no longer numbers
        assert pearson(right * scale, given) == pytest.approx(found["pearson"])
    assert ranks(given).tolist() == scipy.stats.rankdata(given).tolist()
    assert len(pairs.right.tobytes() + pairs.given.tobytes()) == 16 * 80


@pytest.mark.parametrize(
    ("right", "given"), [([], []), ([1], [2]), ([0.1] * 3, [1, 2, 3]), ([1, 2, 3], [0.7] * 3)]
)
def test_a_constant_correlates_with_nothing(right, given):
    pairs = Correlation()
    pairs.add(right, given)
    found = pairs.scores()
    assert found["pearson"] == found["spearman"] == 0.0
    assert pairs.interval("pearson", draws=20) == pairs.interval("spearman", draws=20) == (0, 0)


def test_a_correlation_goes_on_after_it_was_looked_at():
    pairs = Correlation()
    for number in range(5):
        pairs.add([number], [2 * number + 1])
        pairs.scores(), pairs.interval("pearson", draws=5)
    assert pairs.scores()["pearson"] == pytest.approx(1) == pairs.scores()["spearman"]
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]


def test_means_are_kept_by_name():
    means = Mean()
    for number in range(4):
        means.add({"a": number, "b": number > 1})
    means.add({"b": 1})
    assert means.means() == {"a": 1.5, "b": 0.6}
    with pytest.raises(KeyError):
        means.interval("c")


# Intervals.


def classes(size):
    chance = np.random.default_rng(1)
    right = chance.integers(3, size=size)
    given = np.where(chance.random(size) < 0.6, right, chance.integers(3, size=size))
    return confusion(3, right, given)


def numbers(size):
    pairs, (right, noise) = Correlation(), np.random.default_rng(2).normal(size=(2, size))
    pairs.add(right, right + noise)
    return pairs


def shares(size):
    means = Mean()
    for number in np.random.default_rng(3).random(size):
        means.add({"share": number})
    return means


INTERVALS = {
    "accuracy": (classes, Confusion.accuracy, Confusion.accuracy),
    "f1": (classes, Confusion.f1, Confusion.f1),
    "macro_f1": (classes, Confusion.macro_f1, Confusion.macro_f1),
    "matthews": (classes, Confusion.matthews, Confusion.matthews),
    "pearson": (numbers, lambda x: x.scores()["pearson"], "pearson"),
    "spearman": (numbers, lambda x: x.scores()["spearman"], "spearman"),
    "squares": (numbers, lambda x: x.scores()["rmse"], "rmse"),
    "mean": (shares, lambda x: x.means()["share"], "share"),
    "entities": (lambda n: counted(sentences(4, n)), lambda x: x.scores()["f1"], "f1"),
    "recall": (lambda n: counted(sentences(5, n)), lambda x: x.scores()["recall"], "recall"),
}


@pytest.mark.parametrize("name", INTERVALS)
def test_an_interval_holds_its_score_and_shrinks_with_examples(name):
    make, score, what = INTERVALS[name]
    few, many = make(100), make(1600)
    (low, high), (lower, higher) = few.interval(what, 400), many.interval(what, 400)
    assert low < score(few) < high and lower < score(many) < higher
    assert 2.5 < (high - low) / (higher - lower) < 6.5  # about the root of 16
    assert few.interval(what, 400) == (low, high)
    assert few.interval(what, 400, seed=1) != (low, high)


def test_an_interval_is_as_wide_as_the_formula_says():
    counts, means = classes(1000), Mean()
    for cell, count in zip(np.eye(3).flat, counts.matrix.flat, strict=True):
        for _ in range(count):
            means.add({"accuracy": cell})
    share = counts.accuracy()
    assert means.means()["accuracy"] == pytest.approx(share)
    half = 1.96 * np.sqrt(share * (1 - share) / 1000)
    for interval in (counts.interval(Confusion.accuracy), means.interval("accuracy")):
        assert interval == pytest.approx((share - half, share + half), abs=0.006)


def test_nothing_scores_0():
    zeros = (0.0, 0.0)
    assert Confusion(2).interval(Confusion.accuracy) == Entities().interval("f1") == zeros
    counts, labels = Confusion(2), ManyLabels(2)
    assert counts.accuracy() == counts.f1() == counts.macro_f1() == counts.matthews() == 0.0
    assert labels.micro_f1() == labels.macro_f1() == labels.exact() == 0.0
    assert Entities().scores()["f1"] == 0.0 and Entities().per_type() == {}


# Entities.


@pytest.mark.parametrize("seed", range(5))
def test_entities_are_those_of_seqeval(seed):
    for pair in sentences(seed, count=200):
        for tags in pair:
            assert entities(tags) == get_entities(tags)
            strictly = Reference([tags], IOB2).entities[0]
            assert entities(tags, strict=True) == [(e.tag, e.start, e.end - 1) for e in strictly]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_entities_score_as_in_seqeval(strict, seed):
    pairs = list(sentences(seed))
    found = counted(pairs, strict)
    right, given = map(list, zip(*pairs, strict=True))
    how = {"mode": "strict", "scheme": IOB2} if strict else {}
    # 0 for what is undefined, said rather than warned of.
    expected = seqeval.metrics.classification_report(
        right, given, output_dict=True, zero_division=0, **how
    )
    ours = found.per_type() | {"micro avg": found.scores()}
    for name, row in ours.items():
        expected[name]["f1"] = expected[name].pop("f1-score")
        expected[name]["examples"] = expected[name].pop("support")
        assert row == pytest.approx(expected[name]), name
    assert set(expected) - set(ours) == {"macro avg", "weighted avg"}
    assert len(found.counts) == 3 * len(pairs)


def test_entities_worked_by_hand():
    tags = ["O", "I-x", "I-x", "B-x", "I-y", "O", "I-y", "B-y"]
    assert entities(tags) == [("x", 1, 2), ("x", 3, 3), ("y", 4, 4), ("y", 6, 6), ("y", 7, 7)]
    assert entities(tags, strict=True) == [("x", 3, 3), ("y", 7, 7)]
    found = counted([(["B-x", "I-x", "O", "B-y"], ["B-x", "O", "O", "B-y"]), (["O"], ["B-y"])])
    assert found.scores() == pytest.approx(
        {"precision": 1 / 3, "recall": 1 / 2, "f1": 0.4, "examples": 2}
    )
    assert found.per_type() == {
        "x": {"precision": 0, "recall": 0, "f1": 0, "examples": 1},
        "y": {"precision": 0.5, "recall": 1, "f1": pytest.approx(2 / 3), "examples": 1},
    }


def test_every_entity_comes_to_begin_with_b():
    old, new = "I-x I-x B-x I-x O I-y I-x", "B-x I-x B-x I-x O B-y B-x"
    assert to_bio(old.split()) == new.split()
    for tags, _ in sentences(9):
        changed = to_bio(tags)
        assert to_bio(changed) == changed and len(changed) == len(tags)
        assert entities(changed, strict=True) == entities(tags)


@pytest.mark.parametrize("tag", ["X", "", "B", "I-", "b-x", "S-x", "O-x", "PER"])
def test_a_tag_that_is_none_is_named(tag):
    for reads in (entities, to_bio):
        with pytest.raises(ValueError) as told:
            reads(["O", tag])
        assert str(told.value) == f"tag 2: it must be O, B-type or I-type, but is {tag!r}."


# Answers.


def test_answers_are_compared_without_articles_and_signs():
    assert normalise_answer("  The  Cat's (an) A-team, a\tTHEATRE! ") == "cats ateam theatre"
    assert normalise_answer("The") == normalise_answer("...") == normalise_answer("") == ""
    assert normalise_answer("Ünder “the” Æther") == "ünder “ ” æther"


@pytest.mark.parametrize(
    ("given", "references", "exact", "f1"),
    [
        # In the manner of the development set of 1.1.
        ("the Denver Broncos!", ["Denver Broncos", "The Denver Broncos"], 1, 1),
        ("Broncos", ["Denver Broncos", "Carolina Panthers"], 0, 2 / 3),
        ("Santa Clara", ["Levi's Stadium", "Santa Clara, California."], 0, 2 * 2 / (2 + 3)),
        (
            "gold gold",
            ["gold", "the color gold"],
            0,
            2 / 3,
        ),  # a word is hit once
        ("blue", ["gold"], 0, 0),
        ("", [], 1, 1),
        ("the", [], 1, 1),
        ("1066", [], 0, 0),
        ("", ["1066"], 0, 0),
        ("", ["", "1066"], 1, 1),
    ],
)
def test_answers_worked_by_hand(given, references, exact, f1):
    assert exact_match(given, references) == exact
    assert token_f1(given, references) == pytest.approx(f1)


def test_answers_agree_with_themselves_and_more_references_never_harm():
    chance = np.random.default_rng(0)
    words = ["the", "a", "cat", "dog", "sat,", "Mat", "1066"]
    for _ in range(300):
        given, *references = (" ".join(chance.choice(words, n)) for n in chance.integers(6, size=4))
        f1 = token_f1(given, references)
        assert exact_match(given, references) <= f1 <= 1
        assert f1 == max(token_f1(given, [reference]) for reference in references)
        assert token_f1(given, [references[0]]) == token_f1(references[0], [given])
        assert token_f1(given, [*references, given]) == exact_match(given, [given]) == 1
        backwards = " ".join(reversed(given.split()))
        assert token_f1(backwards, references) == pytest.approx(f1)


# Summaries.


@pytest.mark.parametrize("words", ["ab", "abcdefgh", ["The", "café", "9-10", "x.", "\n", "İK"]])
@pytest.mark.parametrize("breaks", [0.0, 0.3])
def test_rouge_is_that_of_rouge_score(words, breaks):
    chance, reference = np.random.default_rng(0), RougeScorer(ROUGES)
    for _ in range(300):
        given, right = (
            "".join(word + ("\n" if chance.random() < breaks else " ") for word in picked)
            for picked in (chance.choice([*words], n) for n in chance.integers(14, size=2))
        )
        expected = {k: v.fmeasure for k, v in reference.score(right, given).items()}
        assert rouge(given, right) == pytest.approx(expected), (given, right)


def test_rouge_worked_by_hand():
    # Lin 2004, section 3: police killed the gunman.
    first = rouge("police kill the gunman", "police killed the gunman")
    assert first["rouge1"] == first["rougeL"] == 0.75 and first["rouge2"] == pytest.approx(1 / 3)
    second = rouge("the gunman kill police", "police killed the gunman")
    assert second["rougeL"] == 0.5 and second["rouge1"] == 0.75
    # w1 w2 w3 w4 w5 against w1 w2 w6 w7 w8 and w1 w3 w8 w9 w5 has w1 w2 w3 w5 in common.
    third = rouge("w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", "w1 w2 w3 w4 w5")
    assert third["rougeLsum"] == pytest.approx(2 * 4 / (10 + 5))
    assert rouge(string.punctuation, "a") == rouge("a", "") == dict.fromkeys(ROUGES, 0.0)
