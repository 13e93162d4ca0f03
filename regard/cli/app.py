"""The app that all commands hang on, the words they share, and how a mistake is told."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from .. import __version__
from ..errors import RecipeError, RegardError
from .complete import recipe_names, run_folders

if TYPE_CHECKING:
    from ..see.run import Run

app = typer.Typer(
    name="regard",
    help="Attention models of the classic lectures: train, score, use, look inside.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no rich, and so no wait
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(asked: bool) -> None:
    if asked:
        print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version),
    ] = False,
) -> None:
    """What stands before every command."""


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="a name (see `regard recipes`) or a .toml file",
        autocompletion=recipe_names,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="settings, such as train.steps=2000"),
]
RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="a run folder, made by `regard train`", autocompletion=run_folders
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object a line")]

OVERRIDE = re.compile(r"[a-z]+\.[a-z_]+=")
BARE_SETTING = re.compile(r"[a-z_]+=")


def main() -> NoReturn:
    """Run a command; a user's mistake is one line on stderr and status 2."""
    status: object = 0
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is told by number
                stream.reconfigure(errors="backslashreplace")
        status = app(standalone_mode=False, prog_name="regard")
    except typer.Abort:
        print("\nregard: interrupted.", file=sys.stderr)
        sys.exit(130)
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a disk that is full, a file that may not be read
        where = f"{error.filename}: " if error.filename else ""
        print(f"regard: {where}{error.strerror or error}.", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        say = getattr(error, "format_message", None)  # a word too many or too few
        if say is None:
            raise
        context = getattr(error, "ctx", None)
        asked = context.command_path if context is not None else "regard"
        if len(sys.argv) > 1:
            what = " ".join(say().split()).rstrip(".?")
            print(f"regard: {what}; `{asked} -h` helps.", file=sys.stderr)
        else:  # no word at all: the help is the message
            print(say())
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def interruptible(kept: Callable[[], str]) -> Iterator[None]:
    """Where somebody interrupts this, one line says what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nregard: interrupted; {kept()}.", file=sys.stderr)
        # Python ends by the signal where an interruption went through source that was being
        # executed, as while torch is imported; with the next source it forgets that.
        exec("")
        sys.exit(130)


def load_run(run: Path, overrides: Sequence[str]) -> Run:
    """A run, answering as the command line says; what training fixed cannot be changed."""
    from ..see.run import load
    from ..training.recipe import check_section, read_run

    device = "auto"
    kept = []
    asks = read_run(run)
    for text in overrides:
        check_section(text, asks.task_kind, asks.model_kind)
        name = text.partition("=")[0]
        section = name.partition(".")[0]
        if section in ("model", "train", *own_sections()) and name != "train.device":
            raise RecipeError(
                f"command line: '{name}' was settled by training; it cannot change now."
            )
        if text.startswith("train.device="):
            device = text.partition("=")[2]
        kept.append(text)
    trained = load(run, *kept, device=device)
    for note in trained.notes:
        print(f"regard: {note}.", file=sys.stderr)
    return trained


def own_sections() -> set[str]:
    """The sections of recipes that only some tasks have, such as [text]."""
    from ..tasks import TASKS

    return {section for task in TASKS.values() for section in task.sections}
