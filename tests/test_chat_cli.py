"""A conversation in the shell: piped, typed, interrupted, and longer than there is room for."""

import os
import pty
import signal
import subprocess
import sys

import pytest

import regard
from regard.errors import InputError
from regard.exchange.gguf import read
from tests.conftest import OFFLINE, ROOT
from tests.exchange import gguf_files

GREEDY = ("decode.kind=greedy", "decode.max_new_tokens=6")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chats")
    gguf_files.write(folder / "tiny.gguf", max_position_embeddings=8192)
    read(folder / "tiny.gguf", folder / "run")
    gguf_files.write(folder / "small.gguf", max_position_embeddings=96)
    read(folder / "small.gguf", folder / "small")
    none = {"tokenizer.chat_template": None, "tokenizer.ggml.eos_token_id": 0}
    gguf_files.write(folder / "plain.gguf", fields=none)
    read(folder / "plain.gguf", folder / "plain")
    return folder


def test_piped_lines_are_answered_in_turn(folder, shell):
    run = regard.load(folder / "run", *GREEDY)
    messages = [{"role": "system", "content": "be kind"}]
    wanted = []
    for line in ("the cat", "a dog"):
        messages.append({"role": "user", "content": line})
        wanted.append(run.chat(messages))
        messages.append({"role": "assistant", "content": wanted[-1]})
    said = shell("chat", folder / "run", "--system", "be kind", *GREEDY, stdin="the cat\n\na dog\n")
    assert said.stdout == "".join(f"{answer}\n" for answer in wanted)


def test_what_has_no_room_is_forgotten(folder, shell):
    said = shell("chat", folder / "small", *GREEDY, stdin="the cat sees\n" * 4)
    assert "the beginning of the conversation is forgotten" in said.stderr
    assert len(said.stdout.splitlines()) >= 4
    run = regard.load(folder / "small", *GREEDY)
    turns = [{"role": role, "content": "x " * 9} for role in ("user", "assistant", "user")]
    first = {"role": "system", "content": "be kind"}
    kept = run.template.recent([first, *turns], 60)
    assert kept == [first, turns[-1]] and len(run.template.ids(kept)) <= 60
    with pytest.raises(InputError, match="with 6 new tokens they may have 91 tokens, but have "):
        run.chat("x " * 99)


def test_who_was_not_taught_to_converse(main, folder):
    said = main("chat", folder / "plain", status=2).err
    assert "a run must have a chat template to converse, but this one has none" in said


def test_on_a_terminal(folder):
    """Ctrl-C ends an answer and no more; Ctrl-D leaves."""
    command = [sys.executable, "-m", "regard", "chat", str(folder / "run"), "decode.kind=greedy"]
    more = ["decode.max_new_tokens=8000", "decode.min_new_tokens=7990"]
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        [*command, *more], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        env={**os.environ, **OFFLINE, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
    )  # fmt: skip
    os.close(terminal)
    seen = ""

    def until(text, count=1):
        nonlocal seen
        while seen.count(text) < count:
            seen += os.read(control, 4096).decode(errors="replace")

    try:
        until("> ")
        os.write(control, b"the cat\n")
        until("the cat\r\n")
        seen += os.read(control, 1).decode(errors="replace")  # it has begun to answer
        process.send_signal(signal.SIGINT)
        until("> ", 2)
        assert " …" in seen
        os.write(control, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(control)
