"""Texts or pairs of texts with a label: rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .read import Faults, is_text
from .table import rows


class Example(NamedTuple):
    """A text or a pair, what is right, and where it stands."""

    text: str
    pair: str | None
    label: Any
    where: str


def read(
    files: Sequence[Path], text: str, pair: str, label: str, faults: Faults
) -> Iterator[Example]:
    """The rows of labelled files by the names of their columns; `pair` may be empty."""
    columns = [("task.text", text), *([("task.pair", pair)] if pair else [])]
    for path in files:
        for where, (*texts, told) in rows(path, [*columns, ("task.label", label)], faults):
            if not all(isinstance(text, str) and text.strip() for text in texts):
                faults.report(where, "there must be text to classify, but there is none")
            elif not all(map(is_text, texts)):
                faults.report(where, "the text must be UTF-8, but is not")
            elif told is None or told == "":
                faults.report(where, f"there must be a label ('{label}'), but there is none")
            else:
                yield Example(texts[0], texts[1] if pair else None, told, where)
