"""Side by side: programs do the same work in turn, so that a machine's other work hits them all."""

from __future__ import annotations

import json
import multiprocessing
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import regard


def race(
    sides: dict[str, Callable[[], object]],
    repeats: int,
    wait: Callable[[], None] = lambda: None,
    pause: float = 0.0,
) -> dict[str, list[float]]:
    """Seconds of each side in each round, after one call each that is not counted.

    `wait` returns when the device has done all that was asked of it. The pause comes before every
    timing: one library's threads keep spinning for a while, which would slow the next one down.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(repeats + 1):
        for name, work in sides.items():
            time.sleep(pause)
            wait()
            began = time.perf_counter()
            work()
            wait()
            if number:
                seconds[name].append(time.perf_counter() - began)
    return seconds


@contextmanager
def apart(make: Callable[..., Callable[[], Any]], *given: object) -> Iterator[Callable[[], Any]]:
    """What `make` makes of what is given, called in a process of its own.

    In one process two libraries may share one OpenMP: where both have as many threads as there are
    cores, none of them waits actively any more, and each of many short loops begins late. (Seen:
    half the speed of whoever has the shorter ones.)
    """
    here, there = (context := multiprocessing.get_context("spawn")).Pipe()
    process = context.Process(target=answer, args=(there, make, given), daemon=True)
    process.start()

    def call() -> Any:
        here.send(None)
        return here.recv()

    try:
        yield call
    finally:
        process.kill()
        process.join()


def answer(link: Connection, make: Callable[..., Callable[[], Any]], given: Any) -> None:
    work = make(*given)
    while True:
        link.recv()
        link.send(work())


def compare(ours: list[float], peer: list[float], tokens: int) -> dict[str, Any]:
    """Median speeds in tokens a second; the ratio is taken round by round."""
    ratios = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
    return {
        "ours": round(tokens / median(ours), 1),
        "peer": round(tokens / median(peer), 1),
        "ratio": round(median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
    }


def tell(row: dict[str, Any]) -> None:
    """One JSON line at once, so that a run cut short keeps what it has found."""
    print(json.dumps(row, ensure_ascii=False), flush=True)


def processor() -> str:
    """The CPU's name, where the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """What was measured, and with what."""
    found = {"regard": regard.__version__, "python": platform.python_version()}
    for name in ("torch", "transformers", "ctranslate2", "tokenizers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
