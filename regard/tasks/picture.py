"""What tasks that read pictures share: how one is given, made one size, changed in training."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from ..batch import Pixels as PixelBatch
from ..batch import Sizes
from ..data.draws import Draws
from ..data.order import Rows
from ..data.pictures import ENDINGS, PictureError, Pixels, as_array, decode
from ..data.read import read_json
from ..data.resize import inside, square, stretch
from ..data.store import Field, Store
from ..errors import InputError, RecipeError, RunError
from ..parts.augment import COLUMNS, OPS
from ..parts.stem import STEMS
from .form import read_file, read_url
from .task import Axis, Rng

Colours = Sequence[Sequence[float]]  # mean and spread of each channel

SEEN = 1000  # pictures whose colours are looked at
MOST_SENT = 2**24  # pixels of a picture over HTTP
COLOURED = ((), (3,), (4,))
FITS = {"square": square, "inside": inside, "stretch": stretch}


@dataclass(frozen=True)
class PictureSettings:
    """How pictures are made one size, cut into patches, and changed in training."""

    size: Annotated[int, Gt(0), Le(4096), "height and width that every picture is made"] = 32
    channels: Annotated[Literal[1, 3], "1: grey, 3: colours"] = 3
    patch: Annotated[int, Gt(0), Le(4096), "height and width of what becomes one vector"] = 4
    fit: Annotated[
        Literal["square", "inside", "stretch"],
        "square: the middle of it; inside: all of it, with an edge; stretch: all, made square",
    ] = "square"
    stem: Annotated[
        str, STEMS, "how a patch becomes a vector: one layer, convolutions, or a residual net"
    ] = "linear"
    flip: Annotated[float, Ge(0), Le(1), "in training, how often left and right change places"] = (
        0.0
    )
    shift: Annotated[int, Ge(0), Le(4096), "in training, by how many pixels it may be moved"] = 0
    zoom: Annotated[
        float, Gt(0), Le(1), "in training, the least part of a side that is seen, then stretched"
    ] = 1.0
    randaugment: Annotated[
        float, Ge(0), Le(1), "in training, how strongly two changes of shape or colour act; 0: none"
    ] = 0.0
    erase: Annotated[float, Ge(0), Lt(1), "in training, how often a piece of it is covered"] = 0.0
    mixup: Annotated[
        float,
        Ge(0),
        Le(100),
        "in training, two pictures and labels shine through each other; the "
        "parameter of the Beta that their shares are drawn from; 0: never",
    ] = 0.0
    cutmix: Annotated[
        float,
        Ge(0),
        Le(100),
        "in training, a piece of another picture, with its share of the "
        "label; the parameter of the Beta; with mixup, one of both is drawn; 0: never",
    ] = 0.0
    mix: Annotated[float, Ge(0), Le(1), "how often a picture is mixed, where any is"] = 1.0

    def __post_init__(self) -> None:
        if self.size % self.patch:
            raise RecipeError(
                f"picture.patch ({self.patch}) must divide picture.size ({self.size})."
            )
        if self.stem != "linear" and self.patch & (self.patch - 1):
            raise RecipeError(
                f"picture.patch must be a power of two where picture.stem is {self.stem}, which "
                f"halves, but is {self.patch}."
            )

    @property
    def changes(self) -> bool:
        """Whether training sees pictures changed."""
        return bool(
            self.flip or self.shift or self.zoom < 1 or self.randaugment or self.erase or self.mixes
        )

    @property
    def mixes(self) -> bool:
        return bool(self.mix and (self.mixup or self.cutmix))

    @property
    def patches(self) -> int:
        return (self.size // self.patch) ** 2


class GivenPicture(NamedTuple):
    """A picture that somebody gives, and what it is called."""

    pixels: Pixels  # (3, H, W)
    name: str


class PictureForm:
    """A picture: typed as a path, sent as a data: URL; in Python also a PIL.Image or an array."""

    kind = "picture"
    from_file = True
    endings = ENDINGS
    labels: tuple[str, ...] = ("picture",)

    def parse(self, word: str, number: int = 1) -> GivenPicture:
        return self.decoded(read_file(word, number), word, number)

    def accept(self, sent: object, number: int = 1) -> GivenPicture:
        if isinstance(sent, GivenPicture):
            return sent
        if isinstance(sent, Path):
            return self.parse(str(sent), number)
        if isinstance(sent, np.ndarray):
            if sent.dtype != np.uint8 or sent.ndim not in (2, 3) or sent.shape[2:] not in COLOURED:
                raise InputError(
                    f"input {number}: an array must be bytes, (height, width) or (height, width, "
                    f"colours), but is {sent.dtype} {sent.shape}."
                )
            sent = Image.fromarray(sent)
        if isinstance(sent, Image.Image):
            return GivenPicture(as_array(ImageOps.exif_transpose(sent), 3), "picture")
        url = sent.get("image") if isinstance(sent, dict) else sent
        wanted = 'a picture as a data: URL, {"image": "data:image/png;base64,…"}'
        content = read_url(url, ("image",), wanted, number)
        return self.decoded(content, "picture", number, MOST_SENT)

    def decoded(
        self, content: bytes, name: str, number: int, most: int | None = None
    ) -> GivenPicture:
        try:
            return GivenPicture(decode(content, most=most), name)
        except PictureError as error:
            raise InputError(f"input {number}: {name}: no picture ({error}).") from error

    def show(self, given: GivenPicture) -> str:
        return given.name


def sizes_of(picture: PictureSettings, colours: Colours = ()) -> Sizes:
    """Of what is read; a task adds what is asked."""
    side = picture.size // picture.patch
    patch = (picture.channels, picture.patch, picture.patch)
    return Sizes(
        0, 0, False, 0, PixelBatch, item=patch, grid=(side, side), stem=picture.stem,
        colours=tuple(map(tuple, colours)),
    )  # fmt: skip


def fitted(pixels: Pixels, picture: PictureSettings) -> Pixels:
    return FITS[picture.fit](pixels, picture.size)


def in_channels(pixels: Pixels, picture: PictureSettings) -> Pixels:
    """Colours as grey, where that is wanted.  (3, H, W) -> (C, H, W)"""
    if picture.channels == 3:
        return pixels
    return as_array(Image.fromarray(pixels.transpose(1, 2, 0)), 1)


def as_png(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(file, "PNG")
    return file.getvalue()


class HasContent(Protocol):
    """An example that is a picture's file."""

    @property
    def content(self) -> bytes: ...


