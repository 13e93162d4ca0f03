"""Lines and records out of files, plain or .gz, with every fault told by file and line.

However long a line and however well packed a file, no more is held than the limits below say.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from ..errors import DataError

LINE = 2**20  # bytes of a line that is an example of its own
RECORD = 2**26  # bytes of a line of JSON that is a whole text
WHOLE = 2**30  # bytes of a line of JSON that is a whole file
PIECE = 2**18  # characters of a text that are handed on at once; a token takes up to 400 bytes
STRETCH = 2**16  # bytes of a long line that are read at once
# What a .gz may unpack to: so many times its own size, or so many bytes where that is more.
PACKED, UNPACKED = 200, 2**28

T = TypeVar("T")


@dataclass
class Faults:
    """Lines that cannot be used: the first stops the reading, or all are counted and left out."""

    skip: bool = False
    count: int = 0
    first: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is no fault, but should be known

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


def whole_lines(path: Path, lenient: bool = False, longest: int = LINE) -> Iterator[str]:
    """The lines of a text file with their ends; the last may have none.

    A line that is not UTF-8 stops the reading; leniently, it comes with its bytes escaped, which
    `is_text` tells.
    """
    for number, line, whole in _stretches(path, lenient, longest):
        if not whole:
            raise DataError(
                f"{path}:{number}: a line may have {_size(longest)} here, but this one has more; "
                "divide it."
            )
        yield line


def _stretches(path: Path, lenient: bool, size: int) -> Iterator[tuple[int, str, bool]]:
    """Numbered lines with their ends; one longer than `size` bytes comes in stretches.

    They are cut before a space, or between characters where there is none. -> (number, stretch,
    whether its line ends with it)
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    packed, errors = path.suffix == ".gz", "surrogateescape" if lenient else "strict"
    most = max(UNPACKED, PACKED * path.stat().st_size)
    number, before, read, held = 1, 0, 0, b""  # before: bytes of the line that have gone
    try:
        with _opened(path) as file:
            while raw := held + file.readline(size + 1 - len(held)):
                if packed:
                    read += len(raw) - len(held)
                    if read > most:
                        raise DataError(
                            f"{path}: a .gz may unpack to {PACKED} times its size, or to "
                            f"{_size(UNPACKED)} where that is more, but this one has more than "
                            f"{_size(most)}; unpack it by hand if that is meant."
                        )
                whole = len(raw) <= size or raw.endswith(b"\n")
                end = len(raw) if whole else _before_a_word(raw)
                raw, held = raw[:end], raw[end:]
                text = raw.decode("utf-8", errors)
                if number == 1 and not before:
                    text = text.removeprefix("\ufeff")
                yield number, text, whole
                number, before = (number + 1, 0) if whole else (number, before + end)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}:{number}: the file must be UTF-8, but byte {before + error.start + 1} "
            f"of this line is "
            f"0x{error.object[error.start]:02x}; convert it with iconv."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}:{number}: cannot be read to its end ({error}).") from error


def _opened(path: Path) -> IO[bytes]:
    if path.suffix != ".gz":
        return path.open("rb")
    unpacked: Any = gzip.GzipFile(path, "rb")
    return io.BufferedReader(unpacked, STRETCH)  # reads lines quicker than what it wraps


def _before_a_word(raw: bytes) -> int:
    """Where to cut a long line: before its last space, or its last character where that is far."""
    space = raw.rfind(b" ", len(raw) // 2)
    if space > 0:
        return space
    end = len(raw) - 1
    while end > len(raw) - 4 and raw[end] & 0xC0 == 0x80:  # inside a character
        end -= 1
    return end


def _size(count: int) -> str:
    unit, name = (2**30, "GiB") if count >= 2**30 else (2**20, "MiB")
    return f"{count / unit:.4g} {name}"


def records(
    path: Path, faults: Faults, longest: int = LINE
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered objects of a JSONL file."""
    for number, line in enumerate(whole_lines(path, faults.skip, longest), 1):
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


def parcels(items: Iterable[T], weigh: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Items in lists of `most`, or of fewer where they are long: what is tokenised at a time."""
    held: list[T] = []
    length = 0
    for item in items:
        held.append(item)
        length += weigh(item)
        if len(held) == most or length >= PIECE:
            yield held
            held, length = [], 0
    if held:
        yield held


def read_json(path: Path) -> Any:
    """What a small file says; where it is not there, no plain file or no JSON, a ValueError."""
    if not path.is_file():  # a pipe, say, would be waited for
        raise ValueError("there is no such file")
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(error.strerror) from error


def parse_json(text: str) -> Any:
    """The same of a text; nested too deeply, it is none."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


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
    reader = csv.reader((f"{line}\n" for line in lines(path, lenient)), strict=True)
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
    memory and a vocabulary sees nothing torn; a long line is cut before a space.
    """
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if kind_of(p) in (".txt", ".jsonl"))
        if not inside:
            raise DataError(f"{path}: the folder must hold .txt or .jsonl files, but has none.")
        for file in inside:
            yield from documents(file, faults)
    elif kind_of(path) == ".jsonl":
        for number, record in records(path, faults, RECORD):
            if not isinstance(record.get("text"), str):
                known = ", ".join(record) or "nothing"
                faults.report(
                    f"{path}:{number}", f"the object must have a text 'text', but has {known}"
                )
                continue
            if not is_text(record["text"]):
                faults.report(f"{path}:{number}", "the text must be UTF-8, but is not")
                continue
            for piece, last in _parts(record["text"]):
                yield piece, f"{path}:{number}", last
    else:
        yield from _pieces(path, faults)


def _pieces(path: Path, faults: Faults) -> Iterator[tuple[str, str, bool]]:
    held: list[str] = []
    length, start, begins = 0, 1, True  # whether a line begins with what comes
    for number, line, whole in _stretches(path, faults.skip, STRETCH):
        if not is_text(line):
            faults.report(f"{path}:{number}", "the text must be UTF-8, but is not")
            begins = whole
            continue
        # Where no line begins with a word, there must be an end all the same.
        fit = not begins or line[:1].strip() or length >= 2 * PIECE
        if length >= PIECE and fit:
            yield "".join(held), f"{path}:{start}", False
            held, length, start = [], 0, number
        held.append(line.replace("\r\n", "\n"))
        length += len(line)
        begins = whole
    yield "".join(held), f"{path}:{start}", True


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """A text in pieces, and whether each is the last; cut after a line, or before a space."""
    start = 0
    while len(text) - start > PIECE:
        bounds = start + PIECE // 2, start + PIECE
        end = text.rfind("\n", *bounds) + 1 or text.rfind(" ", *bounds)
        end = end if end > start else bounds[1]
        yield text[start:end], False
        start = end
    yield text[start:], True
