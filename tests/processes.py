"""Ranks of one world, each a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS = 110  # that a test's ranks may take
READY = multiprocessing.get_context("forkserver")
READY.set_forkserver_preload(["regard.see.run", "torch._dynamo", "torch.distributed.tensor"])


def run_ranks(count: int, module: str, *words: str) -> None:
    """`python -m module words…` as so many ranks, on loopback. Each begins as a copy of a process
    that has imported everything, so that what would take seconds takes none."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    own = [{**world, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    ranks = [READY.Process(target=run, args=(module, words, env)) for env in own]
    for rank in ranks:
        rank.start()
    ends = time.monotonic() + SECONDS
    try:
        while any(rank.exitcode is None for rank in ranks):
            codes = [rank.exitcode for rank in ranks]
            assert not any(codes), f"{module} {words}: its ranks ended with {codes}"
            assert time.monotonic() < ends, f"{module} {words}: not done after {SECONDS} s"
            ranks[0].join(0.05)
        assert [rank.exitcode for rank in ranks] == [0] * count
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def run(module: str, words: tuple[str, ...], env: dict[str, str]) -> None:
    os.environ.update(env)
    sys.path.insert(0, str(ROOT))
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def torchrun(count: int, command: list[str]) -> None:
    """A command under torchrun, as somebody types it."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*start, f"--nproc-per-node={count}", *command], env=env, capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
