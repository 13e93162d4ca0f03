"""Every recipe's gradient, in float64: however a batch is cut, and over however many ranks."""

import json
import os
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import config
from regard.data.draws import Draws
from regard.data.read import Faults
from regard.model import Solves
from regard.models import MODELS
from regard.training.backward import make_backward
from regard.training.distil import make_loss
from regard.training.distributed import World, join
from regard.training.loop import Share, gradient
from regard.training.prepare import prepare_data, prepare_task
from regard.training.recipe import read
from regard.training.run import start
from tests.processes import run_ranks
from tests.test_recipes import shrunk

NAMES = [
    name
    for name in config.names()
    if not issubclass(MODELS[read(name).model_kind], Solves)  # which has no gradient
]
ALONE = World(0, 1, torch.device("cpu"))
CPU = torch.device("cpu")
SHARDS = 12


def prepare(name, overrides, folder):
    """A recipe's task, its data, and an odd number of rows to make a batch of."""
    recipe, faults = read(name, overrides), Faults()
    folder.mkdir(parents=True, exist_ok=True)
    task = prepare_task(recipe, folder, faults)
    data = prepare_data(recipe, task, folder.parent / ".cache", faults)["train"]
    rows = task.plan(data.store, recipe.train.batch_tokens, 0).largest()
    return recipe, task, data, rows[slice(0, len(rows) - (len(rows) + 1) % 2)]


def gradients(recipe, task, data, rows, world, pieces=1):
    """Without dropout, for it would be drawn anew in every piece. Each rank makes its own rows."""
    torch.manual_seed(0)
    model = recipe.build(task.sizes).double().eval()
    own = slice(world.rank, None, world.size)
    rng = Draws(0, 0, range(len(rows))[own]) if task.draws else None
    batch = task.batch(data.store, rows[own], rng)
    doubles = [t.double() if t.is_floating_point() else t for t in batch.tensors()]
    share = Share(batch.put(doubles), True)
    loss = make_loss(task.loss, recipe.train, CPU, task)
    if recipe.train.teacher:
        loss.teacher.double()
    whole = world.count(share.parts())
    nll, _ = gradient(make_backward(model, loss, world), share, whole, world, pieces)
    found = {n: w.grad for n, w in model.named_parameters() if w.grad is not None}
    assert found
    return found | {"nll": nll}


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        near = 1e-6 if name == "nll" else 1e-11  # the reported sum is kept in float32
        torch.testing.assert_close(found[name], value, rtol=near, atol=near)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_do_not_change_the_gradient(name, tmp_path):
    made = prepare(name, shrunk(name, tmp_path), tmp_path / "run")
    whole = gradients(*made, ALONE)
    assert len(made[3]) > 2
    for pieces in (2, len(made[3]) + 3):  # of which some are empty
        assert_same(gradients(*made, ALONE, pieces), whole)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_two_ranks_train_every_recipe_and_have_one_ranks_gradient(shard, tmp_path):
    jobs = {name: shrunk(name, tmp_path / name) for name in NAMES[shard::SHARDS]}
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    run_ranks(2, "tests.training.test_every_recipe", str(tmp_path))
    for name, overrides in jobs.items():
        made = prepare(name, overrides, tmp_path / name / "two")
        assert_same(load_file(tmp_path / name / "two.safetensors"), gradients(*made, ALONE))
        assert (tmp_path / name / "trained/model.safetensors").is_file()


def as_a_rank(folder):
    """What each of two processes does."""
    jobs = json.loads((folder / "jobs.json").read_text())
    with join("cpu") as world:
        for name, overrides in jobs.items():
            made = world.first(lambda n=name, o=overrides: prepare(n, o, folder / n / "two"))
            found = gradients(*made, world)
            found["nll"] = world.sum(found["nll"])
            if world.leads:
                save_file(found, folder / name / "two.safetensors")
            recipe = read(name, [*overrides, "data.valid=", "data.test="])
            for _ in start(recipe, folder / name / "trained", world):
                pass


if __name__ == "__main__":
    from pathlib import Path

    as_a_rank(Path(sys.argv[1]))
    # Twenty groups of peers were made in this process; how one that makes one group ends is tested
    # in test_promises.py.
    os._exit(0)
