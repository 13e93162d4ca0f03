"""Questions about stories: bAbI files, and stories as somebody types them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from .read import Faults, is_text, lines


class Told(NamedTuple):
    """A question with what was told before it."""

    story: list[str]
    question: str
    answer: str
    support: list[int]  # places in the story
    task: str
    where: str


def words(text: str) -> str:
    """Lower-case words with a space between: what is left of a sentence.

    A mark belongs to the letter before it; a sign inside a word (don't, well-known) stays.
    """
    kept = (
        c if c.isalnum() or c in "'’-" or unicodedata.category(c)[0] == "M" else " "
        for c in unicodedata.normalize("NFC", text.lower())
    )
    return " ".join(filter(None, (word.strip("'’-") for word in "".join(kept).split())))


def one_word(answer: str) -> str:
    """An answer as one entry of the vocabulary; a list is joined by commas."""
    return ",".join(words(part).replace(" ", "-") for part in answer.split(","))


def read(files: Sequence[Path], faults: Faults) -> Iterator[Told]:
    """The questions of bAbI files; each file is a task, named as the file is."""
    for path in files:
        task = re.sub(r"[_-](train|valid|test)$", "", path.name.partition(".")[0])
        story: list[str] = []
        places: dict[int, int] = {}  # of a line's number in the story
        before = 0
        for at, line in enumerate(lines(path, faults.skip), 1):
            where = f"{path}:{at}"
            if not line.strip():
                continue
            if not is_text(line):
                faults.report(where, "the text must be UTF-8, but is not")
                continue
            number, _, rest = line.strip().partition(" ")
            if not is_number(number) or int(number) not in (1, before + 1):
                faults.report(
                    where,
                    f"a line must begin with its number in the story, 1 or {before + 1}, but "
                    f"begins with '{number[:20]}'",
                )
                continue
            before = int(number)
            if before == 1:
                story, places = [], {}
            asked, _, more = rest.partition("\t")
            answer, _, support = more.partition("\t")
            if "\t" not in rest and not asked.rstrip().endswith("?"):
                places[before] = len(story)
                story.append(asked.strip())
            elif not words(answer):
                faults.report(
                    where, "a question must have an answer after a tab, but this one has none"
                )
            else:
                named = [int(n) for n in support.split() if is_number(n)]
                found = [places[n] for n in named if n in places]
                yield Told(list(story), asked.strip(), answer, found, task, where)


def is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def parse(text: str, number: int = 1) -> Told:
    """A story and its question as somebody types them, or as lines of a bAbI file."""
    rows = [row for row in map(str.strip, text.split("\n")) if row]
    numbered = "\t" in text or len(rows) > 1
    numbered = numbered and all(is_number(row.partition(" ")[0]) for row in rows)
    if not numbered:
        rows = [piece for row in rows for piece in re.split(r"(?<=[.?!])\s+", row)]
    told: list[str] = []
    places: dict[int, int] = {}
    asked, support = "", list[int]()
    for row in rows:
        first, _, rest = row.partition(" ") if numbered else ("0", "", row)
        plain, _, more = rest.partition("\t")
        plain = plain.strip()
        asked = plain if plain.endswith("?") else ""
        if asked:
            named = more.partition("\t")[2].split()
            support = [places[int(n)] for n in named if is_number(n) and int(n) in places]
            continue
        places[int(first)] = len(told)
        told.append(plain)
    if not words(asked):
        raise InputError(
            f"input {number}: the last sentence must be a question, ending in '?', but is "
            f"'{told[-1][:60] if told else ''}'."
        )
    return Told(told, asked, "", support, "", f"input {number}")
