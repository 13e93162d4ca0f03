"""The run folder: what is damaged is not used, what is somebody's stays, one trains at a time."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.errors import RunError
from regard.parts.packed import missing
from regard.training import checkpoint, folder
from regard.training.events import Begun, Saved, Step
from tests.conftest import ROOT
from tests.toys import sentences

QUICK = ("train.steps=12", "train.save_every=4", "train.evaluate_every=4", "train.log_every=1",
         "train.evaluate_examples=2")  # fmt: skip
HIDDEN = (".part", ".lock", ".replaced", ".tmp")


def stopped(toy, run, step, *more):
    """A run that was asked to stop after a step."""
    seen = []
    regard.train(
        str(toy), *QUICK, *more, run=run, on_event=seen.append,
        stop=lambda: any(isinstance(e, Step) and e.step >= step for e in seen),
    )  # fmt: skip
    return run


def left_behind(run):
    return [path for path in run.rglob("*") if any(word in path.name for word in HIDDEN)]


def flip(path):
    """One bit, in the middle of what the file holds."""
    data = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    data[header + (len(data) - header) // 2] ^= 1
    path.write_bytes(data)


# What is damaged.


def test_a_flipped_bit_in_a_checkpoint_is_not_used(main, toy, tmp_path):
    run = stopped(toy, tmp_path / "r", 5, "train.keep=last")
    (newest,) = (tmp_path / "r").glob("checkpoint-5")
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole = (newest / name).read_bytes()
        flip(newest / name)
        with pytest.raises(RunError, match=f"checkpoint-5/{name}: the weights must be as they"):
            checkpoint.read_tensors(newest / name)
        (newest / name).write_bytes(whole)
    (run / "best.safetensors").unlink()
    assert main("predict", "r", "one cats").out
    flip(newest / "model.safetensors")
    for words in (["predict", "r", "one cats"], ["evaluate", "r"]):
        said = main(*words, status=2).err
        assert "r/checkpoint-5/model.safetensors: the weights must be as they were written" in said
        assert "delete that folder and the checkpoints after it" in said and said.count("\n") == 1
    said = main("train", toy.name, *QUICK, "train.keep=last", "--run", "r", status=2).err
    assert "checkpoint-5/model.safetensors: this part of the checkpoint has been changed" in said
    shutil.rmtree(newest)  # as it was told to
    main("train", toy.name, *QUICK, "train.keep=last", "--run", "r")


def test_a_flipped_bit_is_not_averaged(main, toy, tmp_path):
    more = ("train.keep=average", "train.average=3")
    run = stopped(toy, tmp_path / "r", 9, *more)
    flip(run / "checkpoint-4/model.safetensors")  # an older one, which is only averaged
    said = main("train", toy.name, *QUICK, *more, "--run", "r", status=2).err
    assert "r/checkpoint-4/model.safetensors: the weights must be as they were written" in said
    assert not (run / "model.safetensors").exists()
    for path in run.glob("checkpoint-*"):  # as it was told to
        shutil.rmtree(path)
    main("train", toy.name, *QUICK, *more, "--run", "r")


def test_a_flipped_bit_in_the_best_or_the_model_is_not_used(main, toy, tmp_path):
    run = stopped(toy, tmp_path / "r", 9)
    whole = (run / "best.safetensors").read_bytes()
    flip(run / "best.safetensors")
    # So bad a validation to come that what is kept stays the best.
    state = json.loads((run / "checkpoint-9/state.json").read_text()) | {"best": 1e9}
    tensors, _ = checkpoint.load(run / "checkpoint-9")
    checkpoint.save(run, 9, tensors, state)
    wrong = (
        "r/best.safetensors: the weights must be as they were written, but have changed since; put "
        "back a copy of it, or train again with --fresh."
    )
    assert wrong in main("predict", "r", "one cats", status=2).err
    assert wrong in main("train", toy.name, *QUICK, "--run", "r", status=2).err
    assert not (run / "model.safetensors").exists()
    (run / "best.safetensors").write_bytes(whole)
    main("train", toy.name, *QUICK, "--run", "r")
    flip(run / "model.safetensors")
    for words in (
        ["predict", "r", "one cats"],
        ["evaluate", "r"],
        ["train", toy.name, "model.from=r", "--run", "other"],
    ):
        said = main(*words, status=2).err
        assert "r/model.safetensors: the weights must be as they were written" in said, words
        assert said.count("\n") == 1


def test_somebody_elses_weights_need_no_sum(main, toy, tmp_path):
    main("train", toy.name, *QUICK, "--run", "r")
    path = tmp_path / "r/model.safetensors"
    save_file(load_file(path), path)
    assert main("predict", "r", "one cats").out


# What is not a run's.


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["checkpoint-thesis/chapter1.txt"], "checkpoint-thesis"),
        (["README.md"], "README.md"),
        (["tensorboard/notes.txt"], "tensorboard/notes.txt"),
        (["checkpoint-10/model.safetensors"], "checkpoint-10"),
        (["recipe.toml", "README.md"], "README.md"),  # somebody's own recipe
        ([".replaced/recipe.toml"], ".replaced"),
        (["run/checkpoint-4/notes.txt"], "checkpoint-4/notes.txt"),
        (["run/tensorboard/notes.txt"], "tensorboard/notes.txt"),
        (["run/thesis.txt"], "thesis.txt"),
    ],
)
def test_fresh_deletes_only_what_a_run_has_made(main, toy, tmp_path, files, named):
    if files[0].startswith("run/"):
        main("train", toy.name, *QUICK, "train.steps=4", "--run", "run")
    mine = tmp_path / ("run" if files[0].startswith("run/") else "mine")
    for name in files:
        path = mine / name.removeprefix("run/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(toy.read_text() if path.name == "recipe.toml" else "years of work")
    before = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    for more in ([], ["--fresh"]):
        said = main("train", toy.name, *QUICK, "--run", mine.name, *more, status=2).err
        assert f"a run needs a folder of its own, but this one holds '{named}'" in said
    after = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    assert after == before


def test_what_somebody_put_into_a_checkpoint_outlives_it(toy, tmp_path):
    def write(event):
        if isinstance(event, Saved) and event.step == 4:
            (tmp_path / "r/checkpoint-4/notes.txt").write_text("years of work")

    regard.train(str(toy), *QUICK, "train.save_every=2", run=tmp_path / "r", on_event=write)
    assert (tmp_path / "r/checkpoint-4/notes.txt").read_text() == "years of work"
    assert sorted(path.name for path in (tmp_path / "r").glob("checkpoint-*")) == [
        "checkpoint-10", "checkpoint-12", "checkpoint-4",
    ]  # fmt: skip


def test_fresh_through_a_link_empties_what_is_behind_it(main, toy, tmp_path):
    main("train", toy.name, *QUICK, "--run", "disk/run")
    link = tmp_path / "link"
    link.symlink_to("disk/run")
    before = (tmp_path / "disk/run").stat().st_ino
    main("train", toy.name, *QUICK, "train.seed=1", "--run", "link", "--fresh")
    assert link.is_symlink() and (tmp_path / "disk/run").stat().st_ino == before
    assert "seed = 1" in (tmp_path / "disk/run/recipe.toml").read_text()
    assert left_behind(tmp_path / "disk") == []


def test_a_fresh_start_that_is_killed_gives_the_old_run_back(main, toy, tmp_path):
    main("train", toy.name, *QUICK, "--run", "r")
    run = tmp_path / "r"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def now():
        return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    # Killed with all put aside and some of the new there, half-way aside, and half-way back.
    for half in ("all", "aside", "back"):
        folder.put_aside(run)
        assert [path.name for path in run.iterdir()] == [".replaced"]
        if half == "all":
            (run / "recipe.toml").write_text((run / ".replaced/recipe.toml").read_text())
            (run / "tokenizer.json").write_text("new")
        else:
            moved = ["config.json", "metrics.jsonl"] if half == "back" else ["tokenizer.json"]
            for name in ["recipe.toml", *moved]:
                (run / ".replaced" / name).rename(run / name)
        said = main("train", toy.name, *QUICK, "--run", "r", status=2).err
        assert "this run is finished" in said
        assert now() == before
    # One that had begun has given the old one up: no half of it comes back.
    folder.put_aside(run)
    (run / ".replaced").rename(run / ".replaced.part")
    (run / "recipe.toml").write_text((run / ".replaced.part/recipe.toml").read_text())
    main("train", toy.name, *QUICK, "--run", "r")
    assert left_behind(run) == []


# Who may write.


def test_a_second_training_is_refused(main, toy, tmp_path):
    said = []

    def again(event):
        if isinstance(event, Begun):
            for more in ([], ["--fresh"]):
                said.append(main("train", toy.name, *QUICK, "train.seed=1", "--run", "r", *more,
                                 status=2).err)  # fmt: skip

    regard.train(str(toy), *QUICK, run=tmp_path / "r", on_event=again)
    assert len(said) == 2
    for line in said:
        assert line.startswith(
            f"regard: r: one training at a time may use a run folder, but process {os.getpid()} on "
        )
        assert line.count("\n") == 1 and " has done so since 2" in line
    assert "seed = 0" in (tmp_path / "r/recipe.toml").read_text()
    assert left_behind(tmp_path / "r") == []


HOLDER = """
import sys, time
from pathlib import Path
from regard.training.folder import Hold
hold = Hold(Path(sys.argv[1]))
hold.take()
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_training_leaves_no_lock(main, toy, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "r")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        said = main("train", toy.name, *QUICK, "--run", "r", status=2).err
        assert f"but process {process.pid} on " in said
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "r/.lock").is_file()
    main("train", toy.name, *QUICK, "--run", "r")
    assert left_behind(tmp_path / "r") == []


