"""Error rates against jiwer's, and against every way there is."""

import random

import jiwer
import pytest

from regard.score.errors import ErrorRate, edits


def sentences(seed, most=9):
    dice = random.Random(seed)
    return ["".join(dice.choice("abc") for _ in range(dice.randrange(most))) for _ in range(2)]


@pytest.mark.parametrize("seed", range(200))
def test_the_distance_is_jiwers(seed):
    right, given = sentences(seed)
    changed, deleted, inserted = edits(right, given)
    assert min(changed, deleted, inserted) >= 0
    assert inserted - deleted == len(given) - len(right)
    if right:
        theirs = jiwer.process_words(" ".join(right), " ".join(given))
        assert changed + deleted + inserted == (
            theirs.substitutions + theirs.deletions + theirs.insertions
        )
        # Of ways that are as short, ours keeps the most.
        assert len(right) - changed - deleted >= theirs.hits


def test_the_rate_is_jiwers_over_all_utterances():
    right = ["the cat sat on the mat", "two dogs", "stop", "a b c d"]
    given = ["the cat sat mat", "two dogs ran", "", "b c d e"]
    words, letters = ErrorRate(), ErrorRate()
    for one, other in zip(right, given, strict=True):
        words.add(one.split(), other.split())
        letters.add(one, other)
    assert words.rate() == pytest.approx(jiwer.wer(right, given))
    assert letters.rate() == pytest.approx(jiwer.cer(right, given))
    theirs = jiwer.process_words(right, given)
    assert words.parts() == {
        "substitutions": theirs.substitutions, "deletions": theirs.deletions,
        "insertions": theirs.insertions, "of": 13,
    }  # fmt: skip
    low, high = words.interval()
    assert low <= words.rate() <= high


@pytest.mark.parametrize(
    ("right", "given", "wanted"),
    [("", "", (0, 0, 0)), ("abc", "", (0, 3, 0)), ("", "ab", (0, 0, 2)), ("abc", "abd", (1, 0, 0)),
     ("abcd", "bcd", (0, 1, 0)), ("ab", "xab", (0, 0, 1))],
)  # fmt: skip
def test_worked_by_hand(right, given, wanted):
    assert edits(right, given) == wanted
