"""Tokenised examples on disk, memory-mapped: what a run reads over and over.

A store is a folder named by the content of all that made it. Each field (source, target, …) is two
flat files: the ids of all rows one after another, and where each row begins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .read import Faults


class Store:
    """Rows of ids by field, read without loading the files."""

    def __init__(self, folder: Path) -> None:
        meta = json.loads((folder / "store.json").read_text())
        self.rows: int = meta["rows"]
        self.skipped: int = meta["skipped"]
        self._ids, self._starts = {}, {}
        for name in meta["fields"]:
            # An empty file cannot be mapped.
            ids = folder / f"{name}.ids"
            self._ids[name] = (
                np.memmap(ids, meta["type"], "r")
                if ids.stat().st_size
                else np.zeros(0, meta["type"])
            )
            self._starts[name] = np.memmap(folder / f"{name}.starts", np.int64, "r")

    def flat(self, name: str) -> NDArray[np.unsignedinteger[Any]]:
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
        except (OSError, ValueError, KeyError):  # it is only a cache
            shutil.rmtree(folder)
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
        ids, starts = {}, {}
        try:
            for chunk in chunks:
                for name, lists in chunk.items():
                    if name not in ids:
                        ids[name] = (work / f"{name}.ids").open("wb")
                        starts[name] = (work / f"{name}.starts").open("wb")
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
                file.close()
        if not rows:
            raise DataError(f"{wanted}, but there is none.")
        meta = {
            "rows": rows,
            "fields": list(ids),
            "type": np.dtype(kind).name,
            "skipped": faults.count - before,
        }
        (work / "store.json").write_text(json.dumps(meta))
        if folder.is_dir():  # another process was faster; the same name is the same content
            shutil.rmtree(work)
        else:
            work.rename(folder)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise DataError(
            f"{folder}: the tokenised data could not be written ({error.strerror})."
        ) from error
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return Store(folder)


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
