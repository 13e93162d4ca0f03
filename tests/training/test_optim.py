"""Optimizers and schedules."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from regard.batch import Label
from regard.models.vit import ViT, ViTSettings
from regard.tasks.picture import PictureSettings, sizes_of
from regard.training import optim
from regard.training.optim import OPTIMIZERS, orthogonal
from regard.training.schedule import SCHEDULES, rate_at
from regard.training.settings import Settings
from tests.toys import random_pairs, small_model


def step(model, optimizer, seed):
    model(random_pairs(seed=seed)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_saved_state_goes_on_as_if_never_saved(name):
    settings = Settings(rate=0.01, weight_decay=0.1)
    whole = small_model("transformer")
    one = OPTIMIZERS[name](whole, settings)
    for seed in range(2):
        step(whole, one, seed)
    again = small_model("transformer")
    again.load_state_dict(whole.state_dict())
    two = OPTIMIZERS[name](again, settings)
    state = {key: value.clone() for key, value in optim.state_of(whole, one).items()}
    optim.restore(again, two, state)
    for seed in range(2, 4):
        step(whole, one, seed)
        step(again, two, seed)
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_weight_is_updated(name):
    model = small_model("transformer").train()
    before = [weight.clone() for weight in model.parameters()]
    optimizer = OPTIMIZERS[name](model, Settings())
    optim.set_rate(optimizer, 0.01)
    step(model, optimizer, 0)
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_norms_and_biases_do_not_decay():
    model = small_model("transformer")
    optimizer = OPTIMIZERS["adamw"](model, Settings(weight_decay=0.1))
    decays = {
        id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]
    }
    for name, weight in model.named_parameters():
        assert decays[id(weight)] == (0.1 if weight.dim() == 2 else 0.0), name


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 16, 5), (2, 5, 16)])
def test_muon_makes_singular_values_one(shape):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert values.min() > 0.6
    assert values.max() < 1.25


def test_muon_turns_what_is_behind_the_door_and_leaves_what_meets_the_data():
    torch.manual_seed(0)
    sizes = replace(sizes_of(PictureSettings(patch=4, stem="resnet")), classes=3, asked=Label)
    model = ViT(sizes, ViTSettings(width=32, depth=1, heads=2, pool="sequence"))
    optimizer = OPTIMIZERS["muon"](model, Settings(rate=0.1))
    turned = {id(p) for p in optimizer.param_groups[0]["params"]}
    names = {name for name, p in model.named_parameters() if id(p) in turned}
    assert {"blocks.0.attention.output.weight", "embedding.cut.1.body.2.weight"} <= names
    # Pixels, places, what is told, what weighs: as embeddings are.
    first = {"embedding.cut.0.weight", "places.weight", "output.weight", "weigh.weight"}
    assert not names & first and first <= dict(model.named_parameters()).keys()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    for name, weight in model.named_parameters():
        if name in names:  # every update is orthogonal, seen as rows of what is written
            moved = (weight.detach() - before[name]).flatten(1)
            values = torch.linalg.svdvals(moved) / (0.1 * 0.2 * max(moved.shape) ** 0.5)
            assert values.median() > 0.6 and values.max() < 1.25, name


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_rises_then_never_rises_again(name):
    rates = [rate_at(name, step, 100, 10, 0.1) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert all(a >= b for a, b in itertools.pairwise(rates[9:]))
    assert all(0 < rate <= 1 for rate in rates)


def test_where_schedules_end():
    assert rate_at("inverse-sqrt", 400, 400, 100, 0.0) == pytest.approx(0.5)
    assert rate_at("cosine", 55, 100, 10, 0.2) == pytest.approx(
        0.2 + 0.8 * (1 + math.cos(math.pi / 2)) / 2
    )
    assert rate_at("cosine", 100, 100, 10, 0.2) == pytest.approx(0.2)
    assert rate_at("linear", 55, 100, 10, 0.0) == pytest.approx(0.5)
    assert rate_at("constant", 100, 100, 10, 0.0) == 1.0
    assert rate_at("linear", 1, 100, 0, 0.0) == pytest.approx(0.99)
