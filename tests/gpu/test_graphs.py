"""Graphs on a GPU: captured steps have the plain gradient, and a recipe trains and answers."""

import json
import warnings

import pytest
import torch

import regard
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import ClassLoss
from tests.toys import random_graphs, small_model

SOME = {
    "gat": {"layer": "gat", "score": "gat"},
    "gatv2": {"layer": "neighbours", "score": "gatv2", "degree": True},
    "all": {"layer": "all", "bias": ["distance"]},
    "both": {"layer": "both", "bias": ["distance"], "pool": "attention"},
}


def gradients(more, compiling, gpu):
    model = small_model("graph", **more).to(gpu).train()
    backward = make_backward(model, ClassLoss(), World(0, 1, gpu), compiling, None)
    batch = random_graphs(24, 12).to(gpu)
    for _ in range(3):  # the third is a replay
        model.zero_grad(set_to_none=False)
        backward(batch, [1 / 24], True)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("kind", SOME)
def test_captured_and_compiled_steps_have_the_plain_gradient(kind, gpu):
    plain = gradients(SOME[kind], "off", gpu)
    assert plain.norm() > 0
    for way in ("graph", "full"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = gradients(SOME[kind], way, gpu)
        assert float((fast - plain).norm() / plain.norm()) < 1e-3, way


@pytest.mark.parametrize("kind", SOME)
def test_scores_are_those_of_a_cpu(kind, gpu):
    model, batch = small_model("graph", **SOME[kind]).double(), random_graphs()
    with torch.no_grad():
        wanted = model(batch)
        found = model.to(gpu)(batch.to(gpu)).cpu()
    torch.testing.assert_close(found, wanted)


def test_a_recipe_trains_and_answers(tmp_path):
    less = ("train.steps=300", "train.device=cuda", "train.evaluate_every=300")
    run = regard.train("graph-cycles", *less, run=tmp_path / "run")
    results = json.loads((tmp_path / "run/results.json").read_text())["test"]
    assert results["accuracy"] > 70
    ring = {"nodes": ["o"] * 4, "edges": [[0, 1], [1, 2], [2, 3], [3, 0]]}
    assert run.predict([ring])[0].label in ("square", "none")
