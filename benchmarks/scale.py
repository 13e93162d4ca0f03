"""Several ranks: what two of them reach on two cores, and what 1,024 GPUs would reach, on paper.

python benchmarks/scale.py [--rounds N]     two processes beside one, in turn
python benchmarks/scale.py --paper          the tables of docs/scale.md
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import processor, tell, versions

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Job:
    """A training: what is exchanged, and how fast one H200 goes alone."""

    name: str
    parameters: float
    table: float  # parameters of the embedding, whose gradient is whole only at the very end
    rate: float  # tokens a second of one GPU, as seen
    batch: int  # tokens a step, as its recipe has it
    least: int  # tokens a GPU that it is still worth having
    tokens: float  # in all


JOBS = (
    Job("GPT-2 124M, 10 B tokens", 124.4e6, 38.6e6, 547e3, 524_288, 8_192, 10e9),
    Job("Transformer base, WMT14", 63.1e6, 19.0e6, 691e3, 25_000, 3_125, 2.5e9),
)
GPUS = (1, 8, 64, 256, 1024)
NODE = 8  # GPUs, each with a network card of its own
NVLINK = 450e9  # bytes a second each way, half of the 900 GB/s that are both ways
NETWORK = NODE * 50e9  # bytes a second out of a node: eight cards of 400 Gb/s
HOP = 10e-6  # seconds a message takes from one to the next
BUCKET = 25 * 2**20  # bytes of gradients that are sent together
BACKWARD = 2 / 3  # of a step's products


@dataclass(frozen=True)
class Step:
    """One step of a job on so many GPUs."""

    gpus: int
    batch: int  # tokens
    moved: float  # bytes that each GPU sends, and as many that it gets
    compute: float  # seconds
    exchange: float  # seconds, were nothing hidden
    exposed: float  # seconds of it that are not hidden behind products

    @property
    def efficiency(self) -> float:
        return self.compute / (self.compute + self.exposed)


def reckon(job: Job, gpus: int, sharded: bool) -> Step:
    """Ring exchange: a sum over N moves 2 (N - 1) / N of its bytes, a gathering or a scattered sum
    half of that. Copies sum gradients in float32; parts gather weights twice, blocks in bfloat16
    and the table in float32, and scatter the sum of gradients in float32."""
    batch = max(job.batch, job.least * gpus)
    compute = batch / gpus / job.rate
    if gpus == 1:
        return Step(1, batch, 0.0, compute, 0.0, 0.0)
    ring, speed = (gpus - 1) / gpus, NVLINK if gpus <= NODE else NETWORK
    blocks, table = job.parameters - job.table, job.table
    if sharded:
        # The table is gathered once, before all else, and kept.
        moved, last = ring * (8 * blocks + 8 * table), ring * 8 * table
    else:
        moved, last = ring * 8 * job.parameters, ring * 8 * table
    messages = math.ceil(moved / ring / BUCKET)
    waits = messages * HOP * math.log2(gpus)
    exchange = moved / speed + waits
    # Behind the backward pass, but for the table: its gradient comes last.
    hidden = min((moved - last) / speed + waits, compute * (1.0 if sharded else BACKWARD))
    return Step(gpus, batch, moved, compute, exchange, exchange - hidden)


def table(job: Job) -> str:
    """A job's rows, as docs/scale.md has them."""
    lines = [
        "| GPUs | tokens a step | MB a GPU | exchange, ms | not hidden, ms | efficiency: copies | "
        "parts | time |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for gpus in GPUS:
        copies, parts = reckon(job, gpus, False), reckon(job, gpus, True)
        seconds = job.tokens / copies.batch * (copies.compute + copies.exposed)
        lines.append(
            f"| {gpus:,} | {copies.batch:,} | {copies.moved / 1e6:,.0f} | "
            f"{copies.exchange * 1e3:.1f} | {copies.exposed * 1e3:.1f} | "
            f"{copies.efficiency:.0%} | {parts.efficiency:.0%} | {spoken(seconds)} |"
        )
    return "\n".join(lines)


def spoken(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


# Measured: the same recipe with one process and with two.

SIZES = ["model.width=256", "model.depth=4", "model.hidden=1024", "model.dropout=0.0"]
SETTINGS = ["data.valid=", "data.test=", "train.steps=24", "train.log_every=12",
            "train.batch_tokens=4096", "train.save_every=1000", "train.keep=last",
            "train.device=cpu"]  # fmt: skip
SIDES = {"one": (1, []), "copies": (2, []), "parts": (2, ["train.shard=true"])}


def speed(ranks: int, settings: list[str], folder: Path) -> float:
    """Tokens a second of the second half of a short training, a core for each rank."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = ["regard", "train", "translate-tatoeba", *SIZES, *SETTINGS, *settings]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *(launch if ranks > 1 else []), "-m", *command, "--folder", str(folder)],
        env=env, check=True, capture_output=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return float([row["tokens_per_second"] for row in rows if row["event"] == "step"][-1])


def measure(rounds: int) -> None:
    speeds: dict[str, list[float]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory() as work:
        for number in range(rounds):
            for name, (ranks, settings) in SIDES.items():
                speeds[name].append(speed(ranks, settings, Path(work) / f"{name}-{number}"))
    for name in ("copies", "parts"):
        ratios = [two / one for one, two in zip(speeds["one"], speeds[name], strict=True)]
        tell({
            "task": "two ranks on two cores", "how": name,
            "one": round(median(speeds["one"])), "two": round(median(speeds[name])),
            "efficiency": round(median(ratios) / 2, 3),
            "efficiency_spread": [round(min(ratios) / 2, 3), round(max(ratios) / 2, 3)],
            "processor": processor(), "versions": versions(),
        })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--paper", action="store_true")
    args = parser.parse_args()
    if not args.paper:
        measure(args.rounds)
    for job in JOBS if args.paper else ():
        print(f"\n{job.name}\n\n{table(job)}")


if __name__ == "__main__":
    main()
