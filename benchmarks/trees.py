"""Sentences with their trees and mentions, made by a small grammar, for whoever has no treebank.

    python benchmarks/trees.py OUT.conllu [--sentences 400]

Somebody does something to somebody, somewhere perhaps, because he, she, it or they are so; words
between a word and its head vary, so that no fixed distance finds it. Relations as Universal
Dependencies has them. The same every time.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from regard.data.trees import Sentence

WHO = {
    "she": ["woman", "girl", "queen", "mother", "sister", "nurse", "actress"],
    "he": ["man", "boy", "king", "father", "brother", "soldier", "waiter"],
    "it": ["dog", "horse", "car", "letter", "house", "machine", "parrot"],
    "they": ["children", "students", "dogs", "neighbours", "workers", "teachers", "sailors"],
}
VERBS = ["saw", "found", "followed", "helped", "painted", "called", "watched", "chased", "left"]
ADJECTIVES = ["old", "young", "small", "tall", "quiet", "strange", "famous", "hungry", "grey"]
STATES = ["tired", "late", "happy", "lost", "afraid", "alone", "angry", "ill", "ready", "famous"]
PLACES = ["garden", "station", "street", "kitchen", "village", "forest", "river", "office"]
PREPOSITIONS = ["near", "behind", "in", "beside", "at"]


class Writer:
    """Words one after another; a head's place may be filled in later."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.heads: list[int] = []
        self.relations: list[str] = []
        self.mentions: list[tuple[int, str]] = []

    def put(self, word: str, relation: str = "", head: int = -1) -> int:
        self.words.append(word)
        self.heads.append(head)
        self.relations.append(relation)
        return len(self.words) - 1

    def noun(self, rng: random.Random, noun: str, case: str = "") -> int:
        """A noun with what stands before it; it does not know its own head yet."""
        before = [self.put(case, "case")] if case else []
        before.append(self.put("the", "det"))
        for adjective in rng.sample(ADJECTIVES, rng.choice([0, 0, 1, 2])):
            before.append(self.put(adjective, "amod"))
        place = self.put(noun)
        for one in before:
            self.heads[one] = place
        return place

    def join(self, place: int, relation: str, head: int) -> None:
        self.relations[place], self.heads[place] = relation, head


def sentence(rng: random.Random) -> Sentence:
    write = Writer()
    first, second = rng.sample(list(WHO), 2)
    subject = write.noun(rng, rng.choice(WHO[first]))
    write.mentions.append((subject, "a"))
    if rng.random() < 0.4:
        place = write.noun(rng, rng.choice(PLACES), rng.choice(PREPOSITIONS))
        write.join(place, "nmod", subject)
    verb = write.put(rng.choice(VERBS), "root")
    write.join(subject, "nsubj", verb)
    thing = write.noun(rng, rng.choice(WHO[second]))
    write.join(thing, "obj", verb)
    write.mentions.append((thing, "b"))
    if rng.random() < 0.4:
        place = write.noun(rng, rng.choice(PLACES), rng.choice(PREPOSITIONS))
        write.join(place, "obl", verb)
    if rng.random() < 0.7:
        pronoun, entity = rng.choice([(first, "a"), (second, "b")])
        mark = write.put("because", "mark")
        who = write.put(pronoun, "nsubj")
        was = write.put("were" if pronoun == "they" else "was", "cop")
        state = write.put(rng.choice(STATES), "advcl", verb)
        for one in (mark, who, was):
            write.heads[one] = state
        write.mentions.append((who, entity))
    write.put(".", "punct", verb)
    return Sentence(write.words, write.heads, write.relations, write.mentions)


def sentences(count: int) -> list[Sentence]:
    rng = random.Random("trees")
    return [sentence(rng) for _ in range(count)]


def written(one: Sentence) -> str:
    """As CoNLL-U has it; a mention is its last word."""
    said = dict(one.mentions)
    lines = []
    for n, (word, head, relation) in enumerate(
        zip(one.words, one.heads, one.relations, strict=True)
    ):
        entity = f"Entity=({said[n]})" if n in said else "_"
        cells = [str(n + 1), word, *"____", str(head + 1), relation, "_", entity]
        lines.append("\t".join(cells) + "\n")
    return "".join(lines) + "\n"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("out", type=Path)
    asked.add_argument("--sentences", type=int, default=400)
    given = asked.parse_args()
    text = "".join(written(one) for one in sentences(given.sentences))
    given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
