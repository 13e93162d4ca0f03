"""A model cut over ranks is the same model: gradients, first weights, what it learns, where it goes
on. Real processes for the ranks."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import RecipeError, RunError
from regard.parts.block import Block
from regard.training import checkpoint
from regard.training.backward import checkpoint_blocks
from regard.training.distributed import World
from regard.training.recipe import read
from regard.training.run import check_fit, start
from regard.training.shard import rows_of
from tests.processes import run_ranks
from tests.test_promises import assert_near as assert_same_run
from tests.test_recipes import shrunk
from tests.toys import random_batch, small_model
from tests.training.ranks import ALONE, BLOCKS, KINDS, RUNS, SAME, begin, gradients, held

WEIGHTS = "model.safetensors"
JOBS = {
    "gpt2-350m": ["gpt2-350m"],
    "adapters": ["toy", "train.adapters=4"],
    "frozen": ["toy", "train.freeze=1", "model.depth=2"],
    "muon": ["toy", "train.optimizer=muon"],
}


def assert_near(found, wanted, near=1e-12):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        bound = max(near, 1e-6) if name == "nll" else near  # which is kept in float32
        torch.testing.assert_close(found[name], value, rtol=bound, atol=bound)


@pytest.mark.parametrize("kind", BLOCKS)
def test_what_is_computed_again_changes_no_gradient(kind):
    """Not by a bit, dropout neither."""
    dropout = 0.0 if kind in ("vit", "graph") else 0.3
    plain, again = (gradients(kind, again=a, dropout=dropout) for a in (False, True))
    assert plain.keys() == again.keys()
    for name in plain:
        assert torch.equal(plain[name], again[name]), name


def test_a_block_that_is_computed_again_holds_its_input_alone():
    """Of what the backward pass needs, in numbers."""

    def held(again):
        model, sizes = small_model("gpt", width=64, depth=4, hidden=256).train(), []
        if again:
            checkpoint_blocks(model)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: sizes.append(t.numel()) or t, lambda t: t
        ):
            model(random_batch("gpt", rows=8))
        return sum(sizes)

    assert held(True) < held(False) / 4


@pytest.mark.parametrize("again", [False, True])
def test_a_model_that_only_answers_computes_once(again, monkeypatch):
    model, calls = small_model("gpt"), []
    if again:
        checkpoint_blocks(model)
    through = Block.through
    monkeypatch.setattr(Block, "through", lambda *a: calls.append(1) or through(*a))
    with torch.no_grad():
        model(random_batch("gpt"))
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("recipe", "setting", "told"),
    [
        ("lm-ptb-lstm", "train.compile=auto", "rnn has no blocks that could be computed again"),
        ("gpt2-124m", "train.compile=full", "computed again are neither compiled nor captured"),
    ],
)
def test_what_cannot_be_computed_again_is_refused(recipe, setting, told):
    made = read(recipe, ["train.checkpoint_activations=true", setting])
    with torch.device("meta"):
        model = made.build(made.usual_sizes())
    with pytest.raises(RecipeError, match=told):
        check_fit(made, model)


def test_rows_are_shared_out_whole():
    for count in (0, 1, 3, 4, 5, 17):
        for size in (1, 2, 3, 4, 8):
            parts = [range(count)[rows_of(World(r, size, "cpu"), count)] for r in range(size)]
            assert [row for part in parts for row in part] == list(range(count))
            chunks = torch.arange(count).chunk(size)  # as the library cuts
            assert [len(p) for p in parts if len(p)] == [len(c) for c in chunks if len(c)]


# One start of several processes serves several questions.


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_with_a_part_of_the_model_have_one_ranks_gradient(tmp_path, size):
    """Also in pieces, and with blocks computed again; of four ranks, some have one row."""
    as_ranks(size, "gradients", tmp_path)
    for kind in KINDS:
        wanted = gradients(kind)
        for how in ("", "-pieces", *(["-again"] if kind in BLOCKS else [])):
            assert_near(load_file(tmp_path / f"{kind}{how}-{size}.safetensors"), wanted)
    narrow = torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
    found = load_file(tmp_path / f"gpt-narrow-{size}.safetensors")
    assert_near(found, gradients("gpt", precision=narrow), 0.02)  # eight bits of precision
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}


def as_ranks(size, what, *words):
    run_ranks(size, "tests.training.ranks", what, *map(str, words))


def test_ranks_begin_with_one_ranks_weights_and_hold_their_part(toy, tmp_path):
    """Bit for bit the same, drawn from the seed; of weights, gradients and moments, a quarter on
    each of four, but for what does not come out even."""
    size = 4
    jobs = {name: [command[0].replace("toy", str(toy)), *command[1:]]
            for name, command in JOBS.items()}  # fmt: skip
    jobs["gpt2-350m"] += [*shrunk("gpt2-350m", tmp_path), "model.width=96", "model.hidden=384"]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    as_ranks(size, "first_steps", tmp_path)
    for name, command in jobs.items():
        alone = begin(tmp_path / f"{name}-alone", ALONE, command)
        found = load_file(tmp_path / f"{name}-{size}.safetensors")
        wanted = checkpoint.weights_of(alone.model)
        assert found.keys() == wanted.keys()
        for weight, value in wanted.items():
            assert torch.equal(found[weight], value), (name, weight)
        list(alone.step(next(alone.shares())))
        parts = [int((tmp_path / f"{name}-{rank}.held").read_text()) for rank in range(size)]
        if name == "gpt2-350m":
            assert max(parts) < held(alone) / size * 1.05
        assert sum(parts) < held(alone) * 1.3


def test_whatever_is_trained_in_parts_is_what_one_rank_trains(toy, tmp_path):
    train_alone(toy, tmp_path / "begun-alone")
    stop_earlier(tmp_path / "begun-alone")
    as_ranks(2, "runs", tmp_path, toy)
    for name, settings in RUNS.items():
        train_alone(toy, tmp_path / f"{name}-alone", *settings)
        assert_same_run(tmp_path / f"{name}-alone", tmp_path / name)
        files = {path.name for path in (tmp_path / name).iterdir()}
        assert files == {path.name for path in (tmp_path / f"{name}-alone").iterdir()}
    check_parts(tmp_path / "best/checkpoint-8")
    stop_earlier(tmp_path / "best")
    train_alone(toy, tmp_path / "best", *RUNS["best"])
    for name in ("begun-alone", "best"):  # begun by one and ended by two, and the other way round
        assert_same_run(tmp_path / "best-alone", tmp_path / name)


def train_alone(recipe, folder, *settings):
    for _ in start(read(str(recipe), [*SAME, *settings]), folder, ALONE):
        pass


def stop_earlier(folder):
    (folder / WEIGHTS).unlink()
    shutil.rmtree(folder / "checkpoint-8")


def check_parts(folder):
    """A file of each rank, of which any number of ranks can go on; a part that is lost or changed
    is named, and nothing is made of the others."""
    parts = [f"{kind}.{i}-of-2.safetensors" for kind in ("model", "optimizer") for i in (0, 1)]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["checksums.json", *parts, "state.json"]
    whole = checkpoint.read_tensors(folder / WEIGHTS)
    assert checkpoint.load(folder)[0]["model"].keys() == whole.keys()
    shapes = {name: tuple(tensor.shape) for name, tensor in whole.items()}
    assert checkpoint.shapes_in(folder / WEIGHTS) == shapes
    for size in (1, 2, 3, 5):
        rows = [checkpoint.read_rows(folder / WEIGHTS, World(r, size, "cpu")) for r in range(size)]
        for name, tensor in whole.items():
            assert torch.equal(torch.cat([part[name] for part in rows]), tensor)
    part = folder / "model.1-of-2.safetensors"
    data = part.read_bytes()
    for damaged, told in ((None, "is missing"), (data[:-1], "has been changed or cut short")):
        part.unlink()
        if damaged is not None:
            part.write_bytes(damaged)
        with pytest.raises(RunError, match=f"model.1-of-2.safetensors: this part .* {told}"):
            checkpoint.load(folder)
        with pytest.raises(RunError, match="model.1-of-2.safetensors: not a whole safetensors"):
            checkpoint.average([folder / WEIGHTS])
        part.write_bytes(data)


def test_where_a_rank_is_killed_all_go_on_from_the_last_checkpoint(toy, tmp_path):
    """With dropout, and bit for bit to what they would have been."""
    with pytest.raises(AssertionError):  # that all end well
        as_ranks(2, "a_kill", tmp_path, toy, "first")
    as_ranks(2, "a_kill", tmp_path, toy)
    whole, killed = (load_file(tmp_path / run / WEIGHTS) for run in ("whole", "killed"))
    for name, weight in whole.items():
        assert torch.equal(killed[name], weight), name
    log = (tmp_path / "killed/metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in log]
    assert [row["step"] for row in events if row["event"] == "step"] == list(range(1, 9))
