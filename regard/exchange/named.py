"""CTranslate2's model.bin: a flat list of named arrays, of which none is trusted to lie in it."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import RunError

DTYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}
FLOATS = {"<f4": torch.float32, "<f2": torch.float16}
MOST = 100_000  # arrays


class Array(NamedTuple):
    """Where an array lies in the file."""

    shape: tuple[int, ...]
    dtype: str
    offset: int


def arrays(path: Path) -> tuple[str, dict[str, Array]]:
    """What a model.bin holds: what it is of, and its arrays."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            version = numbers(file, "<I")[0]
            if not 2 <= version <= 6:
                raise ValueError(f"its version is {version}")
            spec, _, count = text(file), *numbers(file, "<II")
            if count > MOST:
                raise ValueError(f"it says that it has {count} arrays")
            found = {}
            for _ in range(count):
                name, rank = text(file), numbers(file, "<B")[0]
                shape = numbers(file, f"<{rank}I")
                kind, length = numbers(file, "<BI")
                dtype = np.dtype(DTYPES[kind])
                offset = file.tell()
                whole = math.prod((*shape, dtype.itemsize))
                if whole != length or offset + length > size:
                    raise ValueError(f"'{name}' does not lie in it")
                found[name] = Array(shape, dtype.str, offset)
                file.seek(length, 1)
            return spec, found
    except (OSError, ValueError, KeyError, struct.error, UnicodeError) as error:
        raise RunError(f"{path}: not a whole file of CTranslate2's ({error}).") from error


def numbers(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def text(file: BinaryIO) -> str:
    """A name: its length, and its letters with a zero behind."""
    return file.read(numbers(file, "<H")[0]).rstrip(b"\0").decode("utf-8")


def read_array(path: Path, one: Array) -> Tensor:
    count = int(np.prod(one.shape, dtype=np.int64))
    found = np.fromfile(path, one.dtype, count, offset=one.offset)
    return torch.from_numpy(found.reshape(one.shape))


def shapes(path: Path) -> dict[str, Tensor]:
    return {
        name: torch.empty(one.shape, dtype=FLOATS[one.dtype], device="meta")
        for name, one in arrays(path)[1].items()
        if one.shape and one.dtype in FLOATS
    }


def tensors(path: Path) -> dict[str, Tensor]:
    known = shapes(path)
    return {n: read_array(path, one) for n, one in arrays(path)[1].items() if n in known}
