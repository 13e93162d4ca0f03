"""Masked patches: most of a picture is hidden, and its pixels are predicted from the rest."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Gt, Lt
from torch import Tensor

from ..batch import Batch, Patches, Sizes
from ..batch import Pixels as PixelBatch
from ..data.cut import Plan
from ..data.draws import Draws
from ..data.examples import Data, Examples, chunks
from ..data.order import Rows, Shuffled
from ..data.pictures import Picture, PictureError, read
from ..data.read import Faults
from ..data.store import Chunk, Field, Store
from ..decode import Settings as Decode
from ..errors import RecipeError
from ..model import Model
from .form import Form
from .picture import (
    DRAWN,
    Eye,
    GivenPicture,
    PictureForm,
    PictureSettings,
    as_png,
    learn_colours,
    sizes_of,
)
from .prediction import Prediction
from .task import Axis, Measured, Rng, Scores, Sections, Task


@dataclass(frozen=True)
class PatchesSettings:
    """How much is hidden; the default is that of masked autoencoders."""

    image: Annotated[str, "in a table, the column of the picture's file"] = "image"
    hidden: Annotated[float, Gt(0), Lt(1), "the share of patches that are hidden"] = 0.75

    def count(self, patches: int) -> int:
        """At least one is hidden, and one is not."""
        return max(1, min(round(self.hidden * patches), patches - 1))


class MaskedPatches(Task[PatchesSettings, Picture, Rows]):
    """Pre-training on pictures alone (He et al. 2022): a learned vector stands in the place of each
    hidden patch, and one encoder reads all and predicts the pixels (Xie et al. 2022)."""

    Settings = PatchesSettings
    Example = Picture
    sections: ClassVar[Mapping[str, type]] = {"picture": PictureSettings}
    keeps = ("pixels.json",)
    loss = "pixels"
    metric = "loss"
    higher_is_better = False
    unit = "hidden patch"
    wanted = "a picture"
    encodes_apart = True
    gets = "picture"
    draws = True
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {"train": {"smoothing": 0.0}}

    def __init__(self, settings: PatchesSettings, eye: Eye) -> None:
        self.settings, self.eye, self.picture = settings, eye, eye.picture
        if self.picture.stem != "linear":
            raise RecipeError(
                "picture.stem must be linear where patches are hidden, because another would see "
                f"them from the patches beside, but is {self.picture.stem}."
            )
        if self.picture.patches < 2:
            raise RecipeError(
                f"picture.patch ({self.picture.patch}) must be less than picture.size "
                f"({self.picture.size}) where patches are hidden, so that something is left."
            )

    @property
    def gives(self) -> Form[GivenPicture]:
        return PictureForm()

    @property
    def sizes(self) -> Sizes:
        return replace(self.eye.sizes, asked=Patches)

    @classmethod
    def usual_sizes(cls, settings: PatchesSettings, sections: Sections) -> Sizes:
        return replace(sizes_of(sections["picture"]), asked=Patches)

    @classmethod
    def longest_read(cls, settings: PatchesSettings, sections: Sections) -> tuple[str, int]:
        return "the patches of picture.size by picture.patch", sections["picture"].patches

    # From files to batches.

    @staticmethod
    def read(settings: PatchesSettings, files: Sequence[Path], faults: Faults) -> Iterator[Picture]:
        return read(files, settings.image, settings.image, faults)  # labels are not looked at

    @classmethod
    def learn(
        cls, settings: PatchesSettings, sections: Sections, examples: Examples[Picture]
    ) -> Self:
        return cls(settings, Eye(sections["picture"], learn_colours(examples, sections["picture"])))

    def artefacts(self) -> Mapping[str, str]:
        return {"pixels.json": self.eye.artefact()}

    @classmethod
    def load(cls, settings: PatchesSettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, Eye.load(sections["picture"], folder))

    @staticmethod
    def reads_by(settings: PatchesSettings) -> str:
        return settings.image

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"pixels": self.eye.field}

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.picture.fit,)

    def encode(self, examples: Examples[Picture], longest: int, faults: Faults) -> Iterator[Chunk]:
        for some in chunks(examples, 256):
            pixels: list[object] = []
            for example in some:
                try:
                    pixels.append(self.eye.encode(example.content))
                except PictureError as error:
                    faults.report(example.where, f"the picture cannot be read ({error})")
            yield {"pixels": pixels}

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of so many patches."""
        rows = max(1, budget // self.picture.patches)
        return Shuffled(store.lengths("pixels"), rows, seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[PixelBatch, Patches]:
        """Without `rng`, the same patches of a row are hidden every time."""
        fixed = Draws(0, 0, rows.tolist())
        return Batch(self.eye.read(store, rows, rng)[0], self.choose(fixed if rng is None else rng))

    def choose(self, rng: Rng) -> Patches:
        """Equally many patches of each picture, those that drew least."""
        assert isinstance(rng, Draws)
        patches = self.picture.patches
        # The first numbers of a row say how its picture is changed.
        drawn = rng.uniform(len(DRAWN) + patches)[:, len(DRAWN) :]
        least = np.argsort(drawn, 1, kind="stable")[:, : self.settings.count(patches)]
        return Patches(torch.from_numpy(np.sort(least, 1)))

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[PixelBatch, Patches]]:
        each = max(1, budget // self.picture.patches)
        for first in range(0, store.rows, each):
            yield self.batch(store, np.arange(first, min(first + each, store.rows)))

    @staticmethod
    def sample_batch(
        settings: PatchesSettings, budget: int, sections: Sections | None = None
    ) -> Batch[PixelBatch, Patches]:
        picture = sections["picture"] if sections else PictureSettings()
        rows = max(1, budget // picture.patches)
        values = torch.zeros(rows, picture.channels, picture.size, picture.size, dtype=torch.uint8)
        places = torch.arange(settings.count(picture.patches))
        return Batch(PixelBatch(values), Patches(places.repeat(rows, 1)))

    # Answers.

    def masked(self, given: GivenPicture) -> Batch[PixelBatch, Patches]:
        return Batch(self.eye.given([given]), self.choose(Draws(0, 0, [0])))

    def trace(
        self, given: GivenPicture, target: str
    ) -> tuple[Batch[PixelBatch, Patches], dict[str, Axis]]:
        """The patches, row after row, drawn on what is left of the picture."""
        batch = self.masked(given)
        patches = self.cut(batch.read.values)
        patches[:, :, batch.asked.places[0]] = 0.0
        axis = self.eye.axis(given)._replace(picture=as_png(self.joined(patches)[0].numpy()))
        return batch, {"inputs": axis}

    @torch.inference_mode()
    def predict(
        self,
        model: Model,
        inputs: Sequence[GivenPicture],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """The picture, what is left of it, and how it is filled in, side by side."""
        answers, device = [], next(model.parameters()).device
        for given in inputs:
            began = time.perf_counter()
            batch = self.masked(given)
            pixels = model(batch.to(device))[0].float().cpu()  # (M, C · p²)
            pictures = self.filled(self.cut(batch.read.values), pixels, batch.asked.places[0])
            content = as_png(torch.cat(tuple(pictures), 2).numpy())
            url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
            seconds = round(time.perf_counter() - began, 6)
            answers.append(Prediction(given.name, url, seconds=seconds))
        return answers

    def filled(self, patches: Tensor, pixels: Tensor, places: Tensor) -> Tensor:
        """A hidden patch's mean and spread are not predicted: they are those of the picture.

        (1, C · p², S), (M, C · p²), (M,) -> whole, left, filled (3, 3, H, W)
        """
        whole, left, full = patches.repeat(3, 1, 1)
        spread, mean = torch.std_mean(whole[:, places], 0, correction=0)
        left[:, places], full[:, places] = 0.0, pixels.T * spread + mean
        return self.joined(torch.stack((whole, left, full)))

    def cut(self, values: Tensor) -> Tensor:
        """Bytes as the numbers of each patch that a model has.  (B, C, H, W) -> (B, C · p², S)"""
        mean, spread = torch.tensor(self.eye.colours)[..., None, None]
        patch = self.picture.patch
        return F.unfold((values / 255 - mean) / spread, patch, stride=patch)

    def joined(self, patches: Tensor) -> Tensor:
        """The same as bytes again, in colours.  (B, C · p², S) -> (B, 3, H, W)"""
        size, patch = self.picture.size, self.picture.patch
        mean, spread = torch.tensor(self.eye.colours)[..., None, None]
        values: Tensor = F.fold(patches, (size, size), patch, stride=patch) * spread + mean
        return (values * 255).round().clamp(0, 255).byte().expand(-1, 3, -1, -1)

    def as_given(self, example: Picture) -> GivenPicture:
        return PictureForm().decoded(example.content, example.where, 1)

    def example(self, examples: Examples[Picture], longest: int | None = None) -> str:
        where = Path(next(iter(examples)).where)
        return str(where) if where.is_file() else "photo.png"

    # Scores.

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """The loss; a patch that is predicted as its mean alone costs 1, or 0 where it is blank."""
        return {
            "loss": round(loss.nll / loss.tokens, 5),
            "patches": loss.tokens,
            "examples": data.store.rows,
        }
