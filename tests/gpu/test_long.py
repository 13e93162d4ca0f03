"""Patterns by kernels against the written-out path; trained, and written on for long."""

import pytest
import torch

import regard
from regard.decode import Settings, with_cuda_graphs
from regard.parts import kernel
from regard.parts.attention import Attend
from regard.parts.pattern import PATTERNS, Causal, laid_out
from regard.parts.score import ScaledDot
from regard.parts.sparse import gathered
from regard.tasks.writer import as_prompt
from tests.toys import random_batch, small_model

SOME = {name: make(64, 100, 3, 2) for name, make in PATTERNS.items()} | {"causal": Causal()}


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_kernels_and_gathering_are_the_written_out_path(gpu, name, causal, padded, monkeypatch):
    monkeypatch.setattr(kernel, "PIECE", 6)  # so that long lists are cut here too
    kernel.work_of.cache_clear()
    length, found = 1000, {}
    layout = laid_out(SOME[name], 64, length, 4, causal)
    lengths = torch.tensor([length, 333], device=gpu)[:, None]
    mask = (torch.arange(length, device=gpu) < lengths)[:, None, None] if padded else None
    real = torch.ones((), device=gpu) if mask is None else mask.transpose(-1, -2)
    for way in ("plain", "gathered", "kernel"):
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 4, length, 32, device=gpu, requires_grad=True) for _ in range(3))
        if way == "plain":
            out = Attend(ScaledDot(32), plain=True)(q, k, v, mask, None, False, layout)
        elif way == "gathered":
            out = gathered(q, k, v, 32**-0.5, layout, mask, None, 0.0)
        else:
            out = kernel.by_kernel(q, k, v, 32**-0.5, layout, mask)
        (out * real).square().sum().backward()
        found[way] = ((out * real).detach(), q.grad, k.grad, v.grad)
    kernel.work_of.cache_clear()
    for way in ("gathered", "kernel"):
        for mine, wanted in zip(found[way], found["plain"], strict=True):
            torch.testing.assert_close(mine, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("block", "width"), [(16, 16), (16, 128), (32, 64), (64, 64), (128, 32)])
def test_blocks_and_heads_of_other_sizes(gpu, block, width):
    """Keys shared by heads, laid out as projections leave them."""
    layout = laid_out(PATTERNS["window"](block, 70, 3, 0), block, 512, 4, True)
    found = []
    for way in ("plain", "kernel"):
        torch.manual_seed(0)
        q = torch.randn(2, 512, 4, width, device=gpu).transpose(1, 2).requires_grad_()
        k, v = (torch.randn(2, 2, 512, width, device=gpu, requires_grad=True) for _ in range(2))
        if way == "plain":
            out = Attend(ScaledDot(width), plain=True)(q, k, v, None, None, False, layout)
        else:
            out = kernel.by_kernel(q, k, v, width**-0.5, layout, None)
        out.square().sum().backward()
        found.append((out.detach(), q.grad, k.grad, v.grad))
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=2e-4, atol=2e-4)


def test_a_long_text_is_learned_in_bfloat16(gpu):
    """By kernels, on text far longer than a list is cut at, against gathering in float32."""
    layout = laid_out(PATTERNS["bigbird"](64, 64, 0, 3), 64, 8192, 12, False)
    found = []
    for kind in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        q, k, v = (
            torch.randn(1, 12, 8192, 64, device=gpu).to(kind).requires_grad_() for _ in range(3)
        )
        if kind == torch.float32:
            out = gathered(q, k, v, 0.125, layout, None, None, 0.0)
        else:
            out = kernel.by_kernel(q, k, v, 0.125, layout, None)
        out.float().square().sum().backward()
        found.append((out.detach().float(), q.grad.float(), k.grad.float(), v.grad.float()))
    for wanted, mine in zip(*found, strict=True):
        assert (mine - wanted).norm() / wanted.norm() < 0.02


def test_it_goes_on_in_constant_memory(gpu):
    """Steps captured as they are in answers: as in one pass, far beyond what the cache holds."""
    long = {"pattern": "window", "reach": 20, "block": 16, "position": "rotary"}
    model = small_model("gpt", **long).to(gpu)
    batch = random_batch("gpt", 2, longest=600).to(gpu)
    writer = with_cuda_graphs(model, Settings())
    with torch.no_grad():
        whole = model(batch)
        state = writer.start(as_prompt(batch.read.ids[:, :1]))
        for t in range(600):
            logits, state = writer.step(batch.read.ids[:, t], state)
            if t % 50 == 49:
                torch.testing.assert_close(logits, whole[:, t], rtol=1e-3, atol=1e-3)
    assert state.past.keys.shape[3] <= model.kept


def test_a_run_with_a_pattern_trains(gpu, tmp_path):
    settings = [
        "train.steps=60", "model.pattern=window", "model.reach=32", "model.block=32",
        "model.dropout=0.0", "train.evaluate_every=60", "data.test=", "model.position=rotary",
        "train.log_every=20",
    ]  # fmt: skip
    run = regard.train("lm-shakespeare-cpu", *settings, run=tmp_path / "run")
    (answer,) = run.predict(["ROMEO:"])
    assert answer.output and run.model.longest is None


def test_what_was_captured_outlives_many_other_lengths(gpu):
    """A graph reads a layout's lists for as long as it is played back."""
    shape, pattern = (1, 2, 40 * 16, 16), PATTERNS["bigbird"](16, 16, 0, 1)
    q = torch.randn(shape, device=gpu)

    def work(length):
        layout = laid_out(pattern, 16, length, 2, False)
        part = q[:, :, :length]
        return kernel.by_kernel(part, part, part, 0.25, layout, None)

    wanted = work(shape[2]).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work(shape[2])
    for blocks in range(12, 40):
        for layer in range(12):
            layout = laid_out(pattern.of_layer(layer), 16, 16 * blocks, 2, False)
            kernel.work_of(layout.pattern, layout.size, gpu)
    torch.cuda.empty_cache()
    _ = [torch.full((64, 64), 2**20, device=gpu, dtype=torch.int32) for _ in range(2000)]
    graph.replay()
    torch.testing.assert_close(found, wanted)
