"""Captured steps write what plain ones write, for every model, by every way of decoding."""

import warnings

import pytest
import torch

from regard.decode import Limits, Settings, with_cuda_graphs, write
from regard.decode.engine import Engine
from regard.tasks.writer import as_prompt
from tests.decode.test_engine import EVERY, WAYS, ask, prompts, wait_for
from tests.toys import pairs, small_model

EOS, SIZE = 2, 300
NEAR = {torch.float32: 2e-3, torch.bfloat16: 0.6}


def make(kind, dtype=torch.float32, **more):
    sizes = {"width": 64} if kind in ("gpt", "transformer", "t5") else {}
    return small_model(kind, size=SIZE, **{**sizes, **more}).to("cuda", dtype)


def asked(kind, rows, gpu, longest=60):
    ids = torch.randint(4, SIZE, (rows, 9), generator=torch.Generator().manual_seed(rows)).to(gpu)
    if kind in ("transformer", "t5", "seq2seq"):
        lengths = torch.full((rows,), 9, device=gpu)
        target = torch.ones(rows, 2, dtype=torch.long, device=gpu)
        limits = Limits.begin(1, EOS, torch.full((rows,), longest, device=gpu), (0, 1, 3))
        return pairs(ids, lengths, target, lengths * 0), limits
    limits = Limits(ids, EOS, torch.full((rows,), longest, device=gpu), (0, 1, 3))
    return as_prompt(ids), limits


def assert_alike(found, wanted, near=2e-3):
    """Every row is answered, by numbers, and as well; a near tie may fall the other way."""
    assert len(found) == len(wanted)
    for mine, other in zip(found, wanted, strict=True):
        assert mine and len(mine) == len(other)
        for one, two in zip(mine, other, strict=True):
            if one.ids != two.ids:
                assert one.score == pytest.approx(two.score, abs=near * (1 + len(two.ids)))
    same = sum([h.ids for h in a] == [h.ids for h in b] for a, b in zip(found, wanted, strict=True))
    return same / len(wanted)


@pytest.mark.parametrize(("kind", "more"), EVERY)
@pytest.mark.parametrize("way", ["greedy", "sample", "beam"])
def test_captured_steps_write_what_plain_ones_do(kind, more, way, gpu):
    model = make(kind, **more)
    for rows in (5, 17, 5):
        batch, limits = asked(kind, rows, gpu)
        settings = Settings(kind=way, num_beams=4, max_new_tokens=60)
        wanted = write(model, batch, limits, settings)
        found = write(with_cuda_graphs(model, settings), batch, limits, settings)
        assert assert_alike(found, wanted) >= 0.8
    assert model.captured["auto"].graphs, "nothing was captured"


@pytest.mark.parametrize("kind", ["gpt", "transformer", "t5", "xl", "xlnet"])
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_half_precision_answers_every_row(kind, way, gpu):
    """Weights in bfloat16, as served; many near ties, but never no answer."""
    model = make(kind, torch.bfloat16)
    batch, limits = asked(kind, 23, gpu, longest=90)
    settings = Settings(kind=way, num_beams=4, max_new_tokens=90)
    found = write(with_cuda_graphs(model, settings), batch, limits, settings)
    assert len(found) == 23 and all(row for row in found)
    assert all(h.score == h.score and abs(h.score) < 1e4 for row in found for h in row)


@pytest.mark.parametrize("way", ["greedy", "beam"])
@pytest.mark.parametrize("kind", ["transformer", "rnn", "seq2seq"])
def test_autocast_answers_as_a_run_does(way, kind, gpu):
    model = make(kind)
    batch, limits = asked(kind, 12, gpu)
    settings = Settings(kind=way, num_beams=4, max_new_tokens=60)
    with torch.autocast("cuda", torch.bfloat16):
        wanted = write(model, batch, limits, settings)
        found = write(with_cuda_graphs(model, settings), batch, limits, settings)
    assert assert_alike(found, wanted, 0.05) >= 0.5


def test_compiled_steps_write_what_plain_ones_do(gpu):
    model = make("gpt")
    batch, limits = asked("gpt", 6, gpu)
    settings = Settings(kind="greedy", max_new_tokens=60, compile="full")
    wanted = write(model, batch, limits, settings)
    with warnings.catch_warnings():  # the compiler looks at gradients that it then warns of
        warnings.simplefilter("ignore")
        found = write(with_cuda_graphs(model, settings), batch, limits, settings)
    assert assert_alike(found, wanted) >= 0.8


def to_gpu(request, gpu):
    request.limits = Limits(
        request.limits.prompt.to(gpu), EOS, request.limits.longest.to(gpu), request.limits.banned
    )
    if request.source is not None:
        request.source = request.source.to(gpu)
    return request


@pytest.mark.parametrize(("kind", "more"), EVERY)
def test_the_engine_answers_as_if_each_were_alone(kind, more, gpu):
    """All at once, joining and leaving, with captured steps; then one by one."""
    model = make(kind, **more)
    engine = Engine(model, as_prompt, most_rows=24)
    jobs = [(ids, WAYS[i % len(WAYS)]) for i, ids in enumerate(prompts(48, longest=30))]
    kept = {}

    def listen(number):
        def tell(event):
            if hasattr(event, "answers"):
                kept[number] = event

        return tell

    requests = [
        to_gpu(ask(kind, ids, settings, listen(i)), gpu) for i, (ids, settings) in enumerate(jobs)
    ]
    for request in requests[:-1]:
        assert engine.submit(request)
    wait_for(engine, requests[-1])
    while len(kept) < len(jobs):
        pass
    assert all(done.error is None for done in kept.values()), kept
    wanted, found = [], []
    for number, (ids, settings) in enumerate(jobs):
        request = to_gpu(ask(kind, ids, settings), gpu)
        batch = as_prompt(request.limits.prompt) if request.source is None else request.source
        wanted += write(model, batch, request.limits, settings)
        found.append(kept[number].answers)
    assert assert_alike(found, wanted) >= 0.9
    if kind in ("gpt", "transformer", "t5"):
        assert engine.step.graphs, "nothing was captured"
    engine.close()


def test_the_engine_is_not_slower_than_one_by_one(gpu):
    """Many rows at once: the batch is what makes it quick, so no row may cost a look of its own."""
    import time

    model = make("gpt", torch.bfloat16, depth=6, positions=400)
    long = Settings(kind="greedy", max_new_tokens=120, min_new_tokens=120)
    speeds = {}
    for count in (1, 32):
        engine = Engine(model, as_prompt)
        for turn in range(3):
            done = []
            began = time.perf_counter()
            for ids in prompts(count, seed=turn, longest=8):
                engine.submit(to_gpu(ask("gpt", ids, long, lambda e, d=done: d.append(e)), gpu))
            while sum(hasattr(event, "answers") for event in done) < count:
                time.sleep(0.001)
            speeds[count] = count * 120 / (time.perf_counter() - began)
        engine.close()
    assert speeds[32] > 6 * speeds[1], speeds
