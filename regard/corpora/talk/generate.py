"""Makes long talk: python -m regard.corpora.talk OUT

Everyday sentences (the English half of the bundled Tatoeba), and somewhere between them a few of
the bundled opinions, which all praise or all blame: that is the label. Who reads only the beginning
has read perhaps one of them. The same every time.
"""

from __future__ import annotations

import argparse
import gzip
import random
from pathlib import Path

CORPORA = Path(__file__).parents[1]
SIZES = {"train": 3_000, "valid": 300, "test": 300}
OPINIONS = 4  # of a text
WORDS = (900, 1_300)  # of a text


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def talk(rng: random.Random, sentences: list[str], opinions: list[str]) -> str:
    """About so many words, with the opinions somewhere."""
    wanted, said = rng.randint(*WORDS), list[str]()
    while wanted > 0:
        said.append(rng.choice(sentences))
        wanted -= len(said[-1].split())
    for opinion in rng.sample(opinions, OPINIONS):
        said.insert(rng.randrange(len(said) + 1), opinion)
    return " ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for part, rows in SIZES.items():
        parser.add_argument(f"--{part}", type=int, default=rows, help="texts")
    said = parser.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    for part in SIZES:
        rng = random.Random(f"talk {part}")
        sentences = lines(CORPORA / f"tatoeba-en-fr/{part}.en.gz")
        told = [line.split("\t") for line in lines(CORPORA / f"sentiment/{part}.tsv.gz")[1:]]
        labels = sorted({label for _, label in told})
        opinions = {label: [text for text, own in told if own == label] for label in labels}
        path = said.out / f"{part}.tsv.gz"
        with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            packed.write(b"text\tlabel\n")
            for number in range(vars(said)[part]):
                label = labels[number % len(labels)]
                packed.write(f"{talk(rng, sentences, opinions[label])}\t{label}\n".encode())
