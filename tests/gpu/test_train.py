"""Training on a GPU: the loss kernel, captured and compiled steps, batches, resuming."""

import json
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.batch import Sizes
from regard.data.read import Faults
from regard.models.transformer import Transformer, TransformerSettings
from regard.training import kernel, loss
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loop import shares
from regard.training.loss import TokenLoss
from regard.training.prepare import prepare_data, prepare_task
from regard.training.recipe import read
from tests.toys import pairs, write_recipe


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 50257), (torch.bfloat16, 10007), (torch.float32, 7)]
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_kernel_is_its_written_out_form(dtype, size, smoothing, gpu):
    scores = (torch.randn(33, size, device=gpu) * 3).to(dtype)
    labels = torch.randint(size, (33,), device=gpu)
    real = torch.rand(33, device=gpu) > 0.2
    a, b = scores.clone(), torch.zeros(33, -(-size // 64) * 64, device=gpu, dtype=dtype)
    b = b[:, :size].copy_(scores)
    plain = loss.score_chunk(a, labels, real, smoothing, True)
    fast = kernel.score_chunk(b, labels, real, smoothing, True)
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(b, a, rtol=1e-2, atol=1e-3)


def gradients(compiling, dropout, gpu, precision=None):
    ids = torch.randint(4, 500, (24, 41), generator=torch.Generator().manual_seed(0))
    lengths = torch.randint(5, 21, (24,), generator=torch.Generator().manual_seed(1))
    batch = pairs(ids[:, :20], lengths, ids[:, 20:], lengths).to(gpu)
    torch.manual_seed(0)
    settings = TransformerSettings(64, 3, heads=4, hidden=128, dropout=dropout)
    model = Transformer(Sizes(500, 500, True), settings).to(gpu).train()
    backward = make_backward(model, TokenLoss(0.1), World(0, 1, gpu), compiling, precision)
    for _ in range(3):  # the third is a replay
        torch.manual_seed(5)
        model.zero_grad(set_to_none=False)
        backward(batch, [1 / batch.tokens], True)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize(("way", "dropout"), [("graph", 0.0), ("graph", 0.3), ("full", 0.0)])
def test_captured_and_compiled_steps_have_the_plain_gradient(way, dropout, gpu):
    plain = gradients("off", dropout, gpu)
    with warnings.catch_warnings():  # the compiler looks at gradients that it then warns of
        warnings.simplefilter("ignore")
        fast = gradients(way, dropout, gpu)
    assert float((fast - plain).norm() / plain.norm()) < 1e-3


def test_half_precision_has_nearly_the_same_gradient(gpu):
    whole = gradients("graph", 0.0, gpu)
    half = gradients("graph", 0.0, gpu, torch.autocast("cuda", torch.bfloat16, cache_enabled=False))
    assert float((half - whole).norm() / whole.norm()) < 0.05


def test_the_same_recipe_trains_on_the_same_batches(tmp_path):
    recipe = read(str(write_recipe(tmp_path, train=400)), ["train.device=cuda"])
    folder = tmp_path / "run"
    folder.mkdir()
    task = prepare_task(recipe, folder, Faults())
    data = prepare_data(recipe, task, tmp_path, Faults())["train"]
    plan = task.plan(data.store, recipe.train.batch_tokens, 0)
    steps = range(recipe.train.steps)
    both = [
        shares(task, data, plan, steps, recipe.train, World(0, 1, torch.device(name)))
        for name in ("cuda", "cpu")
    ]
    for here, there in zip(*both, strict=True):
        assert here.counts and there.counts
        here, there = here.batch, there.batch
        assert here.tokens == there.tokens and len(here) == len(there)
        width = there.read.ids.shape[1]
        assert torch.equal(here.read.ids[:, :width], there.read.ids)
        assert not here.read.ids[:, width:].any()


SETTINGS = ("train.device=cuda", "train.steps=30", "train.save_every=10", "train.keep=last")


def losses(run):
    rows = (run.folder / "metrics.jsonl").read_text().splitlines()
    return [r["loss"] for r in map(json.loads, rows) if r["event"] == "step"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_goes_on_where_it_was_stopped(tmp_path, precision):
    toy, seen = str(write_recipe(tmp_path, train=300)), []
    settings = (*SETTINGS, f"train.precision={precision}")
    whole = regard.train(toy, *settings, run=tmp_path / "whole")
    regard.train(toy, *settings, run=tmp_path / "cut", on_event=seen.append,
                 stop=lambda: len(seen) > 3)  # fmt: skip
    assert not (tmp_path / "cut/model.safetensors").exists()
    again = regard.train(toy, *settings, run=tmp_path / "cut")
    near = 0.02 if precision == "float32" else 0.1
    assert losses(again) == pytest.approx(losses(whole), abs=near)
    one, two = (load_file(run.folder / "model.safetensors") for run in (whole, again))
    apart = [float((one[n] - two[n]).norm() / one[n].norm().clamp_min(1e-6)) for n in one]
    assert float(np.median(apart)) < near


def test_a_run_trains_scores_and_answers(tmp_path):
    toy = str(write_recipe(tmp_path, train=2000))
    run = regard.train(toy, "train.device=cuda", "train.steps=400", "model.dropout=0.0",
                       run=tmp_path / "run")  # fmt: skip
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    assert scores["bleu"] > 60 and run.device.type == "cuda"
    cpu = regard.load(run.folder, device="cpu")
    lines = ["two red cats", "one dogs and ten cats", "nine green dogs"]
    assert [a.output for a in run.predict(lines)] == [a.output for a in cpu.predict(lines)]
    bill = json.loads((run.folder / "cost.json").read_text())
    assert bill["peak_memory_bytes"] > 0 and "TFLOP/s" in bill["use_method"]
