"""Checkpoints: safetensors and JSON in a folder that is whole or absent.

Where a model is cut over ranks, each writes its rows of all weights into a file of its own,
`model.1-of-4.safetensors`, in place of `model.safetensors`. Whoever reads the latter gets the rows
of all, one after the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..data.read import read_json
from ..data.store import sync
from ..errors import RunError
from ..model import Model
from .distributed import World
from .shard import Sharded, local, rows_of

SUMS, STATE = "checksums.json", "state.json"
CUT = ("model", "optimizer")  # what a rank has a part of where weights are cut
ALONE = World(0, 1, torch.device("cpu"))


def is_part(name: str) -> bool:
    """Whether a checkpoint has a file of that name."""
    shard = r"(model|optimizer)(\.\d+-of-\d+)?\.safetensors"
    return name in ("past.safetensors", STATE, SUMS) or re.fullmatch(shard, name) is not None


def save(
    folder: Path,
    step: int,
    tensors: dict[str, dict[str, Tensor]],
    state: dict[str, object],
    world: World = ALONE,
) -> Path:
    """Write `checkpoint-<step>` beside its place, sums last, and rename it into place.

    All ranks of `world` take part; but for rows of what is cut, rank 0 writes.
    """
    final = folder / f"checkpoint-{step}"
    work = folder / f".checkpoint-{step}.part"

    def begin() -> None:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()

    def end() -> None:
        _write_text(work / STATE, json.dumps(state, indent=1))
        sums[STATE] = _sum(work / STATE)
        _write_text(work / SUMS, json.dumps(sums, indent=1))
        if final.exists():  # renamed first: a kill must not leave half of it in place
            final.rename(old := folder / f".checkpoint-{step}.old.part")
            shutil.rmtree(old)
        work.rename(final)
        sync(folder)

    with _told(f"{final} could not be written"):
        try:
            world.each(lambda: begin() if world.leads else None)
            sums: dict[str, str] = {}
            for name, group in tensors.items():
                sums |= _write_group(work, name, group, world)
            world.each(lambda: end() if world.leads else None)
        except BaseException:
            if world.leads:
                shutil.rmtree(work, ignore_errors=True)
            raise
    return final


def _write_group(
    work: Path, group: str, tensors: dict[str, Tensor], world: World
) -> dict[str, str]:
    """One file, or one of each rank where weights are cut.  -> the sum of each"""
    cut = any(isinstance(tensor, Sharded) for tensor in tensors.values())
    ranks = world if cut else world.alone
    if not (cut or world.leads):
        return {}
    names = [f"{group}.safetensors"]
    if cut:
        names = [f"{group}.{rank}-of-{world.size}.safetensors" for rank in range(world.size)]
    # What is not cut, such as a count of steps, is the same on all ranks.
    own = {n: local(t) for n, t in tensors.items() if world.leads or isinstance(t, Sharded)}

    def write() -> bytes:
        path = work / names[ranks.rank]
        _write_tensors(path, own)
        return bytes.fromhex(_sum(path))

    sums = ranks.gather(ranks.each(write))
    return {name: word.hex() for name, word in zip(names, sums, strict=True)}


def load(folder: Path, world: World = ALONE) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Tensors by file and the state; refused unless every byte is as it was written.

    Of what is cut, a rank of `world` gets its own rows, however many ranks wrote them.
    """
    sums = world.each(lambda: _checked(folder, world))
    groups = sorted({name.partition(".")[0] for name in sums if name.endswith(".safetensors")})
    tensors = {}
    for group in groups:
        path = folder / f"{group}.safetensors"
        cut = world.size > 1 and group in CUT
        tensors[group] = read_rows(path, world) if cut else read_tensors(path)
    state: dict[str, object] = read_json(folder / STATE)
    return tensors, state


def _checked(folder: Path, world: World) -> dict[str, str]:
    """The sums of a checkpoint's files; ranks share the work of looking whether they hold."""
    try:
        sums = read_json(folder / SUMS)
    except ValueError as error:
        raise RunError(
            f"{folder}: the checkpoint's {SUMS} must be there and readable, but is not; {GIVE_UP}"
        ) from error
    parts = list(sums) if isinstance(sums, dict) else []
    if STATE not in parts or not any(name.startswith("model.") for name in parts):
        raise RunError(
            f"{folder}: the checkpoint's {SUMS} must name its parts, but does not; {GIVE_UP}"
        )
    for name in sorted(sums)[world.rank :: world.size]:
        path, wanted = folder / name, sums[name]
        if not path.is_file() or _sum(path) != wanted:
            what = (
                "has been changed or cut short since it was written"
                if path.is_file()
                else "is missing"
            )
            raise RunError(f"{path}: this part of the checkpoint {what}; {GIVE_UP}")
    return {name: str(word) for name, word in sums.items()}


# Those after it hold what was learned from it, and one of them alone would be gone on from.
GIVE_UP = (
    "delete that folder and the checkpoints after it to go on from the one before, or start over "
    "with --fresh."
)


def state_in(folder: Path) -> dict[str, Any]:
    """A checkpoint's state alone."""
    try:
        state: dict[str, Any] = read_json(folder / STATE)
    except ValueError as error:
        raise RunError(f"{folder / STATE}: cannot be read ({error}); {GIVE_UP}") from error
    return state


def all_in(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [
        p for p in folder.glob("checkpoint-*") if p.name.removeprefix("checkpoint-").isdecimal()
    ]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))


