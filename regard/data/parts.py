"""Parts of the data: files that belong to one, and rows that do where a file holds several."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# What a column that tells the part may say, and the part that it means.
PART = {
    "train": "train", "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
    "test": "test",
}  # fmt: skip


class Source(list[Path]):
    """Files, and which part of the data is read from them."""

    def __init__(self, files: Iterable[Path], part: str = "train") -> None:
        super().__init__(files)
        self.part = part


def source_of(files: Iterable[Path]) -> Source:
    """Files that nobody has said a part of are there to learn from."""
    return files if isinstance(files, Source) else Source(files)


def fold_of(met: int, folds: int, left_out: int) -> str:
    """The part of a row where one of so many folds is left for the test.

    Rows of a class go to the folds in turn, so all folds have about as many of each; `met` is how
    many of its class came before it.
    """
    return "test" if met % folds == left_out else "train"
