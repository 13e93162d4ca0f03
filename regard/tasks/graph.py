"""Graphs as tasks meet them: how they are given, kept in a store, and put into a batch."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Graphs, GraphSizes, Sizes
from ..data.draws import Draws
from ..data.graphs import Graph, GraphError, as_graph, of_smiles
from ..data.molecules import drawn
from ..data.order import Rows
from ..data.read import parse_json, read_json
from ..data.store import Field, Store, ids_below
from ..errors import DataError, InputError, RecipeError, RunError
from .form import kind_of
from .task import Axis, Rng

UNKNOWN = "[unknown]"  # a tag that training had not
VIRTUAL = "[graph]"  # the tag of the node that is joined to all
MOST_SENT = 20_000  # nodes of a graph over HTTP
DENSE = 4096  # nodes of a graph whose distances or eigenvectors are worked out


@dataclass(frozen=True)
class GraphSection:
    """What is made of a graph before a model reads it."""

    directed: Annotated[bool, "an edge is looked along from its end alone; else both ways"] = False
    position: Annotated[
        Literal["none", "laplacian", "random-walk"],
        "where a node stands: eigenvectors of the Laplacian (their signs are drawn in training), "
        "or how likely a walk of 1, 2, … steps comes back",
    ] = "none"
    places: Annotated[int, Gt(0), Le(256), "numbers that say so"] = 8
    farthest: Annotated[int, Ge(0), Le(100), "distances that are told apart; 0: none"] = 0
    longest: Annotated[int, Ge(0), Le(20), "edges of a way that are looked at; 0: none"] = 0
    virtual: Annotated[bool, "add a node that is joined to all"] = False

    def __post_init__(self) -> None:
        if self.longest and not self.farthest:
            raise RecipeError("graph.longest needs graph.farthest, which says how far ways go.")


class GivenGraph(NamedTuple):
    """A graph that somebody gives, and what it is called."""

    graph: Graph
    name: str


class GraphForm:
    """A graph: JSON with nodes and edges, or a path to that; or a molecule's SMILES."""

    kind = "graph"
    from_file = False

    def __init__(self, smiles: bool) -> None:
        self.smiles = smiles
        self.labels: tuple[str, ...] = ("SMILES" if smiles else "graph as JSON",)

    def parse(self, word: str, number: int = 1) -> GivenGraph:
        if not word.lstrip().startswith("{") and word.endswith(".json"):
            try:
                return self.accept(read_json(Path(word)), number)._replace(name=word)
            except ValueError as error:
                raise InputError(f"input {number}: {word}: cannot be read ({error}).") from error
        return self.accept(word, number)

    def accept(self, sent: object, number: int = 1) -> GivenGraph:
        if isinstance(sent, GivenGraph):
            return sent
        given = sent
        try:
            if isinstance(sent, str) and sent.lstrip().startswith("{"):
                given = parse_json(sent)
            elif isinstance(sent, str) and self.smiles:
                return GivenGraph(not_too_large(of_smiles(sent), number), sent)
            if isinstance(given, dict) and "graph" in given and "nodes" not in given:
                given = given["graph"]
            if isinstance(given, str) and self.smiles:
                return GivenGraph(not_too_large(of_smiles(given), number), given)
            if not isinstance(given, dict):
                wanted = "SMILES or " if self.smiles else ""
                raise InputError(
                    f'input {number}: must be {wanted}a graph, {{"nodes": […], "edges": [[0, '
                    f"1], …]}}, but is {kind_of(sent)}."
                )
            graph = as_graph(given)
        except (GraphError, ValueError) as error:
            raise InputError(f"input {number}: {error}.") from error
        return GivenGraph(
            not_too_large(graph, number), sent if isinstance(sent, str) else json.dumps(given)
        )

    def show(self, given: GivenGraph) -> str:
        return given.name


def not_too_large(graph: Graph, number: int) -> Graph:
    if len(graph.tags) > MOST_SENT:
        raise InputError(
            f"input {number}: a graph may have {MOST_SENT:,} nodes here, but has "
            f"{len(graph.tags):,}."
        )
    return graph


