"""What a Hugging Face folder holds: its config, and its tensors from one file or several.

Nothing is taken on trust: a file must be a plain one of the folder, and how large its tensors say
they are is known before any is read.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import RunError
from . import named, quantised

LARGEST = 2**28  # bytes of a file that holds no tensors; no vocabulary comes near
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# How safetensors calls what may be met; whatever else there is has no weights in it.
DTYPES = {
    "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "BOOL": torch.bool,
}  # fmt: skip


def must_be_new(folder: Path) -> None:
    """Nothing of a user's is written over."""
    if folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{folder}: the folder must be empty or new, but holds something.")


def find(folder: Path, name: str) -> Path | None:
    """A file of the folder by its name; None where there is none of it."""
    path, named = folder / name, PurePath(name)
    if named.is_absolute() or ".." in named.parts:
        raise RunError(f"{folder}: a file that it names must lie in it, but {name!r} does not.")
    if not os.path.lexists(path):
        return None
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise RunError(f"{path}: a link must lead to a file, but this one does not.") from error
    home = folder.resolve()
    homes = [home]
    if home.parent.name == "snapshots":  # of their cache, in which files are links to its blobs
        homes += [place / "blobs" for place in home.parents[1:3]]
    if not any(found.is_relative_to(place) for place in homes):
        raise RunError(
            f"{path}: a link must stay in its folder, but this one leads to {found}; copy the file."
        )
    if not found.is_file():  # a pipe would never end
        raise RunError(f"{path}: there must be a plain file, but there is something else.")
    return path


def read_bytes(path: Path) -> bytes:
    """All of a file that is not for tensors."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise RunError(f"{path}: it may have {LARGEST:,} bytes, but has {size:,}.")
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: could not be read ({error.strerror}).") from error


def read_json(folder: Path, name: str, kind: type = dict) -> Any:
    """An object, or what else is wanted, in a file; an empty one where there is no such file."""
    path = find(folder, name)
    if path is None:
        return kind()
    try:
        found = json.loads(read_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: not readable JSON ({error}).") from error
    if not isinstance(found, kind):
        wanted = "object" if kind is dict else "list"
        raise RunError(f"{path}: there must be one JSON {wanted}, but there is something else.")
    return found


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, unless it wants code of its own to be run."""
    path = find(folder, "config.json")
    if path is None:
        raise RunError(f"{folder}: a Hugging Face folder must hold config.json, but there is none.")
    config: dict[str, object] = read_json(folder, "config.json")
    if config.get("auto_map") or config.get("custom_code"):
        raise RunError(
            f"{path}: it asks for code of its own to be run (auto_map), which regard never does."
        )
    return config


class Stored:
    """The tensors of model.safetensors, of its shards, or of pytorch_model.bin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.format, self.files = self._files()
        beside = [folder / name for name in self.format.beside]
        self.bytes = sum(path.stat().st_size for path in [*self.files, *beside])

    def shapes(self) -> dict[str, Tensor]:
        """All of them without their numbers: on the meta device, which holds none."""
        return {name: t for path in self.files for name, t in self.format.shapes(path).items()}

    def tensors(self) -> dict[str, Tensor]:
        return {name: t for path in self.files for name, t in self.format.tensors(path).items()}

    def check(self, shapes: dict[str, Tensor]) -> None:
        """Weights are numbers with a point, and lie in the files: none is there by repetition."""
        for name, tensor in shapes.items():
            kind = str(tensor.dtype).removeprefix("torch.")
            if tensor.dtype not in FLOATS:
                form = "a compressed form" if tensor.is_floating_point() else "a form for counting"
                raise RunError(
                    f"{self.folder}: '{name}' is in {kind}, {form}; only float64, float32, float16 "
                    "and bfloat16 are read."
                )
        size = sum(tensor.numel() * tensor.element_size() for tensor in shapes.values())
        # An output layer may share its numbers with the embedding.
        if size > 2 * self.format.grows * self.bytes:
            raise RunError(
                f"{self.folder}: the tensors must lie in their files, which have {self.bytes:,} "
                f"bytes, but say that they have {size:,}."
            )

    def _files(self) -> tuple[Format, list[Path]]:
        for name, its in FORMATS.items():
            if path := find(self.folder, name):
                return its, [path]
            if index := find(self.folder, f"{name}.index.json"):
                return its, self._shards(index, its)
        raise RunError(
            f"{self.folder}: there must be a model.safetensors, its index and shards, or a "
            "pytorch_model.bin, but there is none."
        )

    def _shards(self, index: Path, its: Format) -> list[Path]:
        named = read_json(self.folder, index.name).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(file, str) for file in named.values()):
            raise RunError(f"{index}: 'weight_map' must say which file each tensor is in.")
        files = []
        for file in sorted(set(named.values())):
            if Path(file).name != file:
                raise RunError(
                    f"{index}: a shard must lie in the folder itself, but {file!r} does not."
                )
            path = find(self.folder, file)
            if path is None:
                raise RunError(
                    f"{self.folder}: the shard {file} is missing, though {index.name} names it."
                )
            files.append(path)
        lacking = sorted(set(named).difference(*(its.shapes(path) for path in files)))
        if lacking:
            raise RunError(f"{index}: no shard holds '{lacking[0]}', though it names one.")
        return files


def as_floats(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """One precision, whatever mixture the file has; counters and masks stay as they are."""
    return {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}


def _safe(path: Path, read: Callable[[Any, str], Tensor]) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            return {name: read(file, name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: not a whole safetensors file ({error}).") from error


def safe_shapes(path: Path) -> dict[str, Tensor]:
    def read(file: Any, name: str) -> Tensor:
        told = file.get_slice(name)
        dtype = DTYPES.get(told.get_dtype(), torch.uint8)
        return torch.empty(told.get_shape(), dtype=dtype, device="meta")

    return _safe(path, read)


def safe_tensors(path: Path) -> dict[str, Tensor]:
    return _safe(path, lambda file, name: file.get_tensor(name))


def _old(path: Path, device: str) -> dict[str, Tensor]:
    """Tensors alone are taken out of such a file; whatever else is in it is refused, not run."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as parts:
                whole = sum(part.file_size for part in parts.infolist())
            if whole > path.stat().st_size:
                raise ValueError("it is packed to be larger than it is")
        found = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a damaged or hostile one can fail in any way
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{path}: not a file of tensors alone ({what}).") from error
    if not isinstance(found, dict) or not all(
        isinstance(n, str) and isinstance(t, Tensor) and t.layout == torch.strided
        for n, t in found.items()
    ):
        raise RunError(f"{path}: it must hold named tensors and nothing else.")
    strange = [name for name, tensor in found.items() if tensor.device.type != device]
    if strange:
        raise RunError(f"{path}: '{strange[0]}' has no numbers in this file.")
    return found


class Format(NamedTuple):
    """How a kind of file is read: what it says of its tensors, and the tensors."""

    shapes: Callable[[Path], dict[str, Tensor]]
    tensors: Callable[[Path], dict[str, Tensor]]
    grows: int = 1  # how many times as large as in the file a tensor is
    beside: tuple[str, ...] = ()  # files that belong to it


FORMATS = {
    "model.safetensors": Format(safe_shapes, safe_tensors),
    "pytorch_model.bin": Format(lambda path: _old(path, "meta"), lambda path: _old(path, "cpu")),
    "model.bin": Format(named.shapes, named.tensors),
    quantised.ENCODER: Format(quantised.shapes, quantised.tensors, 4, (quantised.DECODER,)),
}
