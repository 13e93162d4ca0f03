"""The run folder as a place: who may write there, and what in it is a run's own."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..errors import RunError
from ..tasks import TASKS
from .checkpoint import is_part
from .files import BEST, BILL, CARD, RECIPE, RESULTS, WEIGHTS

LOCK = ".lock"
EVENTS = "events.out.tfevents."  # TensorBoard's files
ASIDE = ".replaced"  # an old run, until the one that takes its place has begun
ROWS = "data"  # rows that were given in Python, as files

FILES_OF_A_RUN = {
    RECIPE, WEIGHTS, BEST, "config.json", "metrics.jsonl", RESULTS, BILL, CARD,
    "attention.png", "alignment.png", "evidence.png", "see.html",
}  # fmt: skip


def ours() -> set[str]:
    """Names of what a run may have made: its own files, and those that tasks keep."""
    return FILES_OF_A_RUN | {name for task in TASKS.values() for name in task.keeps}


class Hold:
    """A run folder for one process alone: a lock that goes when the process does, however it ends.

    What is written into the lock's file says who holds it; its inode says that the folder is still
    the one that was taken, and not gone, or another under the same name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.handle = -1
        self.made = False  # the folder was not there before

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def take(self) -> None:
        """Make the folder where there is none, and lock it; refused where another holds it."""
        self.made = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{self.folder}: the run folder could not be made ({error.strerror})."
            ) from error
        while not self.is_mine():  # again, where its last holder has just deleted the file
            self._close()
            self._lock()
        said = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%F %T")}
        try:
            os.ftruncate(self.handle, 0)
            os.write(self.handle, json.dumps(said).encode())
        except OSError as error:
            self.release()
            raise RunError(
                f"{self.folder}: the run folder could not be written to ({error.strerror})."
            ) from error

    def _lock(self) -> None:
        path = self.folder / LOCK
        try:
            self.handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(
                f"{self.folder}: the run folder must be one to write in, but is not "
                f"({error.strerror}); use --run DIR."
            ) from error
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._close()
            raise RunError(
                f"{self.folder}: one training at a time may use a run folder, but {_holder(path)}; "
                "wait for it, or use --run DIR."
            ) from error
        except OSError:
            pass  # a network's file system may know no locks; its files have inodes all the same

    def is_mine(self) -> bool:
        """Whether the folder is taken, and still the one that was."""
        if self.handle < 0:
            return False
        try:
            there = (self.folder / LOCK).stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self.handle))

    def check(self) -> None:
        """Before anything is written: what was deleted must not come back by halves."""
        if not self.is_mine():
            raise RunError(
                f"{self.folder}: the run folder must stay while it is trained in, but was deleted "
                "or replaced; nothing more is written there: the same command starts over."
            )

    def release(self) -> None:
        """Let go; a folder that was made and stayed empty goes too."""
        if self.is_mine():
            (self.folder / LOCK).unlink()
            if self.made:
                with suppress(OSError):  # it is not empty
                    self.folder.rmdir()
        self._close()

    def _close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1


def _holder(path: Path) -> str:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return f"process {said['pid']} on {said['host']} has done so since {said['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is only just being written
        return "another process does so now"


def is_run(folder: Path) -> bool:
    """Whether a run made this folder: its recipe says of every value where it is from."""
    try:
        text = (folder / RECIPE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    kind = r'\[task\]\nkind = "[\w-]+"  # (recipe|command line|default|imported)\n'
    return re.match(kind, text) is not None


def foreign(folder: Path) -> str:
    """Something in the folder that no run has made; "" where there is none."""
    there = sorted(folder.iterdir())
    strange = [odd for path in there for odd in _strange(path)]
    if not is_run(folder):
        strange += [path for path in there if not is_left_over(path)]
    return str(strange[0].relative_to(folder)) if strange else ""


def is_ours(path: Path) -> bool:
    """Whether this is something that a run makes; nothing else is ever deleted."""
    return not _strange(path)


def is_left_over(path: Path) -> bool:
    """Whether a process was killed while it wrote this, deleted it or held it."""
    return path.name.startswith(".") and is_ours(path)


def _strange(path: Path) -> list[Path]:
    """Of a file or a folder, and of what is in it, that which no run makes."""
    if path.is_symlink() or not path.is_dir():
        half, own = re.fullmatch(r"\.(.+)\.part", path.name), ours()
        known = path.name in own or path.name == LOCK or (half is not None and half[1] in own)
        return [] if known or _is_unfinished(path) else [path]
    if path.name == f"{ASIDE}.part":  # all of it was looked at before it was put there
        return []
    if path.name == ROWS:
        kept = re.compile(r"\.?(train|valid|test)\.(jsonl|json|conll|tar)(\.part)?")
        return [odd for odd in sorted(path.iterdir()) if not kept.fullmatch(odd.name)]
    if path.name == "tensorboard":
        return [odd for odd in sorted(path.iterdir()) if not odd.name.startswith(EVENTS)]
    if path.name == "wandb":
        logs = r"(offline-)?run-[\w-]+|latest-run|debug[\w-]*\.log"
        return [odd for odd in sorted(path.iterdir()) if not re.fullmatch(logs, odd.name)]
    if re.fullmatch(r"checkpoint-\d+|\.checkpoint-\d+\.part", path.name):
        return [
            odd
            for odd in sorted(path.iterdir())
            if not is_part(odd.name) and not _is_unfinished(odd)
        ]
    return [path]


def _is_unfinished(path: Path) -> bool:
    """The library that writes weights calls a file .tmp and six letters until it is whole."""
    return re.fullmatch(r"\.tmp\w{6}", path.name) is not None


def sweep(folder: Path) -> None:
    """Delete what killed processes left half-written, or half-deleted."""
    for path in folder.iterdir():
        if path.name != LOCK and is_left_over(path):
            _delete(path)


def clear(folder: Path) -> None:
    """Delete a run: the recipe last, for without it the rest would be nobody's."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == RECIPE):
        if path.name != LOCK and is_ours(path):
            _delete(path)


def put_aside(folder: Path) -> None:
    """Make room for another run, so that all can be put back; through a link, behind it."""
    aside = folder / ASIDE
    aside.mkdir()
    for path in sorted(folder.iterdir(), key=lambda path: path.name == RECIPE):
        if path.name != LOCK and is_ours(path):
            path.rename(aside / path.name)


def put_back(folder: Path) -> None:
    """Undo `put_aside`, also one that was killed half-way: once the recipe is aside all is, and
    once it is back nothing of another run is left."""
    aside = folder / ASIDE
    if not aside.is_dir() or not (is_run(folder) or is_run(aside)):
        return
    if (aside / RECIPE).is_file():
        clear(folder)
    for path in sorted(aside.iterdir(), key=lambda path: path.name != RECIPE):
        path.rename(folder / path.name)
    aside.rmdir()


def give_up_aside(folder: Path) -> None:
    """The new run has begun: the old one goes. Renamed first, so that no half of it comes back."""
    aside = folder / ASIDE
    if aside.is_dir():
        shutil.rmtree(aside.rename(folder / f"{ASIDE}.part"))


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
