"""Pictures: a label for each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch, Label, Nothing, Sizes
from ..batch import Pixels as PixelBatch
from ..data.cut import Plan
from ..data.examples import Examples, chunks
from ..data.given import Given, write_pictures
from ..data.order import Rows, Shuffled
from ..data.pictures import Picture, PictureError, read
from ..data.read import Faults
from ..data.store import Chunk, Field, Store
from ..decode import Settings as Decode
from ..errors import RecipeError, RunError
from ..model import Model, answers_of
from ..progress import counted
from ..text import Text
from .form import Form
from .labels import LabelSettings, LabelTask, Predicts, learn_labels, read_labels
from .picture import Eye, GivenPicture, PictureForm, PictureSettings, learn_colours, sizes_of
from .prediction import Prediction
from .task import Axis, Rng, Sections


@dataclass(frozen=True)
class PicturesSettings(LabelSettings):
    """Which columns of a table hold what."""

    image: Annotated[str, "in a table, the column of the picture's file"] = "image"
    label: Annotated[str, "in a table, the column of what is to be predicted"] = "label"


class ClassifyPictures(LabelTask[PicturesSettings, Picture, Rows]):
    """Labelled pictures."""

    Settings = PicturesSettings
    Example = Picture
    sections: ClassVar[Mapping[str, type]] = {"picture": PictureSettings}
    row_files = (".jsonl", ".tar")
    keeps = ("labels.json", "pixels.json")
    wanted = "a picture"
    encodes_apart = True
    names_classes = True
    unit = "picture"
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0, "evaluate_examples": 100_000}
    }

    def __init__(
        self,
        settings: PicturesSettings,
        eye: Eye,
        predicts: Predicts,
        labels: Sequence[str],
        weights: Sequence[float] = (),
    ) -> None:
        self.settings, self.eye, self.picture = settings, eye, eye.picture
        self.draws = eye.picture.changes
        self.set_labels(predicts, labels, weights)
        if self.picture.mixes and predicts != "class":
            raise RecipeError(
                f"picture.mixup and picture.cutmix mix classes, but here a {predicts} is predicted."
            )

    @property
    def gives(self) -> Form[GivenPicture]:
        return PictureForm()

    @property
    def sizes(self) -> Sizes:
        return replace(self.eye.sizes, classes=self.classes, asked=Label)

    @classmethod
    def usual_sizes(cls, settings: PicturesSettings, sections: Sections) -> Sizes:
        return replace(sizes_of(sections["picture"]), classes=2, asked=Label)

    @classmethod
    def longest_read(cls, settings: PicturesSettings, sections: Sections) -> tuple[str, int]:
        return "the patches of picture.size by picture.patch", sections["picture"].patches

    # From files to batches.

    @staticmethod
    def read(
        settings: PicturesSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[Picture]:
        return read(files, settings.image, settings.label, faults)

    @classmethod
    def write_rows(cls, settings: PicturesSettings, given: Given, paths: Sequence[Path]) -> None:
        columns = (settings.image, settings.label)
        write_pictures(paths[0], paths[1], given, columns, settings.image)

    @staticmethod
    def reads_by(settings: PicturesSettings) -> str:
        return repr((settings.image, settings.label))

    @classmethod
    def learn(
        cls, settings: PicturesSettings, sections: Sections, examples: Examples[Picture]
    ) -> Self:
        eye = Eye(sections["picture"], learn_colours(examples, sections["picture"]))
        return cls(settings, eye, *learn_labels(settings, examples))

    @classmethod
    def adopt_from(
        cls,
        settings: PicturesSettings,
        sections: Sections,
        origin: Path,
        examples: Examples[Picture],
    ) -> Self:
        """Other classes, of pictures that are made what the other run's were."""
        eye = Eye.load(sections["picture"], origin)
        return cls(settings, eye, *learn_labels(settings, examples))

    @classmethod
    def imported(
        cls,
        settings: PicturesSettings,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> Self:
        """With somebody else's classes, and colours as their pictures were prepared."""
        said, picture = config.get("preprocessor"), sections["picture"]
        said = said if isinstance(said, dict) else {}
        usual = [0.5] * picture.channels
        try:
            colours = [
                [float(n) for n in said.get(name, usual)] for name in ("image_mean", "image_std")
            ]
            if any(len(numbers) != picture.channels for numbers in colours) or min(colours[1]) <= 0:
                raise ValueError("there must be one of each for every channel")
        except (TypeError, ValueError) as error:
            raise RunError(
                f"preprocessor_config.json: image_mean and image_std: {error}."
            ) from error
        return cls(settings, Eye(picture, colours), "class", labels)

    def artefacts(self) -> Mapping[str, str]:
        return {**self.label_artefacts(), "pixels.json": self.eye.artefact()}

    @classmethod
    def load(cls, settings: PicturesSettings, sections: Sections, folder: Path) -> Self:
        kept, eye = read_labels(folder), Eye.load(sections["picture"], folder)
        return cls(settings, eye, kept["predicts"], kept["labels"], kept["weights"])

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"pixels": self.eye.field, "label": self.label_field}

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
                    pixels = self.eye.encode(example.content)
                except PictureError as error:
                    faults.report(example.where, f"the picture cannot be read ({error})")
                    continue
                kept["pixels"].append(pixels)
                kept["label"].append(label)
            yield kept

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of so many patches."""
        rows = max(1, budget // self.picture.patches)
        return Shuffled(store.lengths("pixels"), rows, seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[PixelBatch, Label]:
        read, mix = self.eye.read(store, rows, rng)
        asked = self.asked(store, rows)
        if mix is not None:
            other = torch.from_numpy(store.first("label", mix.others).astype(np.int64))
            weight = mix.share * asked.weight + (1 - mix.share) * self.weights[other]
            asked = replace(asked, weight=weight, other=other, share=mix.share)
        return Batch(read, asked)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[PixelBatch, Label]]:
        for rows in self.in_order(store.rows, budget):
            yield self.batch(store, rows)

    def in_order(self, count: int, budget: int) -> Iterator[Rows]:
        each = max(1, budget // self.picture.patches)
        for first in range(0, count, each):
            yield np.arange(first, min(first + each, count))

    @staticmethod
    def sample_batch(
        settings: PicturesSettings, budget: int, sections: Sections | None = None
    ) -> Batch[PixelBatch, Label]:
        picture = sections["picture"] if sections else PictureSettings()
        rows = max(1, budget // picture.patches)
        label = Label(torch.zeros(rows, dtype=torch.long), torch.ones(rows))
        values = torch.zeros(rows, picture.channels, picture.size, picture.size, dtype=torch.uint8)
        return Batch(PixelBatch(values), label)

    # Answers.

    def stored_scores(self, model: Model, store: Store, count: int, budget: int) -> list[Tensor]:
        found: list[Tensor] = []
        for rows in counted(self.in_order(count, budget), "answering", count, len):
            found += answers_of(model, Batch(self.eye.read(store, rows, None)[0], Nothing()))
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
        budget, count = decode.batch_tokens, len(inputs)
        for rows in counted(self.in_order(count, budget), "answering", count, len):
            some = self.eye.given([inputs[row] for row in rows.tolist()])
            found += answers_of(model, Batch(some, Nothing()))
        seconds = round(time.perf_counter() - began, 6)
        pairs = zip(inputs, found, strict=True)
        return [self.label_answer(given.name, scores[0], seconds) for given, scores in pairs]

    def trace(
        self, given: GivenPicture, target: str
    ) -> tuple[Batch[PixelBatch, Nothing], dict[str, Axis]]:
        """A picture as a batch, and its patches, row after row."""
        axis = self.eye.axis(given)
        return Batch(self.eye.given([given]), Nothing()), {"inputs": axis, "outputs": axis}

    def as_given(self, example: Picture) -> GivenPicture:
        return PictureForm().decoded(example.content, example.where, 1)

    def example(self, examples: Examples[Picture], longest: int | None = None) -> str:
        where = Path(next(iter(examples)).where)
        return str(where) if where.is_file() else "photo.png"
