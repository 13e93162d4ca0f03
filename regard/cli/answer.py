"""A run at work: scored, asked, served."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError
from .app import BARE_SETTING, OVERRIDE, AsJson, Overrides, RunFolder, app, interruptible, load_run

if TYPE_CHECKING:
    from ..see.run import Run


# What reads like the name of a file of texts, rows or pictures.
FILE = re.compile(r"[^\s?!,;:]+\.(txt|tsv|csv|jsonl?|gz|md|jpe?g|png|wav|flac)", re.IGNORECASE)


@app.command()
def evaluate(
    run: RunFolder,
    settings: Overrides = None,
    on: Annotated[
        str, typer.Option(help="valid or test; default test, where there are such data")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Score a run on its test data."""
    from .. import terminal
    from ..terminal import progress

    if on not in ("", "valid", "test"):
        raise InputError(f"--on must be valid or test, but is '{on}'.")
    with interruptible(lambda: f"{run}/results.json is as it was"), progress.shown("starting"):
        scores = load_run(run, settings or []).evaluate(on)
    if not on and scores["on"] != "test":
        print(f"regard: the run has no data.test; scored on {scores['on']}.", file=sys.stderr)
    if as_json:
        print(terminal.json_line(scores))
    else:
        from ..terminal.tables import print_scores

        print_scores(terminal.console(), scores)


