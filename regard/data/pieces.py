"""What a task makes of its examples, kept; much of it is made in pieces by several processes.

A piece is a store of its own until all are there; then they are joined into one, which is the same
as if one process had made it. What was finished when the work was broken off is kept, and only the
rest is made when it is asked for again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..errors import DataError, RegardError
from ..progress import Work, counted, heard_by
from .read import Faults
from .store import Chunk, Field, Ragged, Store, fingerprint, found, write

LARGE = 2**24  # bytes of examples that make a piece
COPIED = 2**20  # items of a field that are joined at a time

# The rows of a piece; what cannot be used is reported to the faults that it is given.
Piece = Callable[[Faults], Iterable[Chunk]]


def ranges(rows: int, size: int) -> list[tuple[int, int]]:
    """Rows of so many bytes together, as even ranges of about `LARGE` bytes."""
    count = max(1, min(rows, size // LARGE))
    return [(rows * at // count, rows * (at + 1) // count) for at in range(count)]


def prepared(
    cache: Path,
    marks: Iterable[str],
    fields: Mapping[str, Field],
    pieces: Sequence[Piece],
    faults: Faults,
    wanted: str,
    work: Work,
) -> Store:
    """All rows of all pieces, in order, from the cache where `marks` have not changed.

    `wanted` says what there must be a row of, and `work` what is being done, of how many rows.
    """
    folder = cache / fingerprint([], *marks, str(faults.skip))
    store = found(folder)
    if store is not None:
        return store
    if len(pieces) == 1:
        rows = counted(pieces[0](faults), work.what, work.total, rows_of)
        return write(folder, fields, rows, faults, wanted)
    beside = folder.with_name(f"{folder.name}.pieces")
    beside.mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(number, beside / str(number), fields, piece, faults.skip)
        for number, piece in enumerate(pieces)
    ]
    done = in_turn(jobs, faults) if cores() == 1 else side_by_side(jobs, faults)
    for _ in counted(done, work.what, work.total, int):
        pass
    whole = joined([Store(job.folder) for job in jobs], faults)
    store = write(folder, fields, whole, faults, wanted)
    shutil.rmtree(beside, ignore_errors=True)
    return store


def rows_of(chunk: Chunk) -> int:
    return len(next(iter(chunk.values())))


def joined(stores: Sequence[Store], faults: Faults) -> Iterator[Chunk]:
    """The rows of all of them, and how many lines they have left out."""
    for store in stores:
        faults.count += store.skipped
        most = max((len(store.flat(name)) for name in store.fields), default=0)
        step = max(1, store.rows * COPIED // max(most, 1))
        for first in range(0, store.rows, step):
            yield {name: some_of(store, name, first, first + step) for name in store.fields}


def some_of(store: Store, name: str, first: int, last: int) -> Ragged:
    starts = store.starts(name)[first : last + 1]
    return Ragged(store.flat(name)[starts[0] : starts[-1]], starts[1:] - starts[:-1])


# Who makes them.


class Job(NamedTuple):
    """A piece that is to be written into a folder."""

    number: int
    folder: Path
    fields: Mapping[str, Field]
    piece: Piece
    skip: bool

    def do(self, faults: Faults, told: Callable[[int], object]) -> None:
        """Write it; how many rows are done is told as they are."""

        def chunks() -> Iterator[Chunk]:
            for chunk in self.piece(faults):
                yield chunk
                told(rows_of(chunk))

        write(self.folder, self.fields, chunks(), faults)


def cores() -> int:
    """Processes that can work at once; where one cannot be copied as it is, only this one."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def in_turn(jobs: Iterable[Job], faults: Faults) -> Iterator[int]:
    """Each job that is not done, by this process.  -> how many rows were done since"""
    for job in jobs:
        done = list[int]()
        own = Faults(faults.skip)
        if (store := found(job.folder)) is None:
            job.do(own, done.append)
            take_over(faults, vars(own))
        yield sum(done) if store is None else store.rows


def side_by_side(jobs: Sequence[Job], faults: Faults) -> Iterator[int]:
    """Each job that is not done, by a copy of this process, one a core.  -> as `in_turn`"""
    waiting, running = list(jobs), dict[Connection, tuple[Job, BaseProcess]]()
    said, failed = dict[int, dict[str, Any]](), dict[int, str]()
    try:
        while waiting or running:
            while waiting and len(running) < cores():
                job = waiting.pop(0)
                if (store := found(job.folder)) is not None:
                    yield store.rows
                    continue
                link, process = started(job)
                running[link] = job, process
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                job, process = running[ready]
                message = heard(ready)
                if message is None:
                    del running[ready]
                    process.join()
                    if process.exitcode and job.number not in failed:
                        failed[job.number] = broken_off(process.exitcode)
                elif isinstance(message, int):
                    yield message
                elif "error" in message:
                    failed[job.number] = message["error"]
                else:
                    said[job.number] = message
            if failed:  # what stands before it in the files is waited for: its fault comes first
                waiting = [job for job in waiting if job.number < min(failed)]
                if not any(job.number < min(failed) for job, _ in running.values()):
                    raise DataError(failed[min(failed)])
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()
    for _, message in sorted(said.items()):
        take_over(faults, message)


def take_over(faults: Faults, said: Mapping[str, Any]) -> None:
    """What was found in a piece, but for the count, which its store keeps."""
    faults.first += said["first"][: 5 - len(faults.first)]
    faults.notes += [note for note in said["notes"] if note not in faults.notes]


def started(job: Job) -> tuple[Connection, BaseProcess]:
    # A copy has all that the job needs, whatever it is, and nothing need be sent to it.
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=do, args=(job, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def do(job: Job, link: Connection) -> None:
    """A job in a process of its own; it tells numbers of rows, and last what it met."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it is told too, and ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads are not copied with a process
    torch.set_num_threads(1)

    def tell(message: int | Mapping[str, Any]) -> None:
        link.send_bytes(json.dumps(message).encode())

    faults = Faults(job.skip)
    with heard_by(lambda work: None):
        try:
            job.do(faults, tell)
        except RegardError as error:
            tell({"error": str(error)})
        else:
            tell(vars(faults))


def heard(link: Connection) -> Any:
    """The next message of a process; None: it has ended."""
    try:
        return json.loads(link.recv_bytes())
    except EOFError:
        link.close()
        return None


def broken_off(status: int) -> str:
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return (
        f"a process that prepared the data ended early ({how}); if memory was short, free some. "
        "The same command goes on: what was finished is kept."
    )
