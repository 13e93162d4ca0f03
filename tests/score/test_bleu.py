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


def test_why_bleu_is_nothing_is_told():
    """Of answers of three words, though all are right."""
    lines = ["the cat sat", "a dog ran"]
    found = translation_scores(lines, lines, "13a", False)
    assert found["bleu"] == 0 and found["chrf"] == 100
    assert found["bleu_unit"] == "no four words in a row are right, of which BLEU makes 0"
    four = ["the cat sat down", "a dog ran"]
    assert "bleu_unit" not in translation_scores(four, four, "13a", False)
