"""A conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .app import Overrides, RunFolder, app, load_run

if TYPE_CHECKING:
    from ..see.run import Run
    from ..text.chat import Message


@app.command()
def chat(
    run: RunFolder,
    settings: Overrides = None,
    system: Annotated[
        str, typer.Option(help="what the conversation begins with: who answers, and how")
    ] = "",
) -> None:
    """Converse with a run that has a chat template: a line a turn.

    Ctrl-C ends an answer, Ctrl-D the conversation. Piped lines are answered in turn.
    """
    trained = load_run(run, settings or [])
    template = trained.template  # before anything is typed
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    if sys.stdin.isatty():
        print("Ctrl-C ends an answer, Ctrl-D the conversation.", file=sys.stderr)
    for line in typed():
        messages.append({"role": "user", "content": line})
        recent = template.recent(messages, trained.room)
        if len(recent) < len(messages):
            print("regard: the beginning of the conversation is forgotten.", file=sys.stderr)
        messages = [*recent, {"role": "assistant", "content": answer(trained, recent)}]


def typed() -> Iterator[str]:
    """What is said, a line a turn; empty lines are none."""
    if not sys.stdin.isatty():
        from .. import terminal

        yield from (line for chunk in terminal.arriving() for line in chunk if line.strip())
        return
    import contextlib

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (arrow keys, and lines typed before)
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if line.strip():
            yield line


def answer(trained: Run, messages: list[Message]) -> str:
    """Print an answer as it is written; interrupted, as much of it as there is."""
    pieces: list[str] = []
    try:
        for piece in trained.chat_stream(messages):
            pieces.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(" …", end="")
    print(flush=True)
    return "".join(pieces)
