"""Sentences whose words have tags: CoNLL files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from ..score.entities import to_bio
from .read import Faults, is_text, lines


class Sentence(NamedTuple):
    """A sentence's words with their tags, and where it stands."""

    words: list[str]
    tags: list[str]
    where: str


Scheme = Literal["iob1", "bio", "plain"]


def read(
    files: Sequence[Path], word: int, tag: int, scheme: Scheme, faults: Faults
) -> Iterator[Sentence]:
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
                    yield from _sentence(words, tags, scheme, f"{path}:{first}", faults)
                words, tags, first, broken = [], [], number + 1, False
                continue
            if max(word, tag, 2) > len(cells) or not is_text(line):
                what = f"a line must have {max(word, tag, 2)} columns"
                faults.report(f"{path}:{number}", f"{what} of UTF-8 text, but has {len(cells)}")
                broken = True
                continue
            words.append(cells[word - 1])
            tags.append(cells[tag - 1])


def _sentence(
    words: list[str], tags: list[str], scheme: Scheme, where: str, faults: Faults
) -> Iterator[Sentence]:
    if scheme == "plain":
        yield Sentence(words, tags, where)
        return
    try:
        begun = to_bio(tags)
    except ValueError as error:
        faults.report(where, f"in this sentence, {str(error).rstrip('.')}")
        return
    if scheme == "bio" and begun != tags:
        place = next(i for i, (a, b) in enumerate(zip(tags, begun, strict=True)) if a != b)
        faults.report(
            where,
            f"an entity must begin with B- (task.scheme=bio), but word {place + 1}, "
            f"'{words[place]}', has {tags[place]}",
        )
        return
    yield Sentence(words, begun, where)
