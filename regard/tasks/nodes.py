"""Nodes of a graph: a label for each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch, Nothing, Sizes, Tags
from ..batch import Graphs as GraphBatch
from ..data.cut import Plan
from ..data.examples import Examples, chunks
from ..data.graphs import Graph, GraphError, checked, read_nodes
from ..data.order import Order, Rows, longest_first
from ..data.parts import source_of
from ..data.read import Faults, parse_json, read_json
from ..data.store import Chunk, Field, Store
from ..decode import Settings as Decode
from ..errors import InputError, RecipeError, RunError
from ..model import Model, answers_of
from ..score.classes import Confusion
from .form import Form, kind_of
from .graph import GraphCoder, GraphForm, GraphSection
from .graphs import USUAL, as_typed, sample_graphs
from .labels import LabelSettings, LabelTask, Predicts, learn_labels, read_labels
from .prediction import Prediction
from .task import Axis, Rng, Sections

HOPS = 2  # how far around a node is shown


@dataclass(frozen=True)
class NodesSettings(LabelSettings):
    """Which columns of the table of nodes hold what."""

    label: Annotated[str, "what is to be predicted: a column, or in JSON a list"] = "label"
    node: Annotated[str, "the column of a node's name"] = "node"
    words: Annotated[str, "the column of what a node is told by, with spaces between"] = "word_ids"
    split: Annotated[
        str, "the column that says whether a label is for train, valid or test; empty: all are"
    ] = "split"


class GivenNode(NamedTuple):
    """A node of a graph that somebody gives, or of the one that training had."""

    graph: Graph
    node: int
    name: str


class NodeForm:
    """A node: its name in the graph of the run; or a graph with the number of one of its nodes."""

    kind = "graph"
    from_file = False
    labels: tuple[str, ...] = ("the name of a node, or a graph with the number of one as JSON",)

    def __init__(self, graph: Graph | None) -> None:
        self.graph = graph
        self.places = {} if graph is None else {name: at for at, name in enumerate(graph.names)}

    def parse(self, word: str, number: int = 1) -> GivenNode:
        return self.accept(word, number)

    def accept(self, sent: object, number: int = 1) -> GivenNode:
        if isinstance(sent, GivenNode):
            return sent
        given = sent
        if isinstance(sent, str) and sent.lstrip().startswith("{"):
            try:
                given = parse_json(sent)
            except ValueError as error:
                raise InputError(f"input {number}: {error}.") from error
        if isinstance(given, dict):
            node = given.get("node", 0)
            graph = GraphForm(False).accept(given, number).graph
            if type(node) is not int or not 0 <= node < len(graph.tags):
                raise InputError(
                    f'input {number}: "node" must be the number of one of {len(graph.tags)} '
                    f"nodes, from 0 on, but is {node!r}."
                )
            return GivenNode(graph, node, sent if isinstance(sent, str) else json.dumps(given))
        if type(given) is int:
            given = str(given)
        if self.graph is None or not isinstance(given, str) or given not in self.places:
            told = "" if self.graph is None else f"one of {len(self.places):,} nodes, or "
            was = f"'{given}'" if isinstance(given, str) else kind_of(given)
            raise InputError(
                f'input {number}: must be {told}{{"nodes": […], "edges": […], "node": 0}}, '
                f"but is {was}."
            )
        return GivenNode(self.graph, self.places[given], given)

    def show(self, given: GivenNode) -> str:
        return given.name


class ClassifyNodes(LabelTask[NodesSettings, Graph, Rows]):
    """Labels of nodes; the whole graph is read, and only what is told of a part is learned of it.

    The graph is kept with the run, so that its nodes can be asked about by name.
    """

    Settings = NodesSettings
    Example = Graph
    sections: ClassVar[Mapping[str, type]] = {"graph": GraphSection}
    keeps = ("labels.json", "graph.json", "nodes.json")
    wanted = "a graph"
    unit = "node"
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0, "evaluate_examples": 100_000}
    }

    def __init__(
        self,
        settings: NodesSettings,
        coder: GraphCoder,
        graph: Graph | None,
        predicts: Predicts,
        labels: Sequence[str],
        weights: Sequence[float] = (),
    ) -> None:
        self.settings, self.coder, self.graph = settings, coder, graph
        self.draws = coder.section.position == "laplacian"
        if predicts != "class":
            raise RecipeError(f"of nodes a class is told, but task.predicts is {predicts}.")
        self.set_labels(predicts, labels, weights)

    @property
    def gives(self) -> Form[GivenNode]:
        return NodeForm(self.graph)

    @property
    def sizes(self) -> Sizes:
        return replace(self.coder.sizes, classes=self.classes, asked=Tags)

    @classmethod
    def usual_sizes(cls, settings: NodesSettings, sections: Sections) -> Sizes:
        return replace(GraphCoder(sections["graph"], [""] * 40, []).sizes, classes=2, asked=Tags)

    @classmethod
    def longest_read(cls, settings: NodesSettings, sections: Sections) -> tuple[str, int]:
        return "the nodes of a graph", USUAL

    # From files to batches.

    @staticmethod
    def read(settings: NodesSettings, files: Sequence[Path], faults: Faults) -> Iterator[Graph]:
        source = source_of(files)
        s = settings
        return read_nodes(source, s.label, s.split, s.words, faults, s.node)

    @classmethod
    def divides(cls, settings: NodesSettings, files: Sequence[Path]) -> tuple[str, ...]:
        return (source_of(files).part,) if settings.split else ()

    @classmethod
    def learn(cls, settings: NodesSettings, sections: Sections, examples: Examples[Graph]) -> Self:
        coder = GraphCoder.learn(sections["graph"], examples)
        told = Told(examples)
        graph = next(iter(examples)) if len(examples) == 1 else None
        return cls(settings, coder, graph, *learn_labels(settings, told))  # type: ignore[arg-type]

    def artefacts(self) -> Mapping[str, str]:
        kept = {**self.label_artefacts(), "graph.json": self.coder.artefact()}
        if self.graph is not None:
            plain = self.graph._replace(label=None, where="")
            kept["nodes.json"] = json.dumps(plain._asdict(), ensure_ascii=False) + "\n"
        return kept

    @classmethod
    def load(cls, settings: NodesSettings, sections: Sections, folder: Path) -> Self:
        kept, coder = read_labels(folder), GraphCoder.load(sections["graph"], folder)
        path, graph = folder / "nodes.json", None
        if path.is_file():
            try:
                said = Graph(**read_json(path))
                graph = checked(*said[:8])
            except (ValueError, TypeError) as error:
                raise RunError(f"{path}: must be the graph of the run ({error}).") from error
        return cls(settings, coder, graph, kept["predicts"], kept["labels"], kept["weights"])

    @property
    def fields(self) -> Mapping[str, Field]:
        return {**self.coder.fields, "label": Field("int32")}

    @property
    def marks(self) -> tuple[str, ...]:
        return (repr(self.labels), *self.coder.marks)

    def encode(self, examples: Examples[Graph], longest: int, faults: Faults) -> Iterator[Chunk]:
        for some in chunks(examples, 16):
            kept: dict[str, list[object]] = {name: [] for name in self.fields}
            for example in some:
                try:
                    row = self.coder.row(example)
                except GraphError as error:
                    faults.report(example.where, str(error))
                    continue
                label = [-1] * len(row["tag_counts"])
                for node, said in enumerate(example.label):
                    one = Asked(said, f"{example.where}: node {example.names[node]}")
                    found = None if said is None else self.label_of(one, faults)
                    label[node] = -1 if found is None else int(str(found[0]))
                for name, value in {**row, "label": label}.items():
                    kept[name].append(value)
            yield kept

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of so many nodes, but of one graph at least."""
        lengths = self.coder.lengths(store)
        return Order(lengths[:, None], max(budget, int(lengths.max())), seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[GraphBatch, Tags]:
        read = self.coder.read(store, rows, rng)
        tags = torch.full(read.tags.shape[:2], -1)
        for at, row in enumerate(rows.tolist()):
            found = store.array("label", int(row))
            tags[at, : len(found)] = torch.from_numpy(found.astype(np.int64))
        return Batch(read, Tags(tags, self.weights[tags.clamp_min(0)]))

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[GraphBatch, Tags]]:
        for rows in longest_first(self.coder.lengths(store), budget):
            yield self.batch(store, rows)

    @staticmethod
    def sample_batch(
        settings: NodesSettings, budget: int, sections: Sections | None = None
    ) -> Batch[GraphBatch, Tags]:
        section = sections["graph"] if sections else GraphSection()
        rows = max(1, budget // USUAL)
        tags = torch.zeros(rows, USUAL, dtype=torch.long)
        return Batch(sample_graphs(section, rows), Tags(tags, torch.ones(rows, USUAL)))

    # Answers and scores.

    def judge(self, model: Model, store: Store, budget: int, most: int) -> Confusion:
        confusion = Confusion(len(self.labels))
        for rows in longest_first(self.coder.lengths(store), budget):
            batch = self.batch(store, rows)
            for scores, tags in zip(answers_of(model, batch), batch.asked.tags, strict=True):
                real = tags >= 0
                confusion.add(tags[real].numpy(), scores[real].argmax(-1).numpy())
        return confusion

    def predict(
        self,
        model: Model,
        inputs: Sequence[GivenNode],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        began = time.perf_counter()
        answers: list[Tensor] = []
        kept: tuple[Graph | None, list[Tensor]] = (None, [])  # several nodes of one graph
        for number, given in enumerate(inputs, first):
            if kept[0] is not given.graph:
                if model.longest is not None and len(given.graph.tags) > model.longest:
                    raise InputError(
                        f"input {number}: where all nodes look at all, a graph may have "
                        f"{model.longest:,} of them, but has {len(given.graph.tags):,}."
                    )
                batch = Batch(self.coder.asked_for(given.graph, number), Nothing())
                kept = (given.graph, answers_of(model, batch))
            answers.append(kept[1][0][given.node])
        seconds = round(time.perf_counter() - began, 6)
        pairs = zip(inputs, answers, strict=True)
        return [self.label_answer(given.name, scores, seconds) for given, scores in pairs]

    def trace(
        self, given: GivenNode, target: str
    ) -> tuple[Batch[GraphBatch, Nothing], dict[str, Axis]]:
        """The node, and what is around it."""
        near = around(given.graph, given.node, HOPS)
        axis = self.coder.axis(near)
        return Batch(self.coder.asked_for(near, 1), Nothing()), {"inputs": axis, "outputs": axis}

    def example(self, examples: Examples[Graph], longest: int | None = None) -> str:
        graph = next(iter(examples))
        if self.graph is not None:
            return graph.names[0]
        return json.dumps({**parse_json(as_typed(graph)), "node": 0})


class Asked(NamedTuple):
    """A label, and where it stands."""

    label: Any
    where: str


class Told:
    """The labels of all nodes that have one, as examples of their own."""

    def __init__(self, graphs: Examples[Graph]) -> None:
        self.graphs = graphs

    @property
    def first_file(self) -> Path:
        return self.graphs.first_file

    def __iter__(self) -> Iterator[Asked]:
        for graph in self.graphs:
            for label in graph.label:
                if label is not None:
                    yield Asked(label, graph.where)


def around(graph: Graph, node: int, hops: int) -> Graph:
    """A node and those that so many edges reach, the node first."""
    near: dict[int, list[int]] = {}
    for source, target in graph.edges:
        near.setdefault(source, []).append(target)
        near.setdefault(target, []).append(source)
    found, edge = {node: 0}, [node]
    for _ in range(hops):
        edge = [other for one in edge for other in near.get(one, []) if other not in found]
        for other in edge:
            found.setdefault(other, len(found))
        edge = list(dict.fromkeys(edge))
    kept = [at for at, (a, b) in enumerate(graph.edges) if a in found and b in found]
    order = list(found)
    return graph._replace(
        tags=[graph.tags[at] for at in order],
        numbers=[graph.numbers[at] for at in order] if graph.numbers else [],
        edges=[[found[graph.edges[at][0]], found[graph.edges[at][1]]] for at in kept],
        edge_tags=[graph.edge_tags[at] for at in kept] if graph.edge_tags else [],
        edge_numbers=[graph.edge_numbers[at] for at in kept] if graph.edge_numbers else [],
        names=[graph.names[at] for at in order],
    )