def clean(folder: Path, keep: int = 1, every: int = 1) -> None:
    """Drop all but the last two and the last `keep` of those whose step `every` divides.

    An interruption makes one more, which must not push out one that is to be averaged. What a
    killed process left half-written goes too; one into which somebody put a file stays.
    """
    for path in folder.glob(".checkpoint-*.part"):
        name = path.name.removeprefix(".checkpoint-").removesuffix(".part").removesuffix(".old")
        if name.isdecimal():
            shutil.rmtree(path)
    found = all_in(folder)
    regular = [path for path in found if step_of(path) % every == 0]
    for path in set(found[:-2]) - set(regular[-keep:]):
        if all(is_part(file.name) for file in path.iterdir()):
            # Renamed first: a kill in the middle of deleting must not leave half of it in place.
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
            sync(path.parent)
        except BaseException:
            work.unlink(missing_ok=True)
            raise


def files_of(path: Path) -> list[Path]:
    """The file of that name, or those that ranks wrote in its place, in order; [] without any."""
    if path.is_file():
        return [path]
    parts = sorted(path.parent.glob(f"{path.stem}.0-of-*{path.suffix}"))
    if not parts:
        return []
    size = int(parts[-1].stem.rpartition("-")[2])
    return [path.with_name(f"{path.stem}.{i}-of-{size}{path.suffix}") for i in range(size)]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, or of those in its place; refused where they are not what was
    written."""
    first, *others = [_read(file) for file in files_of(path) or [path]]
    for name, tensor in first.items() if others else ():
        if name in others[0]:
            first[name] = torch.cat([tensor, *(other[name] for other in others)])
    return first


def read_rows(path: Path, world: World) -> dict[str, Tensor]:
    """A rank's rows of the tensors of a file, or of those in its place; of others nothing is
    read. Whether the files are whole is for the caller to know."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(safe_open(file, "pt")) for file in files_of(path)]
        kept = {}
        for name in files[0].keys():  # noqa: SIM118
            parts = [file.get_slice(name) for file in files if name in file.keys()]  # noqa: SIM118
            shape = parts[0].get_shape()
            if not shape:
                kept[name] = files[0].get_tensor(name)
                continue
            counts = [part.get_shape()[0] for part in parts]
            wanted, start, pieces = rows_of(world, sum(counts)), 0, []
            for part, count in zip(parts, counts, strict=True):
                first, last = max(wanted.start - start, 0), min(wanted.stop - start, count)
                if first < last:
                    pieces.append(part[first:last])
                start += count
            kept[name] = torch.cat(pieces) if pieces else parts[0][0:0]
    return kept


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            wanted = (file.metadata() or {}).get(SUM)  # somebody else's file has none
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path}: not a whole safetensors file ({error}); {_way_out(path)}") from (
            error
        )
    if wanted is not None and sum_of(tensors) != wanted:
        raise RunError(
            f"{path}: the weights must be as they were written, but have changed since; "
            f"{_way_out(path)}"
        )
    return tensors


T = TypeVar("T")
SUM = "sha256"  # in a file's metadata: of its tensors, by name


def sum_of(tensors: dict[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _way_out(path: Path) -> str:
    """What to do about a file of weights that cannot be used."""
    if path.parent.name.startswith("checkpoint-"):
        return GIVE_UP
    return "put back a copy of it, or train again with --fresh."


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A model's weights, those that are shared once."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes that the heads of files tell, before anything of their size is read."""
    shapes: dict[str, tuple[int, ...]] = {}
    for each in files_of(path) or [path]:
        try:
            with safe_open(each, "pt") as file:
                heads = {n: tuple(file.get_slice(n).get_shape()) for n in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"{each}: not a whole safetensors file ({error}); {_way_out(each)}"
            ) from error
        for name, shape in heads.items():
            before = shapes.get(name)
            shapes[name] = (before[0] + shape[0], *shape[1:]) if before else shape
    return shapes


def check_shapes(model: nn.Module, shapes: Mapping[str, tuple[int, ...]], where: Path) -> None:
    """A model's weights must be those of a file; the model may be one without numbers."""
    own = {name: tuple(local(weight).shape) for name, weight in model.named_parameters()}
    shapes = as_named_now(model, shapes)
    odd = sorted(set(own) ^ set(shapes))
    if odd:
        side = "lacks" if odd[0] in own else "has, beyond what the model knows,"
        raise RunError(
            f"{where}: the weights must fit the model of config.json, but the file "
            f"{side} '{odd[0]}'."
        )
    for name, shape in own.items():
        if shape != shapes[name]:
            raise RunError(
                f"{where}: the weights must fit the model of config.json, but '{name}' has shape "
                f"{shapes[name]} where the model has {shape}."
            )


def put_weights(model: nn.Module, weights: dict[str, Tensor], where: Path) -> None:
    """Load weights into a model that they fit exactly."""
    check_shapes(model, {name: tuple(weight.shape) for name, weight in weights.items()}, where)
    with torch.no_grad():
        now = as_named_now(model, weights)
        for name, weight in model.named_parameters():
            local(weight).copy_(now[name])


def as_named_now(model: nn.Module, kept: Mapping[str, T]) -> dict[str, T]:
    """What an older run kept, under the names that a model's weights have now."""
    earlier = model.earlier if isinstance(model, Model) else {}
    return {earlier.get(name, name): value for name, value in kept.items()}


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
        _write_text(work, text)
        work.replace(path)
    except BaseException as error:
        work.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise RunError(f"{path}: could not be written ({error.strerror}).") from error


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    plain = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    save_file(plain, path, metadata={"format": "pt", SUM: sum_of(plain)})
    path.chmod(0o644)  # the library makes it private; a run folder is to be handed on
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


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
