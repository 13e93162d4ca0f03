"""Typed arrays on disk, ragged by row and memory-mapped: what a run reads over and over.

A store is a folder named by the content of all that made it. Each field (source, label, pixels, …)
is two flat files: the items of all rows one after another, and where each row begins. An item is a
number or an array of any shape. `store.json` has every field's type, every file's size and a sum of
each of its blocks, so that a damaged file is never taken for data.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .read import Faults

BLOCK = 2**20  # bytes that have a sum of their own
EDITION = "1"  # to be raised where what is kept changes, so that nothing older is taken for it


class Field(NamedTuple):
    """What one item of a field is: () for an id, (80,) for a frame, (3, 32, 32) for a picture."""

    dtype: str
    shape: tuple[int, ...] = ()


TEXT = Field("uint8")  # a row is a text in UTF-8


def ids_below(size: int) -> Field:
    """Ids of a vocabulary, or numbers of classes."""
    return Field("uint16" if size <= 2**16 else "uint32")


class Column:
    """Numbers on disk, mapped; a block of them is held against its sum when it is first touched."""

    def __init__(self, path: Path, field: Field, size: int, sums: Sequence[int]) -> None:
        if path.stat().st_size != size:
            raise damaged(path)
        # An empty file cannot be mapped; a plain view of a map is quicker than the map itself.
        self.bytes: NDArray[np.uint8] = (
            np.memmap(path, np.uint8, "r").view(np.ndarray) if size else np.zeros(0, np.uint8)
        )
        self.items: NDArray[Any] = self.bytes.view(field.dtype).reshape(-1, *field.shape)
        self.path, self.sums = path, sums
        self.size = self.items.itemsize * math.prod(field.shape)  # of an item
        self.new = np.ones(len(sums), np.bool_)  # blocks that nobody has touched yet
        self.checked = not sums

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, places: int | slice | NDArray[np.integer[Any]]) -> Any:
        """One item, or an array of them; places in an array are counted from the front."""
        if not self.checked:
            self._check(places)
        return self.items[places]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self[:], dtype, copy=copy)

    def tolist(self) -> list[int]:
        found: list[int] = self[:].tolist()
        return found

    def _check(self, places: int | slice | NDArray[np.integer[Any]]) -> None:
        touched: object
        if isinstance(places, int | np.integer):
            places = slice(int(places), int(places) + 1 or None)
        if isinstance(places, slice):
            inside = range(*places.indices(len(self)))
            if not inside:
                return
            first, last = min(inside[0], inside[-1]), max(inside[0], inside[-1])
            touched = np.arange(first * self.size // BLOCK, self._last_byte(last) // BLOCK + 1)
        else:
            touched = np.asarray(places, np.int64) * self.size // BLOCK
            if BLOCK % self.size:  # an item may lie in several blocks
                ends = self._last_byte(np.asarray(places, np.int64)) // BLOCK
                pairs = set(zip(touched.flat, ends.flat, strict=True))
                touched = np.array([b for low, high in pairs for b in range(low, high + 1)])
        if not len(touched) or not (new := self.new[touched]).any():
            return
        for block in np.unique(touched[new]).tolist():
            content = self.bytes[block * BLOCK : (block + 1) * BLOCK]
            if zlib.crc32(content.data) != self.sums[block]:
                raise damaged(self.path)
            self.new[block] = False
        self.checked = not self.new.any()

    def _last_byte(self, place: Any) -> Any:
        return (place + 1) * self.size - 1


def damaged(path: Path) -> DataError:
    return DataError(
        f"{path.parent}: the prepared data must be as they were written, but {path.name} is "
        "damaged; delete this folder, it will be made anew."
    )


class Store:
    """Rows of items by field, read without loading the files."""

    def __init__(self, folder: Path) -> None:
        meta = json.loads((folder / "store.json").read_text())
        self.name = folder.name
        self.rows: int = meta["rows"]
        self.skipped: int = meta["skipped"]
        self._items: dict[str, Column] = {}
        self._starts: dict[str, NDArray[np.int64]] = {}
        for name, (dtype, shape, items, starts) in meta["fields"].items():
            field = Field(dtype, tuple(shape))
            self._items[name] = Column(folder / f"{name}.items", field, *items)
            # They are few, and all are looked at to plan the batches.
            self._starts[name] = Column(folder / f"{name}.starts", Field("int64"), *starts)[:]

    @property
    def fields(self) -> Sequence[str]:
        return list(self._items)

    def flat(self, name: str) -> Column:
        """All rows one after another."""
        return self._items[name]

    def starts(self, name: str) -> NDArray[np.int64]:
        """Where each row begins in `flat`, and after the last where it ends."""
        return self._starts[name]

    def lengths(self, name: str) -> NDArray[np.int32]:
        return np.diff(self._starts[name]).astype(np.int32)

    def array(self, name: str, index: int) -> NDArray[Any]:
        """One row."""
        start, end = self._starts[name][index : index + 2]
        items: NDArray[Any] = self._items[name][start:end]
        return items

    def row(self, name: str, index: int) -> list[int]:
        ids: list[int] = self.array(name, index).tolist()
        return ids

    def text(self, name: str, index: int) -> str:
        return self.array(name, index).tobytes().decode("utf-8")

    def first(self, name: str, rows: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """The first item of each row, of a field that has one in every row.  -> (B, …)"""
        items: NDArray[Any] = self._items[name][self._starts[name][rows]]
        return items

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
        body[real] = self._items[name][(starts[:, None] + places)[real]]
        ids[
            np.arange(len(rows))[:, None], (len(first) + counts)[:, None] + np.arange(len(last))
        ] = last
        return ids, counts + len(first) + len(last)


class Ragged:
    """Rows one after another: their items, and how many each has."""

    def __init__(self, items: NDArray[Any], counts: NDArray[np.int64]) -> None:
        self.items, self.counts = items, counts

    def __len__(self) -> int:
        return len(self.counts)


# Rows by field, each row a list or an array of items.
Chunk = Mapping[str, Sequence[object] | Ragged]


def cached(
    cache: Path,
    files: Sequence[Path],
    marks: Iterable[str],
    fields: Mapping[str, Field],
    chunks: Iterable[Chunk],
    faults: Faults,
    what: str,
) -> Store:
    """The files' rows, from the cache where neither they nor `marks` have changed.

    `marks` is whatever else shaped the rows. `chunks` are read only where the rows are not there
    yet; `what` says what there must be a row of, for messages.
    """
    folder = cache / fingerprint(files, *marks, str(faults.skip))
    return found(folder) or write(folder, fields, chunks, faults, what)


def found(folder: Path) -> Store | None:
    """A store that was written before; a damaged one is dropped, for it is only a cache."""
    if not folder.is_dir():
        return None
    try:
        return Store(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
        shutil.rmtree(folder, ignore_errors=True)
        return None


def fingerprint(files: Sequence[Path], *others: str) -> str:
    """A name for the content of files and folders, and whatever else shaped a store."""
    digest = hashlib.blake2b(digest_size=16)
    inside = [p for file in files for p in (sorted(file.rglob("*")) if file.is_dir() else [file])]
    for path in (path for path in inside if path.is_file() or not path.exists()):
        if path not in files:  # in a folder, names say something: a class, say
            digest.update(b"\0" + os.fsencode(path.name) + b"\0" + os.fsencode(path.parent.name))
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    for other in others:
        digest.update(b"\0" + other.encode("utf-8", "surrogateescape"))
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


def write(
    folder: Path,
    fields: Mapping[str, Field],
    chunks: Iterable[Chunk],
    faults: Faults,
    wanted: str = "",
) -> Store:
    """Write chunks of rows beside `folder` and rename them into place: a store is whole or absent.

    How many lines were left out while the chunks were made is kept with the store. `wanted` says
    what there must be a row of, where there must be one.
    """
    before = faults.count
    clean(folder.parent)
    work = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        items = {name: Summed(work / f"{name}.items") for name in fields}
        starts = {name: Summed(work / f"{name}.starts") for name in fields}
        try:
            rows = write_rows(fields, chunks, items, starts)
        finally:
            for file in (*items.values(), *starts.values()):
                file.file.close()
        if wanted and not rows:
            raise DataError(f"{wanted}, but there is none.")
        meta = {
            "rows": rows,
            "skipped": faults.count - before,
            "fields": {
                name: [*field, *([f.size, f.sums] for f in (items[name], starts[name]))]
                for name, field in fields.items()
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
            f"{folder}: the prepared data could not be written ({error.strerror})."
        ) from error
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Store(folder)


def write_rows(
    fields: Mapping[str, Field],
    chunks: Iterable[Chunk],
    items: Mapping[str, Summed],
    starts: Mapping[str, Summed],
) -> int:
    """Chunk after chunk, one after another; how many rows there were."""
    rows, ends = 0, dict.fromkeys(fields, 0)
    for file in starts.values():
        file.write(np.zeros(1, np.int64).tobytes())
    for chunk in chunks:
        for name, field in fields.items():
            flat, counts = flatten(chunk[name], field)
            items[name].write(flat.tobytes())
            starts[name].write((ends[name] + counts.cumsum()).tobytes())
            ends[name] += len(flat)
        rows += len(next(iter(chunk.values())))
    return rows


def flatten(rows: Sequence[Any] | Ragged, field: Field) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The items of all rows one after another, and how many each has."""
    if isinstance(rows, Ragged):
        return rows.items, rows.counts
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    if rows and isinstance(rows[0], list) and not field.shape:
        flat = np.fromiter(chain.from_iterable(rows), field.dtype, int(counts.sum()))
        return flat, counts
    if rows and isinstance(rows[0], bytes):
        return np.frombuffer(b"".join(rows), np.uint8), counts
    arrays = [np.asarray(row).reshape(-1, *field.shape) for row in rows]
    assert [len(array) for array in arrays] == counts.tolist(), "a row is a sequence of items"
    whole = np.concatenate(arrays or [np.zeros((0, *field.shape), field.dtype)])
    flat = whole.astype(field.dtype)
    if np.issubdtype(flat.dtype, np.integer):  # which would wrap around without a word
        assert (flat == whole).all(), f"a number does not fit into {field.dtype}"
    return flat, counts


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
