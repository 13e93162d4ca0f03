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
        if not named:
            return []
        every = [self.matching(name) for name in ([named] if isinstance(named, str) else named)]
        if len(every) == 2 and len(every[0]) == len(every[1]):  # sides aligned file by file
            return [path for both in zip(*every, strict=True) for path in both]
        return [path for paths in every for path in paths]

    def matching(self, name: str) -> list[Path]:
        """The files of a name or a pattern; one that finds nothing is named like a missing file."""
        path = Path(self.root) / name
        return (sorted(path.parent.glob(path.name)) if "*" in path.name else []) or [path]
