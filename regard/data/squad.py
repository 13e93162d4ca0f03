"""Questions about texts that hold their answers: SQuAD files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError
from .read import WHOLE, Faults, is_text, whole_lines


class Question(NamedTuple):
    """A question, the text it is asked of, and its answers with their first characters."""

    question: str
    context: str
    answers: list[tuple[str, int]]  # none: the text does not answer it
    name: str
    where: str


def read(files: Sequence[Path], faults: Faults) -> Iterator[Question]:
    """The questions of SQuAD files, 1.1 or 2.0; an answer must stand where it is said to."""
    for path in files:
        try:
            whole = json.loads("".join(whole_lines(path, longest=WHOLE)))
            paragraphs = [p for article in whole["data"] for p in article["paragraphs"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{path}: not a SQuAD file ({type(error).__name__}: {error})."
            ) from error
        for number, paragraph in enumerate(paragraphs, 1):
            where = f"{path}: paragraph {number}"
            try:
                yield from _questions(paragraph, where, faults)
            except (KeyError, TypeError, AttributeError) as error:
                faults.report(where, f"it must have 'context' and 'qas' as SQuAD has ({error})")


def _questions(paragraph: Any, where: str, faults: Faults) -> Iterator[Question]:
    context = paragraph["context"]
    for asked in paragraph["qas"]:
        name = str(asked.get("id", asked["question"][:40]))
        given = [] if asked.get("is_impossible") else asked["answers"]
        answers = [(a["text"], int(a["answer_start"])) for a in given]
        here = f"{where}, question {name}"
        if not is_text(context) or not is_text(asked["question"]):
            faults.report(here, "the text must be UTF-8, but is not")
            continue
        odd = [(t, s) for t, s in answers if s < 0 or context[s : s + len(t)] != t or not t]
        if odd:
            text, start = odd[0]
            stands = context[max(start, 0) : max(start, 0) + len(text)]
            faults.report(
                here,
                f"the answer '{text[:60]}' must stand at character {start} of its context, but "
                f"there stands '{stands[:60]}'",
            )
            continue
        yield Question(asked["question"].strip(), context, answers, name, here)