@pytest.mark.parametrize("at", ["step", "validation", "end"])
@pytest.mark.parametrize("other", [False, True])
def test_a_folder_deleted_while_it_trains_does_not_come_back(toy, tmp_path, at, other):
    run = tmp_path / "r"

    def delete(event):
        moment = {"step": Step, "validation": Step, "end": Saved}[at]
        if isinstance(event, moment) and event.step == {"step": 2, "validation": 4, "end": 12}[at]:
            shutil.rmtree(run)
            if other:
                run.mkdir()
                (run / "thesis.txt").write_text("years of work")

    with pytest.raises(RunError, match=r"r: the run folder must stay while it is trained in, but "):
        regard.train(str(toy), *QUICK, run=run, on_event=delete)
    assert [path.name for path in run.rglob("*")] == ["thesis.txt"] if other else not run.exists()


def test_a_folder_that_cannot_be_made_or_written(main, toy, tmp_path):
    (tmp_path / "file").write_text("")
    said = main("train", toy.name, *QUICK, "--run", "file", status=2).err
    assert "file: the run folder could not be made (File exists)." in said
    (tmp_path / "r/.lock").mkdir(parents=True)
    said = main("train", toy.name, *QUICK, "--run", "r", status=2).err
    assert "r: the run folder must be one to write in, but is not (Is a directory)" in said


