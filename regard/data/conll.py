"""Sentences whose words have tags: CoNLL files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from .read import Faults, is_text, lines


class Sentence(NamedTuple):
    """A sentence's words with their tags, and where it stands."""

    words: list[str]
    tags: list[str]
    where: str


def read(files: Sequence[Path], word: int, tag: int, faults: Faults) -> Iterator[Sentence]:
    """The sentences of CoNLL files: a word a line, a blank line after each sentence.

    `word` and `tag` are columns, counted from 1; a tag of 0 is the last.
    """
    for path in files:
        words: list[str] = []
        tags: list[str] = []
        first, broken = 1, False
        numbered = enumerate(chain(lines(path, faults.skip), [""]), 1)
        for number, line in numbered:
            cells = line.split()
            if not cells or cells[0] == "-DOCSTART-":
                if words and not broken:
                    yield Sentence(words, tags, f"{path}:{first}")
                words, tags, first, broken = [], [], number + 1, False
                continue
            if max(word, tag, 2) > len(cells) or not is_text(line):
                what = f"a line must have {max(word, tag, 2)} columns"
                faults.report(f"{path}:{number}", f"{what} of UTF-8 text, but has {len(cells)}")
                broken = True
                continue
            words.append(cells[word - 1])
            tags.append(cells[tag - 1])
