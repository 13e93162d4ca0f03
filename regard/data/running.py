"""Running text: as it stands, by lines, by sentences, or text by text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import DataError
from .read import PIECE, Faults, documents, kind_of
from .store import Store

SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'“‘(]*[A-ZÀ-Þ0-9])")
HEADING = re.compile(r"\s*= [^=].*[^=] =\s*$")
Documents = Literal["blank", "headings", "file"]
WHERE = "where a text begins: after a blank line, at a line like = Title =, or with its file"


def amount(store: Store) -> str:
    """How much a store of running text holds, as people say it."""
    tokens = int(store.lengths("text").sum(dtype="int64"))
    return f"{tokens:,} tokens in {store.rows:,} text{'s' * (store.rows != 1)}"


class Piece(NamedTuple):
    """Some running text, and where it stands."""

    text: str
    where: str
    last: bool  # whether a text ends with it
    ends: bool  # whether that end is to be told


class Sentence(NamedTuple):
    """A sentence, and whether it is the first of its text."""

    text: str
    begins: bool


class Document(NamedTuple):
    """A whole text, on one line."""

    text: str


def pieces(files: Sequence[Path], lines: bool, faults: Faults) -> Iterator[Piece]:
    """Running text piece by piece; with `lines`, every line is a text.

    A lone text has no end that a model could learn; several are told apart by theirs.
    """
    lone = len(files) == 1 and files[0].is_file() and kind_of(files[0]) == ".txt"
    for text, where, last in _pieces(files, lines, faults):
        yield Piece(text, where, last, last and (lines or not lone))


def _pieces(files: Sequence[Path], lines: bool, faults: Faults) -> Iterator[tuple[str, str, bool]]:
    for file in files:
        if not file.is_dir() and kind_of(file) not in (".txt", ".jsonl"):
            raise DataError(f"{file}: text must be a .txt file, a folder of them, or .jsonl.")
        for piece, where, last in documents(file, faults):
            if not lines:
                yield piece, where, last
                continue
            *rows, rest = piece.split("\n")
            yield from ((row, where, True) for row in rows)
            if rest:  # a line without its end, or the beginning of a very long one
                yield rest, where, last


def sentences(files: Sequence[Path], begin: Documents, faults: Faults) -> Iterator[Sentence]:
    """Sentence by sentence; `begin` says where texts do."""
    for file in files:
        if not file.is_dir() and kind_of(file) not in (".txt", ".jsonl"):
            raise DataError(f"{file}: text must be a .txt file, a folder of them, or .jsonl.")
        begins = True
        for piece, _, last in documents(file, faults):
            *rows, rest = piece.split("\n")
            for line in (*rows, rest) if rest else rows:  # behind the last end is no line
                blank = not line.strip()
                heading = begin == "headings" and HEADING.match(line)
                if heading or (blank and begin == "blank"):
                    begins = True
                for sentence in SENTENCE.split(line.strip()) if not blank else ():
                    yield Sentence(sentence, begins)
                    begins = False
            begins = begins or last


def texts(files: Sequence[Path], begin: Documents, faults: Faults) -> Iterator[Document]:
    """Text by text; a very long one counts as several."""
    held: list[str] = []
    length = 0
    for sentence, begins in sentences(files, begin, faults):
        if held and (begins or length >= PIECE):
            yield Document(" ".join(held))
            held, length = [], 0
        held.append(sentence)
        length += len(sentence)
    if held:
        yield Document(" ".join(held))
