"""One word in several sentences: the same at the bottom, and apart where contexts were mixed in."""

import json

import numpy as np
import pytest

import regard
from regard.errors import InputError
from regard.see.meaning import Meaning, pieces_of


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """An encoder whose places are not told, so that only neighbours tell words apart."""
    settings = [
        "train.steps=60", "train.rate=0.01", "model.width=32", "model.heads=4", "model.depth=2",
        "data.test=", "data.valid=", "train.device=cpu", "model.position=none",
    ]  # fmt: skip
    return regard.train("classify-demo", *settings, run=tmp_path_factory.mktemp("word") / "run")


def test_a_word_begins_as_one_vector_and_is_told_apart_by_its_context(reader):
    word = "the"
    sentences = ["the film was good", "a bad film, the worst of all", "we saw the sea"]
    found = reader.meaning(word, sentences)
    far = found.apart()
    assert found.vectors.shape[:2] == (reader.recipe.model.depth + 1, 3)
    assert far[0] == pytest.approx(0, abs=1e-6) and far[-1] > 5e-6
    every = found.similarities()
    assert np.allclose(np.diagonal(every, axis1=1, axis2=2), 1)
    assert np.allclose(every, every.transpose(0, 2, 1))


def test_the_plane_keeps_what_differs_most():
    vectors = np.zeros((1, 3, 5))
    vectors[0, :, 2] = (0.0, 3.0, 6.0)
    found = Meaning("x", ["a", "b", "c"], vectors)
    places = found.plane(0)
    assert np.allclose(np.abs(np.diff(places[:, 0])), 3) and np.allclose(places[:, 1], 0)


@pytest.mark.parametrize(
    ("names", "word", "places"),
    [
        (["▁the", "▁vase", "▁broke"], "broke", [2]),
        (["▁b", "ro", "ken", "▁b", "ro", "ke"], "Broke", [3, 4, 5]),
        (["[CLS]", "play", "##ing", "[SEP]"], "playing", [1, 2]),
        (["▁the", "▁vase"], "broke", []),
    ],
)
def test_a_word_may_be_several_pieces(names, word, places):
    assert pieces_of(names, word) == places


def test_it_is_saved_and_told(reader, tmp_path, main):
    path = tmp_path / "sentences.txt"
    path.write_text("the film was good\nthe worst of all\n\n")
    said = main("see", reader.folder, "--word", "the", path, "--out", "word.json").out
    assert "'the' in 2 sentences" in said and "at the top" in said
    told = json.loads((tmp_path / "word.json").read_text())
    assert len(told["layers"]) == 3 and told["sentences"][1] == "the worst of all"
    assert reader.meaning("the", told["sentences"]).save(tmp_path / "w.png").stat().st_size > 5000


def test_what_cannot_be_compared_is_told(reader):
    with pytest.raises(InputError, match="two sentences or more to compare, but are 1"):
        reader.meaning("the", ["the film"])
    with pytest.raises(InputError, match="sentence 2 must have the word 'the', but is 'a film'"):
        reader.meaning("the", ["the film", "a film"])
