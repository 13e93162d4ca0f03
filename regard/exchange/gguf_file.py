"""A GGUF file: what it says, and its tensors, of which none is trusted to lie in it."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import RunError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# The types of a value by their numbers; 8 is a text and 9 a list.
NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
    11: "<i8", 12: "<f8",
}  # fmt: skip
TEXT, LIST = 8, 9
# What tensors may be kept as; the package turns all of them into plain numbers.
READ = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K",
)  # fmt: skip
MOST = 100_000  # tensors


class Lying(NamedTuple):
    """Where a tensor lies in its file, and as what."""

    shape: tuple[int, ...]
    kind: Any  # of the package's `GGMLQuantizationType`
    start: int
    size: int


class GGUFFile:
    """The file as it lies on the disk: `fields` by their names, and its tensors."""

    def __init__(self, path: Path) -> None:
        self.path, self.fields = path, dict[str, Any]()
        self.types = package(path)
        try:
            with path.open("rb") as file:
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.at = len(MAGIC)
            if self.bytes[: len(MAGIC)] != MAGIC:
                raise ValueError("it does not begin as one")
            if (version := self.number("<u4")) not in VERSIONS:
                raise ValueError(f"its version is {version}, and only {VERSIONS} are read")
            count, fields = self.number("<u8"), self.number("<u8")
            for _ in range(fields):
                name = self.text()
                self.fields[name] = self.value(self.number("<u4"))
            if count > MOST:
                raise ValueError(f"it says that it has {count} tensors")
            self.lying = dict(self.tensor_heads(count))
        except (OSError, ValueError, KeyError, struct.error, UnicodeError, MemoryError) as error:
            raise RunError(f"{path}: not a whole GGUF file ({error}).") from error

    # Its head, from the beginning.

    def number(self, dtype: str) -> Any:
        return self.numbers(dtype, 1)[0].item()

    def numbers(self, dtype: str, count: int) -> np.ndarray[Any, Any]:
        start, size = self.at, np.dtype(dtype).itemsize * count
        self.at = start + size
        if self.at > len(self.bytes):
            raise ValueError("it ends in the middle")
        return np.frombuffer(self.bytes[start : self.at], dtype)

    def text(self) -> str:
        return self.numbers("<u1", self.number("<u8")).tobytes().decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            raise ValueError(f"a value is of the type {kind}, which nobody knows")
        kind, count = self.number("<u4"), self.number("<u8")
        if kind in NUMBERS:
            return self.numbers(NUMBERS[kind], count).tolist()
        if kind != TEXT:
            raise ValueError("a list holds lists")
        return [self.text() for _ in range(count)]

    def tensor_heads(self, count: int) -> Iterator[tuple[str, Lying]]:
        heads = []
        for _ in range(count):
            name, rank = self.text(), self.number("<u4")
            if rank > 4:
                raise ValueError(f"'{name}' has {rank} dimensions")
            shape = tuple(self.numbers("<u8", rank).tolist())[::-1]
            heads.append((name, shape, self.number("<u4"), self.number("<u8")))
        step = self.fields.get("general.alignment", 32)
        if type(step) is not int or not 0 < step <= 2**20:
            raise ValueError(f"its tensors stand {step} bytes apart")
        begin = -(-self.at // step) * step
        for name, shape, number, offset in heads:
            kind = self.types.GGMLQuantizationType(number)
            items, size = self.types.GGML_QUANT_SIZES[kind]
            length = math.prod(shape) // items * size
            row = shape[-1] if shape else 1
            if 0 in shape or row % items or begin + offset + length > len(self.bytes):
                raise ValueError(f"'{name}' does not lie in it")
            yield name, Lying(shape, kind, begin + offset, length)

    # Its tensors.

    def shapes(self) -> dict[str, Tensor]:
        """All of them without their numbers, once each is known to be one that can be read."""
        for name, lying in self.lying.items():
            if lying.kind.name not in READ:
                raise RunError(
                    f"{self.path}: '{name}' is in {lying.kind.name}, but only {', '.join(READ)} "
                    "are read."
                )
        if sum(lying.size for lying in self.lying.values()) > len(self.bytes):
            raise RunError(f"{self.path}: two of its tensors lie in one place.")
        return {n: torch.empty(lying.shape, device="meta") for n, lying in self.lying.items()}

    def tensors(self) -> dict[str, Tensor]:
        return {name: self.tensor(lying) for name, lying in self.lying.items()}

    def tensor(self, lying: Lying) -> Tensor:
        """A tensor's numbers, each block of them multiplied out."""
        packed = np.frombuffer(self.bytes, np.uint8, lying.size, lying.start)
        rows = packed.reshape(*lying.shape[:-1], -1)
        if lying.kind.name in ("F32", "F16"):
            plain = rows.view("<f4" if lying.kind.name == "F32" else "<f2").astype(np.float32)
        else:
            plain = self.types.quants.dequantize(rows, lying.kind)
        return torch.from_numpy(plain)


def package(path: Path) -> Any:
    """The package that knows how numbers are packed."""
    try:
        import gguf
    except ImportError as error:
        raise RunError(f"{path}: to read it takes gguf; pip install 'regard[gguf]'.") from error
    return gguf
