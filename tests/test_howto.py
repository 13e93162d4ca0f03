"""The pages on making one's own model are typed line by line, with toy files and two steps."""

import csv
import math
import struct
import wave

import pytest
import transformers
from PIL import Image

from tests.exchange.folders import bert
from tests.pages import ROOT, Block, Place, sections, untried, warm_process
from tests.toys import sentences, write_corpus

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/howto").glob("*.md"))
# What is put behind each training, so that it ends in seconds.
TWO = ["train.steps=2", "train.device=cpu", "train.evaluate_examples=2", "train.warmup=1"]
SMALL = [*TWO, "model.width=32", "model.hidden=32", "model.depth=1", "decode.max_new_tokens=8"]
WORDS = ["text.size=60", "text.bytes=false"]
SHORTER = {
    "train my-translator.toml": [*SMALL, *WORDS, "decode.num_beams=1"],
    "train classify": [*TWO, "text.size=60", "task.context=30"],
    "train my-captioner.toml": [*SMALL, *WORDS, "picture.size=32"],
    "train my-recogniser.toml": [*SMALL, "decode.num_beams=2"],
    "record keydoor": ["--episodes", "60"],
    "train my-policy.toml": [*TWO, "model.width=32"],
}


def put_table(path, heads, rows):
    with path.open("w", newline="") as file:
        between = "," if path.suffix == ".csv" else "\t"
        csv.writer(file, delimiter=between).writerows([heads, *rows])


def put_labelled(folder):
    bert(folder / "all-MiniLM-L6-v2", transformers.BertModel, 0.02)
    for part, count in {"train": 60, "valid": 20}.items():
        rows = [(line, "ab"["red" in line]) for line in sentences(count)]
        put_table(folder / f"{part}.csv", ("text", "label"), rows)


def put_pictures(folder):
    for part, colours in {"train": ("red", "green", "blue") * 4, "valid": ("red", "green")}.items():
        rows = []
        for number, colour in enumerate(colours):
            name = f"{part}-{number}.png"
            Image.new("RGB", (40, 30), colour).save(folder / name)
            rows.append((name, f"A {colour} picture ."))
        put_table(folder / f"{part}.tsv", ("image", "caption"), rows)
    Image.new("RGB", (60, 40), "red").save(folder / "photo.png")


def put_sounds(folder):
    def tone(name, pitch):
        waves = [int(9000 * math.sin(pitch * t)) for t in range(8000)]
        with wave.open(str(folder / name), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(struct.pack(f"<{len(waves)}h", *waves))

    for part, count in {"train": 12, "valid": 4}.items():
        rows = [(f"{part}-{n}.wav", f"tone {'abcd'[n % 4]}") for n in range(count)]
        for number, (name, _) in enumerate(rows):
            tone(name, 0.1 + 0.1 * (number % 4))
        put_table(folder / f"{part}.tsv", ("audio", "text"), rows)
    tone("clip.wav", 0.2)


def put_history(folder):
    """A key was seen, and what is done at the door is asked."""
    steps = [(0, 0, "a blue key", "walk", 0), (0, 1, "a corridor", "walk", 0),
             (0, 2, "three doors", "", "")]  # fmt: skip
    put_table(folder / "history.csv", ("episode", "step", "sees", "action", "reward"), steps)


BRING = {
    "docs/howto/translator.md": lambda folder: write_corpus(folder, train=200),
    "docs/howto/classifier.md": put_labelled,
    "docs/howto/captioner.md": put_pictures,
    "docs/howto/recogniser.md": put_sounds,
    "docs/howto/policy.md": put_history,
}


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    with warm_process(tmp_path_factory.mktemp("warm")) as door:
        yield door


@pytest.mark.parametrize("page", PAGES)
def test_every_line_works_as_typed(page, door, tmp_path):
    assert untried(page) == []
    place = Place(tmp_path, door, SHORTER)
    BRING[page](tmp_path)
    for blocks in sections(page).values():
        place.read([Block("sh", ". .venv/bin/activate\n"), *blocks])