class HasPictures(Protocol):
    """Examples, any of which can be had."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> HasContent: ...


def learn_colours(
    examples: HasPictures, picture: PictureSettings
) -> tuple[list[float], list[float]]:
    """Mean and spread of each channel, over pictures from all of the data that can be read."""
    sums = np.zeros((3, picture.channels))  # pixels, their sum, the sum of their squares
    # Files often stand class by class, so some are taken from everywhere.
    for place in range(0, len(examples), -(-len(examples) // SEEN) or 1):
        try:
            pixels = decode(examples[place].content, picture.channels) / 255.0
        except PictureError:
            continue  # told when it is encoded
        sums += (
            np.full(picture.channels, pixels[0].size),
            pixels.sum((1, 2)),
            (pixels**2).sum((1, 2)),
        )
    count, total, squares = sums / np.maximum(sums[0], 1)
    mean = total
    spread = np.sqrt(np.maximum(squares - mean**2, 0)) if count.any() else mean
    return mean.round(5).tolist(), np.maximum(spread, 0.01).round(5).tolist()


DRAWN = (*COLUMNS, "zoom_down", "zoom_right", "covers", "by_piece", "other")


def draw_changes(
    picture: PictureSettings, rng: Rng, rows: int
) -> tuple[Tensor, NDArray[np.int64], Tensor]:
    """What is done to each picture, which of so many rows it is mixed with, and its own share.

    -> (B, columns of parts/augment.py), (B,), (B,)
    """
    assert isinstance(rng, Draws)
    drawn = rng.uniform(len(DRAWN))
    u = dict(zip(DRAWN, drawn.T, strict=True))
    none = np.zeros(len(drawn))
    said = dict.fromkeys(COLUMNS, none) | {"share": none + 1.0, "zoom": none + 1.0}
    said["flip"] = (u["flip"] < picture.flip).astype(float)
    if picture.zoom < 1:
        said["zoom"] = zoom = picture.zoom + (1 - picture.zoom) * u["zoom"]
        said["down"], said["right"] = (
            (1 - zoom) * (u[name] - 0.5) for name in ("zoom_down", "zoom_right")
        )
    if picture.shift:
        span = 2 * picture.shift + 1
        for name in ("down", "right"):
            pixels = np.floor(span * u[name]) - picture.shift
            said[name] = said[name] + pixels / picture.size
    if picture.randaugment:
        for op, size in (("op1", "size1"), ("op2", "size2")):
            said[op] = np.floor((len(OPS) + 1) * u[op])  # one of them is to do nothing
            said[size] = picture.randaugment * (2 * u[size] - 1)
    if picture.erase:
        covers = u["covers"] < picture.erase
        for side, first in (("height", "top"), ("width", "left")):
            length = np.where(covers, 0.1 + 0.4 * u[side], 0.0)
            said |= {side: length, first: (1 - length) * u[first]}
    if picture.mixes:
        said |= mixed(picture, u)
    table = torch.from_numpy(np.stack([said[name] for name in COLUMNS], 1).astype(np.float32))
    others = np.floor(rows * u["other"]).astype(np.int64)
    return table, others, table[:, COLUMNS.index("share")]


def beta(u: NDArray[np.float64], shape: float) -> NDArray[np.float64]:
    """Numbers of a Beta(shape, shape) out of those between 0 and 1: where its sum passes them."""
    # Cells that lie closer at both ends, where a shape below 1 has its peaks.
    edges = np.sin(np.linspace(0, np.pi / 2, 2049)) ** 2
    middle = (edges[1:] + edges[:-1]) / 2
    mass = (middle * (1 - middle)) ** (shape - 1) * np.diff(edges)
    sums = np.concatenate(([0.0], mass.cumsum())) / mass.sum()
    found: NDArray[np.float64] = np.interp(u, sums, edges)
    return found


def mixed(
    picture: PictureSettings, u: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """Mixup (Zhang et al. 2018) or cutmix (Yun et al. 2019): how, and how much is its own."""
    mixes = u["mix"] < picture.mix
    by_piece = mixes & (u["by_piece"] < (0.5 if picture.mixup else 1.0)) & bool(picture.cutmix)
    through, cut = (beta(u["share"], shape or 1.0) for shape in (picture.mixup, picture.cutmix))
    share = np.where(by_piece, cut, through)
    side = np.clip(np.round(picture.size * np.sqrt(1 - share)), 1, picture.size)
    room = picture.size - side + 1
    found = {
        "mix": np.where(by_piece, 2.0, mixes.astype(float)),
        "mix_top": np.floor(room * u["mix_top"]) / picture.size,
        "mix_left": np.floor(room * u["mix_left"]) / picture.size,
        "mix_height": side / picture.size,
        "mix_width": side / picture.size,
    }
    own = np.where(by_piece, 1 - (side / picture.size) ** 2, share)
    return {**found, "share": np.where(mixes, own, 1.0)}


class Eye:
    """Pictures on their way into a model: as rows of a store, as a batch, as what is looked at."""

    def __init__(self, picture: PictureSettings, colours: Colours) -> None:
        self.picture, self.colours = picture, [list(numbers) for numbers in colours]
        self.sizes = sizes_of(picture, self.colours)

    @property
    def field(self) -> Field:
        p = self.picture
        return Field("uint8", (p.channels, p.size, p.size))

    def artefact(self) -> str:
        return json.dumps(dict(zip(("mean", "spread"), self.colours, strict=True))) + "\n"

    @classmethod
    def load(cls, picture: PictureSettings, folder: Path) -> Eye:
        path = folder / "pixels.json"
        try:
            said = read_json(path)
            return cls(picture, [[float(n) for n in said[name]] for name in ("mean", "spread")])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: the colours must be there and readable, but are not.") from (
                error
            )

    def encode(self, content: bytes) -> Pixels:
        """A file's content as a row of a store.  -> (1, C, H, W)"""
        return fitted(decode(content, self.picture.channels), self.picture)[None]

    def read(self, store: Store, rows: Rows, rng: Rng | None) -> tuple[PixelBatch, Mix | None]:
        """Rows of a store, as training sees them where `rng` is given."""
        values = torch.from_numpy(store.first("pixels", rows).copy())  # (B, C, H, W)
        if rng is None or not self.picture.changes:
            return PixelBatch(values), None
        changes, others, share = draw_changes(self.picture, rng, store.rows)
        coloured = self.picture.randaugment > 0
        if not self.picture.mixes:
            return PixelBatch(values, changes, coloured=coloured), None
        mixed = torch.from_numpy(store.first("pixels", others).copy())
        return PixelBatch(values, changes, mixed, coloured), Mix(others, share)

    def given(self, inputs: Sequence[GivenPicture]) -> PixelBatch:
        pixels = [fitted(in_channels(one.pixels, self.picture), self.picture) for one in inputs]
        return PixelBatch(torch.from_numpy(np.stack(pixels)))

    def axis(self, given: GivenPicture) -> Axis:
        """A picture's patches, row after row, and the picture to draw them on."""
        side = self.picture.size // self.picture.patch
        names = [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]
        return Axis(names, "patches", (side, side), as_png(fitted(given.pixels, self.picture)))


class Mix(NamedTuple):
    """What pictures are mixed with."""

    others: NDArray[np.int64]  # (B,) rows of the store
    share: Tensor  # (B,) how much of each is its own
