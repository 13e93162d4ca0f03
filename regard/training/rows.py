"""Rows given in Python: they become files of the run folder, and the recipe names those."""

from __future__ import annotations

import dataclasses
import filecmp
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data.given import Given
from ..errors import InputError, RunError
from ..tasks import TASKS
from .folder import ROWS
from .recipe import Recipe

PARTS = ("train", "valid", "test")


def with_rows(recipe: Recipe, folder: Path, given: Mapping[str, Given]) -> Recipe:
    """The recipe, reading what the run folder will hold."""
    kind = TASKS[recipe.task_kind]
    if not kind.row_files:
        raise InputError(
            f"data: the task {recipe.task_kind} takes its data from files alone; name them by "
            "data.train=FILE."
        )
    home = folder.resolve() / ROWS
    names = {
        part: [str(home / f"{part}{ending}") for ending in kind.row_files] if part in given else ""
        for part in PARTS
    }
    files: dict[str, Any] = {
        part: name[0] if len(name) == 1 else name for part, name in names.items()
    }
    origins = {f"data.{part}": "given in Python" for part in given}
    return dataclasses.replace(
        recipe,
        data=dataclasses.replace(recipe.data, root="", **files),
        origins={**recipe.origins, **origins},
    )


def keep_rows(recipe: Recipe, folder: Path, given: Mapping[str, Given]) -> None:
    """Write them where the recipe says; where they are written already they must be the same."""
    for part, rows in given.items():
        paths = recipe.data.named(part)
        works = [path.with_name(f".{path.name}.part") for path in paths]
        try:
            works[0].parent.mkdir(exist_ok=True)
            TASKS[recipe.task_kind].write_rows(recipe.task, rows, works)
            for path, work in zip(paths, works, strict=True):
                if path.is_file() and not filecmp.cmp(path, work, shallow=False):
                    raise RunError(
                        f"{folder}: the rows given as {part} must be those that the run began "
                        "with, but are others; fresh=True starts over, run=DIR starts another."
                    )
                work.replace(path)
        except OSError as error:
            raise RunError(f"{folder}: rows could not be kept ({error.strerror}).") from error
        finally:
            for work in works:
                work.unlink(missing_ok=True)
