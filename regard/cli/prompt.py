"""A language model asked in words, with and without examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from .app import AsJson, Overrides, RunFolder, app, load_run


@app.command()
def prompt(
    run: RunFolder,
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="rows with labels: .tsv, .csv, .jsonl, .parquet")
    ],
    settings: Overrides = None,
    shots: Annotated[str, typer.Option(help="how many examples are shown before each")] = "0,1,4",
    examples: Annotated[int, typer.Option(min=1, help="rows that are scored")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="draws the rows, and those shown")] = 0,
    chat: Annotated[
        bool, typer.Option("--chat", help="as a conversation, by its template")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="prompt.json or .md")] = None,
    as_json: AsJson = False,
) -> None:
    """Zero-, one- and few-shot accuracy on labelled rows."""
    from .. import terminal
    from ..see.prompt import WRITERS
    from ..see.save import check_kind
    from ..terminal.progress import shown
    from ..terminal.tables import print_prompted

    if out is not None:
        check_kind(out, WRITERS)
    counts = [int(word) for word in shots.split(",") if word.strip().isdecimal()]
    if not counts or len(counts) != len(shots.split(",")):
        raise InputError(f"--shots must be numbers such as 0,1,4, but is '{shots}'.")
    words = settings or []
    own = [word for word in words if word.startswith("task.")]
    trained = load_run(run, [word for word in words if word not in own])
    with shown("starting"):
        found = trained.prompt(table, *own, shots=counts, examples=examples, seed=seed, chat=chat)
    if as_json:
        print(terminal.json_line(found.data()))
    else:
        print_prompted(found)
    if out is not None:
        print(found.save(out), file=sys.stderr if as_json else sys.stdout)