# What is left, and what is kept.


def test_what_a_killed_process_left_goes_at_the_next_start(main, toy, tmp_path):
    run = stopped(toy, tmp_path / "r", 5)
    (run / ".checkpoint-8.part").mkdir()
    for name in (".checkpoint-8.part/model.safetensors", ".checkpoint-8.part/.tmp5aE6TX",
                 ".tmp5aE6TX", ".results.json.part", ".best.safetensors.part"):  # fmt: skip
        (run / name).write_bytes(b"half")
    main("train", toy.name, *QUICK, "--run", "r")
    assert left_behind(run) == []
    # A start that was killed before its recipe was whole left nothing to go on from.
    (tmp_path / "s").mkdir()
    (tmp_path / "s/.recipe.toml.part").write_text("[ta")
    main("train", toy.name, *QUICK, "--run", "s")
    assert left_behind(tmp_path / "s") == []


def test_interrupting_changes_nothing_of_an_average(toy, tmp_path):
    """Interrupted at odd steps, also near the end: what is averaged are the same steps."""
    settings = (str(toy), "train.steps=14", "train.save_every=3", "train.evaluate_every=5",
                "train.evaluate_examples=0", "train.log_every=1", "train.keep=average",
                "train.average=3")  # fmt: skip
    regard.train(*settings, run=tmp_path / "whole")
    for step in (4, 5, 10, 11, 13):
        seen = []

        def asked(seen=seen, step=step):
            return any(isinstance(e, Step) and e.step >= step for e in seen)

        regard.train(*settings, run=tmp_path / "cut", on_event=seen.append, stop=asked)
        assert (tmp_path / f"cut/checkpoint-{step}").is_dir()
        assert not (tmp_path / "cut/model.safetensors").exists()
    regard.train(*settings, run=tmp_path / "cut")
    whole, cut = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    for name, value in whole.items():
        assert torch.equal(cut[name], value), name
    mean = checkpoint.average(
        [tmp_path / f"whole/checkpoint-{step}/model.safetensors" for step in (9, 12, 14)]
    )
    assert all(torch.equal(whole[name], value) for name, value in mean.items())


