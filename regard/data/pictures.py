"""Pictures with labels: a folder of classes, the same in a tar, idx files, or a table of names.

A picture is handed on as the bytes of its file; `decode` makes pixels of them. Whatever Pillow can
read is read, as it is meant to be looked at: turned as its camera says, the first frame of several,
in the colours that paper or palette stand for.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ..errors import DataError
from .read import Faults, kind_of
from .table import rows

LARGEST = 2**26  # bytes of a picture's file
PIXELS = 2**26  # of a picture; more are refused before they are unpacked
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
Pixels = NDArray[np.uint8]


class Picture(NamedTuple):
    """A picture's file, what is right, and where it stands."""

    content: bytes
    label: object
    where: str


def is_tar(path: Path) -> bool:
    return path.name.lower().endswith(TARS)


def read(files: Sequence[Path], image: str, label: str, faults: Faults) -> Iterator[Picture]:
    """Labelled pictures; of a table, the columns `image` and `label` are read.

    Two files may be an idx pair, or a table and the tar that its pictures are in.
    """
    if len(files) == 2 and any("idx3" in file.name for file in files):
        yield from read_idx(*sorted(files, key=lambda file: "idx3" not in file.name))
        return
    tables = [file for file in files if kind_of(file) in (".tsv", ".csv", ".jsonl")]
    tars = [file for file in files if is_tar(file)]
    if tables:
        packed = {name: content for tar in tars for name, content, _ in members(tar, faults)}
        for path in tables:
            yield from read_table(path, image, label, packed, faults)
        return
    for path in files:
        if path.is_dir():
            yield from read_folder(path, faults)
        elif is_tar(path):
            for name, content, where in members(path, faults):
                yield Picture(content, PurePosixPath(name).parent.name, where)
        else:
            raise DataError(
                f"{path}: pictures must be a folder with a folder for each class, a tar of one, "
                "two idx files, or a table that names them."
            )


def read_folder(folder: Path, faults: Faults) -> Iterator[Picture]:
    """The pictures of a folder's folders, whose names are the classes."""
    for path in sorted(folder.rglob("*")):
        content = None
        if path.is_file() and path.suffix.lower() in ENDINGS:
            content = whole_file(path, faults)
        if content is not None:
            yield Picture(content, path.parent.name, str(path))


def whole_file(path: Path, faults: Faults) -> bytes | None:
    try:
        if path.stat().st_size > LARGEST:
            faults.report(str(path), f"a picture may have {LARGEST >> 20} MiB, but has more")
            return None
        return path.read_bytes()
    except OSError as error:
        faults.report(str(path), f"the picture cannot be read ({error.strerror})")
        return None


def members(path: Path, faults: Faults) -> Iterator[tuple[str, bytes, str]]:
    """The pictures in a tar, in its order: their names, contents, and where they stand.

    Links and devices are passed over; nothing is ever written to disk.
    """
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if not member.isreg() or name.suffix.lower() not in ENDINGS:
                    continue
                where = f"{path}:{member.name}"
                if member.size > LARGEST:
                    faults.report(where, f"a picture may have {LARGEST >> 20} MiB, but has more")
                    continue
                file = tar.extractfile(member)
                assert file is not None
                yield member.name.removeprefix("./"), file.read(), where
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}).") from error


def read_table(
    path: Path, image: str, label: str, packed: Mapping[str, bytes], faults: Faults
) -> Iterator[Picture]:
    """Rows that name pictures: files beside the table, or members of a tar."""
    columns = [("task.image", image), ("task.label", label)]
    for where, (name, told) in rows(path, columns, faults):
        if not isinstance(name, str) or not name:
            faults.report(where, "there must be a picture's name, but there is none")
            continue
        content = packed.get(name)
        if content is None and not packed:
            content = whole_file(path.parent / name, faults)
        elif content is None:
            faults.report(where, f"there is no picture '{name}' in the tar")
        if content is not None:
            yield Picture(content, told, where)


class Captioned(NamedTuple):
    """A picture's file, what is said of it, and where it stands."""

    content: bytes
    captions: list[str]
    name: str
    where: str


