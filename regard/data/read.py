"""Lines and records out of files, plain or .gz, with every fault told by file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DataError


@dataclass
class Faults:
    """Lines that cannot be used: the first stops the reading, or all are counted and left out."""

    skip: bool = False
    count: int = 0
    first: list[str] = field(default_factory=list)

    def report(self, where: str, what: str) -> None:
        if not self.skip:
            raise DataError(
                f"{where}: {what}; put it right, or go on without such lines by data.skip_bad=true."
            )
        self.count += 1
        if len(self.first) < 5:
            self.first.append(f"{where}: {what}")


def lines(path: Path, lenient: bool = False) -> Iterator[str]:
    """The lines of a text file without their ends. Only \\n ends a line, so files stay aligned."""
    return (line.removesuffix("\n").removesuffix("\r") for line in whole_lines(path, lenient))


def whole_lines(path: Path, lenient: bool = False) -> Iterator[str]:
    """The lines of a text file with their ends; the last may have none.

    A line that is not UTF-8 stops the reading; leniently, it comes with its bytes escaped, which
    `is_text` tells.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                text = raw.decode("utf-8", "surrogateescape" if lenient else "strict")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: the file must be UTF-8, but byte {error.start + 1} "
            f"of this line is "
            f"0x{error.object[error.start]:02x}; convert it with iconv."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}:{number + 1}: cannot be read to its end ({error}).") from error


def records(path: Path, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered objects of a JSONL file."""
    for number, line in enumerate(lines(path, faults.skip), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            faults.report(f"{path}:{number}", f"the line must be one JSON object, but: {error}")
            continue
        if not isinstance(record, dict):
            faults.report(f"{path}:{number}", "the line must be one JSON object, but is none")
            continue
        yield number, record


def is_text(line: str) -> bool:
    """Whether a string can be written as UTF-8; files, JSON and shells can bring what cannot."""
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def table(path: Path, separator: str, lenient: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows of a TSV (no quoting) or CSV (quoted as usual) file."""
    if separator == "\t":
        for number, line in enumerate(lines(path, lenient), 1):
            yield number, line.split("\t")
        return
    text = io.StringIO("\n".join(lines(path, lenient)), newline="")
    reader = csv.reader(text, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{path}:{number}: not a readable CSV row ({error}).") from error
        yield number, row


def kind_of(path: Path) -> str:
    """The ending that tells the format, .gz aside: `train.tsv.gz` is a .tsv."""
    return Path(path.name.removesuffix(".gz")).suffix


def documents(path: Path, faults: Faults) -> Iterator[tuple[str, str, bool]]:
    """Texts of a .txt file, a folder of them, or JSONL with `text`: (piece, where, whether last).

    A long text comes in pieces, cut before lines that begin with a word, so that it is never all in
    memory and a vocabulary sees nothing torn.
    """
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if kind_of(p) in (".txt", ".jsonl"))
        if not inside:
            raise DataError(f"{path}: the folder must hold .txt or .jsonl files, but has none.")
        for file in inside:
            yield from documents(file, faults)
    elif kind_of(path) == ".jsonl":
        for number, record in records(path, faults):
            if not isinstance(record.get("text"), str):
                known = ", ".join(record) or "nothing"
                faults.report(
                    f"{path}:{number}", f"the object must have a text 'text', but has {known}"
                )
                continue
            if not is_text(record["text"]):
                faults.report(f"{path}:{number}", "the text must be UTF-8, but is not")
                continue
            yield record["text"], f"{path}:{number}", True
    else:
        yield from _pieces(path, faults)


def _pieces(path: Path, faults: Faults, size: int = 2**20) -> Iterator[tuple[str, str, bool]]:
    held: list[str] = []
    length = start = 0
    for number, line in enumerate(whole_lines(path, faults.skip), 1):
        if not is_text(line):
            faults.report(f"{path}:{number}", "the text must be UTF-8, but is not")
            continue
        if length >= size and line[:1].strip():
            yield "".join(held), f"{path}:{start + 1}", False
            held, length, start = [], 0, number - 1
        held.append(line.replace("\r\n", "\n"))
        length += len(line)
    yield "".join(held), f"{path}:{start + 1}", True