@pytest.mark.parametrize(("steps", "advice"), [(300, 30), (5, 1)])
def test_a_warmup_longer_than_the_training_is_told(toy, tmp_path, steps, advice, capsys):
    from regard.terminal import console, progress

    class EnoughError(Exception):
        pass

    def end(event):
        progress.Drawing(console())(event)
        raise EnoughError

    for warmup, wanted in ((1000, True), (steps, False)):
        settings = (f"train.steps={steps}", f"train.warmup={warmup}")
        with pytest.raises(EnoughError):
            regard.train(str(toy), *settings, run=tmp_path / f"r{warmup}", on_event=end)
        said = capsys.readouterr().out
        told = (
            f"note: train.warmup (1000) is longer than the training ({steps} steps), so the rate "
            f"never reaches train.rate; set train.warmup={advice} or so.\n"
        )
        assert (told in said) == wanted
        assert ("note: " in said) == wanted


def test_a_vocabulary_smaller_than_asked_for_is_told_once(toy, tmp_path):
    """When it has just been learned, and once where both sides share it."""
    notes = []

    class EnoughError(Exception):
        pass

    def end(event):
        if isinstance(event, Begun):
            notes.append(event.notes)
        if isinstance(event, Saved):
            raise EnoughError

    words = (str(toy), *QUICK, "train.evaluate_every=12", "text.kind=bpe", "text.size=9000")
    for _ in range(2):
        with pytest.raises(EnoughError):
            regard.train(*words, run=tmp_path / "r", on_event=end)
    first, second = notes
    assert len(first) == 1 and second == ()
    assert "9000 entries were asked for, but the data allow only " in first[0]


def test_without_test_data_the_validation_data_are_scored(main, toy, tmp_path):
    main("train", toy.name, *QUICK, "data.test=", "--run", "r")
    said = main("evaluate", "r", "--json")
    assert json.loads(said.out)["on"] == "valid"
    assert said.err == "regard: the run has no data.test; scored on valid.\n"
    assert regard.load(tmp_path / "r").evaluate()["on"] == "valid"
    assert main("evaluate", "r", "--on", "valid").err == ""
    assert "data.test: the recipe names no file for this" in (
        main("evaluate", "r", "--on", "test", status=2).err
    )
    main("train", toy.name, *QUICK, "--run", "s")
    said = main("evaluate", "s", "--json")
    assert json.loads(said.out)["on"] == "test" and said.err == ""


