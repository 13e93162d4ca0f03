"""The receptive field: what cannot be reached has no part in it, and what can grows by layers."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.errors import InputError


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    """A language model of characters whose tokens see two before them."""
    folder = tmp_path_factory.mktemp("field")
    settings = [
        "train.steps=2", "model.depth=3", "model.width=32", "model.heads=4", "model.pattern=window",
        "model.reach=2", "model.first_places=0", "model.block=4", "data.test=", "data.valid=",
        "train.device=cpu",
    ]  # fmt: skip
    return regard.train("lm-shakespeare-cpu", *settings, run=folder / "run")


def test_a_window_reaches_further_by_every_layer(windowed):
    found = windowed.field("ROMEO: speak", -1, threshold=1e-6)
    place = found.place
    assert [one.layer for one in found.layers] == [2, 1, 0]
    for depth, one in enumerate(found.layers, 1):
        reached = range(max(0, place - 2 * depth), place + 1)
        assert one.looked_at == list(reached)
        for shares in (one.gradient, one.rollout):
            assert sum(shares) == pytest.approx(1, abs=1e-4)
            assert {at for at, share in enumerate(shares) if share > 0} <= set(reached)
        assert one.gradient[reached[0]] > 0  # the true one goes as far as it can


def test_the_gradient_is_the_jacobians(windowed):
    """With many directions, it comes to the length of all slopes: by autograd, one number of the
    vector after the other."""
    from regard.see import field as fields

    found = windowed.field("ROMEO:", 4)
    batch, _ = windowed.task.trace(windowed.given("ROMEO:"), "")
    with fields.kept_inputs(windowed.model.blocks) as (inputs, top), torch.enable_grad():
        windowed.model(batch)
        vector = top[0][0, 4]
        rows = [torch.autograd.grad(n, inputs[0], retain_graph=True)[0][0] for n in vector]
    exact = torch.stack(rows).square().sum((0, 2)).sqrt().numpy()
    np.testing.assert_allclose(found.layers[-1].gradient, exact / exact.sum(), atol=0.1)


def test_it_is_saved_and_told(windowed, tmp_path, main):
    found = windowed.field("ROMEO: speak", "O")
    assert found.tokens[found.place] == "O" and found.place == 1
    said = json.loads(found.save(tmp_path / "field.json").read_text())
    assert said["token"] == "O" and len(said["layers"]) == 3
    assert found.save(tmp_path / "field.png").stat().st_size > 5000
    out = main("see", windowed.folder, "ROMEO: speak", "--field", "9", "--out", "f.svg").out
    assert "depends on" in out and (tmp_path / "f.svg").is_file()


@pytest.mark.parametrize(
    ("token", "said"),
    [("fox", "there is no token 'fox'"), ("99", "number 99 is asked for"), (-50, "are 12 tokens")],
)
def test_what_is_not_there_is_told(windowed, token, said):
    with pytest.raises(InputError, match=said):
        windowed.field("ROMEO: speak", token)


def test_a_translator_and_a_picture_have_one_too(trained, tmp_path):
    found = trained.field("one two three", 1)
    assert len(found.layers) == trained.recipe.model.depth and found.tokens[1]
    settings = ["train.steps=2", "train.device=cpu", "data.test=", "data.valid="]
    run = regard.train("vit-digits", *settings, run=tmp_path / "run")
    seen = run.field(np.full((8, 8), 200, np.uint8), 0)
    assert len(seen.tokens) == len(seen.layers[0].gradient) and min(seen.layers[0].gradient) > 0


def test_what_has_no_such_blocks_says_so(tmp_path):
    settings = [
        "train.steps=2",
        "train.device=cpu",
        "data.test=",
        "data.valid=",
        "train.evaluate_examples=0",
    ]
    run = regard.train("seq2seq-additive", *settings, run=tmp_path / "run")
    with pytest.raises(InputError, match="no blocks whose tokens look at each other"):
        run.field("I am cold.", 0)


def test_patches_and_nodes_are_drawn_where_they_lie(tmp_path):
    """Of a picture and of a graph the same numbers, on the picture and along the edges."""
    few = ("train.steps=2", "data.test=", "train.evaluate_examples=2")
    digits = regard.train("vit-digits", *few, run=tmp_path / "digits")
    Image.new("L", (8, 8), 90).save(tmp_path / "grey.png")
    found = digits.field(tmp_path / "grey.png", "2,3", threshold=0.0)
    assert found.axis.shape == (4, 4) and found.tokens[found.place] == "2,3"
    assert len(found.layers[-1].looked_at) == len(found.tokens), "each patch looks at all"
    graphs = regard.train("graph-cycles", *few, run=tmp_path / "graphs")
    way = json.dumps({"nodes": ["o"] * 5, "edges": [[0, 1], [1, 2], [2, 3], [3, 4]]})
    along = graphs.field(way, 0)
    assert all(0 in one.looked_at for one in along.layers)
    for name, one in (("patches", found), ("nodes", along)):
        assert one.axis.layout is not None or one.axis.picture
        assert one.save(tmp_path / f"{name}.png").stat().st_size > 5000
        assert b"<svg" in one.save(tmp_path / f"{name}.svg").read_bytes()
