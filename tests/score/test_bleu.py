"""Scores of translations, also of odd ones."""

import pytest

from regard.score.bleu import translation_scores


@pytest.mark.parametrize(
    "outputs", [["", "", ""], ["a", "", "b c"], ["the cat sat", "a dog", ""], ["x"] * 3]
)
def test_empty_and_wrong_answers_have_scores_and_intervals(outputs):
    found = translation_scores(outputs, ["the cat sat", "a dog", "b c d"], "13a", False)
    for name in ("bleu", "chrf", "ter"):
        low, high = found[f"{name}_interval"]
        assert low <= high and isinstance(found[name], float)