@app.command()
def predict(
    run: RunFolder,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT]...", help="inputs; decode.KEY=VALUE changes a setting"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--input", help="a file of inputs, one a line")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="a smaller run that guesses ahead (language models)")
    ] = None,
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="how likely each token of the input is, instead")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer arguments, a file, or standard input.

    Line in, line out; a folder of pictures or sounds is answered file by file.

    A language model writes on as you watch; all of standard input is then one prompt.
    """
    from ..terminal import progress

    words = inputs or []
    overrides = [word for word in words if OVERRIDE.match(word)]
    given = [word for word in words if not OVERRIDE.match(word)]
    if given and file is not None:
        raise InputError("inputs must be arguments or --input, but both are given.")
    for word in given:
        refuse_bare_setting(word)
    answered = [0]
    with interruptible(lambda: f"{answered[0]:,} inputs were answered"):
        with progress.shown("starting"):
            trained = load_run(run, overrides)
            if draft is not None:
                device = [text for text in overrides if text.startswith("train.device=")]
                trained.use_draft(load_run(draft, device))
        for count in answers(trained, given, file, logprobs, as_json):
            answered[0] += count


def answers(
    trained: Run, given: list[str], file: Path | None, logprobs: bool, as_json: bool
) -> Iterator[int]:
    """Print an answer to each input; tells how many there were, some at a time."""
    from ..tasks.task import Streams
    from ..terminal import answers as written
    from ..terminal import arriving, json_line, progress

    writes_on = isinstance(trained.task, Streams)
    named = [str(file)] if file is not None and file.is_dir() else given
    note_files(trained, given)
    from_folder = any(is_folder(word) for word in named)
    if named:
        every = [name for word in named for name in files_of(trained, word)]
        source: Iterator[list[str]] = (
            arriving.chunks_of(iter(every)) if from_folder else iter([every])
        )
    elif file is not None:
        from ..data.read import lines

        source = arriving.chunks_of(lines(file))
    elif writes_on:
        source = iter([["\n".join(line for chunk in arriving.arriving() for line in chunk)]])
    else:
        source = arriving.arriving()
    first = 1
    for chunk in source:
        if logprobs:
            written.print_logprobs(trained, chunk, as_json)
        elif writes_on and not as_json:
            written.write_on(trained, chunk, first)
        else:
            before = f"{first - 1:,} done, " if first > 1 else ""
            with progress.shown("answering", before):
                told = trained.predict(chunk, first)
            for answer in told:
                output = f"{answer.input}\t{answer.output}" if from_folder else answer.output
                print(json_line(answer.json()) if as_json else output)
                if answer.warning and not as_json:
                    print(f"regard: {answer.warning}.", file=sys.stderr)
        sys.stdout.flush()
        first += len(chunk)
        yield len(chunk)


def is_folder(word: str) -> bool:
    """Whether a word is meant as one: a text may happen to be the name of a folder here."""
    return ("/" in word or word in (".", "..")) and Path(word).is_dir()


def files_of(trained: Run, word: str) -> list[str]:
    """The files of a folder, by name, where the run reads such; any other word as it is."""
    from ..tasks.form import ReadsFiles

    if not is_folder(word):
        return [word]
    form, folder = trained.task.gives, Path(word)
    if not isinstance(form, ReadsFiles):
        raise InputError(
            f"{word}: this run reads a {form.kind}, and no folder of files; give it as an argument,"
            " or many in a file, one a line, by --input."
        )
    names = sorted(str(p) for p in folder.iterdir() if p.suffix.lower() in form.endings)
    if not names:
        raise InputError(
            f"{word}: the folder must hold files that end in {', '.join(form.endings)}, but has "
            "none."
        )
    return names


def note_files(trained: Run, given: list[str]) -> None:
    """Say it where what a run takes as a text reads like the name of a file."""
    if trained.task.gives.kind != "text":
        return
    for word in given:
        if FILE.fullmatch(word):
            print(
                f"regard: {word} is taken as the input itself; --input {word} reads a file.",
                file=sys.stderr,
            )


def refuse_bare_setting(word: str) -> None:
    """An input that reads like a setting of decode whose section was forgotten."""
    from ..training.recipe import homes_of

    if BARE_SETTING.match(word) and "decode" in homes_of(word.partition("=")[0]):
        raise InputError(
            f"'{word}' must say its section where it is a setting; write decode.{word}, or give an "
            "input that begins so by --input or on standard input."
        )


@app.command()
def serve(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="run folders; decode.KEY=VALUE changes a setting"),
    ],
    host: Annotated[str, typer.Option(help="the address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port to listen at")] = 8000,
    api_key: Annotated[
        str, typer.Option(envvar="REGARD_API_KEY", help="a key that every request must bring")
    ] = "",
    device: Annotated[str, typer.Option(help="auto, cpu, mps, cuda, …")] = "auto",
    origin: Annotated[
        list[str] | None, typer.Option(help="a web site that may ask from a browser (CORS)")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="a name that the server answers to, beside localhost and --host"),
    ] = None,
    max_body: Annotated[int, typer.Option(help="bytes of a request")] = 2**20,
    max_prompt: Annotated[int, typer.Option(help="tokens of a prompt")] = 16384,
    max_tokens: Annotated[int, typer.Option(help="tokens asked for")] = 4096,
    max_batch: Annotated[int, typer.Option(help="answers written at the same time")] = 64,
    max_queue: Annotated[int, typer.Option(help="requests that may wait")] = 256,
    max_seconds: Annotated[float, typer.Option(help="until an answer must be there")] = 120.0,
    max_connections: Annotated[int, typer.Option(help="open at the same time")] = 1000,
) -> None:
    """HTTP API and web page of one or several runs."""
    try:
        from ..serve.guard import is_loopback
        from ..serve.limits import ServerLimits
        from ..serve.server import allow_files
        from ..serve.server import serve as listen
    except ImportError as error:
        raise InputError(
            f"regard serve needs {error.name}; pip install 'regard[serve]'."
        ) from error

    limits = ServerLimits(
        body=max_body, prompt=max_prompt, new_tokens=max_tokens, rows=max_batch,
        waiting=max_queue, seconds=max_seconds, connections=max_connections,
    )  # fmt: skip
    for name, value in vars(limits).items():
        if not value > 0:
            raise InputError(f"every limit must be above 0, but {name} is {value}.")
    allow_files(limits.connections + 64)
    if not is_loopback(host) and not api_key:
        print(
            f"regard: {host} can be reached by others, and there is no --api-key: anybody may ask.",
            file=sys.stderr,
        )
    folders = [Path(word) for word in runs if not OVERRIDE.match(word)]
    settings = [word for word in runs if OVERRIDE.match(word)]

    def open_run(folder: Path) -> Run:
        return load_run(folder, [*settings, f"train.device={device}"])

    listen(folders, host, port, api_key, limits, open_run, origin or [], allow_host or [])
