"""The promises of docs/promises.md, each held here by name."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.errors import RegardError
from tests.toys import sentences, translate
from tests.train.test_gradient import run_ranks

ROOT = Path(__file__).parents[1]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def assert_same(a: Path, b: Path) -> None:
    one, two = weights(a), weights(b)
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


@pytest.mark.parametrize(
    "more", [[], ["text.kind=bpe", "text.size=90", "text.bytes=false", "text.dropout=0.2"]]
)
def test_same_seed_same_weights(toy, tmp_path, more):
    for name in ("one", "two"):
        regard.train(str(toy), "train.steps=12", *more, run=tmp_path / name)
    assert_same(tmp_path / "one", tmp_path / "two")
    regard.train(str(toy), "train.steps=12", "train.seed=1", *more, run=tmp_path / "other")
    assert not torch.equal(
        weights(tmp_path / "one")["source.tokens.weight"],
        weights(tmp_path / "other")["source.tokens.weight"],
    )


@pytest.mark.parametrize("keep", ["best", "average"])
def test_killed_at_any_moment_ends_in_the_same_weights(toy, tmp_path, keep):
    """Killed again and again, at random moments, by SIGKILL; then left to finish."""
    settings = [
        "train.steps=30",
        "train.save_every=4",
        "train.evaluate_every=10",
        f"train.keep={keep}",
    ]
    regard.train(str(toy), *settings, run=tmp_path / "whole")
    command = [
        sys.executable,
        "-m",
        "regard",
        "train",
        str(toy),
        *settings,
        "--run",
        str(tmp_path / "killed"),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    log = tmp_path / "killed/metrics.jsonl"
    kills = 0
    for wanted in {"best": (3, 10, 14, 27), "average": (9, 21, 27)}[keep]:  # about this far
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if log.is_file() and any(
                f'"step": {step},' in log.read_text() for step in range(wanted, 31)
            ):
                time.sleep(0.013 * wanted % 0.07)
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        process.communicate()
        if (tmp_path / "killed/model.safetensors").exists():
            break
    assert kills >= 2
    if not (tmp_path / "killed/model.safetensors").exists():
        regard.train(str(toy), *settings, run=tmp_path / "killed")
    assert_same(tmp_path / "whole", tmp_path / "killed")
    steps = [
        json.loads(line)["step"]
        for line in log.read_text().splitlines()
        if '"event": "step"' in line
    ]
    assert steps == sorted(set(steps)), "a step is logged once"


def assert_near(a: Path, b: Path) -> None:
    """Equal up to rounding. A bias of keys moves all scores of a query alike, so its gradient is
    rounding alone, which Adam makes as large as any; it means nothing, and is left out."""
    one, two = weights(a), weights(b)
    for name, value in one.items():
        kept = slice(len(value) // 2, None) if name.endswith("memory.bias") else slice(None)
        torch.testing.assert_close(two[name][kept], value[kept], atol=2e-3, rtol=1e-2)


def test_two_ranks_start_and_one_finishes(toy, tmp_path):
    """A run started on two ranks resumes on one; only one rank writes."""
    settings = ["train.steps=20", "train.save_every=5", "model.dropout=0.0", "train.rate=0.001"]
    regard.train(str(toy), *settings, run=tmp_path / "alone")
    pair = tmp_path / "pair"
    run_ranks(2, ["-m", "regard", "train", str(toy), *settings, "--folder", str(pair)])
    assert [path.name for path in sorted(pair.glob("checkpoint-*"))] == [
        "checkpoint-15",
        "checkpoint-20",
    ]
    assert_near(tmp_path / "alone", pair)
    for name in ("model.safetensors", "README.md"):  # as if stopped after step 15
        (pair / name).unlink()
    shutil.rmtree(pair / "checkpoint-20")
    again = regard.train(str(toy), *settings, run=pair)
    assert_near(tmp_path / "alone", again.folder)


@pytest.mark.parametrize("decode", ["decode.kind=greedy", "decode.num_beams=4"])
def test_a_translation_does_not_depend_on_its_neighbours(trained, decode):
    run = regard.load(trained.folder, decode)
    lines = sentences(64, seed=9)
    together = [answer.output for answer in run.predict(lines)]
    alone = [run.predict([line])[0].output for line in lines[:24]]
    assert together[:24] == alone
    giant = " and ".join(sentences(60, seed=10))
    assert len(giant.split()) > 200
    data = run.recipe.data
    object.__setattr__(data, "max_length", 1000)
    beside = [answer.output for answer in run.predict([giant, *lines[:24]])]
    object.__setattr__(data, "max_length", 256)
    assert beside[1:] == alone


def test_nothing_pickled_is_written_or_read(trained):
    allowed = {".toml", ".json", ".jsonl", ".safetensors", ".md", ".png"}
    files = [path for path in trained.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= allowed
    for path in files:
        head = path.read_bytes()[:4]
        assert not head.startswith(
            (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
        ), path
    source = "\n".join(path.read_text() for path in (ROOT / "regard").rglob("*.py"))
    # Other people's weights may be in such a file; tensors alone are taken out of it.
    allowed_once = 'torch.load(path, map_location="cpu", weights_only=True)'
    assert source.count(allowed_once) == 1
    source = source.replace(allowed_once, "")
    for word in (
        "pickle",
        "torch.load",
        "torch.save",
        "joblib",
        "marshal",
        "shelve",
        "allow_pickle",
    ):
        assert word not in source, word


def test_works_with_no_network(trained, monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    run = regard.load(trained.folder)
    assert run.predict(["one cats"])[0].output
    assert run.evaluate("valid")["examples"] == 40


def test_the_toy_language_is_learned(trained):
    lines = sentences(50, seed=11)
    right = [
        answer.output == translate(line)
        for line, answer in zip(lines, trained.predict(lines), strict=True)
    ]
    assert sum(right) >= 45
    assert trained.evaluate("test")["bleu"] > 90


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(toy, tmp_path):
    import numpy as np

    with pytest.raises(
        RegardError,
        match="the loss is not a number any more; the last checkpoint is good: try a lower",
    ):
        regard.train(
            str(toy),
            "train.rate=1e30",
            "train.clip=0.0",
            "train.save_every=1",
            run=tmp_path / "bad",
        )
    kept = sorted((tmp_path / "bad").glob("checkpoint-*"))
    for folder in kept:
        for name, value in load_file(folder / "model.safetensors").items():
            assert np.isfinite(value.numpy()).all(), (folder, name)
    assert not (tmp_path / "bad/model.safetensors").exists()


def test_what_a_killed_library_left_is_no_obstacle(toy, tmp_path):
    """The weights' library writes beside its file, under a name of its own."""
    from regard.train.run import is_ours

    assert is_ours(tmp_path / ".tmp5aE6TX") and not is_ours(tmp_path / ".tmp5aE6TXY.txt")
    small = ("train.steps=4", "train.save_every=2", "train.evaluate_every=2")
    seen = []
    regard.train(str(toy), *small, run=tmp_path / "run", on_event=seen.append,
                 stop=lambda: len(seen) > 1)  # fmt: skip
    (tmp_path / "run/.tmp5aE6TX").write_bytes(b"half")
    run = regard.train(str(toy), *small, run=tmp_path / "run")
    assert (run.folder / "model.safetensors").is_file()
    assert not (run.folder / ".tmp5aE6TX").exists()
