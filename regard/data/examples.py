"""Examples as their files have them: read once, kept, and shared by all who need them.

Learning a vocabulary, making batches, validating and scoring all look at the same examples. They
are parsed once into a store of their own, and what a task makes of them (ids, labels, pixels) into
another beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from ..progress import counted
from .read import Faults, parcels
from .store import EDITION, TEXT, Chunk, Store, cached

Row = TypeVar("Row", bound=NamedTuple, covariant=True)
Item = TypeVar("Item")
CHUNK = 256  # examples that are read from the store at a time; one may have a megabyte


def bytes_of(kind: type) -> list[str]:
    """The fields of examples that are bytes: a picture's file, say. They are kept as they are."""
    return [name for name, hint in get_type_hints(kind).items() if hint is bytes]


class Examples(Generic[Row]):
    """Named tuples in the order of their files; any number of them, none held in memory."""

    def __init__(
        self, store: Store, kind: type[Row], files: Sequence[Path], rows: range | None = None
    ) -> None:
        self.store, self.kind, self.files = store, kind, list(files)
        self.rows = range(store.rows) if rows is None else rows
        self.bytes = [(name, kind._fields.index(name)) for name in bytes_of(kind)]

    def between(self, first: int, last: int) -> Examples[Row]:
        """Some of them, in order."""
        return Examples(self.store, self.kind, self.files, self.rows[first:last])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        row = self.rows[index]
        return self._made(unpacked(self.store.array("example", row).tobytes()), row)

    def __iter__(self) -> Iterator[Row]:
        starts, flat = self.store.starts("example"), self.store.flat("example")
        for at in range(0, len(self), CHUNK):  # many at a time, for rows are short
            some = self.rows[at : at + CHUNK]
            first = some.start
            ends = starts[first : some.stop + 1].tolist()
            content: bytes = flat[ends[0] : ends[-1]].tobytes()
            begin = ends[0]
            told = (content[a - begin : b - begin] for a, b in pairwise(ends))
            every = unpacked(b"[" + b",".join(told) + b"]")  # at once: each alone takes longer
            for row, values in enumerate(every, first):
                yield self._made(values, row)

    def _made(self, values: list[Any], index: int) -> Row:
        for name, place in self.bytes:
            values[place] = self.store.array(name, index).tobytes()
        made: Row = self.kind(*values)
        return made

    @property
    def size(self) -> int:
        """Bytes that they are kept in."""
        return sum(len(self.store.flat(name)) for name in ("example", *(n for n, _ in self.bytes)))

    @property
    def first_file(self) -> Path:
        """For messages about all of them."""
        return self.files[0]


def read_once(
    cache: Path,
    files: Sequence[Path],
    kind: type[Row],
    marks: Iterable[str],
    rows: Iterable[Row],
    faults: Faults,
    what: str,
) -> Examples[Row]:
    """The files' examples, parsed now or found in the cache."""
    # Where an example stands is part of it, so equal files of other names are not the same.
    marks = (EDITION, "examples", repr(kind._fields), *marks, *map(str, files))
    own = bytes_of(kind)
    fields = {"example": TEXT, **dict.fromkeys(own, TEXT)}
    wanted = f"{files[0]}: there must be {what}"
    names = ", ".join(path.name for path in files[:2]) + (", …" if len(files) > 2 else "")
    chunks = written(counted(rows, f"reading {names}"), own)
    store = cached(cache, files, marks, fields, chunks, faults, wanted)
    return Examples(store, kind, files)


def written(rows: Iterable[Any], own: Sequence[str]) -> Iterator[Chunk]:
    """Rows as JSON, but for what is bytes; a few megabytes at a time."""
    for some in parcels(iter(rows), lambda row: sum(map(size, row)), 1000):
        plain = [row._replace(**dict.fromkeys(own)) if own else row for row in some]
        yield {
            "example": [packed(row) for row in plain],
            **{name: [row._asdict()[name] for row in some] for name in own},
        }


AS_JSON = json.JSONEncoder(ensure_ascii=False)  # made once: there are many rows


def packed(row: Any) -> bytes:
    """As JSON; what is no text, such as the name of a file, comes back as it was."""
    return AS_JSON.encode(row).encode("utf-8", "surrogatepass")


def unpacked(said: bytes) -> list[Any]:
    found: list[Any] = json.loads(said.decode("utf-8", "surrogatepass"))
    return found


def size(value: object) -> int:
    return len(value) if isinstance(value, bytes) else len(str(value))


class Data(NamedTuple):
    """A part of the data: the examples, and what a task has made of them."""

    examples: Examples[Any]
    store: Store

    @property
    def skipped(self) -> int:
        """Examples that could not be used."""
        return self.examples.store.skipped + self.store.skipped


def chunks(items: Iterable[Item], size: int = 1000) -> Iterator[list[Item]]:
    """So many at a time."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
