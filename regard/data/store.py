"""Tokenised examples on disk, memory-mapped: what a run reads over and over.

A store is a folder named by the content of all that made it. Each field (source, target, …) is two
flat files: the ids of all rows one after another, and where each row begins. `store.json` has every
file's size and a sum of each of its blocks, so that a damaged file is never taken for data.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .read import Faults

BLOCK = 2**20  # bytes that have a sum of their own; a multiple of every number's size


class Column:
    """Numbers on disk, mapped; a block of them is held against its sum when it is first touched."""

    def __init__(self, path: Path, kind: str, size: int, sums: Sequence[int]) -> None:
        if path.stat().st_size != size:
            raise damaged(path)
        # An empty file cannot be mapped; a plain view of a map is quicker than the map itself.
        mapped = np.memmap(path, kind, "r").view(np.ndarray) if size else np.zeros(0, kind)
        self.numbers: NDArray[np.integer[Any]] = mapped
        self.path, self.sums = path, sums
        self.shift = (BLOCK // mapped.itemsize).bit_length() - 1  # of a place to its block
        self.new = np.ones(len(sums), np.bool_)  # blocks that nobody has touched yet
        self.checked = not sums

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, places: int | slice | NDArray[np.integer[Any]]) -> Any:
        """One number, or an array of them; places in an array are counted from the front."""
        if not self.checked:
            self._check(places)
        return self.numbers[places]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self[:], dtype, copy=copy)

    def tolist(self) -> list[int]:
        found: list[int] = self[:].tolist()
        return found

    def _check(self, places: int | slice | NDArray[np.integer[Any]]) -> None:
        touched: Any
        if isinstance(places, int):
            places = slice(places, places + 1 or None)
        if isinstance(places, slice):
            inside = range(*places.indices(len(self)))
            ends = (inside[0], inside[-1]) if inside else (0, -1)
            touched = np.arange(min(ends) >> self.shift, (max(ends) >> self.shift) + 1)
        else:
            touched = places >> self.shift
        if not (new := self.new[touched]).any():
            return
        for block in np.unique(touched[new]).tolist():
            content = self.numbers[block << self.shift : (block + 1) << self.shift]
            if zlib.crc32(content.data) != self.sums[block]:
                raise damaged(self.path)
            self.new[block] = False
        self.checked = not self.new.any()


def damaged(path: Path) -> DataError:
    return DataError(
        f"{path.parent}: the tokenised data must be as they were written, but {path.name} is "
        "damaged; delete this folder, it will be made anew."
    )


class Store:
    """Rows of ids by field, read without loading the files."""

    def __init__(self, folder: Path) -> None:
        meta = json.loads((folder / "store.json").read_text())
        self.rows: int = meta["rows"]
        self.skipped: int = meta["skipped"]
        self._ids: dict[str, Column] = {}
        self._starts: dict[str, NDArray[np.int64]] = {}
        for name, (ids, starts) in meta["fields"].items():
            self._ids[name] = Column(folder / f"{name}.ids", meta["type"], *ids)
            # They are few, and all are looked at to plan the batches.
            self._starts[name] = Column(folder / f"{name}.starts", "int64", *starts)[:]

    def flat(self, name: str) -> Column:
        """All rows one after another."""
        return self._ids[name]

    def starts(self, name: str) -> NDArray[np.int64]:
        """Where each row begins in `flat`, and after the last where it ends."""
        return self._starts[name]

    def lengths(self, name: str) -> NDArray[np.int32]:
        return np.diff(self._starts[name]).astype(np.int32)

    def row(self, name: str, index: int) -> list[int]:
        start, end = self._starts[name][index : index + 2]
        ids: list[int] = self._ids[name][start:end].tolist()
        return ids

    def padded(
        self, name: str, rows: NDArray[np.integer[Any]], first: Sequence[int], last: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Zero-padded rows between the ids `first` and `last`.  -> (B, width), (B,)"""
        starts = self._starts[name][rows]
        counts = self._starts[name][rows + 1] - starts
        width = int(counts.max(initial=0))
        places = np.arange(width)
        real = places < counts[:, None]
        ids = np.zeros((len(rows), len(first) + width + len(last)), np.int64)
        ids[:, : len(first)] = first
        body = ids[:, len(first) : len(first) + width]
        body[real] = self._ids[name][(starts[:, None] + places)[real]]
        ids[
            np.arange(len(rows))[:, None], (len(first) + counts)[:, None] + np.arange(len(last))
        ] = last
        return ids, counts + len(first) + len(last)


