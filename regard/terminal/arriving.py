"""Lines of standard input, as they come."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from itertools import islice

from ..errors import InputError, RegardError


def chunks_of(lines: Iterator[str], first: int = 32, most: int = 512) -> Iterator[list[str]]:
    """Few at first, so that the first answers come soon, then more at a time, which is quicker."""
    size = first
    while chunk := list(islice(lines, size)):
        yield chunk
        size = min(2 * size, most)


def arriving() -> Iterator[list[str]]:
    """Lines of standard input, as many at a time as have come by then."""
    arrived: queue.Queue[str | RegardError | None] = queue.Queue(4096)

    def read() -> None:
        number, rest = 0, b""
        try:
            # Read from the descriptor: a buffered reader cannot be left while it waits.
            while piece := os.read(0, 65536):
                *whole, rest = (rest + piece).split(b"\n")
                for number, raw in enumerate(whole, number + 1):  # noqa: B020
                    arrived.put(_decode(raw, number))
            if rest:
                arrived.put(_decode(rest, number + 1))
        except RegardError as error:
            arrived.put(error)
        except OSError as error:
            arrived.put(InputError(f"standard input: cannot be read ({error.strerror})."))
        finally:
            arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk = [arrived.get()]
        while not arrived.empty() and len(chunk) < 512:
            chunk.append(arrived.get())
        if lines := [line for line in chunk if isinstance(line, str)]:
            yield lines
        for line in chunk:
            if isinstance(line, RegardError):
                raise line
        if chunk[-1] is None:
            return


def _decode(raw: bytes, number: int) -> str:
    try:
        text = raw.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input:{number}: the text must be UTF-8, but is not.") from error
    return text.removeprefix("\ufeff") if number == 1 else text
