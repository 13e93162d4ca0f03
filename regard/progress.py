"""How far long work is: who does it tells, who shows it listens.

Training has events of its own; this is for what comes before and after: reading, learning a
vocabulary, tokenising, answering, scoring. Where nobody listens, telling costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
OFTEN = 0.1  # seconds between two tellings of counted work


class Work(NamedTuple):
    """What is being done, and how much of it is; `total` is None where nobody can know."""

    what: str
    done: int = 0
    total: int | None = None


Listener = Callable[[Work], object]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell this listener, and nobody else, of work in this thread."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(what: str, done: int = 0, total: int | None = None) -> None:
    """Say what begins, or how far it is."""
    listener = _listener.get()
    if listener is not None:
        listener(Work(what, done, total))


def counted(
    items: Iterable[Item],
    what: str,
    total: int | None = None,
    size: Callable[[Item], int] = lambda item: 1,
) -> Iterator[Item]:
    """The same items; how many have been used up is told now and then."""
    if _listener.get() is None:
        yield from items
        return
    tell(what, 0, total)
    done, told = 0, time.monotonic()
    for item in items:
        yield item
        done += size(item)
        if (now := time.monotonic()) - told >= OFTEN:
            tell(what, done, total)
            told = now
    tell(what, done, total)