class Encoded(NamedTuple):
    """A graph as numbers: a row of a store, before it is one."""

    tags: list[list[int]]  # of each node
    numbers: NDArray[np.float32]  # (N, F)
    edges: NDArray[np.int32]  # (E, 2)
    edge_tags: list[list[int]]
    edge_numbers: NDArray[np.float32]  # (E, F)
    places: NDArray[np.float32]  # (N, K)
    distances: NDArray[np.int8]  # (N · N)
    paths: NDArray[np.int32]  # (N · N, L)


class GraphCoder:
    """Graphs on their way into a model: as rows of a store, as a batch, as what is looked at."""

    def __init__(
        self,
        section: GraphSection,
        tags: Sequence[str],
        edge_tags: Sequence[str],
        numbers: Sequence[Sequence[float]] = ((), ()),
        edge_numbers: Sequence[Sequence[float]] = ((), ()),
        smiles: bool = False,
    ) -> None:
        """`numbers`: the mean and the spread of each number of a node, by which it is scaled;
        `smiles`: whether it was learned from molecules."""
        self.smiles = smiles
        self.section, self.tags, self.edge_tags = section, list(tags), list(edge_tags)
        self.scales = [[list(side) for side in both] for both in (numbers, edge_numbers)]
        self.ids = {tag: at for at, tag in enumerate(self.tags)}
        self.edge_ids = {tag: at for at, tag in enumerate(self.edge_tags)}

    @classmethod
    def learn(cls, section: GraphSection, graphs: Iterable[Graph]) -> GraphCoder:
        """The tags that there are, and how large the numbers."""
        tags: dict[str, None] = {}
        edge_tags: dict[str, None] = {}
        sums, smiles = [Scale(), Scale()], False
        for graph in graphs:
            smiles = smiles or bool(graph.text)
            tags.update(dict.fromkeys(tag for node in graph.tags for tag in node))
            edge_tags.update(dict.fromkeys(tag for edge in graph.edge_tags for tag in edge))
            for scale, numbers in zip(sums, (graph.numbers, graph.edge_numbers), strict=True):
                scale.add(numbers, graph.where)
        first = ["[nothing]", UNKNOWN, *([VIRTUAL] if section.virtual else [])]
        known = [*first, *sorted(tags)]
        edges = [*first, *sorted(edge_tags)] if edge_tags or section.virtual else []
        nodes, between = (scale.found() for scale in sums)
        return cls(section, known, edges, nodes, between, smiles)

    def artefact(self) -> str:
        kept = {
            "tags": self.tags, "edge_tags": self.edge_tags, "scales": self.scales,
            "smiles": self.smiles,
        }  # fmt: skip
        return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, section: GraphSection, folder: Path) -> GraphCoder:
        path = folder / "graph.json"
        try:
            said = read_json(path)
            nodes, between = said["scales"]
            smiles = bool(said["smiles"])
            return cls(section, said["tags"], said["edge_tags"], nodes, between, smiles)
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: the tags must be there and readable, but are not.") from error

    @property
    def sizes(self) -> Sizes:
        s = self.section
        told = GraphSizes(
            len(self.edge_tags), len(self.scales[0][0]), len(self.scales[1][0]),
            s.places if s.position != "none" else 0, s.farthest, s.longest,
        )  # fmt: skip
        return Sizes(len(self.tags), 0, False, 0, Graphs, graph=told)

    # As rows of a store.

    @property
    def fields(self) -> Mapping[str, Field]:
        s, sizes = self.section, self.sizes.graph
        assert sizes is not None
        found = {
            "tags": ids_below(len(self.tags)),
            "tag_counts": Field("int32"),
            "edges": Field("int32", (2,)),
        }
        if self.edge_tags:
            found |= {
                "edge_tags": ids_below(len(self.edge_tags)),
                "edge_tag_counts": Field("int32"),
            }
        if sizes.numbers:
            found["numbers"] = Field("float32", (sizes.numbers,))
        if sizes.edge_numbers:
            found["edge_numbers"] = Field("float32", (sizes.edge_numbers,))
        if sizes.places:
            found["places"] = Field("float32", (sizes.places,))
        if s.farthest:
            found["distances"] = Field("int8")
        if s.longest:
            found["paths"] = Field("int32", (s.longest,))
        return found

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.artefact(), repr(self.section))

    def row(self, graph: Graph) -> dict[str, Any]:
        """A graph as a row of a store."""
        one = self.encode(graph)
        found: dict[str, Any] = {
            "tags": [i for node in one.tags for i in node],
            "tag_counts": [len(node) for node in one.tags],
            "edges": one.edges,
            "edge_tags": [i for edge in one.edge_tags for i in edge],
            "edge_tag_counts": [len(edge) for edge in one.edge_tags],
            **{name: one._asdict()[name] for name in
               ("numbers", "edge_numbers", "places", "distances", "paths")},
        }  # fmt: skip
        return {name: found[name] for name in self.fields}

    def encode(self, graph: Graph) -> Encoded:
        """A graph as numbers: edges both ways, a node for all, and what is worked out of it."""
        s, sizes = self.section, self.sizes.graph
        assert sizes is not None
        count = len(graph.tags)
        tags = [[self.ids.get(tag, 1) for tag in node] for node in graph.tags]
        edge_tags = [[self.edge_ids.get(tag, 1) for tag in edge] for edge in graph.edge_tags]
        edge_tags = edge_tags or [[] for _ in graph.edges]
        edges = [(a, b) for a, b in graph.edges]
        numbers = scaled(graph.numbers, self.scales[0], count, "node")
        edge_numbers = scaled(graph.edge_numbers, self.scales[1], len(edges), "edge")
        kept = list(range(len(edges)))
        if not s.directed:
            known = set(edges)
            back = [at for at, (a, b) in enumerate(edges) if (b, a) not in known]
            kept += back
            edges += [(edges[at][1], edges[at][0]) for at in back]
        pairs = np.array(edges, np.int32).reshape(-1, 2)
        if (s.farthest or s.position != "none") and count > DENSE:
            raise GraphError(
                f"distances and positions are worked out of graphs of {DENSE:,} nodes at most, but "
                f"this has {count:,}; set graph.position=none and graph.farthest=0"
            )
        places = PLACES[s.position](pairs, count, s.places)
        distances, paths = ways(pairs, count, s.farthest, s.longest)
        if s.virtual:
            joined = [end for node in range(count) for end in ((node, count), (count, node))]
            pairs = np.concatenate((pairs, np.array(joined, np.int32)))
            kept += [-1] * len(joined)
            tags.append([2])
            edge_tags.append([2])  # the last, which -1 names
            numbers, edge_numbers, places = (
                np.pad(rows, ((0, 1), (0, 0))) for rows in (numbers, edge_numbers, places)
            )
            distances, paths = and_one(distances, 1, count), and_one(paths, -1, count)
        return Encoded(
            tags, numbers, pairs, [edge_tags[at] for at in kept], edge_numbers[kept], places,
            distances, paths,
        )  # fmt: skip

    def lengths(self, store: Store) -> NDArray[np.int32]:
        """Nodes of each graph."""
        return store.lengths("tag_counts")

    # As a batch.

    def read(self, store: Store, rows: Rows, rng: Rng | None) -> Graphs:
        made = [
            {name: store.array(name, int(row)) for name in self.fields} for row in rows.tolist()
        ]
        return self.padded(made, rng)

    def asked_for(self, graph: Graph, number: int) -> Graphs:
        """A graph that somebody gives; what cannot be read is told after its number."""
        try:
            return self.padded([self.row(graph)], None)
        except GraphError as error:
            raise InputError(f"input {number}: {error}.") from error

    def padded(self, made: Sequence[Mapping[str, Any]], rng: Rng | None) -> Graphs:
        """Rows side by side, each as wide as the widest."""
        counts = [len(row["tag_counts"]) for row in made]
        edges = [len(row["edges"]) for row in made]
        nodes, most = max(counts), max(*edges, 1)
        given: dict[str, Tensor] = {
            "tags": bags([row["tags"] for row in made], [r["tag_counts"] for r in made], nodes),
            "lengths": torch.tensor(counts),
            "edges": stacked([row["edges"] for row in made], (most, 2), -1),
        }
        if self.edge_tags:
            flat = [row["edge_tags"] for row in made]
            given["edge_tags"] = bags(flat, [r["edge_tag_counts"] for r in made], most)
        for name, size in (("numbers", nodes), ("edge_numbers", most), ("places", nodes)):
            if name in self.fields:
                shape = (size, *self.fields[name].shape)
                given[name] = stacked([row[name] for row in made], shape, 0)
        if "places" in given and rng is not None and self.section.position == "laplacian":
            assert isinstance(rng, Draws)
            signs = torch.from_numpy(np.sign(rng.uniform(self.section.places) - 0.5))
            given["places"] = given["places"] * signs[:, None].float()
        for name in ("distances", "paths"):
            if name in self.fields:
                shape = (nodes, nodes, *self.fields[name].shape)
                squares = [
                    np.asarray(row[name]).reshape(n, n, *self.fields[name].shape)
                    for row, n in zip(made, counts, strict=True)
                ]
                given[name] = stacked(squares, shape, -1)
        return Graphs(**given)

    def axis(self, graph: Graph) -> Axis:
        """A graph's nodes, and where they and its edges are drawn."""
        names = [f"{name} {at}" if self.smiles else name for at, name in enumerate(graph.names)]
        names += [VIRTUAL] if self.section.virtual else []
        return Axis(names, "nodes", layout=layout(graph))


