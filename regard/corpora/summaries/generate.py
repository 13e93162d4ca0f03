"""Makes the notes beside this file: a few sentences of toy news, and one that says what matters.

python generate.py [FOLDER] writes the three files; the same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from pathlib import Path


def phrases(text: str) -> list[str]:
    return [phrase.strip() for phrase in text.split(",")]


FIRST = phrases(
    "Ada, Bram, Clara, Dov, Elin, Farid, Greta, Hugo, Ines, Jonas, Kira, Leon, Mina, Nils, Oda,"
    "Pavel, Rosa, Samir, Tilda, Viktor, Wanda, Yusuf"
)
LAST = phrases(
    "Abel, Brandt, Castell, Dorn, Ekberg, Falk, Grell, Holm, Ivers, Jansen, Kolb, Lund, Marek,"
    "Noll, Ostrow, Pell, Quist, Rask, Sand, Tamm, Ulm, Voss, Winter, Zander"
)
TOWNS = [
    start + end
    for start in phrases("Al, Bren, Cor, Dal, Esk, Fen, Hart, Kel, Lin, Mor, Ost, Ram, Sel, Wen")
    for end in phrases("bury, dale, field, haven, mouth, stead, ton, wick")
]
NAMED = {
    "town": TOWNS,
    "person": [f"{first} {last}" for first in FIRST for last in LAST],
    "club": [f"{t} {c}" for t in TOWNS for c in phrases("Rovers, United, Wanderers, Athletic")],
    "company": [f"{n} {c}" for n in LAST for c in phrases("Motors, Foods, Tools, Mills, & Sons")],
    "day": phrases("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "month": phrases("January, March, April, May, June, August, September, October, December"),
    "building": phrases("town hall, library, museum, school, theatre, station, swimming pool"),
    "weather": phrases("heavy rain, thick fog, hail, sleet, strong gusts, thunder, a cold wind"),
    "race": phrases("half marathon, river run, hill race, night run, ten-mile race, harbour run"),
    "job": phrases("baker, nurse, teacher, gardener, plumber, student, clerk, fisherman"),
    "object": phrases("silver clock, painting, bronze horse, globe, violin, vase, stamp album"),
    "work": phrases("yearly report, new website, price list, test plan, catalogue, user manual"),
    "goods": phrases("bicycles, batteries, windows, shoes, biscuits, garden chairs, lamps, pumps"),
    "things": phrases("candles, honey jars, paper stars, cakes, wooden birds, woollen hats, cards"),
    "cause": phrases("the animal home, the children's ward, the food bank, the lifeboat crew,"
                     "the village choir, the flood victims"),
    "group": phrases("the chess club, the rowing club, the choir, the bee keepers,"
                     "the theatre group, the walking club"),
    "animals": phrases("sheep, ponies, dogs, goats, calves, ducklings, cats, donkeys"),
    "spot": phrases("on a small island, in a cellar, under a fallen tree, on a roof, in a ditch,"
                    "behind a broken fence, in a burning barn"),
    "few": phrases("two, three, four, five, six, seven, eight, nine"),
    "dozens": [str(n) for n in range(12, 60)],
    "hundreds": [str(n) for n in range(110, 990, 10)],
    "thousands": [f"{n},{m}00" for n in range(1, 10) for m in range(10)],
    "money": [f"{n},{m}00 euros" for n in range(2, 90) for m in (0, 2, 5, 8)],
    "sum": [f"{n} euros" for n in range(120, 990, 5)],
    "degrees": [str(n) for n in range(1, 14)],
    "minutes": [str(n) for n in range(61, 99)],
    "hour": phrases("five, six, eight, nine, ten, eleven"),
    "low": ["1", "2"],
    "high": ["2", "3", "4", "5"],
}  # fmt: skip
SIZES = {"train": 4000, "valid": 200, "test": 200}
WORDS = range(40, 91)  # in a document


def scenes() -> list[dict[str, list[list[str]]]]:
    """The kinds of news in scenes.txt; in each, by its mark, the lines with their wordings.

    A document has up to two openings (<), every fact (*) and some details (+); the summary (>)
    is of facts alone.
    """
    text = Path(__file__).with_name("scenes.txt").read_text(encoding="utf-8")
    made = []
    for block in text.split("\n\n"):
        scene: dict[str, list[list[str]]] = {mark: [] for mark in "<*+>"}
        for line in block.splitlines()[1:]:
            scene[line[0]].append(line[2:].split(" | "))
        made.append(scene)
    return made


def note(chance: random.Random, scene: dict[str, list[list[str]]]) -> dict[str, str]:
    """One document with its summary. {town} is the same town in both, {town2} another one."""
    known: dict[str, str] = {}

    def fill(slot: re.Match[str]) -> str:
        name = slot[1]
        if name not in known:
            while (value := chance.choice(NAMED[name.rstrip("23")])) in known.values():
                pass
            known[name] = value
        return known[name]

    def say(wordings: list[str]) -> str:
        text = re.sub(r"\{(\w+)\}", fill, chance.choice(wordings))
        return text[0].upper() + text[1:]

    openings = scene["<"][0]
    taken = chance.choices(range(3), (1, 6, 3))[0]
    body = [say([openings[i]]) for i in sorted(chance.sample(range(len(openings)), taken))]
    first, *facts = [say(wordings) for wordings in scene["*"]]
    rest = [say(wordings) for wordings in chance.sample(scene["+"], chance.randint(1, 3))]
    at = chance.randint(0, len(rest))
    body += [first, *rest[:at], *facts, *rest[at:]]
    return {"document": " ".join(body), "summary": say(scene[">"][0])}


def parts() -> dict[str, list[dict[str, str]]]:
    """The notes of each part; no document and no summary is written twice."""
    kinds = scenes()
    seen: set[str] = set()
    made: dict[str, list[dict[str, str]]] = {}
    for part, size in SIZES.items():
        chance = random.Random(f"summaries {part}")
        notes = made[part] = []
        while len(notes) < size:
            new = note(chance, chance.choice(kinds))
            sentences = len(re.findall(r"\.(?: |$)", new["document"]))
            fits = len(new["document"].split()) in WORDS and 3 <= sentences <= 6
            if fits and seen.isdisjoint(new.values()):
                seen.update(new.values())
                notes.append(new)
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, notes in parts().items():
        raw = "".join(json.dumps(note) + "\n" for note in notes)
        (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress(raw.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
