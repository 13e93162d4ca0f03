"""Batches made ahead of time, in a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T], depth: int = 4) -> Iterator[T]:
    """The same items, up to `depth` of them made before they are asked for.

    An exception in the making is raised where the item would have come; leaving the loop ends the
    thread.
    """
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    leave = threading.Event()

    def put(entry: tuple[T | None, BaseException | None]) -> bool:
        while not leave.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def make() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((None, StopIteration()))
        except BaseException as error:
            put((None, error))

    thread = threading.Thread(target=make, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        leave.set()
        thread.join()
