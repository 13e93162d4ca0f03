"""What is in a folder of runs."""

from __future__ import annotations

import os
import stat
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError
from ..training.files import BILL, RECIPE, RESULTS, is_finished, is_trained, said
from .app import AsJson, app


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="where runs are")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """A table of the runs in a folder: score, steps, size, age."""
    from .. import terminal

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; `regard train` makes runs in runs/.")
    rows = sorted((read_run(path) for path in run_folders(folder)), key=lambda row: -row["when"])
    if as_json:
        for row in rows:
            print(terminal.json_line(row))
        return
    if not rows:
        print(f"{folder} holds no runs yet; `regard recipes` lists what can be trained.")
        return
    from rich.table import Column, Table

    table = Table(
        *(Column(name, overflow="fold") for name in ("run", "task", "model", "score", "steps")),
        Column("MB", justify="right", no_wrap=True), Column("age", justify="right", no_wrap=True),
    )  # fmt: skip
    for row in rows:
        score = f"{row['metric']} {row['score']:.4g}" if row["metric"] else ""
        score += f" ({row['on']})" if row["on"] not in ("", "test") else ""
        name = os.path.relpath(row["run"], folder)
        size = f"{row['bytes'] / 1e6:,.1f}"
        table.add_row(name, row["task"], row["model"], score, steps_of(row), size, age(row))
    terminal.console().print(table)


def age(row: dict[str, Any]) -> str:
    """How long ago a run was last written to."""
    seconds = time.time() - row["when"]
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def steps_of(row: dict[str, Any]) -> str:
    """How far a run is."""
    if row["finished"]:
        return f"{row['step']:,}"
    left = "not scored" if row["trained"] else f"of {row['steps']:,}"
    return f"{row['step']:,} {left}"


def run_folders(folder: Path) -> Iterator[Path]:
    """The folder itself, and those in it, at any depth, that hold a recipe."""
    for place, inside, files in os.walk(folder):
        if RECIPE in files:
            yield Path(place)
            inside.clear()
        inside[:] = sorted(name for name in inside if not name.startswith("."))


def read_run(path: Path) -> dict[str, Any]:
    """One run's line; what cannot be read is left empty."""
    try:
        recipe = tomllib.loads((path / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        recipe = {}
    numbers = [p.name.removeprefix("checkpoint-") for p in path.glob("checkpoint-*")]
    checkpoints = [int(number) for number in numbers if number.isdecimal()]
    trained = is_trained(path)
    steps = recipe.get("train", {}).get("steps", 0)
    taken = said(path, BILL).get("steps", max(checkpoints, default=0))
    files = list(sizes_and_times(path))
    return {
        "run": str(path),
        "task": recipe.get("task", {}).get("kind", ""),
        "model": recipe.get("model", {}).get("kind", ""),
        **headline(said(path, RESULTS)),
        "step": taken,
        "steps": steps,
        "trained": trained,
        "finished": trained and is_finished(path),
        "bytes": sum(size for size, _ in files),
        "when": max((when for _, when in files), default=0.0),
    }


def sizes_and_times(path: Path) -> Iterator[tuple[int, float]]:
    """Of all files of a run; one that a training takes away meanwhile is passed over."""
    for file in path.rglob("*"):
        with suppress(OSError):
            about = file.stat()
            if stat.S_ISREG(about.st_mode):
                yield about.st_size, about.st_mtime


def headline(results: dict[str, Any]) -> dict[str, Any]:
    """The score that counts, on test where there is one."""
    for on in ("test", "valid"):
        scores = results.get(on)
        if isinstance(scores, dict) and scores.get("headline") in scores:
            metric = scores["headline"]
            return {"metric": metric, "score": scores[metric], "on": on}
    return {"metric": "", "score": None, "on": ""}
