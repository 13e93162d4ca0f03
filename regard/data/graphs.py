"""Graphs: JSONL, networkx's node-link JSON, TU's text format, tables of nodes and edges, SMILES.

A node or an edge has tags (words for what it is), numbers, or both. Edges that say the same twice
are one; an edge from a node to itself is kept.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError
from .molecules import atoms_and_bonds
from .parts import PART, Source, fold_of
from .read import RECORD, WHOLE, Faults, is_text, kind_of, lines, records
from .table import rows

MOST_NODES = 10**6
LARGEST = 1e30  # number of a node or an edge


class GraphError(ValueError):
    """What is wrong with a graph, for a message."""


class Graph(NamedTuple):
    """Nodes and edges, what is right, and where it stands."""

    tags: list[list[str]]  # of each node
    numbers: list[list[float]]  # of each node, as many for all
    edges: list[list[int]]  # from, to
    edge_tags: list[list[str]]
    edge_numbers: list[list[float]]
    label: Any  # of the graph; or of each node, None where it is not asked
    names: list[str]  # of the nodes
    where: str
    text: str = ""  # what it was made of, where that is a text


def read(
    files: Source, label: str, smiles: str, split: str, folds: tuple[int, int], faults: Faults
) -> Iterator[Graph]:
    """Graphs with labels: JSONL, TU's format, or a table with a column of SMILES.

    With `split`, a row is of the part that this column says; with `folds` (number, which is left
    for the test), of the part that its fold has.
    """
    for path in files:
        kind = kind_of(path)
        if kind == ".jsonl":
            found = read_jsonl(path, label, split, faults)
        elif kind in (".csv", ".tsv"):
            found = read_smiles(path, label, smiles, split, faults)
        elif kind == ".txt":
            found = ((graph, "") for graph in read_tu(path, faults))
        else:
            raise DataError(
                f"{path}: graphs must be in a .jsonl, .txt (TU's format), .csv or .tsv file."
            )
        met: Counter[str] = Counter()
        for graph, part in found:
            if folds[0] > 1:
                kind = "a number" if "." in str(graph.label) else str(graph.label)
                part = fold_of(met[kind], *folds)
                met[kind] += 1
            elif split and part not in PART:
                faults.report(graph.where, f"{split} must be one of {', '.join(PART)}: '{part}'")
                continue
            if not part or PART[part] == files.part:
                yield graph


def read_jsonl(path: Path, label: str, split: str, faults: Faults) -> Iterator[tuple[Graph, str]]:
    for number, said in records(path, faults, RECORD):
        where = f"{path}:{number}"
        try:
            own = said.get("graph")
            told = {**(own if isinstance(own, dict) else {}), **said}
            if label not in told:
                raise GraphError(f"there must be '{label}' (task.label)")
            if told[label] is None or isinstance(told[label], dict) or told[label] == []:
                raise GraphError(f"'{label}' must be a text, a number or a list of texts")
            graph = as_graph(said)
        except GraphError as error:
            faults.report(where, str(error))
            continue
        yield graph._replace(label=told[label], where=where), str(told.get(split, ""))


def read_smiles(
    path: Path, label: str, smiles: str, split: str, faults: Faults
) -> Iterator[tuple[Graph, str]]:
    columns = [("task.smiles", smiles), ("task.label", label)]
    columns += [("task.split", split)] if split else []
    for where, (text, value, *part) in rows(path, columns, faults):
        try:
            graph = of_smiles(text)
        except GraphError as error:
            faults.report(where, str(error))
            continue
        yield graph._replace(label=value, where=where), str(part[0]) if part else ""


def of_smiles(text: str) -> Graph:
    if not is_text(text):
        raise GraphError("SMILES must be UTF-8")
    try:
        atoms, bonds, kinds = atoms_and_bonds(text)
    except ValueError as error:
        raise GraphError(str(error)) from error
    names = [tags[0].partition(" ")[2] for tags in atoms]
    return Graph(atoms, [], bonds, kinds, [], None, names, "", text)


WHOLE_NUMBER = re.compile(r"-?\d{1,15}")


def read_tu(path: Path, faults: Faults) -> Iterator[Graph]:
    """A count; then of each graph its nodes and label, and of each node its tag and neighbours."""
    numbered = enumerate(lines(path, faults.skip), 1)

    def numbers(least: int, what: str) -> list[int]:
        number, line = next(numbered, (0, None))
        if line is None:
            raise DataError(f"{path}: the file must have {what}, but ends before.")
        words = line.split()
        if len(words) < least or not all(WHOLE_NUMBER.fullmatch(word) for word in words):
            raise DataError(f"{path}:{number}: here must be {what}, but it is '{line[:60]}'.")
        return [int(word) for word in words]

    (count, *_) = numbers(1, "the number of graphs")
    for place in range(count):
        size, label = numbers(2, f"the nodes and the label of graph {place + 1}")[:2]
        where = f"{path}: graph {place + 1}"
        tags, edges = list[list[str]](), list[list[int]]()
        for node in range(size):
            tag, degree, *others = numbers(2, "a node's tag, and its neighbours after their number")
            if not 0 <= degree <= len(others):
                raise DataError(
                    f"{where}: node {node} must name {degree} neighbours, but names {len(others)}."
                )
            tags.append([str(tag)])
            edges += [[node, other] for other in others[:degree]]
        try:
            yield checked(tags, [], edges, [], [], str(label), [], where)
        except GraphError as error:
            faults.report(where, str(error))


def read_nodes(
    files: Source, label: str, split: str, words: str, faults: Faults, node: str = "node"
) -> Iterator[Graph]:
    """One large graph: a table of nodes and one of edges; labels of other parts are left out.

    A node is named in the column `node`; what it is told by stands in the column `words`,
    with spaces between.
    """
    if len(files) == 1 and kind_of(files[0]) == ".jsonl":
        for number, said in records(files[0], faults, WHOLE):
            where = f"{files[0]}:{number}"
            try:
                graph = as_graph(said)
                values = said.get(label)
                if not isinstance(values, list) or len(values) != len(graph.tags):
                    raise GraphError(f"'{label}' must be a list with a label for each node")
                if any(isinstance(value, dict | list) for value in values):
                    raise GraphError(f"'{label}' must have a text or a number for each node")
                parts = said.get(split, [files.part] * len(values))
                if not isinstance(parts, list) or len(parts) != len(values):
                    raise GraphError(f"'{split}' must be a list with a part for each node")
                values = [
                    value if PART.get(str(part)) == files.part else None
                    for value, part in zip(values, parts, strict=True)
                ]
            except GraphError as error:
                faults.report(where, str(error))
                continue
            yield graph._replace(label=values, where=where)
        return
    if len(files) != 2:
        raise DataError(f"{files[0]}: there must be two tables, one of nodes and one of edges.")
    columns = [("task.node", node), ("task.words", words), ("task.label", label)]
    columns += [("task.split", split)] if split else []
    names, tags, labels = list[str](), list[list[str]](), list[Any]()
    for where, (name, said, value, *part) in rows(files[0], columns, faults):
        if part and part[0] not in (*PART, "none", ""):
            known = ", ".join(PART)
            faults.report(where, f"{split} must be one of {known}, none, or empty: '{part[0]}'")
            continue
        own = not split or PART.get(str(part[0])) == files.part
        names.append(str(name).strip())
        tags.append([str(one) for one in said] if isinstance(said, list) else str(said).split())
        labels.append(value if own and value != "" else None)
    place = {name: at for at, name in enumerate(names)}
    if len(place) < len(names):
        raise DataError(f"{files[0]}: a node's name must be its own, but some stand there twice.")
    edges = list[list[int]]()
    for where, ends in pairs(files[1], faults):
        odd = [end for end in ends if end not in place]
        if odd:
            faults.report(where, f"an edge must join nodes that are there, but '{odd[0]}' is none")
        else:
            edges.append([place[end] for end in ends])
    yield checked(tags, [], edges, [], [], labels, names, str(files[0]))


def pairs(path: Path, faults: Faults) -> Iterator[tuple[str, list[str]]]:
    """The first two columns of a table of edges, with or without a header."""
    for where, ends in rows(path, [("edge", "1"), ("edge", "2")], faults):
        if [str(end).strip().lower() for end in ends] not in HEADERS:
            yield where, [str(end).strip() for end in ends]


HEADERS = (["source", "target"], ["from", "to"], ["node", "node"])


def as_graph(said: Mapping[str, Any]) -> Graph:
    """An object with nodes and edges; networkx's, where nodes are objects."""
    nodes, edges = said.get("nodes"), said.get("edges", said.get("links"))
    if not isinstance(nodes, list) or not isinstance(edges, list):
        raise GraphError("a graph must have lists of nodes and edges")
    if nodes and all(isinstance(node, dict) for node in nodes):
        return node_link(nodes, edges)
    tags, numbers = features(nodes, "node")
    pairs, edge_tags, edge_numbers = list[list[int]](), list[Any](), list[Any]()
    for number, edge in enumerate(edges):
        whole = isinstance(edge, list) and 2 <= len(edge) <= 3
        if not whole or not all(type(end) is int for end in edge[:2]):
            raise GraphError(
                f"edge {number} must be [from, to] or [from, to, tag or numbers], counted from 0"
            )
        pairs.append(edge[:2])
        edge_tags.append(edge[2] if len(edge) > 2 else [])
    edge_tags, edge_numbers = features(edge_tags, "edge")
    return checked(tags, numbers, pairs, edge_tags, edge_numbers, None, [], "")


