"""Pictures: a label for each."""

from __future__ import annotations

import base64
import binascii
import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from PIL import Image
from torch import Tensor

from ..batch import Batch, Label, Nothing, Sizes
from ..batch import Pixels as PixelBatch
from ..data.cut import Plan
from ..data.examples import Examples, chunks
from ..data.order import Rows, Shuffled
from ..data.pictures import Picture, PictureError, Pixels, as_array, decode, read
from ..data.read import Faults, read_json
from ..data.resize import as_floats, inside, square
from ..data.store import Chunk, Store
from ..data.store import Field as StoreField
from ..decode import Settings as Decode
from ..errors import InputError, RecipeError, RunError
from ..model import Model, answers_of
from .form import Form
from .labels import LabelSettings, LabelTask, Predicts, learn_labels, read_labels
from .prediction import Prediction
from .task import Axis, Rng, Sections

SEEN = 1000  # pictures whose colours are looked at
FITS = {"square": square, "inside": inside}


@dataclass(frozen=True)
class PictureSettings:
    """How pictures are made one size, cut into patches, and changed in training."""

    size: Annotated[int, Gt(0), Le(4096), "height and width that every picture is made"] = 32
    channels: Annotated[Literal[1, 3], "1: grey, 3: colours"] = 3
    patch: Annotated[int, Gt(0), Le(4096), "height and width of what becomes one vector"] = 4
    fit: Annotated[
        Literal["square", "inside"], "square: the middle of it; inside: all of it, with an edge"
    ] = "square"
    flip: Annotated[float, Ge(0), Le(1), "in training, how often left and right change places"] = (
        0.0
    )
    shift: Annotated[int, Ge(0), Le(4096), "in training, by how many pixels it may be moved"] = 0
    erase: Annotated[float, Ge(0), Lt(1), "in training, how often a piece of it is left out"] = 0.0

    def __post_init__(self) -> None:
        if self.size % self.patch:
            raise RecipeError(
                f"picture.patch ({self.patch}) must divide picture.size ({self.size})."
            )


@dataclass(frozen=True)
class PicturesSettings(LabelSettings):
    """Which columns of a table hold what."""

    image: Annotated[str, "in a table, the column of the picture's file"] = "image"
    label: Annotated[str, "in a table, the column of what is to be predicted"] = "label"


class GivenPicture(NamedTuple):
    """A picture that somebody gives, and what it is called."""

    pixels: Pixels  # (3, H, W)
    name: str


class PictureForm:
    """A picture: typed as a path, sent as a data: URL; in Python also a PIL.Image or an array."""

    kind = "picture"
    from_file = True
    labels: tuple[str, ...] = ("picture",)

    def parse(self, word: str, number: int = 1) -> GivenPicture:
        path = Path(word)
        try:
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"input {number}: {word}: cannot be read ({reason}).") from error
        return self.decoded(content, word, number)

    def accept(self, sent: object, number: int = 1) -> GivenPicture:
        if isinstance(sent, GivenPicture):
            return sent
        if isinstance(sent, Path):
            return self.parse(str(sent), number)
        if isinstance(sent, Image.Image):
            return GivenPicture(as_array(sent, 3), "picture")
        if isinstance(sent, np.ndarray):
            return GivenPicture(as_array(Image.fromarray(sent), 3), "picture")
        url = sent.get("image") if isinstance(sent, dict) else sent
        head, comma, body = url.partition(",") if isinstance(url, str) else ("", "", "")
        if not (comma and head.startswith("data:image/") and head.endswith(";base64")):
            raise InputError(
                f"input {number}: must be a picture as a data: URL, "
                '{"image": "data:image/png;base64,…"}, but is not.'
            )
        try:
            content = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"input {number}: not base64 ({error}).") from error
        return self.decoded(content, "picture", number)

    def decoded(self, content: bytes, name: str, number: int) -> GivenPicture:
        try:
            return GivenPicture(decode(content), name)
        except PictureError as error:
            raise InputError(f"input {number}: {name}: no picture ({error}).") from error

    def show(self, given: GivenPicture) -> str:
        return given.name


