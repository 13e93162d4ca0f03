"""What heads look at: made-up heads are named rightly, trees and entities are held against them."""

import json

import numpy as np
import pytest

import regard
from regard.data.trees import Sentence, read
from regard.errors import DataError, InputError
from regard.see.heads import BROAD, KINDS, Heads, Partners, Seen, scored, words_of

TOKENS = ["[CLS]", "a", "b", ",", "a", "b", "[SEP]"]


def looking(places):
    """A head that looks at what a kind says, evenly; where there is nothing, at itself."""
    places = places | (np.eye(len(places), dtype=bool) & ~places.any(1, keepdims=True))
    return places / places.sum(1, keepdims=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_made_for_a_kind_has_all_of_its_weight_there(kind):
    # Beside it a head that looks everywhere, so that everything may be seen.
    heads = [looking(KINDS[kind](TOKENS)), np.full((7, 7), 1 / 7)]
    found = scored(Seen(TOKENS, np.stack(heads)[None]))
    total, rows = found[kind]
    assert rows > 0 and total[0, 0] / rows == pytest.approx(1)
    assert total[0, 1] / rows < 0.5
    even, rows = found[BROAD]
    assert even[0, 1] / rows == pytest.approx(1) and even[0, 0] < even[0, 1]
    scores = {name: total / max(1, rows) for name, (total, rows) in found.items()}
    if kind != "separator":  # of one separator, evenly is wholly
        assert Heads(scores, 1, 7).kinds()[0][0] == kind
    assert Heads(scores, 1, 7).kinds()[0][1] == "broad"


def test_induction_is_what_stood_behind_the_same_word():
    places = KINDS["induction"](["x", "y", "z", "x"])
    assert np.argwhere(places).tolist() == [[3, 1]]


def test_what_may_not_be_seen_counts_for_nobody():
    """A language model has no next word, so no row is scored for it."""
    past = np.tril(np.ones((4, 4)))
    found = scored(Seen(list("abcd"), (past / past.sum(1, keepdims=True))[None, None]))
    assert found["next"][1] == 0 and found["previous"][1] == 3


@pytest.mark.parametrize(
    ("tokens", "words", "pieces"),
    [
        (["[CLS]", "play", "##ing", "chess", "[SEP]"], ["Playing", "chess"], [[1, 2], [3]]),
        (["▁It", "'", "s", "▁here"], ["It's", "here"], [[0, 1, 2], [3]]),
        (["a", "[UNK]", "c"], ["a", "日", "c"], [[0], [], []]),
    ],
)
def test_words_are_put_together_again(tokens, words, pieces):
    assert words_of(tokens, words) == pieces


TREE = """# text = the dog barked
1\tthe\t_\t_\t_\t_\t2\tdet\t_\tEntity=(e1-animal
2\tdog\t_\t_\t_\t_\t3\tnsubj\t_\tEntity=e1)
3\tbarked\t_\t_\t_\t_\t0\troot\t_\t_

1\tit\t_\t_\t_\t_\t2\tnsubj\t_\tEntity=(e1)
2\tran\t_\t_\t_\t_\t0\troot\t_\tSpaceAfter=No|Entity=(e2)
"""


def test_trees_are_read(tmp_path):
    path = tmp_path / "some.conllu"
    path.write_text(TREE)
    first, second = read(path)
    assert first == Sentence(
        ["the", "dog", "barked"], [1, 2, -1], ["det", "nsubj", "root"], [(1, "e1")]
    )
    assert second.mentions == [(0, "e1"), (1, "e2")] and second.text == "it ran"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1\tthe\n", "some.conllu:1: a word must have 10 columns parted by tabs, but has 2."),
        (
            "1\tthe\t_\t_\t_\t_\t7\tdet\t_\t_\n",
            "the head of 'the' must be a word of its sentence or 0, but is '7'.",
        ),
    ],
)
def test_what_is_wrong_with_a_tree_is_told(tmp_path, text, told):
    path = tmp_path / "some.conllu"
    path.write_text(text)
    with pytest.raises(DataError, match=told.replace(".", r"\.")):
        list(read(path))


def test_partners_are_found_and_held_against_distance():
    """Of two heads, the second looks at the syntactic head of each word, in every sentence."""
    partners = Partners()
    for number in range(12):
        # The head of the first word is the second or the third, in turn.
        far = 1 + number % 2
        sentence = Sentence(["a", "b", "c"], [far, -1, -1], ["nsubj", "root", "root"], [])
        right = np.full((3, 3), 0.01)
        right[0, far] = 0.9
        weights = np.stack([np.full((3, 3), 1 / 3), right])
        partners.add(Seen(["a", "b", "c"], weights[None]), sentence)
    (found,) = [one for one in partners.relations() if one.name == "nsubj: its head"]
    assert (found.layer, found.head, found.right, found.pairs) == (0, 1, 1.0, 12)
    assert found.baseline == 0.5


def test_coreferents_are_told_from_other_mentions():
    partners = Partners()
    mentions = [(0, "e1"), (1, "e2"), (2, "e1")]
    sentence = Sentence(["Ada", "Ben", "she"], [-1] * 3, ["root"] * 3, mentions)
    right = np.full((3, 3), 0.01)
    right[2, 0] = 0.9
    nearest = np.full((3, 3), 0.01)
    nearest[2, 1] = 0.9
    for _ in range(10):
        partners.add(Seen(sentence.words, np.stack([nearest, right])[None]), sentence)
    (found,) = [one for one in partners.relations() if one.name.startswith("coreference")]
    assert (found.head, found.right, found.baseline) == (1, 1.0, 0.0)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    settings = [
        "train.steps=20", "model.width=32", "model.heads=4", "model.depth=2", "data.test=",
        "train.device=cpu",
    ]  # fmt: skip
    return regard.train("classify-demo", *settings, run=tmp_path_factory.mktemp("heads") / "run")


def test_heads_from_the_shell(reader, tmp_path, main):
    texts = tmp_path / "texts.txt"
    texts.write_text("the film was good, the film was bad\nwe saw the sea\n\n")
    said = main(
        "see", reader.folder, texts, "--heads", "--ablate", "--examples", "4", "--out", "h.json"
    ).out
    assert "2 texts" in said and "heads that are missed the most" in said
    found = json.loads((tmp_path / "h.json").read_text())
    assert len(found["heads"]) == 8 and {"previous", "broad", "ablation"} <= set(found["heads"][0])
    assert {one["kind"] for one in found["examples"]} >= {"previous", "same"}
    drawn = reader.heads(["the film was good"]).save(tmp_path / "heads.png")
    assert drawn.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match="there must be a text to look at"):
        reader.heads([])


def test_layers_from_the_shell(reader, tmp_path, main):
    said = main("see", reader.folder, "the film was good", "--layers", "--out", "l.json").out
    assert "into layer 1" in said and "at the top" in said
    found = json.loads((tmp_path / "l.json").read_text())
    assert len(found["layers"]) == 3 and len(found["layers"][0]["plane"]) == len(found["tokens"])
    drawn = reader.layers("the film was good").save(tmp_path / "layers.svg")
    assert b"<svg" in drawn.read_bytes()
    with pytest.raises(InputError, match="must end in .json, .png"):
        reader.layers("the film").save("layers.txt")