def node_link(nodes: list[dict[str, Any]], edges: list[Any]) -> Graph:
    """What networkx writes: nodes have an id and attributes, edges a source and a target."""
    names = [str(node.get("id", at)) for at, node in enumerate(nodes)]
    place = {name: at for at, name in enumerate(names)}
    if len(place) < len(names):
        raise GraphError("a node's id must be its own, but some stand there twice")
    pairs = list[list[int]]()
    for number, edge in enumerate(edges):
        if not isinstance(edge, dict) or "source" not in edge or "target" not in edge:
            raise GraphError(f"edge {number} must have a source and a target")
        ends = [str(edge[side]) for side in ("source", "target")]
        odd = [end for end in ends if end not in place]
        if odd:
            raise GraphError(f"edge {number} names node '{odd[0]}', which is not there")
        pairs.append([place[end] for end in ends])
    told = attributes(edges, ("source", "target", "key"))
    tags, numbers = features(attributes(nodes, ("id",)), "node")
    return checked(tags, numbers, pairs, *features(told, "edge"), None, names, "")


def attributes(said: Sequence[Mapping[str, Any]], but: Sequence[str]) -> list[object]:
    """Words as tags with their names, numbers as they are; an attribute that has a point anywhere
    is a number everywhere."""
    values = [(key, value) for one in said for key, value in one.items() if key not in but]
    numbers = {key for key, value in values if any(isinstance(v, float) for v in several(value))}
    found: list[object] = []
    for one in said:
        own: list[object] = []
        for key, value in one.items():
            if key in but:
                continue
            plain = key in numbers and all(type(v) in (int, float) for v in several(value))
            own += several(value) if plain else [f"{key} {v}" for v in several(value)]
        found.append(own)
    return found


