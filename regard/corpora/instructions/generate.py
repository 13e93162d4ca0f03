"""Makes the instructions beside this file: a question, and an answer of one word or number.

python generate.py [FOLDER] writes the three files; the same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

SIZES = {"train": 320, "valid": 40, "test": 40}
NOUNS = (
    "apple bridge candle door engine forest garden hammer island jacket kettle ladder mirror "
    "needle orange pencil river spoon table umbrella village window basket button carpet "
    "castle desert feather guitar helmet"
)
OPPOSITES = (
    "hot cold, big small, fast slow, light dark, early late, full empty, hard soft, high low, "
    "loud quiet, new old, open closed, rich poor, strong weak, tall short, wet dry, wide narrow"
)
CAPITALS = (
    "Austria Vienna, Belgium Brussels, Denmark Copenhagen, Egypt Cairo, Finland Helsinki, "
    "France Paris, Germany Berlin, Greece Athens, Hungary Budapest, Ireland Dublin, Italy Rome, "
    "Japan Tokyo, Kenya Nairobi, Norway Oslo, Peru Lima, Poland Warsaw, Portugal Lisbon, "
    "Spain Madrid, Sweden Stockholm, Turkey Ankara"
)


def pairs(text: str) -> list[list[str]]:
    return [pair.split() for pair in text.split(",")]


def instructions() -> Iterator[tuple[str, str]]:
    """Everything that may be asked, with its answer."""
    for noun in NOUNS.split():
        yield f"What is the plural of {noun}?", f"{noun}s"
        yield f"Write the word {noun} in capital letters.", noun.upper()
        yield f"What is the first letter of {noun}?", noun[0]
        yield f"How many letters has the word {noun}?", str(len(noun))
    for one, other in pairs(OPPOSITES):
        yield f"What is the opposite of {one}?", other
        yield f"What is the opposite of {other}?", one
    for country, capital in pairs(CAPITALS):
        yield f"What is the capital of {country}?", capital
        yield f"Of which country is {capital} the capital?", country
    for first in range(2, 20):
        for second in range(2, 20):
            yield f"What is {first} plus {second}?", str(first + second)


def main(folder: Path) -> None:
    rng = random.Random(7)
    every = list(instructions())
    words = [pair for pair in every if "plus" not in pair[0]]
    sums = rng.sample(
        [pair for pair in every if "plus" in pair[0]], sum(SIZES.values()) - len(words)
    )
    rows = words + sums
    rng.shuffle(rows)
    for part, size in SIZES.items():
        some, rows = rows[:size], rows[size:]
        text = "".join(
            json.dumps({"instruction": asked, "response": answer}) + "\n" for asked, answer in some
        )
        with gzip.GzipFile(folder / f"{part}.jsonl.gz", "wb", mtime=0) as file:
            file.write(text.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
