"""Makes the paragraphs and questions beside this file, about people and things that never were.

python generate.py [FOLDER] writes the three files; the same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any


def beside(name: str) -> str:
    """The text of a file beside this one."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def named() -> dict[str, list[str]]:
    """What may fill a slot, by its kind. In words.txt "x: a, b + c, d" makes ac, ad, bc and bd."""
    made = {
        "dozens": [str(n) for n in range(12, 99)],
        "number": [f"{n},{m}00" for n in range(1, 40) for m in range(10)],
        "money": [f"{n},{m}00 crowns" for n in range(1, 40) for m in (0, 2, 5, 8)],
        "metres": [f"{n} metres" for n in range(120, 990)],
        "kilometres": [f"{n} kilometres" for n in range(3, 60)],
        "minutes": [f"{n} minutes" for n in range(12, 190)],
        "grams": [f"{n} grams" for n in range(110, 990, 10)],
    }
    for line in beside("words.txt").splitlines():
        kind, text = line.split(": ")
        lists = [made.get(part, part.split(", ")) for part in text.split(" + ")]
        made[kind] = ["".join(pieces).replace("_", " ") for pieces in product(*lists)]
    return made


NAMED = named()
SIZES = {"train": 700, "valid": 70, "test": 70}
ASKED = 3  # questions a paragraph
OPEN = {2, 9, 16}  # of twenty paragraphs, those with one more question, which they do not answer
ARTICLE = 7  # paragraphs an article

# Wordings of one sentence, and the questions it answers with the slot that holds the answer.
Fact = tuple[list[str], list[tuple[str, str]]]


def topics() -> list[list[Fact]]:
    """The facts of each kind of topic in topics.txt, the first of which opens a paragraph."""
    made = []
    for block in beside("topics.txt").split("\n\n"):
        facts: list[Fact] = []
        for line in block.splitlines()[1:]:
            wordings, questions = line.split(" :: ")
            asked = [question.split(" => ") for question in questions.split(" | ")]
            facts.append((wordings.split(" | "), [(q, slot) for q, slot in asked]))
        made.append(facts)
    return made


class Writer:
    """Fills slots of one paragraph: {town} is always the same town, {town2} another one."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        year = chance.randint(1780, 1900)
        self.known = {"year": str(year)}
        for number in (2, 3, 4):  # later and later
            year += chance.randint(19, 30)
            self.known[f"year{number}"] = str(year)
        pronouns = chance.choice([["he", "him", "his"], ["she", "her", "her"]])
        self.known |= dict(zip(["he", "him", "his"], pronouns, strict=True))

    def fill(self, text: str) -> tuple[str, dict[str, int]]:
        """The text with its slots filled, and where in it each slot begins."""
        made, starts = "", {}
        for i, piece in enumerate(re.split(r"\{(\w+)\}", text)):
            if i % 2:
                starts[piece] = len(made)
                made += self.value(piece)
            else:
                made += piece
        return made[0].upper() + made[1:], starts

    def value(self, slot: str) -> str:
        if slot in {"He", "His"}:
            return self.known[slot.lower()].capitalize()
        if slot not in self.known:
            while (value := self.chance.choice(NAMED[slot.rstrip("234")])) in self.known.values():
                pass
            self.known[slot] = value
        return self.known[slot]


def paragraph(chance: random.Random, facts: list[Fact], part: str, number: int) -> dict[str, Any]:
    """A context of four to seven sentences with its questions."""
    writer = Writer(chance)
    said = [0, *sorted(chance.sample(range(1, len(facts)), chance.randint(3, 6)))]
    asked = chance.sample(said, ASKED)
    context, qas = "", []
    for i in said:
        wordings, questions = facts[i]
        text, starts = writer.fill(chance.choice(wordings))
        if i in asked:
            question, slot = chance.choice(questions)
            start = len(context) + starts[slot]
            qas.append((question, [(start, start + len(writer.value(slot)))]))
        context += text + " "
    if number % 20 in OPEN:
        left = chance.choice([i for i in range(len(facts)) if i not in said])
        qas.append((chance.choice(facts[left][1])[0], []))
    context = context.strip()
    return {
        "context": context,
        "qas": [
            {
                "id": f"{part}-{number}-{place}",
                "question": writer.fill(question)[0],
                "answers": [{"text": context[a:b], "answer_start": a} for a, b in spans],
                "is_impossible": not spans,
            }
            for place, (question, spans) in enumerate(qas)
        ],
    }


def parts() -> dict[str, dict[str, Any]]:
    """The articles of each part; no paragraph is written twice."""
    kinds = topics()
    titles = iter(random.Random("questions").sample(NAMED["town"], len(NAMED["town"])))
    seen: set[str] = set()
    made = {}
    for part, size in SIZES.items():
        chance = random.Random(f"questions {part}")
        paragraphs: list[dict[str, object]] = []
        while len(paragraphs) < size:
            new = paragraph(chance, chance.choice(kinds), part, len(paragraphs))
            if new["context"] not in seen:
                seen.add(new["context"])
                paragraphs.append(new)
        data = [
            {"title": f"{next(titles)} Valley", "paragraphs": paragraphs[i : i + ARTICLE]}
            for i in range(0, size, ARTICLE)
        ]
        made[part] = {"version": "2.0", "data": data}
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, articles in parts().items():
        raw = json.dumps(articles) + "\n"
        (folder / f"{part}.json.gz").write_bytes(gzip.compress(raw.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
