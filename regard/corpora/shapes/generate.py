"""Makes the pictures beside this file: two coloured shapes, and a sentence that names them.

python generate.py [FOLDER] writes a table and a tar for each part; the same seed gives the same
bytes. A table also says where each shape is, so that where a model looks can be checked.
"""

from __future__ import annotations

import gzip
import io
import random
import sys
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZE = 32
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 230),
    "yellow": (235, 215, 50),
}
SHAPES = ("circle", "square", "triangle", "cross")
SIZES = {"train": 2400, "valid": 200, "test": 400}

Box = tuple[int, int, int, int]  # top, left, height, width


def mask(shape: str, size: int) -> NDArray[np.bool_]:
    """Which pixels of a square belong to a shape.  -> (size, size)"""
    rows, columns = np.mgrid[:size, :size] + 0.5
    middle = size / 2
    if shape == "circle":
        inside = (rows - middle) ** 2 + (columns - middle) ** 2 <= middle**2
    elif shape == "triangle":
        inside = np.abs(columns - middle) <= rows / 2
    elif shape == "cross":
        inside = (np.abs(rows - middle) <= size / 6) | (np.abs(columns - middle) <= size / 6)
    else:
        inside = np.ones((size, size), bool)
    return np.asarray(inside, np.bool_)


def draw(chance: random.Random) -> tuple[NDArray[np.uint8], str, list[Box]]:
    """A picture, what is said of it, and where its two shapes are, the left one first."""
    canvas = np.full((SIZE, SIZE, 3), chance.randrange(20, 70), np.uint8)
    said, boxes = [], []
    for half in (0, 1):
        colour, shape = chance.choice(list(COLOURS)), chance.choice(SHAPES)
        size = chance.randrange(9, 13)
        top = chance.randrange(1, SIZE - size)
        left = half * SIZE // 2 + chance.randrange(1, SIZE // 2 - size)
        canvas[top : top + size, left : left + size][mask(shape, size)] = COLOURS[colour]
        said.append(f"a {colour} {shape}")
        boxes.append((top, left, size, size))
    return canvas, f"{said[0]} left of {said[1]}", boxes


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in SIZES.items():
        chance = random.Random(f"shapes {part}")
        rows, packed = ["image\tcaption\tleft\tright"], io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for number in range(count):
                canvas, caption, boxes = draw(chance)
                content = f"P6 {SIZE} {SIZE} 255\n".encode() + canvas.tobytes()
                about = tarfile.TarInfo(f"{part}/{number:04}.ppm")
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
                places = "\t".join(" ".join(map(str, box)) for box in boxes)
                rows.append(f"{number:04}.ppm\t{caption}\t{places}")
        table = "".join(f"{row}\n" for row in rows).encode()
        (folder / f"{part}.tsv.gz").write_bytes(gzip.compress(table, 9, mtime=0))
        (folder / f"{part}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
