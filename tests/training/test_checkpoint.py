"""Checkpoints are whole or absent, and nothing that was changed is loaded."""

import errno
import json

import pytest
import torch

from regard.errors import RunError
from regard.training import checkpoint
from tests.toys import small_model

TENSORS = {
    "model": {"a": torch.arange(6.0).reshape(2, 3)},
    "optimizer": {"step/a": torch.tensor(3.0)},
}


@pytest.fixture
def saved(tmp_path):
    return checkpoint.save(tmp_path, 10, TENSORS, {"step": 10})


def test_saved_equals_loaded(saved):
    tensors, state = checkpoint.load(saved)
    assert state == {"step": 10}
    assert torch.equal(tensors["model"]["a"], TENSORS["model"]["a"])
    assert torch.equal(tensors["optimizer"]["step/a"], TENSORS["optimizer"]["step/a"])
    assert sorted(path.suffix for path in saved.iterdir()) == [
        ".json",
        ".json",
        ".safetensors",
        ".safetensors",
    ]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("how", ["cut", "edited", "removed"])
def test_a_damaged_part_is_named(saved, name, how):
    path = saved / name
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[:-1])
    elif how == "edited":
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    else:
        path.unlink()
    said = "is missing" if how == "removed" else "has been changed or cut short"
    with pytest.raises(
        RunError, match=f"{name}: this part of the checkpoint {said}.*delete that folder"
    ):
        checkpoint.load(saved)


def test_a_checkpoint_without_sums_is_none(saved):
    (saved / "checksums.json").unlink()
    with pytest.raises(RunError, match="checksums.json must be there"):
        checkpoint.load(saved)


@pytest.mark.parametrize("failing", ["save_file", "fsync", "rename"])
def test_a_full_disk_leaves_what_was_there(saved, failing, monkeypatch):
    def fail(*args, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    if failing == "save_file":
        monkeypatch.setattr(checkpoint, "save_file", fail)
    elif failing == "fsync":
        monkeypatch.setattr(checkpoint.os, "fsync", fail)
    else:
        monkeypatch.setattr(type(saved), "rename", fail)
    with pytest.raises(
        RunError,
        match=r"checkpoint-20 could not be written \(No space left on device\); .*make room",
    ):
        checkpoint.save(saved.parent, 20, TENSORS, {"step": 20})
    monkeypatch.undo()
    assert [path.name for path in saved.parent.iterdir()] == ["checkpoint-10"]
    checkpoint.load(saved)


@pytest.mark.parametrize("write", ["weights", "text"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_no_file_is_left_by_halves(tmp_path, monkeypatch, write, error):
    def fail(*args, **more):
        raise error

    path = tmp_path / "file"
    path.write_text("as it was")
    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises((RunError, KeyboardInterrupt), match="file.* could not be written|^$"):
        if write == "weights":
            checkpoint.write_weights(path, TENSORS["model"])
        else:
            checkpoint.write_text(path, "anew")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "as it was"


def test_text_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        checkpoint.write_text(tmp_path / "file", "half a letter: \ud800")
    assert list(tmp_path.iterdir()) == []


def test_a_deleted_folder_does_not_come_back(tmp_path):
    with pytest.raises(RunError, match="checkpoint-1 could not be written"):
        checkpoint.save(tmp_path / "gone", 1, TENSORS, {"step": 1})
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("where", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("bit", [1, 128])
def test_one_flipped_bit_anywhere_is_seen(tmp_path, where, bit):
    path = tmp_path / "w.safetensors"
    tensors = {
        "a": torch.arange(600.0).reshape(20, 30),
        "b": torch.arange(7, dtype=torch.int64),
        "c": torch.tensor(3.0),
        "d": torch.ones(5, dtype=torch.bfloat16),
        "e": torch.zeros(0),
    }
    checkpoint.write_weights(path, tensors)
    assert checkpoint.read_tensors(path).keys() == tensors.keys()
    data = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    data[header + int(where * (len(data) - header))] ^= bit
    path.write_bytes(data)
    for read in (checkpoint.read_tensors, lambda path: checkpoint.average([path])):
        with pytest.raises(
            RunError,
            match="w.safetensors: the weights must be as they were written, but have changed since",
        ):
            read(path)


def test_a_renamed_tensor_is_seen(tmp_path):
    """Every byte of its values is the same."""
    path = tmp_path / "w.safetensors"
    checkpoint.write_weights(path, {"a1": torch.zeros(3), "a2": torch.zeros(3)})
    path.write_bytes(path.read_bytes().replace(b'"a1"', b'"a3"'))
    with pytest.raises(RunError, match="have changed since"):
        checkpoint.read_tensors(path)


def test_only_the_last_are_kept_and_leftovers_go(tmp_path):
    for step in (5, 100, 20):
        checkpoint.save(tmp_path, step, TENSORS, {"step": step})
    (tmp_path / ".checkpoint-300.part").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / ".checkpoint-mine.part").mkdir()
    checkpoint.clean(tmp_path)
    assert [path.name for path in checkpoint.all_in(tmp_path)] == [
        "checkpoint-20",
        "checkpoint-100",
    ]
    assert not (tmp_path / ".checkpoint-300.part").exists()
    assert (tmp_path / "checkpoint-best").exists() and (tmp_path / ".checkpoint-mine.part").exists()


def test_an_interruption_pushes_out_nothing_that_is_averaged(tmp_path):
    for step in (10, 20, 27, 30, 33, 38):
        checkpoint.save(tmp_path, step, TENSORS, {"step": step})
        checkpoint.clean(tmp_path, keep=3, every=10)
    steps = [checkpoint.step_of(path) for path in checkpoint.all_in(tmp_path)]
    assert steps == [10, 20, 30, 33, 38]  # the last three regular ones, and the last two


def test_the_average_is_the_mean(tmp_path):
    for i, value in enumerate((1.0, 2.0, 6.0)):
        checkpoint.write_weights(tmp_path / f"{i}.safetensors", {"w": torch.full((2,), value)})
    mean = checkpoint.average(sorted(tmp_path.glob("*.safetensors")))
    assert mean["w"].tolist() == [3.0, 3.0]


def test_weights_of_another_model_are_refused(tmp_path):
    model = small_model("transformer")
    weights = checkpoint.weights_of(model)
    checkpoint.put_weights(model, weights, tmp_path)
    with pytest.raises(RunError, match="has, beyond what the model knows, 'extra'"):
        checkpoint.put_weights(model, weights | {"extra": torch.zeros(1)}, tmp_path)
    name = next(iter(weights))
    with pytest.raises(RunError, match=f"the file lacks '{name}'"):
        checkpoint.put_weights(model, {k: v for k, v in weights.items() if k != name}, tmp_path)
    with pytest.raises(RunError, match=rf"'{name}' has shape \(1,\) where the model has"):
        checkpoint.put_weights(model, weights | {name: torch.zeros(1)}, tmp_path)


def test_a_file_that_is_no_weights_file(tmp_path):
    (tmp_path / "w.safetensors").write_text(json.dumps({"no": 1}))
    with pytest.raises(RunError, match="w.safetensors: not a whole safetensors file"):
        checkpoint.read_tensors(tmp_path / "w.safetensors")
