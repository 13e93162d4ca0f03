"""Decisions on a GPU: captured steps have the plain gradient, and a recipe learns to remember."""

import json
import warnings
from pathlib import Path

import pytest
import torch

import regard
from regard.batch import Choices, HistorySizes, Sizes, Steps
from regard.models.decision import DecisionModel, DecisionSettings
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import LOSSES
from tests.toys import SMALL, random_histories

VALUES = {"tokens": 0, "one-step": 5, "iteration": 5, "conservative": 5, "implicit": 6}


def made(loss):
    torch.manual_seed(0)
    told = HistorySizes(3, 2, 7, 0, 5, values=VALUES[loss])
    sizes = Sizes(0, 0, False, 5, Steps, Choices, history=told)
    return DecisionModel(sizes, DecisionSettings(**SMALL["decision"]))


def gradients(loss, compiling, gpu):
    model = made(loss).to(gpu).train()
    backward = make_backward(model, LOSSES[loss](), World(0, 1, gpu), compiling, None)
    batch = random_histories(24, 12).to(gpu)
    for _ in range(3):  # the third is a replay
        model.zero_grad(set_to_none=False)
        backward(batch, [1 / 24] * (2 if VALUES[loss] else 1), True)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("loss", VALUES)
def test_captured_and_compiled_steps_have_the_plain_gradient(loss, gpu):
    plain = gradients(loss, "off", gpu)
    assert plain.norm() > 0
    for way in ("graph", "full"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = gradients(loss, way, gpu)
        assert float((fast - plain).norm() / plain.norm()) < 1e-3, way


def test_scores_are_those_of_a_cpu(gpu):
    model, batch = made("one-step").double().eval(), random_histories()
    batch = batch.put([t.double() if t.is_floating_point() else t for t in batch.tensors()])
    with torch.no_grad():
        wanted = model(batch)
        found = model.to(gpu)(batch.to(gpu)).cpu()
    torch.testing.assert_close(found, wanted)


def test_a_recipe_learns_to_remember(tmp_path):
    run = regard.train("decide-keydoor", "train.device=cuda", run=tmp_path / "run")
    results = json.loads((tmp_path / "run/results.json").read_text())["test"]
    assert results["value"] > 0.8 and results["recorded_value"] < 0.4
    for colour in ("red", "green", "blue"):
        seen = [{"sees": said, "action": "walk", "reward": 0}
                for said in (f"a {colour} key", "a corridor", "a corridor")]  # fmt: skip
        assert run.predict([[*seen, {"sees": "three doors"}]])[0].label == colour


def test_a_table_is_solved_and_answers(tmp_path):
    corpus = Path(regard.__file__).parent / "corpora/keydoor"
    recipe = tmp_path / "table.toml"
    recipe.write_text(
        f"""
        task = {{kind = "decide", learner = "one-step"}}
        data = {{root = "{corpus}", train = "train.csv.gz", test = "test.csv.gz"}}
        model = {{kind = "table"}}
        train = {{device = "cuda"}}
        """
    )
    run = regard.train(str(recipe), run=tmp_path / "run")
    results = json.loads((tmp_path / "run/results.json").read_text())["test"]
    assert results["value"] < 0.6  # who sees the doors alone can but guess
    assert run.predict([[{"sees": "a corridor"}]])[0].label in ("walk", "wait")
