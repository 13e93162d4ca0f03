"""Memory of a run over many sentence pairs: how far its peak lies above that of a run over few.

python benchmarks/memory.py [--pairs N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from measure import processor, tell, versions

ROOT = Path(__file__).parents[1]
FEW = 1000  # pairs of the run that stands for an empty one: all but the data is the same
WORDS = 20_000
CHUNK = 20_000  # pairs written at a time
MIB = 2**20

RECIPE = """
[task]
kind = "translate"

[data]
root = "."
train = ["source.txt", "target.txt"]

[text]
kind = "bpe"
size = 8000

[model]
kind = "transformer"
width = 32
depth = 1
heads = 2
hidden = 64

[train]
steps = 20
batch_tokens = 2000
keep = "last"
device = "cpu"
"""


def main() -> None:
    """Run few pairs, then many, and print both peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        empty = measure(Path(place) / "few", FEW)
        full = measure(Path(place) / "many", args.pairs)
    tell(
        {
            "what": f"regard train over {args.pairs} sentence pairs against {FEW}",
            "full": full,
            "empty": empty,
            "difference": {
                key: round(full[key] - empty[key], 1) for key in ("peak_rss", "peak_anonymous")
            },
            "unit": "MiB",
            "machine": processor(),
            "versions": versions(),
        }
    )


def measure(folder: Path, pairs: int) -> dict[str, Any]:
    """Peaks and seconds of one training run over so many pairs.

    Resident memory counts mapped files too, which the system may drop when it likes; anonymous
    memory is what the process cannot do without.
    """
    folder.mkdir()
    names = [folder / "source.txt", folder / "target.txt"]
    with names[0].open("w") as source, names[1].open("w") as target:
        write_pairs(source, target, pairs)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE)
    command = [sys.executable, "-m", "regard", "train", recipe, "--run", folder / "runs" / "one"]
    began = time.perf_counter()
    with (folder / "log").open("w") as log:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": paths},
        )
        anonymous: list[float] = [0.0]
        watching = threading.Thread(target=watch, args=(process.pid, anonymous))
        watching.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        watching.join()
    if process.returncode:
        sys.exit(f"regard train failed over {pairs} pairs:\n{(folder / 'log').read_text()[-2000:]}")
    unit = 1 if sys.platform == "darwin" else 1024  # what the system counts maxrss in
    return {
        "pairs": pairs,
        "text": round(sum(path.stat().st_size for path in names) / MIB, 1),
        "peak_rss": round(usage.ru_maxrss * unit / MIB, 1),
        "peak_anonymous": round(anonymous[0], 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def watch(process: int, peak: list[float]) -> None:
    """Keep the largest anonymous memory seen; the system itself remembers resident peaks alone."""
    while True:
        try:
            rows = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:  # it has ended
            return
        found = [int(row.split()[1]) / 1024 for row in rows if row.startswith("RssAnon")]
        if not found:  # it has ended and not been waited for
            return
        peak[0] = max(peak[0], *found)
        time.sleep(0.02)


def write_pairs(source: TextIO, target: TextIO, pairs: int) -> None:
    """Sentences of 5 to 20 words, the n-th word as frequent as 1/n; never all in memory."""
    chance = np.random.default_rng(0)
    words = vocabulary(chance)
    reach = (1 / np.arange(1, WORDS + 1)).cumsum()
    for start in range(0, pairs, CHUNK):
        count = min(CHUNK, pairs - start)
        for file in (source, target):
            lengths = chance.integers(5, 21, count)
            drawn = reach.searchsorted(chance.random(lengths.sum()) * reach[-1])
            ends = lengths.cumsum()
            line = [words[i] for i in drawn.tolist()]
            for end, length in zip(ends.tolist(), lengths.tolist(), strict=True):
                file.write(" ".join(line[end - length : end]) + "\n")


def vocabulary(chance: np.random.Generator) -> list[str]:
    """Different words of 3 to 10 random letters, so that even few of them allow many merges."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words: dict[str, None] = {}  # a set that keeps its order
    while len(words) < WORDS:
        words["".join(chance.choice(letters, chance.integers(3, 11)))] = None
    return list(words)


if __name__ == "__main__":
    main()
