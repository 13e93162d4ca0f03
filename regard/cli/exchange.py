"""Other people's formats, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError
from .app import RunFolder, app, load_run


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="a Hugging Face folder, a .gguf file, or two graphs of a T5"
        ),
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder to make")],
) -> None:
    """A Hugging Face folder or a GGUF file as a run."""
    from ..exchange import gguf, hf

    read = gguf.read if source.suffix == ".gguf" else hf.read
    print(f"{read(source, run)}: {run}")


@app.command()
def export(
    run: RunFolder,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder to make")],
    to: Annotated[str, typer.Option(help="hf, ctranslate2, gguf, or onnx, for most runs")] = "hf",
) -> None:
    """A run as a folder that other programs read."""
    from ..exchange import WRITERS

    if to not in WRITERS:
        raise InputError(f"--to must be one of {', '.join(WRITERS)}, but is '{to}'.")
    print(f"{WRITERS[to](load_run(run, ['train.device=cpu']), folder)}: {folder}")
