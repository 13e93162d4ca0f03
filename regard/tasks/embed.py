"""Embedding: a text in, a vector out; texts that mean the same have vectors that point alike."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn, Self

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Gt, Le
from torch import Tensor

from ..batch import Batch, Ids, Nothing, Sizes
from ..data import labelled
from ..data.cut import Plan
from ..data.examples import Data, Examples, chunks
from ..data.order import Order, Rows
from ..data.read import Faults
from ..data.store import Chunk, Store
from ..data.store import Field as StoreField
from ..decode import Settings as Decode
from ..errors import RecipeError
from ..model import Model
from ..score.interval import hundredths
from ..score.numbers import Correlation
from ..text import Text
from .form import Form, TextForm
from .labels import as_number
from .prediction import Prediction
from .task import Measured, Rng, Scores, Sections
from .texts import TextTask, TokenRow


@dataclass(frozen=True)
class EmbedSettings:
    """How vectors are made, and which columns hold pairs to score them by."""

    text: Annotated[str, "the column of a text"] = "sentence1"
    pair: Annotated[str, "the column of another"] = "sentence2"
    label: Annotated[str, "the column of how alike they are, a number"] = "score"
    normalise: Annotated[bool, "make every vector as long as one"] = True
    context: Annotated[int, Gt(3), Le(2**20), "longest text in tokens; the rest is cut"] = 256


class Embed(TextTask[EmbedSettings, labelled.Example, Rows]):
    """A vector for each text; scored by how cosines agree with people's judgement."""

    Settings = EmbedSettings
    Example = labelled.Example
    loss = "number"
    gets = "vector"
    metric = "spearman"
    wanted = "a pair to score"
    encodes_apart = True

    def __init__(self, settings: EmbedSettings, text: Text) -> None:
        self.settings, self.text = settings, text

    @property
    def gives(self) -> Form[str]:
        return TextForm("text to embed")

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for(Nothing)

    @staticmethod
    def read(
        settings: EmbedSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[labelled.Example]:
        return labelled.read(files, settings.text, settings.pair, settings.label, faults)

    @staticmethod
    def reads_by(settings: EmbedSettings) -> str:
        return repr((settings.text, settings.pair, settings.label))

    @classmethod
    def learn(cls, settings: EmbedSettings, sections: Sections, examples: object) -> NoReturn:
        raise RecipeError(
            "task.kind=embed is for encoders that are trained already: `regard import` makes such "
            "a run; to train one on labelled pairs, use classify with task.pair."
        )

    @classmethod
    def adopt(cls, settings: EmbedSettings, text: Text, examples: object) -> NoReturn:
        cls.learn(settings, {}, examples)

    @classmethod
    def load(cls, settings: EmbedSettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, Text.load(folder / "tokenizer.json"))

    # The store has what scoring needs; an embedder is not trained.

    @property
    def fields(self) -> Mapping[str, StoreField]:
        return {"ids": self.ids_field, "pair": self.ids_field, "label": StoreField("float32")}

    def encode(
        self, examples: Examples[labelled.Example], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        for some in chunks(examples):
            kept = []
            for example in some:
                if as_number(example.label) is None:
                    told = f"the label must be a number, not '{example.label}'"
                    faults.report(example.where, told)
                else:
                    kept.append(example)
            yield {
                "ids": self.text.encode([example.text for example in kept]),
                "pair": self.text.encode([example.pair or "" for example in kept]),
                "label": [[float(example.label)] for example in kept],
            }

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        return Order(store.lengths("ids")[:, None], budget, seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Ids, Nothing]:
        ids = [store.row("ids", int(row)) for row in rows]
        framed = [self.frame(one, None, self.settings.context) for one in ids]
        return Batch(self.rows_as_ids(framed), Nothing())

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Ids, Nothing]]:
        """Scores are of cosines, not of a loss: there is nothing to sweep."""
        return iter(())

    @staticmethod
    def sample_batch(
        settings: EmbedSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Ids, Nothing]:
        width = min(32, settings.context)
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        return Batch(Ids(ids, torch.full((len(ids),), width), ids), Nothing())

    # Answers.

    def vectors(self, model: Model, rows: Sequence[Sequence[int]], budget: int) -> list[Tensor]:
        framed = [self.frame(ids, None, self.settings.context) for ids in rows]
        found = [scores[0] for scores in self.scores(model, framed, budget)]
        return [F.normalize(v, dim=-1) for v in found] if self.settings.normalise else found

    def predict(
        self, model: Model, inputs: Sequence[str], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """The numbers of each text's vector, with a space between."""
        began = time.perf_counter()
        ids = self.text.encode([line.replace("\t", " ") for line in inputs])
        found = self.vectors(model, ids, decode.batch_tokens)
        seconds = round(time.perf_counter() - began, 6)
        answers = []
        for line, vector in zip(inputs, found, strict=True):
            numbers = tuple(vector.tolist())
            shown = " ".join(f"{number:.6f}" for number in numbers)
            answers.append(Prediction(line, shown, seconds=seconds, vector=numbers))
        return answers

    def framed_input(self, given: str, number: int = 1) -> TokenRow:
        return self.frame(self.text.encode([given])[0], None, self.settings.context)

    # Scores.

    def example(self, examples: Examples[labelled.Example], longest: int | None = None) -> str:
        first: str = next(iter(examples)).text
        return first

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        judged = self.judge(model, data.store, decode.batch_tokens, count)
        return {k: round(100 * v, 4) for k, v in judged.scores().items() if k in USUAL}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """How cosines of pairs agree with the numbers given."""
        judged = self.judge(model, data.store, decode.batch_tokens, data.store.rows)
        found: Scores = {}
        for name in USUAL:
            found[name] = round(100 * judged.scores()[name], 4)
            found[f"{name}_interval"] = hundredths(judged.interval(name))
            found[f"{name}_unit"] = "cosine against the label"
        return {**found, "examples": data.store.rows}

    def judge(self, model: Model, store: Store, budget: int, most: int) -> Correlation:
        judged = Correlation()
        for rows in chunks(range(min(most, store.rows))):
            one, other = (
                torch.stack(self.vectors(model, [store.row(side, row) for row in rows], budget))
                for side in ("ids", "pair")
            )
            cosines = F.cosine_similarity(one, other)
            judged.add(store.first("label", np.array(rows)), cosines.numpy())
        return judged


USUAL = ("spearman", "pearson")
