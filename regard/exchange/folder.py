"""What a Hugging Face folder holds: its config, and its tensors from one file or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import RunError

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def must_be_new(folder: Path) -> None:
    """Nothing of a user's is written over."""
    if folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{folder}: the folder must be empty or new, but holds something.")


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file; {} where there is no such file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: not readable JSON ({error}).") from error
    if not isinstance(found, dict):
        raise RunError(f"{path}: there must be one JSON object, but there is something else.")
    return found


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, unless it wants code of its own to be run."""
    path = folder / "config.json"
    if not path.is_file():
        raise RunError(f"{folder}: a Hugging Face folder must hold config.json, but there is none.")
    config = read_json(path)
    if config.get("auto_map") or config.get("custom_code"):
        raise RunError(
            f"{path}: it asks for code of its own to be run (auto_map), which regard never does."
        )
    return config


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors in float32: of model.safetensors, of its shards, or of pytorch_model.bin."""
    for name, read in (("model.safetensors", _safe), ("pytorch_model.bin", _old)):
        if (folder / name).is_file():
            return read(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _shards(folder, index, read)
    raise RunError(
        f"{folder}: there must be a model.safetensors, its index and shards, or a "
        "pytorch_model.bin, but there is none."
    )


def _shards(folder: Path, index: Path, read: Any) -> dict[str, Tensor]:
    named = read_json(index).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(file, str) for file in named.values()):
        raise RunError(f"{index}: 'weight_map' must say which file each tensor is in.")
    found: dict[str, Tensor] = {}
    for file in sorted(set(named.values())):
        if Path(file).name != file:
            raise RunError(
                f"{index}: a shard must lie in the folder itself, but '{file}' does not."
            )
        if not (folder / file).is_file():
            raise RunError(f"{folder}: the shard {file} is missing, though {index.name} names it.")
        found |= read(folder / file)
    lacking = sorted(set(named) - set(found))
    if lacking:
        raise RunError(f"{index}: no shard holds '{lacking[0]}', though it names one.")
    return found


def _safe(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: not a whole safetensors file ({error}).") from error
    return _as_floats(found, path)


def _old(path: Path) -> dict[str, Tensor]:
    """Tensors alone are taken out of such a file; whatever else is in it is refused, not run."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile one can fail in any way
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{path}: not a file of tensors alone ({what}).") from error
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise RunError(f"{path}: it must hold named tensors and nothing else.")
    return _as_floats(found, path)


def _as_floats(tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """One precision, whatever mixture the file has; counters and masks stay as they are."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.dtype not in FLOATS:
            raise RunError(
                f"{path}: '{name}' is in {str(tensor.dtype).removeprefix('torch.')}, a compressed "
                "form; only float64, float32, float16 and bfloat16 are read."
            )
    return {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