Chunk = Mapping[str, Sequence[Sequence[int]]]  # rows of ids, by field


def cached(
    cache: Path,
    files: Sequence[Path],
    marks: Iterable[str],
    chunks: Iterable[Chunk],
    size: int,
    faults: Faults,
    what: str,
) -> Store:
    """The files' rows as ids, from the cache where neither they nor `marks` have changed.

    `marks` is whatever else shaped the rows. `chunks` are read only where the rows are not there
    yet; ids are below `size`, and there must be `what`, a row of it at least.
    """
    folder = cache / fingerprint(files, *marks, str(faults.skip))
    if folder.is_dir():
        try:
            return Store(folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
            shutil.rmtree(folder, ignore_errors=True)  # it is only a cache
    return write(folder, chunks, size, faults, f"{files[0]}: there must be {what}")


def fingerprint(files: Sequence[Path], *others: str) -> str:
    """A name for the content of files and folders, and whatever else shaped a store."""
    digest = hashlib.blake2b(digest_size=16)
    inside = [p for file in files for p in (sorted(file.rglob("*")) if file.is_dir() else [file])]
    for path in (path for path in inside if path.is_file() or not path.exists()):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    for other in others:
        digest.update(b"\0" + other.encode())
    return digest.hexdigest()


class Summed:
    """A file that is written, with the sums of its blocks."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.size, self.sums = 0, list[int]()

    def write(self, data: bytes) -> None:
        self.file.write(data)
        rest = memoryview(data)
        while rest:
            room = BLOCK - self.size % BLOCK
            if room == BLOCK:
                self.sums.append(0)
            self.sums[-1] = zlib.crc32(rest[:room], self.sums[-1])
            self.size += min(room, len(rest))
            rest = rest[room:]


def write(folder: Path, chunks: Iterable[Chunk], size: int, faults: Faults, wanted: str) -> Store:
    """Write chunks of rows beside `folder` and rename them into place: a store is whole or absent.

    How many lines were left out while the chunks were made is kept with the store.
    """
    before = faults.count
    kind = np.uint16 if size <= 2**16 else np.uint32
    clean(folder.parent)
    work = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        rows, ends = 0, {}
        ids, starts = dict[str, Summed](), dict[str, Summed]()
        try:
            for chunk in chunks:
                for name, lists in chunk.items():
                    if name not in ids:
                        ids[name] = Summed(work / f"{name}.ids")
                        starts[name] = Summed(work / f"{name}.starts")
                        starts[name].write(np.zeros(1, np.int64).tobytes())
                        ends[name] = 0
                    counts = np.fromiter(map(len, lists), np.int64, len(lists))
                    flat = np.fromiter((i for row in lists for i in row), kind, int(counts.sum()))
                    ids[name].write(flat.tobytes())
                    starts[name].write((ends[name] + counts.cumsum()).tobytes())
                    ends[name] += len(flat)
                rows += len(next(iter(chunk.values())))
        finally:
            for file in (*ids.values(), *starts.values()):
                file.file.close()
        if not rows:
            raise DataError(f"{wanted}, but there is none.")
        meta = {
            "rows": rows,
            "type": np.dtype(kind).name,
            "skipped": faults.count - before,
            "fields": {
                name: [[file.size, file.sums] for file in (ids[name], starts[name])] for name in ids
            },
        }
        (work / "store.json").write_text(json.dumps(meta))
        # On disk before it has its name: power may fail at any time.
        for path in (*work.iterdir(), work):
            sync(path)
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            shutil.rmtree(work)  # another process was faster; the same name is the same content
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise DataError(
            f"{folder}: the tokenised data could not be written ({error.strerror})."
        ) from error
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Store(folder)


def sync(path: Path) -> None:
    """Have the disk keep what a file or a folder holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clean(cache: Path) -> None:
    """Drop what a killed process left half-written."""
    for work in cache.glob("*.part-*"):
        number = work.name.rpartition("-")[2]
        if number.isdecimal() and not _alive(int(number)):
            shutil.rmtree(work, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)  # asks, and does nothing
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, and so there
        return True
    return True
