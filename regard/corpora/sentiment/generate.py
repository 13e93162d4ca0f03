"""Makes the opinions beside this file: praise and blame, often said in a roundabout way.

python generate.py [FOLDER] writes the three files; the same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from pathlib import Path


def phrases(text: str, comma: str = ",") -> list[str]:
    return [phrase.strip(" ") for phrase in text.split(comma)]


def blocks(name: str) -> list[list[str]]:
    """The blocks of lines of a file beside this one; an empty line stands between them."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [block.splitlines() for block in text.split("\n\n")]


# shapes.txt: a line with how often the group is taken; then its shapes, + marking one that can
# only praise and - one that can only blame.
GROUPS = {tuple(shapes): float(head.split()[-1]) for head, *shapes in blocks("shapes.txt")}
# things.txt: names of a thing; its aspects (after the * plural ones); words that praise it, words
# that blame it. A word may do both: an unpredictable film, an unpredictable drill.
THINGS = [[phrases(line) for line in block] for block in blocks("things.txt")]
PAIRS = {  # praise and blame; in a shape {-good} is the opposite of {good}
    name: (phrases(praise), phrases(blame))
    for name, praise, blame in [
        ("good", "good, great, excellent, wonderful, lovely, superb, pleasant, splendid, brilliant",
         "bad, poor, awful, terrible, dreadful, weak, lousy, hopeless, horrible, unpleasant"),
        ("joy", "a joy, a treat, a triumph, a delight, a gem, a success, a pleasure",
         "a mess, a chore, a bore, a failure, a disaster, a mistake, a nuisance"),
        ("shone", "won me over, impressed us all, delighted us, made my day, surpassed my hopes",
         "let me down, annoyed us all, fell flat, left me cold, frustrated us"),
        ("loved", "loved, enjoyed, adored, admired, liked", "hated, disliked, loathed, regretted"),
        ("love", "love, enjoy, adore, admire, like", "hate, dislike, loathe, regret"),
        ("better", "better, finer, stronger", "worse, poorer, weaker"),
        ("saved", "saved, rescued", "ruined, spoiled"),
        ("again", "I would gladly do it again, I recommend it to everyone, we left with a smile,"
         "I will tell all my friends, it was worth the money",
         "I want my money back, we left early, I would warn anyone, once was more than enough,"
         "I will stay away in future"),
        # Only in the test part: words that no other part has, of stems that all have.
        ("fresh", "enjoyable, likeable, delightful, impressive, admirable, joyful, pleasing",
         "annoying, frustrating, regrettable, hateful, messy, boring, disastrous, dislikeable"),
    ]
}  # fmt: skip
OTHERS = {
    "who": phrases("my sister, our neighbours, my friends, our guide, the children, my brother"),
    "then": phrases("last night, on Sunday, this time, last week, in March, today, yesterday"),
    "very": ["very ", "really ", "truly ", "so ", "quite ", "remarkably ", *[""] * 6],
    "really": ["really ", "truly ", "remarkably ", *[""] * 3],
}
STARTS = phrases(
    "to be honest,|frankly,|in my view,|as I see it,|when {who} asked, I said at once:|"
    "after what {who} had told us, a word of mine:|I have thought about it for a week:",
    "|",
)
SIZES = {"train": 6000, "valid": 600, "test": 600}
LABELS = ["negative", "positive"]
FRESH = {"aspect": 0.45, "good": 0.08}  # how often a test word is one that no other part has


def plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith("ch") else "s")


def sentence(chance: random.Random, shape: str, positive: bool, fresh: bool) -> str:
    """A shape with its slots filled, no two of them by the same words."""
    names, aspects, *own = chance.choice(THINGS)
    one, many = aspects[: aspects.index("*")], aspects[aspects.index("*") + 1 :]
    several = False  # the aspect named last is a plural
    used: set[str] = set()

    def pick(name: str, blame: bool) -> str:
        nonlocal several
        new = fresh and chance.random() < FRESH["good" if name == "good" else "aspect"]
        if name in {"A", "B", "one"}:
            aspect = chance.choice(one if name == "one" else one + many)
            several = aspect in many
            (many if several else one).remove(aspect)
            if name == "one":
                return aspect
            if new and not several:
                several, aspect = True, plural(aspect)
            return f"the {aspect}"
        if name == "good" and not new:
            return chance.choice(PAIRS[name][blame] + own[blame])
        if name in PAIRS:
            return chance.choice(PAIRS["fresh" if name == "good" else name][blame])
        return chance.choice(names if name == "kind" else OTHERS[name])

    def fill(slot: re.Match[str]) -> str:
        name = slot[2]
        if name in {"is", "was"}:
            return {"is": "are", "was": "were"}[name] if several else name
        while (word := pick(name, positive == bool(slot[1]))) in used:
            pass
        used.update({word} - {""})
        return word

    text = re.sub(r"\{(-?)(\w+)\}", fill, shape)
    text = re.sub(r"\ba (?=[aeiou])", "an ", text)
    return text[0].upper() + text[1:]


def parts() -> dict[str, list[tuple[str, str]]]:
    """The rows of each part: as many of one label as of the other, and no sentence twice."""
    seen: set[str] = set()
    made: dict[str, list[tuple[str, str]]] = {}
    for part, size in SIZES.items():
        chance = random.Random(f"sentiment {part}")
        rows = made[part] = []
        while len(rows) < size:
            positive = len(rows) % 2 == 1
            (group,) = chance.choices(list(GROUPS), list(GROUPS.values()))
            shape = chance.choice([s for s in group if s[0] != "+-"[positive]]).lstrip("+-")
            if chance.random() < 0.2:
                shape = f"{chance.choice(STARTS)} {shape}"
            text = sentence(chance, shape, positive, part == "test")
            if text not in seen and 5 <= len(text.split()) <= 22:
                seen.add(text)
                rows.append((text, LABELS[positive]))
        chance.shuffle(rows)
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in parts().items():
        raw = "".join(f"{text}\t{label}\n" for text, label in [("sentence", "label"), *rows])
        (folder / f"{part}.tsv.gz").write_bytes(gzip.compress(raw.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
