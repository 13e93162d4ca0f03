"""What ranks do in the tests of models that are cut, each in a process of its own."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from regard.models import MODELS
from regard.training.backward import checkpoint_blocks, make_backward
from regard.training.distributed import World, join
from regard.training.events import Step
from regard.training.loop import Share, Training, gradient
from regard.training.loss import ClassLoss, MaskedLoss, TokenLoss
from regard.training.recipe import read
from regard.training.run import start
from regard.training.shard import full, local
from tests.toys import random_batch, small_model

ALONE = World(0, 1, torch.device("cpu"))
LOSSES = {"bert": MaskedLoss, "vit": ClassLoss, "glimpse": ClassLoss, "graph": ClassLoss}
KINDS = [kind for kind in MODELS if kind not in ("table", "decision")]  # which no toy loss is for
BLOCKS = [kind for kind in KINDS if MODELS[kind].stacks]
SAME = ["model.dropout=0.0", "train.rate=0.001", "train.steps=8", "train.save_every=2"]
RUNS = {
    "best": ["train.evaluate_every=4", "train.checkpoint_activations=true"],
    "average": ["train.keep=average", "train.average=3", "train.optimizer=adam"],
    "muon": ["train.optimizer=muon", "train.keep=last"],
    "asgd": ["train.optimizer=asgd", "train.stall=1", "train.evaluate_every=1", "train.keep=last"],
    "sgd": ["train.optimizer=sgd", "train.accumulate=3", "train.r_drop=0.5"],
    "adapters": ["train.adapters=4"],
}
KILLED = ["train.steps=8", "train.save_every=4", "train.log_every=1", "train.shard=true"]


def gradients(kind, world=ALONE, again=False, dropout=0.0, pieces=1, precision=None):
    """Of a model of a kind in float64, cut where there are several ranks."""
    more = {"dropout": dropout} if dropout else {}
    model = small_model(kind, **more)
    model = model.double() if precision is None else model
    if again:
        checkpoint_blocks(model)
    backward = make_backward(
        model.train(dropout > 0), LOSSES.get(kind, TokenLoss)(), world, precision=precision,
        sharded=True,
    )  # fmt: skip
    batch = random_batch(kind, rows=7)
    if precision is None:
        wide = [t.double() if t.is_floating_point() else t for t in batch.tensors()]
        batch = batch.put(wide)
    share = Share(batch.shard(world.rank, world.size), True)
    torch.manual_seed(1)  # of dropout
    nll, _ = gradient(backward, share, batch.counts, world, pieces)
    found = {n: full(w.grad) for n, w in model.named_parameters() if w.grad is not None}
    return found | {"nll": world.sum(nll)}


def with_gradients(folder, world):
    for kind in KINDS:
        found = {"": gradients(kind, world), "-pieces": gradients(kind, world, pieces=3)}
        if kind in BLOCKS:
            found["-again"] = gradients(kind, world, again=True)
        if kind == "gpt":
            narrow = torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
            found["-narrow"] = gradients(kind, world, precision=narrow)
        for how, tensors in found.items():
            if world.leads:
                save_file(tensors, folder / f"{kind}{how}-{world.size}.safetensors")


def begin(folder, world, command):
    """A training before its first step."""
    world.first(lambda: folder.mkdir(exist_ok=True))
    return Training(read(command[0], ["train.shard=true", *command[1:]]), folder, world, print)


def held(training):
    """Bytes of weights, gradients and what the optimizer remembers, on this rank."""
    every = list(training.model.parameters())
    every += [weight.grad for weight in every if weight.grad is not None]
    for state in training.optimizer.state.values():
        every += [value for value in state.values() if value.dim()]
    storages = [local(tensor).untyped_storage() for tensor in every]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def with_first_steps(folder, world):
    for name, command in json.loads((folder / "jobs.json").read_text()).items():
        training = begin(folder / f"{name}-{world.size}", world, command)
        weights = {n: full(w).detach() for n, w in training.model.named_parameters()}
        if world.leads:
            save_file(weights, folder / f"{name}-{world.size}.safetensors")
        list(training.step(next(training.shares())))
        (folder / f"{name}-{world.rank}.held").write_text(str(held(training)))


def with_runs(folder, world, recipe):
    for _ in start(read(recipe, [*SAME, "train.shard=true"]), folder / "begun-alone", world):
        pass
    for name, settings in RUNS.items():
        made = read(recipe, [*SAME, *settings, "train.shard=true"])
        for _ in start(made, folder / name, world):
            pass


def with_a_kill(folder, world, recipe, first=""):
    """At first one of them is killed, between two checkpoints."""
    for run in ("killed", "whole"):
        for event in start(read(recipe, KILLED), folder / run, world):
            if first and world.rank == 1 and isinstance(event, Step) and event.step == 6:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    with join("cpu") as here:
        globals()[f"with_{sys.argv[1]}"](Path(sys.argv[2]), here, *sys.argv[3:])
    os._exit(0)  # many groups of peers were made in this process
