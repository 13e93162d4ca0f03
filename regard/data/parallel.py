"""Sentences with their translations: two aligned files, a TSV, or JSONL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError, RecipeError
from .read import Faults, is_text, kind_of, lines, records, table


class Pair(NamedTuple):
    """A sentence and its translation, and where they stand, for messages."""

    source: str
    target: str
    where: str


def read(
    files: Sequence[Path], sides: tuple[str, str], faults: Faults, tags: Sequence[str] = ()
) -> Iterator[Pair]:
    """Pairs of one corpus after the other, each two aligned files, a TSV or JSONL; unusable lines
    are told to `faults`. Sources of a corpus begin with its tag, where there are tags."""
    every = list(corpora(files))
    if tags and len(tags) != len(every):
        raise RecipeError(
            f"task.tag must say something of each of {len(every)} corpora in data.train, but has "
            f"{len(tags)} entries."
        )
    for number, corpus in enumerate(every):
        tag = tags[number] if tags else ""
        for row in read_corpus(corpus, sides, faults):
            if not row.source.strip() or not row.target.strip():
                faults.report(row.where, "both sides must have text, but one is empty")
                continue
            if not is_text(row.source) or not is_text(row.target):
                faults.report(row.where, "the text must be UTF-8, but is not")
                continue
            yield row._replace(source=tag + row.source)


def corpora(files: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """Files by what belongs together: a table alone, aligned files two by two."""
    left = list(files)
    while left:
        count = 1 if kind_of(left[0]) in READERS else 2
        yield left[:count]
        left = left[count:]


def read_corpus(files: Sequence[Path], sides: tuple[str, str], faults: Faults) -> Iterator[Pair]:
    if kind_of(files[0]) in READERS:
        return READERS[kind_of(files[0])](files[0], sides, faults)
    if len(files) != 2 or kind_of(files[1]) in READERS:
        raise DataError(
            f"{', '.join(map(str, files))}: translation data must be two aligned files, [source, "
            "target], or one .tsv or .jsonl; or several such, one after the other."
        )
    return read_aligned(files, faults)


def read_aligned(files: Sequence[Path], faults: Faults) -> Iterator[Pair]:
    left, right = files
    pairs = zip_longest(lines(left, faults.skip), lines(right, faults.skip))
    for number, (source, target) in enumerate(pairs, 1):
        if source is None or target is None:
            longer, shorter = (right, left) if source is None else (left, right)
            raise DataError(
                f"{longer}:{number}: the two files must have the same number of lines, "
                f"but {shorter.name} ends here."
            )
        yield Pair(source, target, f"{left}:{number}")


def read_tsv(path: Path, sides: tuple[str, str], faults: Faults) -> Iterator[Pair]:
    for number, cells in table(path, "\t", faults.skip):
        if number == 1 and is_header(cells, sides):
            faults.notes.append(f"{path}:1 names the columns, and is no example")
            continue
        if len(cells) < 2:
            faults.report(
                f"{path}:{number}",
                "the line must have a tab between source and target, but has none",
            )
            continue
        yield Pair(cells[0], cells[1], f"{path}:{number}")


# What stands over columns of sentences, beside what the recipe calls its languages.
SIDES = {"source", "target", "src", "tgt", "trg", "sentence1", "sentence2", "translation"}
LANGUAGES = re.compile(
    "ar|bg|cs|da|de|el|en|es|et|fa|fi|fr|he|hi|hr|hu|id|it|ja|ko|lt|lv|nl|no|pl|pt|ro|ru|sk|sl|sr|"
    "sv|th|tr|uk|ur|vi|zh|arabic|chinese|czech|danish|dutch|english|finnish|french|german|greek|"
    "hebrew|hindi|hungarian|italian|japanese|korean|norwegian|polish|portuguese|romanian|russian|"
    "spanish|swedish|turkish|ukrainian|vietnamese"
)


def is_header(cells: Sequence[str], sides: tuple[str, str]) -> bool:
    """Whether a first line names its columns: no sentence is translated by such words alone."""
    names = [cell.strip().lower() for cell in cells[:2]]
    own = SIDES | {side.lower() for side in sides}
    known = [name in own or LANGUAGES.fullmatch(name) is not None for name in names]
    return len(names) == 2 and names[0] != names[1] and all(known)


def read_jsonl(path: Path, sides: tuple[str, str], faults: Faults) -> Iterator[Pair]:
    for number, record in records(path, faults):
        pair = record.get("translation", record)
        if not isinstance(pair, dict) or not all(isinstance(pair.get(side), str) for side in sides):
            known = ", ".join(pair) if isinstance(pair, dict) else "none"
            faults.report(
                f"{path}:{number}",
                f"the object must have texts '{sides[0]}' and '{sides[1]}', but has {known} "
                "(task.source and task.target name the fields)",
            )
            continue
        yield Pair(pair[sides[0]], pair[sides[1]], f"{path}:{number}")


READERS: dict[str, Callable[[Path, tuple[str, str], Faults], Iterator[Pair]]] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
}
