"""Checkpoints: safetensors and JSON in a folder that is whole or absent."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..errors import RunError

SUMS = "checksums.json"


def save(
    folder: Path, step: int, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]
) -> Path:
    """Write `checkpoint-<step>` beside its place, sums last, and rename it into place."""
    final = folder / f"checkpoint-{step}"
    work = folder / f".checkpoint-{step}.part"
    with _told(f"{final} could not be written"):
        shutil.rmtree(work, ignore_errors=True)
        try:
            work.mkdir(parents=True)
            for name, group in tensors.items():
                _write_tensors(work / f"{name}.safetensors", group)
            _write_text(work / "state.json", json.dumps(state, indent=1))
            sums = {path.name: _sum(path) for path in sorted(work.iterdir())}
            _write_text(work / SUMS, json.dumps(sums, indent=1))
            if final.exists():
                shutil.rmtree(final)
            work.rename(final)
            _sync_folder(folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return final


def load(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Tensors by file and the state; refused unless every byte is as it was written."""
    try:
        sums = json.loads((folder / SUMS).read_text())
    except (OSError, ValueError) as error:
        raise RunError(
            f"{folder}: the checkpoint's {SUMS} must be there and readable, but is not; {GIVE_UP}"
        ) from error
    if not isinstance(sums, dict) or not {"model.safetensors", "state.json"} <= sums.keys():
        raise RunError(
            f"{folder}: the checkpoint's {SUMS} must name its parts, but does not; {GIVE_UP}"
        )
    for name, wanted in sums.items():
        path = folder / name
        if not path.is_file() or _sum(path) != wanted:
            what = (
                "has been changed or cut short since it was written"
                if path.is_file()
                else "is missing"
            )
            raise RunError(f"{path}: this part of the checkpoint {what}; {GIVE_UP}")
    tensors = {
        Path(name).stem: read_tensors(folder / name)
        for name in sums
        if name.endswith(".safetensors")
    }
    return tensors, json.loads((folder / "state.json").read_text())


GIVE_UP = "delete that folder to go on from the checkpoint before it, or start over with --fresh."


def all_in(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [
        p for p in folder.glob("checkpoint-*") if p.name.removeprefix("checkpoint-").isdecimal()
    ]
    return sorted(found, key=lambda p: int(p.name.removeprefix("checkpoint-")))


def clean(folder: Path, keep: int) -> None:
    """Drop all but the last `keep` checkpoints, and what a killed process left half-written."""
    for path in folder.glob(".checkpoint-*.part"):
        shutil.rmtree(path)
    for path in all_in(folder)[:-keep]:
        # Renamed first: a kill in the middle of deleting must not leave half a checkpoint in place.
        gone = path.with_name(f".{path.name}.part")
        path.rename(gone)
        shutil.rmtree(gone)


def write_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """A weights file, whole or as it was before."""
    work = path.with_name(f".{path.name}.part")
    with _told(f"{path} could not be written"):
        try:
            _write_tensors(work, weights)
            work.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            work.unlink(missing_ok=True)
            raise


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: not a whole safetensors file ({error}).") from error


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A model's weights, those that are shared once."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


def put_weights(model: nn.Module, weights: dict[str, Tensor], where: Path) -> None:
    """Load weights into a model that they fit exactly."""
    own = dict(model.named_parameters())
    odd = sorted(set(own) ^ set(weights))
    if odd:
        side = "lacks" if odd[0] in own else "has, beyond what the model knows,"
        raise RunError(
            f"{where}: the weights must fit the model of config.json, but the file "
            f"{side} '{odd[0]}'."
        )
    for name, weight in own.items():
        if weight.shape != weights[name].shape:
            raise RunError(
                f"{where}: the weights must fit the model of config.json, but '{name}' has shape "
                f"{tuple(weights[name].shape)} where the model has {tuple(weight.shape)}."
            )
        with torch.no_grad():
            weight.copy_(weights[name])


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several files of weights, summed in double precision."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, weight in read_tensors(path).items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / len(paths)).float() for name, weight in total.items()}


def write_text(path: Path, text: str) -> None:
    """A small file, whole or as it was."""
    work = path.with_name(f".{path.name}.part")
    try:
        work.write_text(text, encoding="utf-8")
        work.replace(path)
    except OSError as error:
        work.unlink(missing_ok=True)
        raise RunError(f"{path}: could not be written ({error.strerror}).") from error


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, path)
    path.chmod(0o644)  # the library makes it private; a run folder is to be handed on
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _told(what: str) -> Any:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunError(
            f"{what} ({reason}); the checkpoints before it are whole: make room and "
            f"run the same command again."
        ) from error
