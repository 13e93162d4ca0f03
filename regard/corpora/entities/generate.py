"""Makes the sentences beside this file: people, places, organisations and dates are marked.

python generate.py [FOLDER] writes the three files; the same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path

Token = tuple[str, str]  # a word and its tag


def words(text: str) -> list[str]:
    return text.split()


# A root may name a person, a place or a company: only the words around it tell which.
ROOTS = [
    start + middle + end
    for start in words("Bar Cal Den Fal Gar Hal Jor Kel Lor Mar Nor Pel Ros Sel Tam Var Wes Zan")
    for middle in words("a e i o an er il")
    for end in words("den lin mond ric ton vane wick son ley by stead croft")
]
FIRST = [
    start + end
    for start in words("Al Be Da Eli Fio Gu Ka Lu Mi Ne Ro Sa Ti Vi")
    for end in words("bor da la mir na ra rik ro sa to vin wen")
]
# First names that are places elsewhere, and first names that are months.
PLACES = words("Florence Victoria Sydney Austin Chelsea Lincoln Jordan Georgia Paris Chester")
SEASON = words("April May June August")
SURNAMES = words("Hill Rivers Stone Baker March Winter Field Brook Marsh Bridge")
MONTHS = words("January February March April May June July August September October November")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
JOBS = words("baker nurse teacher farmer pilot singer driver painter doctor student lawyer clerk")
SIZES = {"train": 3000, "valid": 300, "test": 300}
SHARES = {"train": (0.0, 0.6), "valid": (0.6, 0.75), "test": (0.75, 1.0)}  # of all names
FRESH = 0.6  # how often valid and test take a name of their own
# The tag of a kind of slot that is not called after its tag.
TAGS = {"FIRST": "PER", "LAST": "PER", "CLUB": "ORG", **dict.fromkeys(
    ["DAY", "MONTH", "YEAR", "WHEN"], "DATE")}  # fmt: skip


class Names:
    """Draws names of every kind for one part, from those of all parts and from those of its own."""

    def __init__(self, part: str) -> None:
        self.chance = random.Random(f"entities {part}")
        self.own = part != "train"
        self.pools = {}
        for kind, names in {"root": ROOTS, "first": FIRST}.items():
            mixed = random.Random(f"entities {kind}").sample(names, len(names))
            for whose in ("train", part):
                start, end = (round(share * len(mixed)) for share in SHARES[whose])
                self.pools[kind, whose != "train"] = mixed[start:end]

    def draw(self, kind: str) -> str:
        return self.chance.choice(self.pools[kind, self.own and self.chance.random() < FRESH])

    def first(self) -> str:
        names = self.chance.choices([[self.draw("first")], PLACES, SEASON], [6, 2, 1])[0]
        return self.chance.choice(names)

    def last(self) -> str:
        return self.chance.choice(SURNAMES) if self.chance.random() < 0.1 else self.draw("root")

    def make(self, kind: str) -> str:
        """The words that fill a slot of this kind."""
        chance = self.chance
        root = self.draw("root")
        year = str(chance.randint(1900, 2030))
        month, day = chance.choice(MONTHS), chance.choice(DAYS)
        short = "".join(chance.choice("ABDEGKLMNRSTV") for _ in range(3))
        date = f"{chance.randint(1, 28)} {month}"
        forms = {
            "PER": [f"{self.first()} {self.last()}"] * 3 + [f"{root[0]}. {self.last()}"],
            "FIRST": [self.first()],
            "LAST": [self.last()],
            "LOC": [root] * 5 + [f"Lake {root}", f"Port {root}", f"New {root}", f"{root} Island"]
            + [chance.choice(PLACES)] * 2,
            "ORG": [root] * 3 + [f"{root} Motors", f"Bank of {root}", f"University of {root}"]
            + [f"{root} & {self.last()}", f"{self.last()} Foods", f"{root} Institute", short],
            "CLUB": [root] * 3 + [f"{root} United", f"{root} Rovers", f"FC {root}"],
            "DATE": [date, f"{date} {year}", f"{month} {date.split()[0]} , {year}", date],
            "DAY": [day],
            "MONTH": [month] * 3 + [f"{month} {year}"],
            "YEAR": [year],
            "WHEN": ["yesterday", f"last {day}", f"last {month}", "this morning", "last week"],
            "job": JOBS,
            "few": [str(n) for n in range(2, 10)],
            "n": [str(chance.randint(2, 99))] * 2 + [str(chance.randint(1100, 2100))],
        }  # fmt: skip
        return chance.choice(forms[kind])


def sentence(names: Names, shape: str) -> list[Token]:
    """The words of a shape with its slots filled: B- begins a name, I- goes on with it."""
    tokens: list[Token] = []
    for piece in shape.split():
        kind = piece.strip("{}")
        made = names.make(kind).split() if kind != piece else [piece]
        if kind != piece and kind.isupper():
            name = TAGS.get(kind, kind)
            tokens += zip(made, [f"B-{name}", *[f"I-{name}"] * (len(made) - 1)], strict=True)
        else:
            tokens += [(word, "O") for word in made]
    word, tag = tokens[0]
    return [(word[0].upper() + word[1:], tag), *tokens[1:]]


def parts() -> dict[str, list[list[Token]]]:
    """The sentences of each part; none is written twice."""
    shapes = Path(__file__).with_name("shapes.txt").read_text(encoding="utf-8").splitlines()
    seen: set[tuple[Token, ...]] = set()
    made: dict[str, list[list[Token]]] = {}
    for part, size in SIZES.items():
        names = Names(part)
        rows = made[part] = []
        while len(rows) < size:
            tokens = sentence(names, names.chance.choice(shapes))
            if tuple(tokens) not in seen:
                seen.add(tuple(tokens))
                rows.append(tokens)
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in parts().items():
        raw = "\n".join("".join(f"{word} {tag}\n" for word, tag in tokens) for tokens in rows)
        (folder / f"{part}.conll.gz").write_bytes(gzip.compress(raw.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
