"""Probes: a classifier equal to scikit-learn's, control labels, and what is told from the shell."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import regard
from regard.errors import InputError
from regard.see.probe import Item, classifier, numbers_of, told_right


def test_the_classifier_is_logistic_regression():
    torch.manual_seed(0)
    x = torch.randn(300, 5)
    y = (x @ torch.randn(5, 3) + torch.randn(300, 3)).argmax(-1)
    theirs = LogisticRegression(C=1 / (0.01 * len(x)), max_iter=1000).fit(x.numpy(), y.numpy())
    test = torch.randn(500, 5)
    assert (classifier(x, y, 3, 0.01)(test).numpy() == theirs.predict(test.numpy())).mean() > 0.99


def test_what_is_linear_is_read_off_and_noise_is_not():
    torch.manual_seed(0)
    x, test = torch.randn(400, 8), torch.randn(400, 8)
    hits, _ = told_right(x, (x[:, 0] > 0).long(), test, (test[:, 0] > 0).long(), 2)
    assert hits > 380
    guessed, _ = told_right(x, torch.randint(2, (400,)), test, torch.randint(2, (400,)), 2)
    assert 150 < guessed < 250


def test_control_labels_are_a_words_own_and_come_as_often():
    part = [Item(np.zeros((1, 1), np.float32), "", f"word {n % 500}") for n in range(1000)]
    drawn = numbers_of(part, ["a", "b"], Counter({"a": 75, "b": 25}))
    assert torch.equal(drawn[:500], drawn[500:])
    assert abs(float((drawn == 1).float().mean()) - 0.25) < 0.06


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    settings = [
        "train.steps=20", "model.width=32", "model.heads=4", "model.depth=1", "data.test=",
        "train.device=cpu",
    ]  # fmt: skip
    return regard.train("classify-demo", *settings, run=tmp_path_factory.mktemp("probe") / "run")


def test_words_and_texts_are_probed_from_the_shell(reader, tmp_path, main):
    tagged = "the DET\nfilm NOUN\nsinks VERB\n\nwe PRON\nlike VERB\na DET\nsea NOUN\n\n" * 20
    (tmp_path / "some.conll").write_text(tagged)
    (tmp_path / "task.toml").write_text(
        '[task]\nkind = "tag"\nscheme = "plain"\n\n'
        '[data]\ntrain = "some.conll"\nvalid = "some.conll"\n'
    )
    said = main("probe", reader.folder, "task.toml", "--examples", "30", "--out", "p.json").out
    assert "control labels" in said and "into layer 1" in said
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["labels"] == ["DET", "NOUN", "PRON", "VERB"] and len(found["layers"]) == 2
    assert found["layers"][0]["accuracy"] == 100  # each word has one tag here
    probed = reader.probe("classify-demo", examples=60)
    assert probed.on == "valid" and probed.train == 60
    assert probed.save(tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_what_cannot_be_probed_is_told(reader):
    with pytest.raises(InputError, match="reads off tags of words or classes of texts"):
        reader.probe("translate-tatoeba")
    with pytest.raises(InputError, match="needs data.valid or data.test"):
        reader.probe("classify-demo", "data.valid=", "data.test=")
