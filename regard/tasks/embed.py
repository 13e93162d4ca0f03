"""Embedding: a text in, a vector out; texts that mean the same have vectors that point alike."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Gt, Le
from torch import Tensor

from ..batch import Labelled, Sizes, Texts
from ..data.read import Faults
from ..data.store import Store
from ..decode import Settings as Decode
from ..errors import DataError, RecipeError
from ..text import Settings as TextSettings
from ..text import Text
from .classify import ClassifySettings, Example, as_number, chunks, read
from .measure import Correlation
from .prediction import Prediction
from .texts import Rows, TextTask, TokenRow, two_texts


@dataclass(frozen=True)
class EmbedSettings:
    """How vectors are made, and which columns hold pairs to score them by."""

    text: Annotated[str, "the column of a text"] = "sentence1"
    pair: Annotated[str, "the column of another"] = "sentence2"
    label: Annotated[str, "the column of how alike they are, a number"] = "score"
    normalise: Annotated[bool, "make every vector as long as one"] = True
    context: Annotated[int, Gt(3), Le(2**20), "longest text in tokens; the rest is cut"] = 256


class Embed(TextTask):
    """A vector for each text; scored by how cosines agree with people's judgement."""

    Settings = EmbedSettings
    asked = "vector"
    loss = "number"
    metric, higher_is_better = "spearman", True

    def __init__(self, settings: EmbedSettings, text: Text) -> None:
        self.settings, self.text = settings, text

    @classmethod
    def learn(
        cls, settings: EmbedSettings, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> NoReturn:
        raise RecipeError(
            "task.kind=embed is for encoders that are trained already: `regard import` makes such "
            "a run; to train one on labelled pairs, use classify with task.pair."
        )

    adopt = learn

    @classmethod
    def load(cls, settings: EmbedSettings, text: TextSettings, folder: Path) -> Embed:
        return cls(settings, Text.load(folder / "tokenizer.json"))

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for("vector")

    @staticmethod
    def sample_batch(settings: EmbedSettings, budget: int) -> Texts:
        width = min(32, settings.context)
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        return Texts(ids, torch.full((len(ids),), width), ids)

    # Scores are of cosines, not of a loss: there is nothing to sweep.

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        return None  # type: ignore[return-value]

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Labelled]:
        return iter(())

    def batch(self, store: Store, rows: Rows, rng: np.random.Generator | None = None) -> Any:
        raise AssertionError("an embedder is not trained")

    def vectors(self, model: torch.nn.Module, lines: Sequence[str], budget: int) -> list[Tensor]:
        rows = [self.frame(ids, None, self.settings.context) for ids in self.text.encode(lines)]

        def answer(scores: Tensor, i: int) -> Tensor:
            return F.normalize(scores[0], dim=-1) if self.settings.normalise else scores[0]

        return self.each(model, rows, answer, budget)

    def predict(
        self,
        model: torch.nn.Module,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """The numbers of each text's vector, with a space between."""
        began = time.perf_counter()
        for number, line in enumerate(inputs, first):
            two_texts(line.replace("\t", " "), number, False, "")
        found = self.vectors(
            model, [line.replace("\t", " ") for line in inputs], decode.batch_tokens
        )
        seconds = round(time.perf_counter() - began, 6)
        answers = []
        for line, vector in zip(inputs, found, strict=True):
            numbers = tuple(vector.tolist())
            shown = " ".join(f"{number:.6f}" for number in numbers)
            answers.append(Prediction(line, shown, seconds=seconds, vector=numbers))
        return answers

    def framed_input(self, line: str, number: int = 1) -> TokenRow:
        return self.frame(self.text.encode([line])[0], None, self.settings.context)

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        first = next(self.pairs(files, Faults(skip=True)), None)
        return "" if first is None else first.text

    def pairs(self, files: Sequence[Path], faults: Faults) -> Iterator[Example]:
        s = self.settings
        columns = ClassifySettings(text=s.text, pair=s.pair, label=s.label)
        for example in read(files, columns, faults):
            if as_number(example.label) is None:
                faults.report(example.where, f"the label must be a number, not '{example.label}'")
                continue
            yield example

    def quick_scores(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        count: int,
    ) -> dict[str, Any]:
        judged = self.judge(model, files, faults, decode.batch_tokens, count)
        return {k: round(100 * v, 4) for k, v in judged.scores().items() if k in USUAL}

    def evaluate(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """How cosines of pairs agree with the numbers given."""
        judged = self.judge(model, files, faults, decode.batch_tokens)
        if not judged.examples:
            raise DataError(f"{files[0]}: there must be a pair to score, but there is none.")
        found: dict[str, Any] = {}
        for name in USUAL:
            found[name] = round(100 * judged.scores()[name], 4)
            found[f"{name}_interval"] = [round(100 * edge, 2) for edge in judged.interval(name)]
            found[f"{name}_unit"] = "cosine against the label"
        return {**found, "examples": judged.examples}

    def judge(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        faults: Faults,
        budget: int,
        most: int | None = None,
    ) -> Correlation:
        judged = Correlation()
        for chunk in chunks(islice(self.pairs(files, faults), most)):
            sides = [self.vectors(model, [e[i] for e in chunk], budget) for i in (0, 1)]
            one, other = (torch.stack(side) for side in sides)
            cosines = F.cosine_similarity(one, other)
            judged.add([float(example.label) for example in chunk], cosines.numpy())
        return judged


USUAL = ("spearman", "pearson")
