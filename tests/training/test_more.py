"""More steps for a run that is there, and what is refused on the way."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.errors import DataError, RunError
from regard.training import checkpoint
from regard.training.events import Begun, Step

QUICK = ("train.save_every=4", "train.evaluate_every=4", "train.evaluate_examples=2",
         "train.log_every=1")  # fmt: skip
STEADY = "train.schedule=inverse-sqrt"


def train(toy, run, *more, **options):
    return regard.train(str(toy), *QUICK, *more, run=run, **options)


def assert_same(one, two):
    mine, theirs = (load_file(run / "model.safetensors") for run in (one, two))
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        assert torch.equal(weight, theirs[name]), name


@pytest.mark.parametrize("more", [[], ["train.keep=average", "train.average=3"],
                                  ["train.keep=last", "train.adapters=2"]])  # fmt: skip
def test_more_steps_end_where_all_at_once_end(toy, tmp_path, more):
    """Bit for bit, where the schedule does not follow the number of steps."""
    train(toy, tmp_path / "whole", STEADY, "train.steps=16", *more)
    train(toy, tmp_path / "run", STEADY, "train.steps=8", *more)
    seen = []
    train(toy, tmp_path / "run", STEADY, "train.steps=16", *more, on_event=seen.append)
    assert (seen[0].step, seen[0].steps) == (8, 16)
    assert not [note for note in seen[0].notes if "train.schedule" in note]
    assert [event.step for event in seen if isinstance(event, Step)] == list(range(9, 17))
    assert_same(tmp_path / "run", tmp_path / "whole")
    kept = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in kept if row["event"] == "step"] == list(range(1, 17))
    assert "steps = 16  # command line" in (tmp_path / "run/recipe.toml").read_text()
    assert (tmp_path / "run/README.md").is_file() and (tmp_path / "run/results.json").is_file()


def test_what_was_the_best_stays_so_where_nothing_better_comes(toy, tmp_path):
    train(toy, tmp_path / "run", STEADY, "train.steps=8")
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    # So good a validation has been that what comes is worse.
    tensors, state = checkpoint.load(tmp_path / "run/checkpoint-8")
    checkpoint.save(tmp_path / "run", 8, tensors, state | {"best": 1e9})
    train(toy, tmp_path / "run", STEADY, "train.steps=12")
    assert_same(tmp_path / "run", tmp_path / "before")


def test_a_schedule_that_follows_the_number_of_steps_is_told(toy, tmp_path):
    settings = ("train.schedule=linear", "train.rate=0.01", "train.warmup=0")
    train(toy, tmp_path / "run", *settings, "train.steps=8")
    begun = []
    train(toy, tmp_path / "run", *settings, "train.steps=16", on_event=begun.append)
    (note,) = begun[0].notes
    assert note == (
        "train.schedule=linear follows train.steps: planned for 8 steps the rate had come to 0, "
        "for 16 it goes on at 0.00438; train.schedule=constant or inverse-sqrt from the start "
        "would have stayed as it was."
    )
    assert begun[1].rate == pytest.approx(0.01 * 7 / 16)


@pytest.mark.parametrize("moment", ["before its first step", "in its first step"])
def test_stopped_on_the_way_the_same_command_goes_on(toy, tmp_path, moment):
    class EnoughError(Exception):
        pass

    train(toy, tmp_path / "whole", STEADY, "train.steps=16")
    train(toy, tmp_path / "run", STEADY, "train.steps=8")

    def end(event):
        if isinstance(event, Begun if moment.startswith("before") else Step):
            raise EnoughError

    with pytest.raises(EnoughError):
        train(toy, tmp_path / "run", STEADY, "train.steps=16", on_event=end)
    assert not (tmp_path / "run/README.md").exists()
    assert regard.load(tmp_path / "run").predict(["one cats"])  # usable all the while
    train(toy, tmp_path / "run", STEADY, "train.steps=16")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_what_fails_before_the_first_step_leaves_the_run_as_it_was(toy, tmp_path):
    train(toy, tmp_path / "run", STEADY, "train.steps=8")
    shutil.rmtree(tmp_path / ".cache")
    (tmp_path / "valid.en").write_text("one line too few\n")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(DataError, match="the same number of lines"):
        train(toy, tmp_path / "run", STEADY, "train.steps=16")
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_what_is_refused_says_how_to_go_on(toy, tmp_path):
    run = tmp_path / "run"
    train(toy, run, STEADY, "train.steps=8")
    for more, told in (
        (["train.steps=8"], "run: this run is finished; train.steps=N with more than 8 goes on"),
        (
            ["train.steps=4"],
            "the finished run here has train.steps=8, but now it is 4; it has no steps left; more "
            "than 8 go on from its end, --fresh deletes it",
        ),
        (["train.steps=9", "train.rate=0.5"], "has train.rate=0.01, but now it is 0.5; --fresh"),
        ([], "has train.steps=8, but now it is 40; train.steps=40 after the recipe goes on, --fr"),
    ):
        with pytest.raises(RunError) as refused:
            train(toy, run, STEADY, *more)
        assert told in str(refused.value)
    shutil.rmtree(run / "checkpoint-8")
    shutil.rmtree(run / "checkpoint-4")
    with pytest.raises(RunError, match="there must be a checkpoint to go on from, but there is no"):
        train(toy, run, STEADY, "train.steps=16")


def test_who_stopped_for_want_of_gain_goes_on_with_more_patience(toy, tmp_path):
    settings = (STEADY, "train.rate=1e-9", "train.steps=40")
    run = train(toy, tmp_path / "run", *settings, "train.patience=1", "train.best_by=metric")
    (last,) = sorted(run.folder.glob("checkpoint-*"))[-1:]
    with pytest.raises(RunError, match="validations brought no gain; add train.patience=0, or mo"):
        train(toy, run.folder, *settings[:-1], "train.steps=44", "train.patience=1",
              "train.best_by=metric")  # fmt: skip
    train(toy, run.folder, *settings[:-1], "train.steps=44", "train.patience=0",
          "train.best_by=metric")  # fmt: skip
    assert (run.folder / "checkpoint-44").is_dir() and last.name != "checkpoint-44"