class Scale:
    """The mean and the spread of columns of numbers, graph by graph (Chan et al. 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(0), np.zeros(0)

    def add(self, numbers: Sequence[Sequence[float]], where: str) -> None:
        if not numbers:
            return
        rows = np.array(numbers, np.float64)
        if self.count and len(self.mean) != rows.shape[1]:
            raise DataError(
                f"{where}: all graphs must have as many numbers as the first "
                f"({len(self.mean)}), but this has {rows.shape[1]}."
            )
        if not self.count:
            self.mean = self.squares = np.zeros(rows.shape[1])
        mean, both = rows.mean(0), self.count + len(rows)
        apart = mean - self.mean
        self.squares = self.squares + ((rows - mean) ** 2).sum(0)
        self.squares = self.squares + apart**2 * self.count * len(rows) / both
        self.mean, self.count = self.mean + apart * len(rows) / both, both

    def found(self) -> tuple[list[float], list[float]]:
        spread = np.sqrt(self.squares / max(self.count, 1))
        constant = spread <= 1e-12 * np.abs(self.mean)
        return self.mean.tolist(), np.where(constant, 1.0, spread).tolist()


def scaled(
    numbers: Sequence[Sequence[float]], scale: Sequence[Sequence[float]], count: int, what: str
) -> NDArray[np.float32]:
    """Numbers around zero; where there are none, there must be none.  -> (count, F)"""
    width = len(scale[0])
    if not count:
        return np.zeros((0, width), np.float32)
    found = np.array(numbers, np.float64).reshape(count, -1) if numbers else np.zeros((count, 0))
    if found.shape[1] != width:
        raise GraphError(f"each {what} must have {width} numbers, but has {found.shape[1]}")
    # What is far outside all that training had must not become infinite.
    return np.clip((found - scale[0]) / scale[1], -1e4, 1e4).astype(np.float32)


def bags(flat: Sequence[Any], counts: Sequence[Any], size: int) -> Tensor:
    """Tags of each node or edge, padded.  -> (B, size, most)"""
    most = max((int(np.max(c)) for c in counts if len(c)), default=0)
    out = np.zeros((len(flat), size, max(most, 1)), np.int64)
    for row, (ids, count) in enumerate(zip(flat, counts, strict=True)):
        count = np.asarray(count)
        real = np.arange(out.shape[2]) < count[:, None]
        out[row, : len(count)][real] = ids
    return torch.from_numpy(out)


def stacked(rows: Sequence[Any], shape: tuple[int, ...], fill: int) -> Tensor:
    """Arrays of several sizes as one.  -> (B, *shape)"""
    arrays = [np.asarray(row) for row in rows]
    whole = arrays[0].dtype.kind in "iu"
    out = np.full((len(arrays), *shape), fill, np.int64 if whole else np.float32)
    for row, array in enumerate(arrays):
        out[row][tuple(slice(0, size) for size in array.shape)] = array
    return torch.from_numpy(out)


def adjacency(edges: NDArray[np.int32], count: int) -> NDArray[np.float64]:
    """Which nodes are joined; both ways, and none with itself.  -> (N, N)"""
    table = np.zeros((count, count))
    table[edges[:, 0], edges[:, 1]] = 1.0
    table = np.maximum(table, table.T)
    np.fill_diagonal(table, 0.0)
    return table


def laplacian(edges: NDArray[np.int32], count: int, places: int) -> NDArray[np.float32]:
    """Eigenvectors of I - D^-½ A D^-½ after the first, the smoothest first (Dwivedi and Bresson
    2021); the largest number of each is positive, so that the same graph has the same."""
    table = adjacency(edges, count)
    root = 1 / np.sqrt(np.maximum(table.sum(1), 1e-12)) * (table.sum(1) > 0)
    _, vectors = np.linalg.eigh(np.eye(count) - root[:, None] * table * root)
    found = vectors[:, 1 : places + 1]
    largest = np.abs(found).argmax(0)
    found = found * np.sign(found[largest, np.arange(found.shape[1])] + 1e-12)
    out = np.zeros((count, places), np.float32)
    out[:, : found.shape[1]] = found * np.sqrt(count)  # so that they have the size of other numbers
    return out


def random_walk(edges: NDArray[np.int32], count: int, places: int) -> NDArray[np.float32]:
    """How likely a walk of 1, 2, … steps ends where it began (Dwivedi et al. 2022)."""
    table = adjacency(edges, count)
    step = table / np.maximum(table.sum(1, keepdims=True), 1.0)
    out, walk = np.zeros((count, places), np.float32), step
    for place in range(places):
        out[:, place] = np.diag(walk)
        walk = walk @ step
    return out


PLACES = {
    "none": lambda edges, count, places: np.zeros((count, 0), np.float32),
    "laplacian": laplacian,
    "random-walk": random_walk,
}


def ways(
    edges: NDArray[np.int32], count: int, farthest: int, longest: int
) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Steps of the shortest way from each node to those that it can see, and the first edges on it;
    who an edge reaches looks back along it.

    Ways longer than `farthest` count as one step more; -1: there is none.  -> (N · N), (N · N, L)
    """
    if not farthest:
        return np.zeros(0, np.int8), np.zeros((0, 0), np.int32)
    out = [[] for _ in range(count)]  # type: list[list[tuple[int, int]]]
    for number, (source, target) in enumerate(edges.tolist()):
        out[target].append((source, number))
    distances = np.full((count, count), -1, np.int8)
    paths = np.full((count, count, longest), -1, np.int32)
    for start in range(count):
        steps, way = {start: 0}, {start: ()}  # type: dict[int, int], dict[int, tuple[int, ...]]
        waiting = deque([start])
        while waiting:
            node = waiting.popleft()
            for other, number in out[node]:
                if other not in steps:
                    steps[other] = min(steps[node] + 1, farthest + 1)
                    way[other] = (*way[node], number)[:longest]
                    waiting.append(other)
        for node, far in steps.items():
            distances[start, node] = far
            paths[start, node, : len(way[node])] = way[node]
    return distances.reshape(-1), paths.reshape(count * count, longest)


