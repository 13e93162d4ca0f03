"""What `[data]` may say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Gt

from ..errors import DataError
from .parts import Source

Files = str | list[str]


@dataclass(frozen=True)
class Settings:
    """Where the examples are."""

    train: Annotated[
        Files,
        "a file, [source, target], several such, or names with a *; relative to data.root if set",
    ]
    valid: Annotated[Files, "what choices are made on"] = ""
    test: Annotated[Files, "looked at once, at the end"] = ""
    root: Annotated[str, Path, "the folder that the files are in"] = ""
    skip_bad: Annotated[bool, "go on without lines that cannot be used, and count them"] = False
    max_length: Annotated[int, Gt(0), "longest line in tokens, on either side"] = 256
    obtain: Annotated[str, "how to get the data; said when they are absent"] = ""

    def files(self, part: str) -> Source:
        """The files of `train`, `valid` or `test`, all there."""
        if not self.named(part):
            raise DataError(f"data.{part}: the recipe names no file for this; set data.{part}.")
        paths = self.named(part)
        for path in paths:
            if not path.exists():
                advice = self.obtain or "check data.root and the name."
                raise DataError(f"{path}: no such file, though data.{part} names it; {advice}")
        return Source(paths, part)

    def named(self, part: str) -> list[Path]:
        """Which files they are, there or not."""
        named: Files = vars(self)[part]
        paths = []
        for name in [named] if isinstance(named, str) else named:
            path = Path(self.root) / name
            found = sorted(path.parent.glob(path.name)) if "*" in path.name else []
            paths += found or [path]  # a pattern that finds nothing is named like a missing file
        return paths if named else []
