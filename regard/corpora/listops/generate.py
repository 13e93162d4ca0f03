"""Makes ListOps: python -m regard.corpora.listops OUT

Nested lists of digits with an operation each, of which one digit comes out: the largest, the
smallest, the median (rounded down) or the sum modulo ten (Nangia and Bowman 2018). Long Range
Arena's sizes (Tay et al. 2021): at most ten deep, up to ten in a list, 500 to 2,000 tokens. Rows
are made in pieces with a seed each, in several processes; the same every time.
"""

from __future__ import annotations

import argparse
import gzip
import random
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from statistics import median

OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}
NESTED = 0.25  # how often what stands in a list is a list itself
DEEPEST, MOST = 10, 10
SIZES = {"train": 96_000, "valid": 2_000, "test": 2_000}
ROWS = 500  # of a piece


def draw(rng: random.Random, depth: int, tokens: list[str], longest: int) -> int:
    """Write a digit or a list behind the tokens; what comes out of it. Too long a list is left as
    it is."""
    if depth > 1 and (depth > DEEPEST or rng.random() > NESTED):
        digit = rng.randrange(10)
        tokens.append(str(digit))
        return digit
    name = rng.choice(list(OPERATIONS))
    tokens.append(name)
    values = []
    for _ in range(rng.randint(2, MOST)):
        values.append(draw(rng, depth + 1, tokens, longest))
        if len(tokens) > longest:
            return 0
    tokens.append("]")
    return OPERATIONS[name](values)


def worked_out(tokens: list[str]) -> int:
    """What comes out of a row, for those who check it."""
    open_lists: list[tuple[str, list[int]]] = [("", [])]
    for token in tokens:
        if token in OPERATIONS:
            open_lists.append((token, []))
        elif token == "]":
            name, values = open_lists.pop()
            open_lists[-1][1].append(OPERATIONS[name](values))
        else:
            open_lists[-1][1].append(int(token))
    return open_lists[0][1][0]


def piece(asked: tuple[str, int, int, int, int]) -> str:
    """So many rows; lists that are too short or too long are drawn again."""
    part, number, rows, shortest, longest = asked
    rng = random.Random(f"{part} {number}")
    lines: list[str] = []
    while len(lines) < rows:
        tokens: list[str] = []
        value = draw(rng, 1, tokens, longest)
        if shortest <= len(tokens) <= longest:
            lines.append(f"{' '.join(tokens)}\t{value}\n")
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shortest", type=int, default=500, help="tokens of a row")
    parser.add_argument("--longest", type=int, default=2000, help="tokens of a row")
    for part, rows in SIZES.items():
        parser.add_argument(f"--{part}", type=int, default=rows, help="rows")
    said = parser.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    with get_context("spawn").Pool() as pool:
        for part in SIZES:
            rows = vars(said)[part]
            asked = [
                (part, number, min(ROWS, rows - number * ROWS), said.shortest, said.longest)
                for number in range(-(-rows // ROWS))
            ]
            path = said.out / f"{part}.tsv.gz"
            with path.open("wb") as file, gzip.GzipFile("", "wb", 1, file, mtime=0) as packed:
                packed.write(b"list\tvalue\n")
                for text in pool.imap(piece, asked):
                    packed.write(text.encode())
