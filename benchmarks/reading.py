"""Reading at scale: lines made into tokens on disk, beside `datasets` with the same tokenizer.

python benchmarks/reading.py [--lines N] [--against N] [--repeats N]

Ours: examples found, tokenised in as many processes as there are cores, written as a store.
Theirs: `load_dataset("text")` and `map` in as many processes, a thousand lines at a time. Both from
a file of made-up words whose frequencies fall as words' do, by one BPE of 8,000 entries; memory is
what all processes hold that is not a mapped file. `pip install datasets` brings the peer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from measure import compare, processor, tell, versions
from memory import CHUNK, WORDS, vocabulary

ROOT = Path(__file__).parents[1]
LEARNED = 100_000  # lines that the vocabulary is learned from


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=10_000_000, help="read by us alone")
    parser.add_argument("--against", type=int, default=1_000_000, help="read by both, in turn")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=("learn", "ours", "peer"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        print(json.dumps(SIDES[asked.side](asked.folder)), flush=True)
        return
    about = {"machine": f"{processor()}, {os.cpu_count()} cores", "versions": versions()}
    with tempfile.TemporaryDirectory() as place:
        few, many = Path(place) / "few", Path(place) / "many"
        write_lines(few, asked.against)
        apart("learn", few)
        rounds: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
        for _ in range(asked.repeats):
            for side, found in rounds.items():
                found.append(apart(side, few))
        (tokens,) = {row["tokens"] for found in rounds.values() for row in found}
        ours, peer = ([row["seconds"] for row in rounds[side]] for side in ("ours", "peer"))
        memory = {side: max(row["mib"] for row in rounds[side]) for side in rounds}
        what = f"{asked.against:,} lines made into {tokens:,} tokens"
        tell(
            {
                "what": what,
                "unit": "tokens/s",
                **compare(ours, peer, tokens),
                "mib": memory,
                **about,
            }
        )
        write_lines(many, asked.lines)
        (many / "tokenizer.json").write_bytes((few / "tokenizer.json").read_bytes())
        told = apart("ours", many)
        speed = round(told["tokens"] / told["seconds"], 1)
        tell({"what": f"{asked.lines:,} lines, ours alone", "tokens/s": speed, **told, **about})


def write_lines(folder: Path, count: int) -> None:
    """Lines of 5 to 20 words, the n-th word as frequent as 1/n; never all in memory."""
    folder.mkdir()
    chance = np.random.default_rng(0)
    words = vocabulary(chance)
    reach = (1 / np.arange(1, WORDS + 1)).cumsum()
    with (folder / "text.txt").open("w") as file:
        for start in range(0, count, CHUNK):
            lengths = chance.integers(5, 21, min(CHUNK, count - start))
            drawn = reach.searchsorted(chance.random(lengths.sum()) * reach[-1]).tolist()
            ends = lengths.cumsum().tolist()
            for end, length in zip(ends, lengths.tolist(), strict=True):
                file.write(" ".join(words[i] for i in drawn[end - length : end]) + "\n")


def apart(side: str, folder: Path) -> dict[str, Any]:
    """One side in a process of its own, and the most memory that it and its children held."""
    command = [sys.executable, __file__, "--side", side, "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = [0.0]
    watching = threading.Thread(target=watch, args=(process.pid, peak))
    watching.start()
    said, _ = process.communicate()
    watching.join()
    if process.returncode:
        sys.exit(f"{side} failed")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {**found, "mib": round(peak[0], 1)}


def watch(first: int, peak: list[float]) -> None:
    """The anonymous memory of a process and all that it has started, while it lives."""
    while Path(f"/proc/{first}/status").exists():
        held = [anonymous(number) for number in family(first)]
        if not any(held):  # it has ended and not been waited for
            return
        peak[0] = max(peak[0], sum(held))
        time.sleep(0.1)


def family(first: int) -> list[int]:
    found = [first]
    for number in found:
        for task in Path(f"/proc/{number}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:  # it has ended
                continue
    return found


def anonymous(number: int) -> float:
    """MiB that a process holds and the system cannot drop; 0 where it has ended."""
    try:
        rows = Path(f"/proc/{number}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(row.split()[1]) / 1024 for row in rows if row.startswith("RssAnon"))


# What each side does in its own process.


def learn(folder: Path) -> dict[str, Any]:
    """The vocabulary, from the first lines."""
    from regard.text import Settings, learn

    with (folder / "text.txt").open() as file:
        first = (line for line, _ in zip(file, range(LEARNED), strict=False))
        text = learn((line.rstrip("\n") for line in first), Settings(kind="bpe", size=8000))
    text.save(folder / "tokenizer.json")
    return {"entries": text.size}


def ours(folder: Path) -> dict[str, Any]:
    from regard.data.read import Faults
    from regard.tasks.language import Language, LanguageSettings
    from regard.text import Text

    with tempfile.TemporaryDirectory(dir=folder) as cache:
        began = time.perf_counter()
        settings, faults = LanguageSettings(lines=True), Faults()
        task = Language(settings, Text.load(folder / "tokenizer.json"))
        examples = task.examples(settings, [folder / "text.txt"], Path(cache), faults)
        data = task.data(examples, Path(cache), 10**9, faults)
        seconds = time.perf_counter() - began
        tokens = int(data.store.lengths("text").sum(dtype="int64"))
    return {"seconds": round(seconds, 2), "tokens": tokens}


def peer(folder: Path) -> dict[str, Any]:
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import datasets
    from tokenizers import Tokenizer

    from regard.text import Text

    datasets.disable_progress_bars()
    end = Text.load(folder / "tokenizer.json").eos
    made = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def tokenise(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        found = made.encode_batch_fast(rows["text"], add_special_tokens=False)
        return {"ids": [[*one.ids, end] for one in found]}

    with tempfile.TemporaryDirectory(dir=folder) as cache:
        began = time.perf_counter()
        file, kind = str(folder / "text.txt"), datasets.Sequence(datasets.Value("uint16"))
        lines = datasets.load_dataset("text", data_files=file, cache_dir=cache)["train"]
        told = lines.map(
            tokenise, batched=True, num_proc=os.cpu_count(), remove_columns=["text"],
            features=datasets.Features({"ids": kind}),
        )  # fmt: skip
        seconds = time.perf_counter() - began
        tokens = sum(len(chunk.flatten()) for chunk in told.data.column("ids").chunks)
    return {"seconds": round(seconds, 2), "tokens": tokens}


SIDES = {"learn": learn, "ours": ours, "peer": peer}

if __name__ == "__main__":
    main()
