"""Classification: a text or a pair in; a class, several, or a number out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from annotated_types import Gt, Le

from ..batch import Batch, Ids, Label, Sizes
from ..data import labelled
from ..data.cut import Plan
from ..data.examples import Examples, chunks
from ..data.order import Order, Rows, longest_first
from ..data.read import Faults
from ..data.store import Chunk, Store, ids_below
from ..data.store import Field as StoreField
from ..decode import Settings as Decode
from ..model import Model
from ..text import Text, learn
from .form import Form, LineForm, PairForm, TwoTexts
from .labels import LabelSettings, LabelTask, Predicts, learn_labels, read_labels
from .prediction import Prediction
from .task import Rng, Sections
from .texts import TextTask, TokenRow


@dataclass(frozen=True)
class ClassifySettings(LabelSettings):
    """Which columns hold what."""

    text: Annotated[str, "the column of the text; numbers count in a file without header"] = "text"
    pair: Annotated[str, "the column of a second text; empty: there is none"] = ""
    label: Annotated[str, "the column of what is to be predicted"] = "label"
    context: Annotated[
        int, Gt(3), Le(2**20), "longest text or pair in tokens; the longer of a pair is cut first"
    ] = 128


class Classify(
    TextTask[ClassifySettings, labelled.Example, Rows],
    LabelTask[ClassifySettings, labelled.Example, Rows],
):
    """Labelled texts."""

    Settings = ClassifySettings
    Example = labelled.Example
    keeps = ("tokenizer.json", "labels.json")
    wanted = "a row that can be used"
    encodes_apart = True

    def __init__(
        self,
        settings: ClassifySettings,
        text: Text,
        predicts: Predicts,
        labels: Sequence[str],
        weights: Sequence[float] = (),
    ) -> None:
        self.settings, self.text = settings, text
        self.set_labels(predicts, labels, weights)

    @property
    def gives(self) -> Form[Any]:
        if self.settings.pair:
            return PairForm("two texts", "text to label", "second text")
        return LineForm("text to label")

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for(Label, self.classes)

    # The vocabulary and the labels: from the training examples, kept in the run folder.

    @staticmethod
    def read(
        settings: ClassifySettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[labelled.Example]:
        return labelled.read(files, settings.text, settings.pair, settings.label, faults)

    @classmethod
    def columns(cls, settings: ClassifySettings) -> tuple[str, ...]:
        pair = [settings.pair] if settings.pair else []
        return (settings.text, *pair, settings.label)

    @staticmethod
    def reads_by(settings: ClassifySettings) -> str:
        return repr((settings.text, settings.pair, settings.label))

    @classmethod
    def learn(
        cls, settings: ClassifySettings, sections: Sections, examples: Examples[labelled.Example]
    ) -> Self:
        lines = (t for row in examples for t in (row.text, row.pair or ""))
        return cls.adopt(settings, learn(lines, sections["text"]), examples)

    @classmethod
    def adopt(
        cls, settings: ClassifySettings, text: Text, examples: Examples[labelled.Example]
    ) -> Self:
        """With a vocabulary that is there already; what the labels are is learned."""
        return cls(settings, text, *learn_labels(settings, examples))

    names_classes = True

    @classmethod
    def imported(
        cls,
        settings: ClassifySettings,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> Self:
        """As somebody else's config.json has it."""
        kinds: dict[object, Predicts] = {
            "multi_label_classification": "classes",
            "regression": "number",
        }
        predicts = "number" if len(labels) == 1 else kinds.get(config.get("problem_type"), "class")
        return cls(settings, texts[0], predicts, [] if predicts == "number" else labels)

    def artefacts(self) -> Mapping[str, str]:
        return {**super().artefacts(), **self.label_artefacts()}

    @classmethod
    def load(cls, settings: ClassifySettings, sections: Sections, folder: Path) -> Self:
        kept = read_labels(folder)
        text = Text.load(folder / "tokenizer.json")
        return cls(settings, text, kept["predicts"], kept["labels"], kept["weights"])

    # Batches.

    @property
    def fields(self) -> Mapping[str, StoreField]:
        return {"ids": self.ids_field, "split": ids_below(2**20), "label": self.label_field}

    @property
    def marks(self) -> tuple[str, ...]:
        return (*super().marks, self.predicts, repr(self.labels))

    def encode(
        self, examples: Examples[labelled.Example], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        for some in chunks(examples):
            known = [(row, self.label_of(row, faults)) for row in some]
            kept = [(row, label) for row, label in known if label is not None]
            framed = self.framed([row for row, _ in kept])
            yield {
                "ids": [row.ids for row in framed],
                "split": [[row.split] for row in framed],
                "label": [label for _, label in kept],
            }

    def framed(self, texts: Sequence[Any]) -> list[TokenRow]:
        """Texts or pairs, each with a `text` and, where two are asked for, a `pair`."""
        ones = self.text.encode([example.text for example in texts])
        twos: list[Any] = [None] * len(texts)
        if self.settings.pair:
            twos = self.text.encode([example.pair or "" for example in texts])
        return [self.frame(*both, self.settings.context) for both in zip(ones, twos, strict=True)]

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of about one length."""
        return Order(store.lengths("ids")[:, None], budget, seed)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Ids, Label]]:
        """Every row once, the longest first."""
        for rows in longest_first(store.lengths("ids"), budget):
            yield self.batch(store, rows)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Ids, Label]:
        return Batch(self.stored(store, rows), self.asked(store, rows))

    @staticmethod
    def sample_batch(
        settings: ClassifySettings, budget: int, sections: Sections | None = None
    ) -> Batch[Ids, Label]:
        """Texts of 32 tokens."""
        width = min(32, settings.context)
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        lengths = torch.full((len(ids),), width)
        return Batch(Ids(ids, lengths, ids), Label(lengths * 0, torch.ones(len(ids))))

    # Answers.

    def predict(
        self, model: Model, inputs: Sequence[Any], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """A label for each text or pair."""
        began, form = time.perf_counter(), self.gives
        framed = [self.framed_input(given) for given in inputs]
        found = self.scores(model, framed, decode.batch_tokens)
        seconds = round(time.perf_counter() - began, 6)
        told = [
            self.label_answer(form.show(given), scores[0], seconds)
            for given, scores in zip(inputs, found, strict=True)
        ]
        return [
            replace(answer, warning=self.too_long(row)) if row.left_out else answer
            for answer, row in zip(told, framed, strict=True)
        ]

    def too_long(self, row: TokenRow) -> str:
        """A warning for who gave more than is read."""
        return (
            f"the input is longer than the {self.settings.context} tokens that are read; "
            f"{row.left_out:,} were left out"
        )

    def framed_input(self, given: str | TwoTexts, number: int = 1) -> TokenRow:
        one, two = given if isinstance(given, TwoTexts) else (given, None)
        return self.framed([labelled.Example(one, two, None, "")])[0]

    def example(self, examples: Examples[labelled.Example], longest: int | None = None) -> str:
        first = next(iter(examples))
        return first.text if first.pair is None else f"{first.text}\t{first.pair}"
