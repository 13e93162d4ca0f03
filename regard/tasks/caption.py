"""Captions: a picture in, a sentence out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch

from ..batch import Batch, Sizes, Words
from ..batch import Pixels as PixelBatch
from ..data.cut import Plan
from ..data.draws import Draws
from ..data.examples import Data, Examples, chunks
from ..data.given import Given, write_pictures
from ..data.order import Rows, Shuffled
from ..data.pictures import Captioned, PictureError, read_captions
from ..data.read import Faults
from ..data.store import Chunk, Field, Store, ids_below
from ..decode import Limits
from ..decode import Settings as Decode
from ..errors import RecipeError
from ..model import Model
from ..score.bleu import several_references
from ..score.cider import cider
from ..text import Settings as TextSettings
from ..text import Text, learn
from .form import Form
from .picture import DRAWN, Eye, GivenPicture, PictureForm, PictureSettings, learn_colours, sizes_of
from .prediction import Prediction
from .task import Axis, Measured, Rng, Scores, Sections
from .writing import GREEDY, WritesTarget

USUAL = 16  # tokens of a caption, to reckon with


@dataclass(frozen=True)
class CaptionSettings:
    """Which columns of a table hold what."""

    image: Annotated[str, "the column of the picture's file"] = "image"
    caption: Annotated[str, "the column of what is said of it; in JSONL also a list"] = "caption"


class Caption(WritesTarget[CaptionSettings, Captioned, Rows]):
    """Pictures with sentences; scored by BLEU-4 and CIDEr-D, beside the same of shuffled pictures.

    In training each picture comes once an epoch, with one of its captions drawn.
    """

    Settings = CaptionSettings
    Example = Captioned
    sections: ClassVar[Mapping[str, type]] = {"picture": PictureSettings, "text": TextSettings}
    row_files = (".jsonl", ".tar")
    keeps = ("tokenizer.json", "pixels.json")
    metric = "bleu"
    wanted = "a picture with a caption"
    draws = True

    def __init__(self, settings: CaptionSettings, eye: Eye, target: Text) -> None:
        self.settings, self.eye, self.picture, self.target = settings, eye, eye.picture, target
        if self.picture.mixes:
            raise RecipeError("picture.mixup and picture.cutmix mix classes; captions have none.")

    @property
    def gives(self) -> Form[GivenPicture]:
        return PictureForm()

    @property
    def sizes(self) -> Sizes:
        return replace(self.eye.sizes, target=self.target.size, asked=Words)

    @classmethod
    def usual_sizes(cls, settings: CaptionSettings, sections: Sections) -> Sizes:
        return replace(sizes_of(sections["picture"]), target=sections["text"].size, asked=Words)

    @classmethod
    def longest_read(cls, settings: CaptionSettings, sections: Sections) -> tuple[str, int]:
        return "the patches of picture.size by picture.patch", sections["picture"].patches

    @property
    def texts(self) -> Mapping[str, Text]:
        return {"tokenizer.json": self.target}

    @property
    def notes(self) -> list[str]:
        return [self.target.note] if self.target.note else []

    # From files to batches.

    @staticmethod
    def read(
        settings: CaptionSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[Captioned]:
        return read_captions(files, settings.image, settings.caption, faults)

    @classmethod
    def write_rows(cls, settings: CaptionSettings, given: Given, paths: Sequence[Path]) -> None:
        columns = (settings.image, settings.caption)
        write_pictures(paths[0], paths[1], given, columns, settings.image)

    @classmethod
    def learn(
        cls, settings: CaptionSettings, sections: Sections, examples: Examples[Captioned]
    ) -> Self:
        eye = Eye(sections["picture"], learn_colours(examples, sections["picture"]))
        target = learn((text for one in examples for text in one.captions), sections["text"])
        return cls(settings, eye, target)

    def artefacts(self) -> Mapping[str, str]:
        vocabulary = self.target.tokenizer.to_str(pretty=True)
        return {"tokenizer.json": vocabulary, "pixels.json": self.eye.artefact()}

    @classmethod
    def load(cls, settings: CaptionSettings, sections: Sections, folder: Path) -> Self:
        eye = Eye.load(sections["picture"], folder)
        return cls(settings, eye, Text.load(folder / "tokenizer.json"))

    @property
    def fields(self) -> Mapping[str, Field]:
        """All captions of a picture, one after the other, each with its end; `example`: which of
        the examples it is, for some cannot be read."""
        captions = ids_below(self.target.size)
        return {"pixels": self.eye.field, "captions": captions, "example": Field("int64")}

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.target.tokenizer.to_str(), self.picture.fit)

    def encode(
        self, examples: Examples[Captioned], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        number = -1
        for some in chunks(examples, 256):
            kept: dict[str, list[Any]] = {name: [] for name in self.fields}
            for example in some:
                number += 1
                try:
                    pixels = self.eye.encode(example.content)
                except PictureError as error:
                    faults.report(example.where, f"the picture cannot be read ({error})")
                    continue
                rows = [ids for ids in self.target.encode(example.captions) if len(ids) < longest]
                if not rows:
                    faults.report(
                        example.where,
                        f"a caption may have {longest} tokens with its end (data.max_length), but "
                        "all have more",
                    )
                    continue
                kept["pixels"].append(pixels)
                kept["captions"].append([i for ids in rows for i in (*ids, self.target.eos)])
                kept["example"].append([number])
            yield kept

    def captions(self, store: Store, row: int) -> list[list[int]]:
        """A picture's captions, without their ends."""
        found: list[list[int]] = [[]]
        for token in store.row("captions", row):
            if token == self.target.eos:
                found.append([])
            else:
                found[-1].append(token)
        return found[:-1]

    def each(self, budget: int) -> int:
        """Pictures in a batch of so many patches and words."""
        return max(1, budget // (self.picture.patches + USUAL))

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        return Shuffled(store.lengths("pixels"), self.each(budget), seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[PixelBatch, Words]:
        told = [self.captions(store, row) for row in rows.tolist()]
        picked = [0] * len(told)
        if rng is not None:
            assert isinstance(rng, Draws)
            drawn = rng.uniform(len(DRAWN) + 1)[:, -1].tolist()  # beside what is done to pictures
            picked = [int(u * len(row)) for u, row in zip(drawn, told, strict=True)]
        read, _ = self.eye.read(store, rows, rng)
        return Batch(read, self.words([row[i] for row, i in zip(told, picked, strict=True)]))

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[PixelBatch, Words]]:
        """Every caption of every picture."""
        pairs = [(r, ids) for r in range(store.rows) for ids in self.captions(store, r)]
        for some in chunks(pairs, self.each(budget)):
            rows = np.array([row for row, _ in some])
            yield Batch(self.eye.read(store, rows, None)[0], self.words([ids for _, ids in some]))

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        return None

    @staticmethod
    def sample_batch(
        settings: CaptionSettings, budget: int, sections: Sections | None = None
    ) -> Batch[PixelBatch, Words]:
        picture = sections["picture"] if sections else PictureSettings()
        rows = max(1, budget // (picture.patches + USUAL))
        values = torch.zeros(rows, picture.channels, picture.size, picture.size, dtype=torch.uint8)
        ids = torch.zeros(rows, USUAL + 1, dtype=torch.long)
        return Batch(PixelBatch(values), Words(ids, torch.full((rows,), USUAL)))

    # Answers.

    def predict(
        self,
        model: Model,
        inputs: Sequence[GivenPicture],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        reads = [self.eye.given([one]) for one in inputs]
        return self.write(model, inputs, reads, [self.picture.patches] * len(inputs), decode)

    def read_ids(self, given: GivenPicture, number: int = 1) -> PixelBatch:
        return self.eye.given([given])

    def read_input(
        self, model: Model, given: GivenPicture, decode: Decode, longest: int, number: int = 1
    ) -> PixelBatch:
        return self.eye.given([given])

    def begin(
        self, model: Model, rows: Sequence[PixelBatch], decode: Decode
    ) -> tuple[Batch[PixelBatch, Words], Limits]:
        device = next(model.parameters()).device
        read = PixelBatch(torch.cat([one.values for one in rows]))
        batch = Batch(read, self.words([[] for _ in rows])).to(device)
        longest = torch.full((len(batch),), decode.max_new_tokens, device=device)
        return batch, self.limits(model, longest, decode)

    def trace(
        self, given: GivenPicture, target: str
    ) -> tuple[Batch[PixelBatch, Words], dict[str, Axis]]:
        ids, sides = self.written_axes(target)
        batch = Batch(self.eye.given([given]), self.words([ids]))
        return batch, {"source": self.eye.axis(given), **sides}

    def as_given(self, example: Captioned) -> GivenPicture:
        return PictureForm().decoded(example.content, example.name, 1)

    def example(self, examples: Examples[Captioned], longest: int | None = None) -> str:
        return "photo.png"

    # Scores.

    def answers(
        self, model: Model, data: Data, decode: Decode, count: int
    ) -> tuple[list[str], list[list[str]]]:
        """The first pictures' answers and references, as they stand in the file."""
        rows = range(min(count, data.store.rows))
        pixels = [self.eye.read(data.store, np.array([row]), None)[0] for row in rows]
        given = [GivenPicture(np.zeros((3, 1, 1), np.uint8), "") for _ in rows]
        found = self.write(model, given, pixels, [self.picture.patches] * len(rows), decode)
        own = [data.examples[data.store.row("example", row)[0]] for row in rows]
        return [a.output for a in found], [example.captions for example in own]

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        outputs, references = self.answers(model, data, replace(decode, **GREEDY), count)
        return {"bleu": several_references(outputs, references, False)["bleu"]}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        began = time.perf_counter()
        outputs, references = self.answers(model, data, decode, data.store.rows)
        seconds = time.perf_counter() - began
        # Each answer held against another picture: what is known without looking.
        other = several_references(outputs[1:] + outputs[:1], references)
        search = {k: v for k, v in asdict(decode).items() if k not in ("batch_tokens", "compile")}
        return {
            **several_references(outputs, references),
            "bleu_shuffled": other["bleu"],
            "bleu_shuffled_interval": other["bleu_interval"],
            "cider": round(100 * cider(outputs, references), 2),
            "different_answers": len(set(outputs)),
            "perplexity": round(math.exp(min(loss.nll / loss.tokens, 700.0)), 4),
            "perplexity_unit": self.unit,
            "decode": search,
            "predict_pictures_per_second": round(len(outputs) / seconds, 1),
            "examples": len(outputs),
        }
