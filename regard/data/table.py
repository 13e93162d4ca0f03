"""Rows with named columns: CSV or TSV with a header, JSONL, or Parquet."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError
from .read import Faults, kind_of, records, table


def rows(
    path: Path, columns: Sequence[tuple[str, str]], faults: Faults
) -> Iterator[tuple[str, list[Any]]]:
    """The asked-for columns of each row, after where it stands.

    A column comes with the setting that names it, for messages. Numbers in place of names count the
    columns of a file that has no header: "1" is the first.
    """
    if kind_of(path) == ".jsonl":
        yield from _from_records(path, columns, faults)
    elif kind_of(path) in (".tsv", ".csv"):
        yield from _from_table(path, columns, faults)
    elif kind_of(path) == ".parquet":
        yield from _from_parquet(path, columns)
    else:
        raise DataError(f"{path}: rows must be in a .tsv, .csv, .jsonl or .parquet file.")


def names(path: Path) -> list[str]:
    """What the columns of a file are called; of JSONL, those of its first record."""
    if kind_of(path) == ".jsonl":
        for _, record in records(path, Faults(skip=True)):
            return list(record)
        return []
    if kind_of(path) == ".parquet":
        return list(parquet(path).schema_arrow.names)
    if kind_of(path) not in (".tsv", ".csv"):
        return []  # whoever reads the rows says why
    _, header = next(table(path, "\t" if kind_of(path) == ".tsv" else ",", True), (1, []))
    return [name.strip() for name in header]


def parquet(path: Path) -> Any:
    """A Parquet file, open."""
    try:
        from pyarrow.lib import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install 'regard[parquet]'.") from error
    try:
        return ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}).") from error


def _from_parquet(
    path: Path, columns: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, list[object]]]:
    file, number = parquet(path), 0
    known = list(file.schema_arrow.names)
    for key, name in columns:
        if name not in known:
            raise DataError(f"{path}: {_no_column(key, name, known)}.")
    asked = [name for _, name in columns]
    for some in file.iter_batches(columns=list(dict.fromkeys(asked))):
        for record in some.to_pylist():
            number += 1
            yield f"{path}:{number}", [record[name] for name in asked]


def _from_records(
    path: Path, columns: Sequence[tuple[str, str]], faults: Faults
) -> Iterator[tuple[str, list[object]]]:
    for number, record in records(path, faults):
        missing = [(key, name) for key, name in columns if name not in record]
        if missing:
            faults.report(f"{path}:{number}", _no_column(*missing[0], list(record)))
            continue
        yield f"{path}:{number}", [record[name] for _, name in columns]


def _from_table(
    path: Path, columns: Sequence[tuple[str, str]], faults: Faults
) -> Iterator[tuple[str, list[object]]]:
    lines = table(path, "\t" if kind_of(path) == ".tsv" else ",", faults.skip)
    if all(name.isdecimal() and name != "0" for _, name in columns):
        places = [int(name) - 1 for _, name in columns]
    else:
        _, header = next(lines, (1, []))
        known = [name.strip() for name in header]
        for key, name in columns:
            if name not in known:
                counted = " ".join(f"{key}={i}" for i, (key, _) in enumerate(columns, 1))
                raise DataError(
                    f"{path}:1: {_no_column(key, name, known)}; where the first line is no header, "
                    f"count the columns from 1 in all such settings, as in {counted}."
                )
        places = [known.index(name) for _, name in columns]
    for number, cells in lines:
        if not any(cells):
            continue
        if len(cells) <= max(places):
            faults.report(
                f"{path}:{number}",
                f"the row must have {max(places) + 1} columns, but has {len(cells)}",
            )
            continue
        yield f"{path}:{number}", [cells[place] for place in places]


def _no_column(key: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.4)
    hint = f"; did you mean '{near[0]}'? There" if near else "; there"
    return f"there is no column '{name}' ({key}){hint} are {_some(known) or 'none'}"


def _some(names: Sequence[str]) -> str:
    """The first names, none too long: where a header is wanting, these are texts."""
    shown = [name if len(name) <= 40 else f"{name[:40]}…" for name in names[:10]]
    return ", ".join([*shown, *(["…"] if len(names) > 10 else [])])
