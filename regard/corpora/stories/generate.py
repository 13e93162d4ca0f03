"""Makes the stories beside this file: people walk, take things and put them down.

python generate.py [FOLDER] writes the nine files; the same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

PEOPLE = ["Ada", "Ben", "Cleo", "Dan", "Eve"]
PLACES = ["attic", "cellar", "garden", "hall", "kitchen", "library"]
THINGS = ["apple", "book", "key", "lamp", "map"]
WALKS = ["walked to the", "went to the", "moved to the", "ran to the"]
TAKES = ["took the", "picked up the", "grabbed the"]
DROPS = ["left the", "dropped the", "put down the"]
SIZES = {"train": 1000, "valid": 200, "test": 500}
ASKED = 5  # questions a story

Line = tuple[str, ...]  # a sentence alone, or question, answer and supporting line numbers


class World:
    """Who is where, who has what, and in which line each was last said."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.at: dict[str, tuple[str, int]] = {}  # person -> place, line
        self.has: dict[str, tuple[str, int]] = {}  # thing -> person, line
        self.lies: dict[str, tuple[str, int, int]] = {}  # thing -> place and its two lines
        self.line = 0

    def walk(self) -> str:
        person = self.chance.choice(PEOPLE)
        here = self.at.get(person, ("", 0))[0]
        place = self.chance.choice([p for p in PLACES if p != here])
        self.line += 1
        self.at[person] = (place, self.line)
        return f"{person} {self.chance.choice(WALKS)} {place}."

    def handle(self) -> str:
        """Somebody takes a thing that nobody holds, or puts down one that they hold."""
        free = [thing for thing in THINGS if thing not in self.has]
        thing = self.chance.choice(THINGS)
        if thing in free or not self.at:
            if not self.at:
                return self.walk()
            person = self.chance.choice(sorted(self.at))
            self.line += 1
            self.has[thing] = (person, self.line)
            self.lies.pop(thing, None)
            return f"{person} {self.chance.choice(TAKES)} {thing}."
        person, _ = self.has.pop(thing)
        self.line += 1
        place, said = self.at[person]
        self.lies[thing] = (place, self.line, said)
        return f"{person} {self.chance.choice(DROPS)} {thing}."


def one_fact(world: World) -> Iterator[Line]:
    """Where is somebody? The last walk of theirs tells."""
    for _ in range(ASKED):
        for _ in range(2):
            yield (world.walk(),)
        person = world.chance.choice(sorted(world.at))
        place, line = world.at[person]
        world.line += 1
        yield f"Where is {person}?", place, str(line)


def yes_or_no(world: World) -> Iterator[Line]:
    """Is somebody there?"""
    for _ in range(ASKED):
        for _ in range(2):
            yield (world.walk(),)
        person = world.chance.choice(sorted(world.at))
        place, line = world.at[person]
        asked = place if world.chance.random() < 0.5 else world.chance.choice(PLACES)
        world.line += 1
        yield f"Is {person} in the {asked}?", "yes" if asked == place else "no", str(line)


def two_facts(world: World) -> Iterator[Line]:
    """Where is a thing? Who has it, or who put it down, and where they were then."""
    asked = 0
    yield (world.walk(),)
    while asked < ASKED:
        for _ in range(world.chance.randint(1, 3)):
            yield (world.walk() if world.chance.random() < 0.5 else world.handle(),)
        known = {
            **{thing: (*world.at[who], line) for thing, (who, line) in world.has.items()},
            **world.lies,
        }
        if known:
            thing = world.chance.choice(sorted(known))
            place, *said = known[thing]
            world.line += 1
            asked += 1
            yield f"Where is the {thing}?", place, " ".join(map(str, sorted(said)))


TASKS: dict[str, Callable[[World], Iterator[Line]]] = {
    "one-fact": one_fact,
    "two-facts": two_facts,
    "yes-or-no": yes_or_no,
}


def text(task: str, part: str) -> str:
    """A whole file."""
    chance = random.Random(f"{task} {part}")
    rows = []
    for _ in range(SIZES[part] // ASKED):
        rows += [
            f"{number} {' '.join(line) if len(line) == 1 else chr(9).join(line)}\n"
            for number, line in enumerate(TASKS[task](World(chance)), 1)
        ]
    return "".join(rows)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        for part in SIZES:
            raw = text(task, part).encode()
            (folder / f"{task}_{part}.txt.gz").write_bytes(gzip.compress(raw, 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
