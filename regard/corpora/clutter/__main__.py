"""Makes cluttered digits of MNIST's files: python -m regard.corpora.clutter MNIST_FOLDER OUT

Each digit is put anywhere on 60 × 60 dark pixels, with four pieces of 8 × 8 of others beside or
over it (Mnih et al. 2014, section 4.1); for training, each comes four times, as the paper never
showed a picture twice. With --pieces 0 digits are only moved. The same every time.
"""

from __future__ import annotations

import argparse
import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...data.pictures import idx

CANVAS, PIECE = 60, 8


def cluttered(
    digits: NDArray[np.uint8], rng: np.random.Generator, pieces: int
) -> NDArray[np.uint8]:
    """(N, 28, 28) -> (N, 60, 60)"""
    size = digits.shape[1]
    found = np.zeros((len(digits), CANVAS, CANVAS), np.uint8)
    for canvas, digit in zip(found, digits, strict=True):
        top, left = rng.integers(0, CANVAS - size + 1, 2)
        canvas[top : top + size, left : left + size] = digit
        for _ in range(pieces):
            other = digits[rng.integers(len(digits))]
            y, x = rng.integers(0, size - PIECE + 1, 2)
            top, left = rng.integers(0, CANVAS - PIECE + 1, 2)
            place = canvas[top : top + PIECE, left : left + PIECE]
            np.maximum(place, other[y : y + PIECE, x : x + PIECE], out=place)
    return found


def write(path: Path, array: NDArray[np.uint8]) -> None:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 1, file, mtime=0) as packed:
        packed.write(head + array.tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mnist", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pieces", type=int, default=4, help="of other digits on each picture")
    parser.add_argument("--copies", type=int, default=4, help="of each digit to train with")
    said = parser.parse_args()
    said.out.mkdir(parents=True, exist_ok=True)
    for seed, part in enumerate(("train", "test")):
        names = [f"{part}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
        digits, labels = idx(said.mnist / names[0], 3), idx(said.mnist / names[1], 1)
        copies = said.copies if part == "train" else 1
        digits, labels = np.tile(digits, (copies, 1, 1)), np.tile(labels, copies)
        rng = np.random.default_rng(seed)
        write(said.out / names[0], cluttered(digits, rng, said.pieces))
        write(said.out / names[1], labels)


if __name__ == "__main__":
    main()