def and_one(table: NDArray[Any], fill: int, count: int) -> NDArray[Any]:
    """What stands between each two nodes, and between all of them and one more.

    (N · N, …) -> ((N + 1) · (N + 1), …)
    """
    if not len(table):
        return table
    square = table.reshape(count, count, *table.shape[1:])
    wide = np.pad(square, ((0, 1), (0, 1), *[(0, 0)] * (square.ndim - 2)), constant_values=fill)
    if not table.shape[1:]:
        wide[count, count] = 0
    return wide.reshape(-1, *table.shape[1:])


def layout(graph: Graph) -> dict[str, Any]:
    """Where nodes are drawn, between 0 and 1, and which of them edges join."""
    pairs = sorted({(min(a, b), max(a, b)) for a, b in graph.edges if a != b})
    places = np.array(drawn(graph.text) if graph.text else springs(pairs, len(graph.tags)))
    low, high = places.min(0), places.max(0)
    span = max(float((high - low).max()), 1e-9)  # as far across as down, so that angles stay
    places = 0.5 + (places - (low + high) / 2) / span
    return {"places": places.round(4).tolist(), "edges": [list(pair) for pair in pairs]}


def springs(pairs: Sequence[tuple[int, int]], count: int) -> list[Sequence[float]]:
    """Nodes that push each other away, held together by their edges."""
    from networkx import Graph as Drawn
    from networkx import spring_layout

    whole = Drawn()
    whole.add_nodes_from(range(count))
    whole.add_edges_from(pairs)
    found = spring_layout(whole, seed=0, iterations=100)
    return [found[node] for node in range(count)]
