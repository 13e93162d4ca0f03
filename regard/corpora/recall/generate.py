"""Makes texts that hide a fact: python -m regard.corpora.recall OUT

Letters that mean nothing, and somewhere between them one word that means something, `=C`: that is
the label. Whoever tells it from the first place must look there from as far away as it stands.
Texts to learn from have 64 to 16,384 tokens, and all lengths as many tokens in all, so that most
are short: a fact among a few letters is learned sooner. Those of the test all have the most. The
same every time.
"""

from __future__ import annotations

import argparse
import gzip
import random
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FACTS = [f"={letter}" for letter in "ABCDEFGH"]
SIZES = {"train": 30_000, "valid": 400, "test": 400}


def text(rng: random.Random, length: int) -> tuple[list[str], str]:
    """So many tokens, and the fact among them."""
    tokens, fact = rng.choices(LETTERS, k=length), rng.choice(FACTS)
    tokens[rng.randrange(length)] = fact
    return tokens, fact


def drawn_length(rng: random.Random, shortest: int, longest: int) -> int:
    """Twice as long is half as likely to be exceeded: 1/u of a number between 0 and 1."""
    return round(1 / rng.uniform(1 / longest, 1 / shortest))


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
            packed.write(b"text\tfact\n")
            for _ in range(vars(said)[part]):
                of_all = part == "train"
                length = drawn_length(rng, said.shortest, said.longest) if of_all else said.longest
                tokens, fact = text(rng, length)
                packed.write(f"{' '.join(tokens)}\t{fact}\n".encode())
