"""Makes texts that hide facts: python -m regard.corpora.recall OUT

A text begins with a question, `? 7`, and goes on with letters that mean nothing. Four facts stand
somewhere between them, `7=C`: a number and what it is. What the asked number is, is the label. The
other three facts are there so that finding a fact is not enough. Texts to learn from have 64 to
16,384 tokens, as many short ones as long ones, for a fact among a few letters is learned sooner;
those of the test all have the most. The same every time.
"""

from __future__ import annotations

import argparse
import gzip
import math
import random
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz"
NUMBERS = [str(number) for number in range(16)]
VALUES = "ABCDEFGH"
FACTS = 4
SIZES = {"train": 12_000, "valid": 400, "test": 400}


def text(rng: random.Random, length: int) -> tuple[list[str], str]:
    """So many tokens, and what the asked number is."""
    numbers = rng.sample(NUMBERS, FACTS)
    facts = [(number, rng.choice(VALUES)) for number in numbers]
    tokens = ["?", numbers[0], *rng.choices(LETTERS, k=length - 2)]
    for place, fact in zip(rng.sample(range(2, length), FACTS), facts, strict=True):
        tokens[place] = "=".join(fact)
    return tokens, dict(facts)[numbers[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shortest", type=int, default=64, help="tokens of a text to learn from")
    parser.add_argument("--longest", type=int, default=16_384, help="tokens of a text")
    for part, rows in SIZES.items():
        parser.add_argument(f"--{part}", type=int, default=rows, help="texts")
    said = parser.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    for part in SIZES:
        rng = random.Random(f"recall {part}")
        path = said.out / f"{part}.tsv.gz"
        with path.open("wb") as file, gzip.GzipFile("", "wb", 1, file, mtime=0) as packed:
            packed.write(b"text\tvalue\n")
            for _ in range(vars(said)[part]):
                length = said.longest
                if part == "train":
                    spread = rng.uniform(math.log(said.shortest), math.log(said.longest))
                    length = round(math.exp(spread))
                tokens, value = text(rng, length)
                packed.write(f"{' '.join(tokens)}\t{value}\n".encode())
