"""Looking into runs, and at several side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from ..training.files import RESULTS
from .app import OVERRIDE, AsJson, Overrides, RunFolder, app, load_run
from .learn import train_shown

if TYPE_CHECKING:
    from ..see.run import Run


SEEN = Path("see.html")


@app.command()
def see(
    run: RunFolder,
    text: Annotated[str, typer.Argument(metavar="INPUT", help="what to answer and look into")],
    settings: Overrides = None,
    target: Annotated[
        str | None, typer.Option(help="look at this answer instead of the model's own")
    ] = None,
    out: Annotated[Path, typer.Option(help="see.html, .png, .svg, .pdf or .json")] = SEEN,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="silence one head at a time, and score without it")
    ] = False,
    examples: Annotated[
        int, typer.Option(min=0, help="validation examples that each head is scored on; 0: none")
    ] = 40,
    field: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="what this token (or its number) depends on, layer by layer; .png, .svg or .json",
        ),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(
            help="this word in the sentences of the file INPUT, a line each: its vectors by layer"
        ),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="the input's tokens as points, layer by layer")
    ] = False,
    heads: Annotated[
        bool,
        typer.Option(
            "--heads",
            help="what each head looks at in the texts of the file INPUT (.conllu: with trees); "
            "with --ablate, what is lost without it",
        ),
    ] = False,
) -> None:
    """What attends to what: a page, or a picture."""
    from ..see.save import check_kind
    from ..terminal import tables

    trained = load_run(run, settings or [])
    if word is not None:
        _see_word(trained, Path(text), word, out)
        return
    if field is not None:
        _see_field(trained, text, field, out)
        return
    if layers:
        _see_layers(trained, text, out)
        return
    if heads:
        _see_heads(trained, Path(text), examples if ablate else 0, out)
        return
    if ablate:
        from dataclasses import replace

        from ..see.ablate import ablate as silence_each
        from ..see.capture import WRITERS

        check_kind(out, WRITERS)
        found = silence_each(trained, text, examples)
        tables.print_ablation(found)
        sight = replace(trained.see(text, target), ablation=found)
    else:
        sight = trained.see(text, target)
    path = sight.save(out)
    print(f"{sight.output}\n{path}")


@app.command()
def probe(
    run: RunFolder,
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="whose labels: its [task] and [data] count")
    ],
    settings: Overrides = None,
    examples: Annotated[int, typer.Option(min=20, help="of each part, the first so many")] = 1000,
    on: Annotated[str, typer.Option(help="valid or test; default valid")] = "",
    out: Annotated[Path, typer.Option(help="probe.png, .svg, .pdf or .json")] = Path("probe.png"),
) -> None:
    """Read labels off a run's vectors, layer by layer."""
    from ..see.probe import WRITERS
    from ..see.save import check_kind
    from ..terminal import tables

    check_kind(out, WRITERS)
    found = load_run(run, []).probe(recipe, *(settings or []), examples=examples, on=on)
    tables.print_probed(found)
    print(found.save(out))


@app.command()
def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="run folders; with --recipes, recipes")
    ],
    recipes: Annotated[
        bool, typer.Option("--recipes", help="the names are recipes; train what is missing first")
    ] = False,
    on: Annotated[str, typer.Option(help="valid or test")] = "test",
    out: Annotated[
        Path | None, typer.Option(help="compare.html, .md, .json, .png, .svg or .pdf")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Runs side by side: quality, size, speed and cost."""
    from rich.table import Table

    from ..see.compare import WRITERS
    from ..see.compare import compare as side_by_side
    from ..see.save import check_kind
    from ..terminal import console, json_line

    if on not in ("valid", "test"):
        raise InputError(f"--on must be valid or test, but is '{on}'.")
    if out is not None:
        check_kind(out, WRITERS)  # before anything is trained
    settings = [word for word in runs if OVERRIDE.match(word)]
    folders = [Path(word) for word in runs if not OVERRIDE.match(word)]
    if settings and not recipes:
        raise InputError(f"'{settings[0]}': a run is settled; settings need --recipes.")
    if recipes:
        names, folders = [str(folder) for folder in folders], []
        for name in names:
            folders.append(Path("runs") / Path(name).stem)
            if not (folders[-1] / RESULTS).is_file():
                train_shown(name, settings, folders[-1], fresh=False, to_stderr=as_json)
            else:
                _check_same(name, settings, folders[-1])
    found = side_by_side(folders, on)
    if as_json:
        for row in found.rows():
            print(json_line(row))
    else:
        for rows in found.tables():
            table = Table(*rows[0])
            for cells in rows[1:]:
                table.add_row(*cells)
            console().print(table)
        for note in found.notes():
            console().print(note, highlight=False, soft_wrap=True)
    if out is not None:
        print(found.save(out), file=sys.stderr if as_json else sys.stdout)


def _see_word(trained: Run, path: Path, word: str, out: Path) -> None:
    """One word in the sentences of a file."""
    from ..data.read import lines
    from ..see.meaning import WRITERS
    from ..see.save import check_kind
    from ..terminal import tables

    out = Path("word.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.meaning(word, [line for line in lines(path) if line.strip()])
    tables.print_meaning(found)
    print(found.save(out))


def _see_field(trained: Run, text: str, token: str, out: Path) -> None:
    """What a token depends on."""
    from ..see.field import WRITERS
    from ..see.save import check_kind
    from ..terminal import tables

    out = Path("field.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.field(text, token)
    tables.print_field(found)
    print(found.save(out))


def _see_layers(trained: Run, text: str, out: Path) -> None:
    """An input's tokens, layer by layer."""
    from ..see.layers import WRITERS
    from ..see.save import check_kind
    from ..terminal import tables

    out = Path("layers.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.layers(text)
    tables.print_layers(found)
    print(found.save(out))


def _see_heads(trained: Run, path: Path, examples: int, out: Path) -> None:
    """What each head looks at in the texts of a file."""
    from ..data.trees import read
    from ..see.heads import WRITERS
    from ..see.save import check_kind
    from ..terminal import tables

    out = Path("heads.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.heads(list(read(path)), examples)
    tables.print_heads(found)
    print(found.save(out))


def _check_same(name: str, settings: Sequence[str], folder: Path) -> None:
    """A run that is there must be what the recipe and the settings ask for."""
    from ..training.more import difference
    from ..training.recipe import read

    odd = difference(read(name, settings), folder)
    if odd is not None:
        key, there, asked = odd
        raise InputError(
            f"{folder}: the run must be what {name} with these settings asks for, but has "
            f"{key}={there!r} and not {asked!r}; compare it by its folder, or move it away."
        )