class ClassifyPictures(LabelTask[PicturesSettings, Picture, Rows]):
    """Labelled pictures."""

    Settings = PicturesSettings
    Example = Picture
    sections: ClassVar[Mapping[str, type]] = {"picture": PictureSettings}
    keeps = ("labels.json", "pixels.json")
    wanted = "a picture"
    unit = "picture"
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0, "evaluate_examples": 100_000}
    }

    def __init__(
        self,
        settings: PicturesSettings,
        picture: PictureSettings,
        colours: Sequence[Sequence[float]],
        predicts: Predicts,
        labels: Sequence[str],
        weights: Sequence[float] = (),
    ) -> None:
        self.settings, self.picture = settings, picture
        self.colours = [list(numbers) for numbers in colours]  # mean and spread of each channel
        self.mean, self.spread = (torch.tensor(numbers) for numbers in self.colours)
        self.draws = bool(picture.flip or picture.shift or picture.erase)
        self.set_labels(predicts, labels, weights)

    @property
    def gives(self) -> Form[GivenPicture]:
        return PictureForm()

    @property
    def sizes(self) -> Sizes:
        return sizes_of(self.picture, self.classes)

    @classmethod
    def usual_sizes(cls, settings: PicturesSettings, sections: Sections) -> Sizes:
        return sizes_of(sections["picture"], 2)

    @classmethod
    def longest_read(cls, settings: PicturesSettings, sections: Sections) -> tuple[str, int]:
        rows, columns = sizes_of(sections["picture"], 1).grid
        return "the patches of picture.size by picture.patch", rows * columns

    # From files to batches.

    @staticmethod
    def read(
        settings: PicturesSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[Picture]:
        return read(files, settings.image, settings.label, faults)

    @staticmethod
    def reads_by(settings: PicturesSettings) -> str:
        return repr((settings.image, settings.label))

    @classmethod
    def learn(
        cls, settings: PicturesSettings, sections: Sections, examples: Examples[Picture]
    ) -> Self:
        picture = sections["picture"]
        colours = learn_colours(examples, picture)
        return cls(settings, picture, colours, *learn_labels(settings, examples))

    def artefacts(self) -> Mapping[str, str]:
        kept = dict(zip(("mean", "spread"), self.colours, strict=True))
        return {**self.label_artefacts(), "pixels.json": json.dumps(kept) + "\n"}

    @classmethod
    def load(cls, settings: PicturesSettings, sections: Sections, folder: Path) -> Self:
        kept, path = read_labels(folder), folder / "pixels.json"
        try:
            said = read_json(path)
            colours = [[float(n) for n in said[name]] for name in ("mean", "spread")]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: the colours must be there and readable, but are not.") from (
                error
            )
        whole = (kept["predicts"], kept["labels"], kept["weights"])
        return cls(settings, sections["picture"], colours, *whole)

    @property
    def fields(self) -> Mapping[str, StoreField]:
        p = self.picture
        pixels = StoreField("uint8", (p.channels, p.size, p.size))
        return {"pixels": pixels, "label": self.label_field}

    @property
    def marks(self) -> tuple[str, ...]:
        return (repr(self.labels), self.predicts, self.picture.fit)

    def encode(self, examples: Examples[Picture], longest: int, faults: Faults) -> Iterator[Chunk]:
        for some in chunks(examples, 256):
            kept: dict[str, list[object]] = {"pixels": [], "label": []}
            for example in some:
                label = self.label_of(example, faults)
                if label is None:
                    continue
                try:
                    pixels = fitted(decode(example.content, self.picture.channels), self.picture)
                except PictureError as error:
                    faults.report(example.where, f"the picture cannot be read ({error})")
                    continue
                kept["pixels"].append(pixels[None])
                kept["label"].append(label)
            yield kept

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of so many patches."""
        rows = max(1, budget // (self.picture.size // self.picture.patch) ** 2)
        return Shuffled(store.lengths("pixels"), rows, seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[PixelBatch, Label]:
        pixels = store.first("pixels", rows).copy()  # (B, C, H, W)
        for picture, draw in zip(pixels, rng or (), strict=False):
            change(picture, self.picture, draw)
        return Batch(self.as_batch(pixels), self.asked(store, rows))

    def as_batch(self, pixels: Pixels) -> PixelBatch:
        return PixelBatch(as_floats(torch.from_numpy(pixels), self.mean, self.spread))

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[PixelBatch, Label]]:
        for rows in self.in_order(store.rows, budget):
            yield self.batch(store, rows)

    def in_order(self, count: int, budget: int) -> Iterator[Rows]:
        each = max(1, budget // (self.picture.size // self.picture.patch) ** 2)
        for first in range(0, count, each):
            yield np.arange(first, min(first + each, count))

    @staticmethod
    def sample_batch(
        settings: PicturesSettings, budget: int, sections: Sections | None = None
    ) -> Batch[PixelBatch, Label]:
        picture = sections["picture"] if sections else PictureSettings()
        rows = max(1, budget // (picture.size // picture.patch) ** 2)
        label = Label(torch.zeros(rows, dtype=torch.long), torch.ones(rows))
        values = torch.zeros(rows, picture.channels, picture.size, picture.size)
        return Batch(PixelBatch(values), label)

    # Answers.

    def stored_scores(self, model: Model, store: Store, count: int, budget: int) -> list[Tensor]:
        found: list[Tensor] = []
        for rows in self.in_order(count, budget):
            pixels = self.as_batch(store.first("pixels", rows).copy())
            found += answers_of(model, Batch(pixels, Nothing()))
        return found

    def predict(
        self,
        model: Model,
        inputs: Sequence[GivenPicture],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        began = time.perf_counter()
        found: list[Tensor] = []
        for rows in self.in_order(len(inputs), decode.batch_tokens):
            found += answers_of(model, self.given([inputs[row] for row in rows.tolist()]))
        seconds = round(time.perf_counter() - began, 6)
        pairs = zip(inputs, found, strict=True)
        return [self.label_answer(given.name, scores[0], seconds) for given, scores in pairs]

    def given(self, inputs: Sequence[GivenPicture]) -> Batch[PixelBatch, Nothing]:
        pixels = [fitted(in_channels(one.pixels, self.picture), self.picture) for one in inputs]
        return Batch(self.as_batch(np.stack(pixels)), Nothing())

    def trace(
        self, given: GivenPicture, target: str
    ) -> tuple[Batch[PixelBatch, Nothing], dict[str, Axis]]:
        """A picture as a batch, and its patches, row after row."""
        side = self.picture.size // self.picture.patch
        names = [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]
        shown = fitted(given.pixels, self.picture)
        axis = Axis(names, "patches", (side, side), as_png(shown))
        return self.given([given]), {"inputs": axis, "outputs": axis}

    def example(self, examples: Examples[Picture], longest: int | None = None) -> str:
        return Path(next(iter(examples)).where.rpartition(":")[2]).name


def sizes_of(picture: PictureSettings, classes: int) -> Sizes:
    side = picture.size // picture.patch
    patch = (picture.channels, picture.patch, picture.patch)
    return Sizes(0, 0, False, classes, PixelBatch, Label, patch, (side, side))


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


def learn_colours(
    examples: Examples[Picture], picture: PictureSettings
) -> tuple[list[float], list[float]]:
    """Mean and spread of each channel, over the first pictures that can be read."""
    sums = np.zeros((3, picture.channels))  # pixels, their sum, the sum of their squares
    for example, _ in zip(examples, range(SEEN), strict=False):
        try:
            pixels = decode(example.content, picture.channels) / 255.0
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


def change(pixels: Pixels, picture: PictureSettings, draw: np.random.Generator) -> None:
    """One picture as training sees it this time, in its place.  (C, H, W)"""
    if picture.flip and draw.random() < picture.flip:
        pixels[:] = pixels[:, :, ::-1].copy()
    if picture.shift:
        down, right = draw.integers(-picture.shift, picture.shift + 1, 2).tolist()
        edge = picture.shift
        wide = np.pad(pixels, ((0, 0), (edge, edge), (edge, edge)))
        size = picture.size
        pixels[:] = wide[:, edge + down : edge + down + size, edge + right : edge + right + size]
    if picture.erase and draw.random() < picture.erase:
        height, width = draw.integers(1, picture.size // 2 + 1, 2).tolist()
        top = int(draw.integers(0, picture.size - height + 1))
        left = int(draw.integers(0, picture.size - width + 1))
        pixels[:, top : top + height, left : left + width] = int(pixels.mean())