def test_the_second_waits_for_the_score_too(toy, tmp_path, monkeypatch):
    """The folder is held until the card is written."""
    from regard.see import card

    refused = []

    def write(run):
        with pytest.raises(RunError, match="one training at a time"):
            regard.train(str(toy), *QUICK, run=tmp_path / "r")
        refused.append(time.monotonic())
        return kept(run)

    kept = card.write
    monkeypatch.setattr(card, "write", write)
    regard.train(str(toy), *QUICK, run=tmp_path / "r")
    assert len(refused) == 1


@pytest.mark.parametrize(("key", "value"), [("width", 20000), ("hidden", 65536), ("depth", 99)])
def test_a_model_is_compared_with_its_weights_before_it_is_made(trained, tmp_path, key, value):
    """Twenty thousand wide beside 100 kB of weights would take 50 GB before it did not fit."""
    import re
    import resource

    folder = tmp_path / "run"
    shutil.copytree(trained.folder, folder)
    for name, pattern, text in (
        ("recipe.toml", rf"(?m)^{key} = \d+", f"{key} = {value}"),
        ("config.json", rf'"{key}": \d+', f'"{key}": {value}'),
    ):
        changed = re.sub(pattern, text, (folder / name).read_text())
        (folder / name).write_text(changed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RunError, match="the weights must fit the model"):
        regard.load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


ODD = {"list": "[]", "number": "1", "null": "null", "deep": "[" * 100_000, "bytes": "\udcff"}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["config.json", "results.json", "cost.json", "metrics.jsonl"])
def test_a_damaged_file_ends_in_one_line_or_does_not_matter(trained, tmp_path, main, name, odd):
    folder = tmp_path / "run"
    shutil.copytree(trained.folder, folder)
    (folder / name).write_text(ODD[odd], encoding="utf-8", errors="surrogateescape")
    try:
        assert regard.load(folder).predict(["two cats"])[0].output
    except RunError as error:
        assert name == "config.json" and str(folder) in str(error)
    said = main("compare", folder, status=0 if name in NO_MATTER else 2)
    assert "Traceback" not in said.err


NO_MATTER = ("config.json", "metrics.jsonl")


@pytest.mark.parametrize(
    "said", ['{"labels": ["a"]}', '{"predictz": 1}', "[]", '{"predicts": "all", "labels": []}',
             '{"predicts": "class", "labels": [1, 2]}', "[" * 100_000],
)  # fmt: skip
def test_damaged_labels_end_in_one_line(tmp_path, said):
    from regard.tasks.labels import read_labels

    (tmp_path / "labels.json").write_text(said)
    if said == '{"labels": ["a"]}':
        assert read_labels(tmp_path)["predicts"] == "class"
        return
    with pytest.raises(RunError, match="the labels must be there and readable"):
        read_labels(tmp_path)


def test_a_pipe_is_not_waited_for(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained.folder, folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(RunError, match="the model's sizes must be readable"):
        regard.load(folder)


def test_a_name_that_is_not_text_is_refused_at_the_start(toy, tmp_path):
    with pytest.raises(RunError, match="a run folder's name must be UTF-8"):
        regard.train(str(toy), "train.steps=2", run=tmp_path / "sur\udcff")


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_run_answers_in_lower_precision(trained, monkeypatch, precision):
    """Nearly every sentence of the toy language is answered as in float32."""
    monkeypatch.setattr("regard.parts.packed.LEAST", 1)
    lines = sentences(60, seed=9)
    whole = regard.load(trained.folder)
    lower = regard.load(trained.folder, f"decode.precision={precision}")
    assert whole.notes == [] and len(lower.notes) == bool(missing(precision))
    pairs = zip(whole.predict(lines), lower.predict(lines), strict=True)
    assert sum(a.output == b.output for a, b in pairs) >= 54


def test_a_precision_that_is_not_to_be_had_is_told(trained, main, monkeypatch):
    monkeypatch.setattr("regard.parts.packed.platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    said = main("predict", trained.folder, "two cats", "decode.precision=int8")
    assert said.out.strip() == regard.load(trained.folder).predict(["two cats"])[0].output
    assert said.err == (
        "regard: decode.precision=int8 is not used: this processor has no instructions for int8 "
        "(VNNI).\n"
    )
