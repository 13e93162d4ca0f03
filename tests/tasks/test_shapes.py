"""Pictures of two shapes: made as said, and looked at where they are named."""

import gzip
import io
import tarfile

import numpy as np
import pytest
from PIL import Image

import regard
from regard.corpora.shapes import generate
from tests.test_corpora import FOLDER

COLOURS = set(generate.COLOURS)


def rows(part):
    text = gzip.decompress((FOLDER / f"shapes/{part}.tsv.gz").read_bytes()).decode()
    return [line.split("\t") for line in text.splitlines()[1:]]


def box(text):
    return tuple(map(int, text.split()))


def test_they_are_what_their_generator_makes(tmp_path):
    generate.main(tmp_path)
    for part, count in generate.SIZES.items():
        for kind in ("tsv", "tar"):
            made = gzip.decompress((tmp_path / f"{part}.{kind}.gz").read_bytes())
            assert made == gzip.decompress((FOLDER / f"shapes/{part}.{kind}.gz").read_bytes())
        assert len(rows(part)) == count


def test_a_box_holds_the_shape_that_is_named():
    with tarfile.open(FOLDER / "shapes/valid.tar.gz") as tar:
        for name, caption, *boxes in rows("valid")[:50]:
            pixels = np.asarray(Image.open(io.BytesIO(tar.extractfile(f"valid/{name}").read())))
            colours = [word for word in caption.split() if word in COLOURS]
            for colour, place in zip(colours, boxes, strict=True):
                top, left, height, width = box(place)
                inside = pixels[top : top + height, left : left + width].reshape(-1, 3)
                share = (inside == generate.COLOURS[colour]).all(1).mean()
                assert share > 0.35, (name, colour)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A smaller model for fewer steps than the recipe has: about fifteen seconds."""
    less = ("train.steps=190", "model.width=32", "train.rate=0.006", "train.warmup=30")
    less += ("train.device=cpu", "train.evaluate_examples=0", "data.valid=", "data.test=")
    return regard.train("caption-shapes", *less, run=tmp_path_factory.mktemp("shapes") / "run")


def test_it_looks_at_the_shape_that_it_begins_to_name(run):
    """When it writes a shape's colour, most of the weight lies on the patches of that shape."""
    side, size = 8, generate.SIZE // 8
    found = []
    with tarfile.open(FOLDER / "shapes/test.tar.gz") as tar:
        for name, _, *boxes in rows("test")[:40]:
            picture = Image.open(io.BytesIO(tar.extractfile(f"test/{name}").read()))
            (look,) = run.see(picture).looks
            words = [word.strip("▁") for word in look.rows]
            named = [i for i, word in enumerate(words) if word in COLOURS]
            for row, place in zip(named, boxes, strict=False):
                top, left, height, width = box(place)
                patches = np.zeros((side, side), bool)
                last = (top + height - 1) // size, (left + width - 1) // size
                patches[top // size : last[0] + 1, left // size : last[1] + 1] = True
                found.append(look.weights.mean(0)[row][patches.ravel()].sum())
    assert len(found) > 70 and np.mean(found) >= 0.7
