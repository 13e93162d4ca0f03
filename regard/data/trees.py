"""Sentences with their trees and entities: CoNLL-U files, and plain texts beside them.

Ten columns a word: its number, form, … its head's number and relation in the seventh and eighth.
The last may say where mentions of entities begin and end (`Entity=(e1-person` … `e1)`, as CorefUD
has them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError
from .read import lines

COLUMNS = 10


class Sentence(NamedTuple):
    """A sentence's words; of each the number of its head, from 0 on, -1 for none, and how it
    depends on it; and the last word of each mention with what it mentions."""

    words: list[str]
    heads: list[int]
    relations: list[str]
    mentions: list[tuple[int, str]]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def read(path: Path) -> Iterator[str | Sentence]:
    """The texts of a file: sentences with trees where it ends in .conllu, else a line each."""
    if Path(path.name.removesuffix(".gz")).suffix == ".conllu":
        yield from sentences(path)
    else:
        yield from (line for line in lines(path) if line.strip())


def sentences(path: Path) -> Iterator[Sentence]:
    rows: list[list[str]] = []
    number = 0
    for number, line in enumerate(lines(path), 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if rows:
                yield sentence(rows, f"{path}:{number - 1}")
            rows = []
            continue
        cells = line.split("\t")
        if len(cells) != COLUMNS:
            raise DataError(
                f"{path}:{number}: a word must have {COLUMNS} columns parted by tabs, but has "
                f"{len(cells)}."
            )
        if cells[0].isdigit():  # neither a range of words nor one that is not written
            rows.append(cells)
    if rows:
        yield sentence(rows, f"{path}:{number}")


def sentence(rows: list[list[str]], where: str) -> Sentence:
    numbers = {cells[0]: place for place, cells in enumerate(rows)}
    heads = []
    for cells in rows:
        if cells[6] not in numbers and cells[6] not in ("0", "_"):
            raise DataError(
                f"{where}: the head of '{cells[1]}' must be a word of its sentence or 0, but is "
                f"'{cells[6]}'."
            )
        heads.append(numbers.get(cells[6], -1))
    return Sentence(
        [cells[1] for cells in rows], heads, [cells[7] for cells in rows], mentions(rows)
    )


def mentions(rows: list[list[str]]) -> list[tuple[int, str]]:
    """Where each mention ends, and of what it is."""
    found = []
    for place, cells in enumerate(rows):
        told = re.search(r"(?:^|\|)Entity=([^|]*)", cells[9])
        for part in re.findall(r"\([^()]*\)?|[^()]+\)", told[1]) if told else ():
            if part.endswith(")"):
                found.append((place, part.strip("()").split("-")[0]))
    return found
