"""Graphs: a label for each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Self

import torch
from annotated_types import Ge, Le
from torch import Tensor

from ..batch import Batch, Label, Nothing, Sizes
from ..batch import Graphs as GraphBatch
from ..data.cut import Plan
from ..data.examples import Examples, chunks
from ..data.given import Given, write_records
from ..data.graphs import Graph, GraphError, read
from ..data.order import Rows, Shuffled, longest_first
from ..data.parts import source_of
from ..data.read import Faults
from ..data.store import Chunk, Field, Store
from ..decode import Settings as Decode
from ..errors import InputError, RecipeError
from ..model import Model, answers_of
from ..progress import counted
from .form import Form
from .graph import GivenGraph, GraphCoder, GraphForm, GraphSection
from .labels import LabelSettings, LabelTask, Predicts, learn_labels, read_labels
from .prediction import Prediction
from .task import Axis, Rng, Sections

USUAL, EDGES = 24, 52  # nodes and edges of a graph, to reckon with


@dataclass(frozen=True)
class GraphsSettings(LabelSettings):
    """Where the label stands, and which rows are of which part where one file holds all."""

    label: Annotated[str, "what is to be predicted: a key in JSON, a column of a table"] = "label"
    smiles: Annotated[str, "in a table, the column of a molecule's SMILES"] = "smiles"
    split: Annotated[
        str, "what says whether a row is for train, valid or test; empty: each file is all of it"
    ] = ""
    folds: Annotated[
        int, Ge(0), Le(1000), "cut the file into so many parts, of which one is the test; 0: do not"
    ] = 0
    fold: Annotated[int, Ge(0), "which of them is the test, from 0 on"] = 0

    def __post_init__(self) -> None:
        if self.folds == 1 or (self.folds and self.fold >= self.folds):
            raise RecipeError(
                f"task.fold must be below task.folds, and that 0 or more than 1, but they are "
                f"{self.fold} and {self.folds}."
            )
        if self.folds and self.split:
            raise RecipeError("task.folds and task.split both say what the test is; leave one out.")


class ClassifyGraphs(LabelTask[GraphsSettings, Graph, Rows]):
    """Labelled graphs."""

    Settings = GraphsSettings
    Example = Graph
    sections: ClassVar[Mapping[str, type]] = {"graph": GraphSection}
    keeps = ("labels.json", "graph.json")
    wanted = "a graph"
    unit = "graph"
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0, "evaluate_examples": 100_000}
    }

    def __init__(
        self,
        settings: GraphsSettings,
        coder: GraphCoder,
        predicts: Predicts,
        labels: Sequence[str],
        weights: Sequence[float] = (),
    ) -> None:
        self.settings, self.coder = settings, coder
        self.draws = coder.section.position == "laplacian"
        self.set_labels(predicts, labels, weights)

    @property
    def gives(self) -> Form[GivenGraph]:
        return GraphForm(self.coder.smiles)

    @property
    def sizes(self) -> Sizes:
        return replace(self.coder.sizes, classes=self.classes, asked=Label)

    @classmethod
    def usual_sizes(cls, settings: GraphsSettings, sections: Sections) -> Sizes:
        coder = GraphCoder(sections["graph"], [""] * 40, [""] * 8)
        return replace(coder.sizes, classes=2, asked=Label)

    @classmethod
    def longest_read(cls, settings: GraphsSettings, sections: Sections) -> tuple[str, int]:
        return "the nodes of a graph", USUAL

    # From files to batches.

    @staticmethod
    def read(settings: GraphsSettings, files: Sequence[Path], faults: Faults) -> Iterator[Graph]:
        folds = (settings.folds, settings.fold)
        return read(
            source_of(files), settings.label, settings.smiles, settings.split, folds, faults
        )

    @classmethod
    def write_rows(cls, settings: GraphsSettings, given: Given, paths: Sequence[Path]) -> None:
        """A graph with its label in it, or beside it."""
        rows = given.records(("graph", settings.label))
        write_records(paths[0], ({**row.pop("graph", {}), **row} for row in rows), given)

    @classmethod
    def divides(cls, settings: GraphsSettings, files: Sequence[Path]) -> tuple[str, ...]:
        return (source_of(files).part,) if settings.split or settings.folds else ()

    @classmethod
    def learn(cls, settings: GraphsSettings, sections: Sections, examples: Examples[Graph]) -> Self:
        coder = GraphCoder.learn(sections["graph"], examples)
        return cls(settings, coder, *learn_labels(settings, examples))

    @classmethod
    def adopt_from(
        cls, settings: GraphsSettings, sections: Sections, origin: Path, examples: Examples[Graph]
    ) -> Self:
        coder = GraphCoder.load(sections["graph"], origin)
        return cls(settings, coder, *learn_labels(settings, examples))

    def artefacts(self) -> Mapping[str, str]:
        return {**self.label_artefacts(), "graph.json": self.coder.artefact()}

    @classmethod
    def load(cls, settings: GraphsSettings, sections: Sections, folder: Path) -> Self:
        kept, coder = read_labels(folder), GraphCoder.load(sections["graph"], folder)
        return cls(settings, coder, kept["predicts"], kept["labels"], kept["weights"])

    @property
    def fields(self) -> Mapping[str, Field]:
        return {**self.coder.fields, "label": self.label_field}

    @property
    def marks(self) -> tuple[str, ...]:
        return (repr(self.labels), self.predicts, *self.coder.marks)

    def encode(self, examples: Examples[Graph], longest: int, faults: Faults) -> Iterator[Chunk]:
        for some in chunks(examples, 64):
            kept: dict[str, list[object]] = {name: [] for name in self.fields}
            for example in some:
                label = self.label_of(example, faults)
                if label is None:
                    continue
                try:
                    row = self.coder.row(example)
                except GraphError as error:
                    faults.report(example.where, str(error))
                    continue
                for name, value in {**row, "label": label}.items():
                    kept[name].append(value)
            yield kept

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of about so many nodes; small and large graphs together, for a size may tell the
        class."""
        lengths = self.coder.lengths(store)
        return Shuffled(lengths, max(1, int(budget / lengths.mean())), seed, pool=1)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[GraphBatch, Label]:
        return Batch(self.coder.read(store, rows, rng), self.asked(store, rows))

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[GraphBatch, Label]]:
        for rows in longest_first(self.coder.lengths(store), budget):
            yield self.batch(store, rows)

    @staticmethod
    def sample_batch(
        settings: GraphsSettings, budget: int, sections: Sections | None = None
    ) -> Batch[GraphBatch, Label]:
        section = sections["graph"] if sections else GraphSection()
        rows = max(1, budget // USUAL)
        return Batch(
            sample_graphs(section, rows),
            Label(torch.zeros(rows, dtype=torch.long), torch.ones(rows)),
        )

    # Answers.

    def stored_scores(self, model: Model, store: Store, count: int, budget: int) -> list[Tensor]:
        found: dict[int, Tensor] = {}
        batches = longest_first(self.coder.lengths(store)[:count], budget)
        for rows in counted(batches, "answering", count, len):
            batch = Batch(self.coder.read(store, rows, None), Nothing())
            found.update(zip(rows.tolist(), answers_of(model, batch), strict=True))
        return [found[row] for row in range(count)]

    def predict(
        self,
        model: Model,
        inputs: Sequence[GivenGraph],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        began = time.perf_counter()
        found: list[Tensor] = []
        for number, given in enumerate(inputs, first):
            if model.longest is not None and len(given.graph.tags) > model.longest:
                raise InputError(
                    f"input {number}: where all nodes look at all, a graph may have "
                    f"{model.longest:,} of them, but has {len(given.graph.tags):,}; train with "
                    "model.layer=neighbours for larger ones."
                )
            batch = Batch(self.coder.asked_for(given.graph, number), Nothing())
            found += answers_of(model, batch)
        seconds = round(time.perf_counter() - began, 6)
        pairs = zip(inputs, found, strict=True)
        return [self.label_answer(given.name, scores[0], seconds) for given, scores in pairs]

    def trace(
        self, given: GivenGraph, target: str
    ) -> tuple[Batch[GraphBatch, Nothing], dict[str, Axis]]:
        axis = self.coder.axis(given.graph)
        read = self.coder.asked_for(given.graph, 1)
        return Batch(read, Nothing()), {"inputs": axis, "outputs": axis}

    def as_given(self, example: Graph) -> GivenGraph:
        return GivenGraph(example, example.text or "graph")

    def example(self, examples: Examples[Graph], longest: int | None = None) -> str:
        return as_typed(next(iter(examples)))


def as_typed(graph: Graph) -> str:
    """A graph as it would be typed."""
    if graph.text:
        return graph.text
    nodes = [
        tags[0] if len(tags) == 1 and not graph.numbers else [*tags, *numbers]
        for tags, numbers in zip(graph.tags, graph.numbers or [[]] * len(graph.tags), strict=True)
    ]
    said: list[list[object]] = [list(pair) for pair in graph.edges]
    for at, tags in enumerate(graph.edge_tags):
        numbers = graph.edge_numbers[at] if graph.edge_numbers else []
        if tags or numbers:
            said[at].append([*tags, *numbers])
    return json.dumps({"nodes": nodes, "edges": said}, ensure_ascii=False)


def sample_graphs(section: GraphSection, rows: int) -> GraphBatch:
    """Graphs of the usual size."""

    def whole(*shape: int) -> Tensor:
        return torch.zeros(rows, *shape, dtype=torch.long)

    return GraphBatch(
        whole(USUAL, 1),
        torch.full((rows,), USUAL),
        whole(EDGES, 2),
        whole(EDGES, 1),
        places=torch.zeros(rows, USUAL, section.places) if section.position != "none" else None,
        distances=whole(USUAL, USUAL) if section.farthest else None,
        paths=whole(USUAL, USUAL, section.longest) if section.longest else None,
    )