def read_captions(
    files: Sequence[Path], image: str, caption: str, faults: Faults
) -> Iterator[Captioned]:
    """Pictures with their captions: tables, several rows or a list for a picture; pictures lie
    beside a table, or in tars that are given with it."""
    tables = [file for file in files if kind_of(file) in (".tsv", ".csv", ".jsonl")]
    tars = [file for file in files if is_tar(file)]
    if not tables:
        raise DataError(
            f"{files[0]}: captions must be in a .tsv, .csv or .jsonl file that names pictures."
        )
    told: dict[tuple[Path, str], tuple[list[str], str]] = {}
    for path in tables:
        columns = [("task.image", image), ("task.caption", caption)]
        for where, (name, said) in rows(path, columns, faults):
            texts = said if isinstance(said, list) else [said]
            if not isinstance(name, str) or not name or not all(isinstance(t, str) for t in texts):
                faults.report(where, "there must be a picture's name and texts, but there are not")
                continue
            texts = [text.strip() for text in texts if text.strip()]
            told.setdefault((path.parent, name), ([], where))[0].extend(texts)
    if tars:
        yield from captioned_in(tars, told, faults)
        return
    for (folder, name), (texts, where) in told.items():
        content = whole_file(folder / name, faults) if texts else None
        if content is not None:
            yield Captioned(content, texts, name, where)


def captioned_in(
    tars: Sequence[Path], told: Mapping[tuple[Path, str], tuple[list[str], str]], faults: Faults
) -> Iterator[Captioned]:
    """The pictures of tars, which a table names with or without their folders."""
    left: dict[str, tuple[list[str], str]] = {}
    for (_, name), (texts, where) in told.items():
        left.setdefault(name, ([], where))[0].extend(texts)
    for tar in tars:
        for name, content, _ in members(tar, faults):
            short = PurePosixPath(name).name
            found = left.pop(name, None) or left.pop(short, None)
            if found is not None and found[0]:
                yield Captioned(content, found[0], short, found[1])
    for name, (_, where) in left.items():
        faults.report(where, f"there is no picture '{name}' in the tar")


def read_idx(images: Path, labels: Path) -> Iterator[Picture]:
    """MNIST's files: all pictures in one, all labels in the other."""
    pixels, told = idx(images, 3), idx(labels, 1)
    if len(pixels) != len(told):
        raise DataError(
            f"{images}: there must be a label for each picture, but there are {len(pixels)} "
            f"pictures and {len(told)} labels."
        )
    height, width = pixels.shape[1:]
    head = f"P5 {width} {height} 255\n".encode()
    for number, (picture, label) in enumerate(zip(pixels, told.tolist(), strict=True)):
        yield Picture(head + picture.tobytes(), str(label), f"{images}:{number + 1}")


def idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The bytes of an idx file, in their shape."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            head = file.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions or head[:4] != bytes((0, 0, 8, dimensions)):
                raise DataError(f"{path}: not an idx file of bytes in {dimensions} dimensions.")
            shape = struct.unpack(f">{dimensions}I", head[4:])
            size = int(np.prod([int(n) for n in shape], dtype=object))
            content = file.read(size + 1) if size <= 2**32 else b""
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}).") from error
    if len(content) != size:
        raise DataError(
            f"{path}: there must be {size} bytes as its head says, but there are "
            f"{'more' if len(content) > size else len(content)}."
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


class PictureError(ValueError):
    """Why a picture cannot be decoded."""


def decode(content: bytes, channels: int = 3, most: int | None = None) -> Pixels:
    """A picture's pixels, in grey (1) or in colours (3).  -> (C, H, W)

    Turned as its EXIF says; of several frames the first; transparent stands on white; 16 bits are
    scaled to 8. What is damaged, or has more than `most` pixels, raises a PictureError.
    """
    most = most or PIXELS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of oddities that do no harm
            with Image.open(io.BytesIO(content)) as opened:
                if opened.width * opened.height > most:
                    raise PictureError(
                        f"it may have {most:,} pixels, but has {opened.width * opened.height:,}"
                    )
                opened.load()
                picture = ImageOps.exif_transpose(opened)
        return as_array(picture, channels)
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError("cannot identify its format") from error
    except Exception as error:  # the library raises whatever its decoders meet
        raise PictureError(str(error) or type(error).__name__) from error


def as_array(picture: Image.Image, channels: int) -> Pixels:
    mode = "L" if channels == 1 else "RGB"
    if picture.mode in ("I", "I;16", "I;16B", "I;16L", "F"):
        numbers = np.asarray(picture, np.float64)
        scale = 257.0 if numbers.max(initial=0) > 255 else 1.0
        grey = np.clip(np.round(numbers / scale), 0, 255).astype(np.uint8)
        picture = Image.fromarray(grey)
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        over = picture.convert("RGBA")
        white = Image.new("RGBA", over.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, over)
    array = np.asarray(picture.convert(mode), np.uint8)
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))
