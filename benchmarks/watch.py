"""What it costs to watch: a pass over 2,048 tokens with one layer's weights out, and without.

    python benchmarks/watch.py [--length 2048] [--repeats 7] [--heads 1]

Time is a ratio of interleaved passes. Memory is the peak of the process on a CPU, of the device on
a GPU, each way in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from measure import compare, processor, race, tell, versions

import regard
from regard.batch import Batch, Running, Sizes, Tokens
from regard.models.gpt import GPT, GPTSettings

Text = Batch[Running, Tokens]


def make(length: int, device: torch.device) -> tuple[GPT, Text]:
    torch.manual_seed(0)
    settings = GPTSettings(768, 12, 12, positions=length, dropout=0.0)
    model = GPT(Sizes(50257, 50257, True), settings).to(device).eval()
    ids = torch.randint(50257, (1, length + 1), device=device)
    asked = Tokens(ids[:, 1:], torch.tensor([[0, length]], device=device))
    return model, Batch(Running(ids[:, :-1]), asked)


def look(model: GPT, batch: Text, heads: int) -> None:
    every = None if heads == 0 else list(range(heads))
    with torch.inference_mode(), regard.watch(model, layers=[-1], heads=every):
        model.states(batch)


def peak_resident() -> int:
    """Bytes; what getrusage tells of a child may be its parent's."""
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--heads", type=int, default=0, help="of the layer; 0: all")
    parser.add_argument("--peak", choices=("watched", "plain"), help="print a peak and leave")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, batch = make(given.length, device)

    def plain() -> None:
        with torch.inference_mode():
            model.states(batch)

    if given.peak:
        plain() if given.peak == "plain" else look(model, batch, given.heads)
        on_gpu = device.type == "cuda"
        print(torch.cuda.max_memory_allocated() if on_gpu else peak_resident())
        return
    sides = {"plain": plain, "watched": lambda: look(model, batch, given.heads)}
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = race(sides, given.repeats, wait)
    peaks = {}
    for way in ("plain", "watched"):
        command = [sys.executable, __file__, "--peak", way, "--length", str(given.length)]
        command += ["--heads", str(given.heads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks[way] = json.loads(done.stdout)
    figures = compare(seconds["plain"], seconds["watched"], given.length)
    tell(
        {
            "what": f"one of 12 layers watched, {given.heads or 12} heads, length {given.length}",
            "unit": "tokens/s",
            "plain": figures["ours"],
            "watched": figures["peer"],
            "time_ratio": figures["ratio"],
            "time_spread": figures["ratio_spread"],
            "memory_ratio": round(peaks["watched"] / peaks["plain"], 3),
            "machine": torch.cuda.get_device_name() if device.type == "cuda" else processor(),
            "versions": versions(),
        }
    )


if __name__ == "__main__":
    main()