def several(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def features(said: Sequence[object], what: str) -> tuple[list[list[str]], list[list[float]]]:
    """Tags and numbers of nodes or edges: each a tag or a number, or a list of both.

    A whole number by itself is a tag; in a list it is a number.
    """
    tags, numbers = list[list[str]](), list[list[float]]()
    for number, one in enumerate(said):
        parts = one if isinstance(one, list) else [str(one) if type(one) is int else one]
        if not all(type(part) in (str, int, float) for part in parts):
            raise GraphError(f"{what} {number} must be a tag, or a list of tags and numbers")
        if not all(is_text(part) for part in parts if isinstance(part, str)):
            raise GraphError(f"{what} {number}: its tags must be UTF-8")
        if any(abs(part) > LARGEST for part in parts if isinstance(part, int | float)):
            raise GraphError(f"{what} {number}: its numbers must be finite, and below {LARGEST:g}")
        tags.append([part for part in parts if isinstance(part, str)])
        numbers.append([float(part) for part in parts if isinstance(part, int | float)])
        if not all(map(math.isfinite, numbers[-1])):
            raise GraphError(f"{what} {number}: its numbers must be finite")
    if len({len(own) for own in numbers}) > 1:
        raise GraphError(f"all {what}s must have as many numbers as the first")
    return tags, numbers if numbers and numbers[0] else []


def checked(
    tags: list[list[str]],
    numbers: list[list[float]],
    edges: list[list[int]],
    edge_tags: list[list[str]],
    edge_numbers: list[list[float]],
    label: object,
    names: list[str],
    where: str,
) -> Graph:
    """A graph whose edges join its own nodes, each edge once."""
    count = len(tags)
    if not count:
        raise GraphError("a graph must have a node, but has none")
    if count > MOST_NODES:
        raise GraphError(f"a graph may have {MOST_NODES:,} nodes, but has {count:,}")
    first: dict[tuple[int, int], int] = {}
    for number, (source, target) in enumerate(edges):
        if not (0 <= source < count and 0 <= target < count):
            odd = source if not 0 <= source < count else target
            raise GraphError(
                f"edge {number} names node {odd}, but there are {count}, counted from 0"
            )
        other = first.setdefault((source, target), number)
        if other != number and edge_tags:  # said twice, and perhaps of two kinds
            edge_tags[other] = list(dict.fromkeys((*edge_tags[other], *edge_tags[number])))
    kept = list(first.values())
    return Graph(
        tags, numbers, [edges[at] for at in kept],
        [edge_tags[at] for at in kept] if edge_tags else [],
        [edge_numbers[at] for at in kept] if edge_numbers else [],
        label, names or [str(at) for at in range(count)], where,
    )  # fmt: skip
