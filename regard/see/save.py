"""Files of the kind that their name says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError

Writers = Mapping[str, Callable[[Any, Path], object]]


def check_kind(path: Path, writers: Writers) -> None:
    """The name must end in a kind that can be written."""
    if path.suffix not in writers:
        raise InputError(
            f"{path.name}: the file must end in {', '.join(writers)}, but ends in '{path.suffix}'."
        )


def save(thing: Any, path: Path, writers: Writers) -> Path:
    """Write it, in a folder that is made where it is missing."""
    check_kind(path, writers)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writers[path.suffix](thing, path)
    except OSError as error:
        raise InputError(f"{path}: could not be written ({error.strerror}).") from error
    return path
