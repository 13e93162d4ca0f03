"""Graphs out of files: what is read, and what is said of what cannot be."""

import json
from itertools import pairwise

import networkx
import numpy as np
import pytest

from regard.data.graphs import GraphError, as_graph, of_smiles, read, read_nodes, read_tu
from regard.data.parts import Source
from regard.data.read import Faults
from regard.errors import DataError
from regard.tasks.graph import GraphCoder, GraphSection, laplacian, random_walk, ways

NO_FOLDS = (0, 0)


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def all_of(path, part="train", label="label", split="", folds=NO_FOLDS, faults=None):
    return list(read(Source([path], part), label, "smiles", split, folds, faults or Faults()))


def test_jsonl_with_tags_and_numbers(tmp_path):
    rows = [
        {"nodes": ["a", "b"], "edges": [[0, 1, "x"]], "label": "one"},
        {"nodes": [["a", 1.5, 2], ["b", 0.5, 3]], "edges": [], "label": 3},
    ]
    first, second = all_of(write(tmp_path, "g.jsonl", "\n".join(map(json.dumps, rows))))
    assert first.tags == [["a"], ["b"]] and first.edges == [[0, 1]] and first.edge_tags == [["x"]]
    assert second.numbers == [[1.5, 2.0], [0.5, 3.0]] and second.label == 3 and not second.edges


def test_what_networkx_writes():
    drawn = networkx.path_graph(3)
    networkx.set_node_attributes(drawn, {0: "red", 1: "blue", 2: "red"}, "colour")
    networkx.set_edge_attributes(drawn, 0.5, "length")
    graph = as_graph(json.loads(json.dumps(networkx.node_link_data(drawn))))
    assert graph.tags == [["colour red"], ["colour blue"], ["colour red"]]
    assert graph.edges == [[0, 1], [1, 2]] and graph.edge_numbers == [[0.5], [0.5]]


def test_tu_text(tmp_path):
    path = write(tmp_path, "T.txt", "2\n3 1\n0 1 1\n2 2 0 2\n0 1 1\n1 0\n5 0\n")
    first, second = read_tu(path, Faults())
    assert first.tags == [["0"], ["2"], ["0"]] and first.label == "1"
    assert first.edges == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert second.tags == [["5"]] and not second.edges


def test_folds_divide_every_class_alike(tmp_path):
    lines = "".join(f"1 {int(number < 20)}\n0 0\n" for number in range(50))
    path = write(tmp_path, "T.txt", f"50\n{lines}")
    tests = [all_of(path, "test", folds=(10, fold)) for fold in range(10)]
    assert [[g.label for g in some].count("1") for some in tests] == [2] * 10
    whole = [g.where for some in tests for g in some]
    assert len(set(whole)) == 50
    for fold, some in enumerate(tests):
        rest = all_of(path, "train", folds=(10, fold))
        assert {g.where for g in rest} | {g.where for g in some} == set(whole) and len(rest) == 45


def test_a_column_says_the_part(tmp_path):
    text = "smiles,label,split\nCCO,1.5,train\nc1ccccc1,2.5,val\nC#N,0.5,test\n"
    path = write(tmp_path, "m.csv", text)
    assert [g.text for g in all_of(path, "train", split="split")] == ["CCO"]
    (ring,) = all_of(path, "valid", split="split")
    assert len(ring.tags) == 6 and "aromatic" in ring.tags[0] and ring.label == "2.5"
    assert ["bond AROMATIC", "conjugated", "in a ring"] in ring.edge_tags


def test_tables_of_nodes_and_edges(tmp_path):
    nodes = write(tmp_path, "n.tsv", "node\tlabel\tsplit\twords\nu\tA\ttrain\tx y\nv\tB\ttest\ty\n")
    edges = write(tmp_path, "e.tsv", "source\ttarget\nu\tv\n")
    (graph,) = read_nodes(Source([nodes, edges], "train"), "label", "split", "words", Faults())
    assert graph.tags == [["x", "y"], ["y"]] and graph.edges == [[0, 1]]
    assert graph.names == ["u", "v"] and graph.label == ["A", None]
    (graph,) = read_nodes(Source([nodes, edges], "test"), "label", "split", "words", Faults())
    assert graph.label == [None, "B"]
    edges.write_text("u\tw\n")
    with pytest.raises(DataError, match="e.tsv:1: an edge must join nodes that are there, but 'w'"):
        list(read_nodes(Source([nodes, edges]), "label", "split", "words", Faults()))


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"nodes": [], "edges": []}, "a graph must have a node, but has none"),
        ({"nodes": ["a"], "edges": [[0, 5]]}, "edge 0 names node 5, but there are 1"),
        ({"nodes": ["a"], "edges": [[-1, 0]]}, "edge 0 names node -1"),
        ({"nodes": ["a"], "edges": [[0]]}, "edge 0 must be [from, to]"),
        ({"nodes": ["a"], "edges": [["a", "b"]]}, "edge 0 must be [from, to]"),
        ({"nodes": ["a"], "edges": [[True, 0]]}, "edge 0 must be [from, to]"),
        ({"nodes": [[1.0], [1.0, 2.0]], "edges": []}, "all nodes must have as many numbers"),
        ({"nodes": [[float("nan")]], "edges": []}, "node 0: its numbers must be finite"),
        ({"nodes": [None], "edges": []}, "node 0 must be a tag, or a list of tags and numbers"),
        ({"nodes": 3, "edges": []}, "lists of nodes and edges"),
        ({"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}, "edge 0 names node '2'"),
        ({"nodes": [{"id": 1}], "links": [[1, 1]]}, "edge 0 must have a source and a target"),
    ],
)
def test_what_is_no_graph_is_told(said, wanted, tmp_path):
    with pytest.raises(GraphError) as error:
        as_graph(said)
    assert wanted in str(error.value)
    path = write(tmp_path, "g.jsonl", json.dumps({**said, "label": 1}) + "\n")
    with pytest.raises(DataError, match="g.jsonl:1: .*data.skip_bad=true"):
        all_of(path)
    faults = Faults(skip=True)
    assert not all_of(path, faults=faults) and faults.count == 1


@pytest.mark.parametrize("smiles", ["", "C1CC", "not a molecule", "C(C)(C)(C)(C)C"])
def test_what_is_no_molecule_is_told(smiles):
    with pytest.raises(GraphError, match="must be the SMILES of a molecule"):
        of_smiles(smiles)


def test_a_torn_tu_file_is_told(tmp_path):
    with pytest.raises(DataError, match="T.txt: the file must have a node's tag"):
        list(read_tu(write(tmp_path, "T.txt", "1\n2 0\n0 0\n"), Faults()))
    with pytest.raises(DataError, match="T.txt:2: here must be the nodes and the label of graph 1"):
        list(read_tu(write(tmp_path, "T.txt", "1\nx\n"), Faults()))
    with pytest.raises(DataError, match="graph 1: edge 0 names node 7"):
        list(read_tu(write(tmp_path, "T.txt", "1\n1 0\n0 1 7\n"), Faults()))


def test_loops_and_doubles_are_taken():
    graph = as_graph({"nodes": ["a", "b"], "edges": [[0, 0], [0, 1], [0, 1], [1, 0]]})
    assert graph.edges == [[0, 0], [0, 1], [1, 0]]
    coded = GraphCoder.learn(GraphSection(), [graph]).encode(graph)
    assert coded.edges.tolist() == [[0, 0], [0, 1], [1, 0]]


def test_edges_go_both_ways_and_a_node_is_joined_to_all():
    graph = as_graph({"nodes": ["a", "b", "c"], "edges": [[0, 1, "x"], [1, 2, "y"]]})
    coder = GraphCoder.learn(GraphSection(virtual=True), [graph])
    one = coder.encode(graph)
    assert one.edges.tolist()[:4] == [[0, 1], [1, 2], [1, 0], [2, 1]]
    assert len(one.edges) == 4 + 2 * 3 and one.tags[-1] == [coder.ids["[graph]"]]
    assert one.edge_tags[0] == one.edge_tags[2] == [coder.edge_ids["x"]]
    assert one.edge_tags[-1] == [coder.edge_ids["[graph]"]]
    directed = GraphCoder.learn(GraphSection(directed=True), [graph]).encode(graph)
    assert directed.edges.tolist() == [[0, 1], [1, 2]]


def test_an_unknown_tag_is_unknown_and_other_numbers_are_told():
    known = as_graph({"nodes": [["a", 1.0], ["b", 3.0]], "edges": []})
    coder = GraphCoder.learn(GraphSection(), [known])
    one = coder.encode(as_graph({"nodes": [["z", 2.0]], "edges": []}))
    assert one.tags == [[1]] and one.numbers.tolist() == [[0.0]]  # 2 is the mean
    with pytest.raises(GraphError, match="each node must have 1 numbers, but has 0"):
        coder.encode(as_graph({"nodes": ["a"], "edges": []}))


def test_a_graph_too_large_for_all_pairs_is_told():
    many = as_graph({"nodes": ["a"] * 5000, "edges": []})
    coder = GraphCoder.learn(GraphSection(position="laplacian"), [many])
    with pytest.raises(GraphError, match="of 4,096 nodes at most, but this has 5,000"):
        coder.encode(many)


def test_distances_and_ways_are_networkxs():
    drawn = networkx.gnm_random_graph(12, 14, seed=3)
    edges = np.array([e for a, b in drawn.edges for e in ((a, b), (b, a))], np.int32)
    far, paths = ways(edges, 12, 3, 3)
    lengths = dict(networkx.all_pairs_shortest_path_length(drawn))
    for a in range(12):
        for b in range(12):
            wanted = lengths[a].get(b, -1)
            assert far.reshape(12, 12)[a, b] == min(wanted, 4)
            way = [edges[at].tolist() for at in paths.reshape(12, 12, 3)[a, b] if at >= 0]
            assert len(way) == min(max(wanted, 0), 3)
            if way:  # who an edge reaches looks back along it
                assert way[0][1] == a and all(x[0] == y[1] for x, y in pairwise(way))


def test_positions_are_what_they_say():
    ring = np.array([[i, (i + 1) % 4] for i in range(4)], np.int32)
    walk = random_walk(ring, 4, 4)
    np.testing.assert_allclose(walk[0], [0, 0.5, 0, 0.5])  # back after two or four steps
    path = np.array([[0, 1], [1, 2]], np.int32)
    found = laplacian(path, 3, 4)
    root = np.sqrt(3)
    np.testing.assert_allclose(np.abs(found[:, 0]), [root / np.sqrt(2), 0, root / np.sqrt(2)],
                               atol=1e-6)  # fmt: skip
    assert found.shape == (3, 4) and not found[:, 2:].any()


def test_a_node_for_all_is_a_neighbour_and_shortens_no_way():
    path = as_graph({"nodes": ["a"] * 4, "edges": [[0, 1], [1, 2], [2, 3]]})
    section = GraphSection(virtual=True, farthest=3, longest=2, position="random-walk", places=2)
    one = GraphCoder.learn(section, [path]).encode(path)
    far = one.distances.reshape(5, 5)
    assert far[0].tolist() == [0, 1, 2, 3, 1] and far[4].tolist() == [1, 1, 1, 1, 0]
    assert (one.paths.reshape(5, 5, 2)[4] == -1).all() and one.places.shape == (5, 2)
    alone = GraphCoder.learn(GraphSection(farthest=2), [path]).encode(path)
    assert alone.distances.reshape(4, 4)[0].tolist() == [0, 1, 2, 3] and alone.paths.shape == (
        16,
        0,
    )


def test_along_directed_edges_who_is_reached_looks_back():
    chain = as_graph({"nodes": ["a", "b", "c"], "edges": [[0, 1], [1, 2]]})
    one = GraphCoder.learn(GraphSection(directed=True, farthest=3), [chain]).encode(chain)
    assert one.distances.reshape(3, 3).tolist() == [[0, -1, -1], [1, 0, -1], [2, 1, 0]]


def test_numbers_of_any_size_are_scaled():
    far = [[1.7e9 + n, 1e-9 * n, 5.0] for n in range(3)]
    graph = as_graph({"nodes": far, "edges": []})
    coder = GraphCoder.learn(GraphSection(), [graph, graph])
    found = coder.encode(graph).numbers
    wanted = np.array([-1, 0, 1]) * np.sqrt(1.5)
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-4)
    np.testing.assert_allclose(found[:, 1], wanted, rtol=1e-4)
    assert not found[:, 2].any()
    odd = as_graph({"nodes": [[1e29, 0.0, 0.0]], "edges": []})
    assert np.isfinite(coder.encode(odd).numbers).all()
    with pytest.raises(GraphError, match="node 0: its numbers must be finite"):
        as_graph({"nodes": [[10**400]], "edges": []})


def test_edges_said_twice_are_one_of_both_kinds_and_ids_are_their_own():
    graph = as_graph({"nodes": ["a", "b"], "edges": [[0, 1, "x"], [0, 1, "y"]]})
    assert graph.edges == [[0, 1]] and graph.edge_tags == [["x", "y"]]
    with pytest.raises(GraphError, match="a node's id must be its own"):
        as_graph({"nodes": [{"id": 1}, {"id": "1"}], "edges": []})
    weights = [{"source": 1, "target": 2, "w": 1}, {"source": 2, "target": 1, "w": 1.5}]
    graph = as_graph({"nodes": [{"id": 1}, {"id": 2}], "edges": weights})
    assert graph.edge_numbers == [[1.0], [1.5]]


def test_edges_with_numbers_may_be_none():
    whole = as_graph({"nodes": ["a", "b"], "edges": [[0, 1, [0.5]]]})
    coder = GraphCoder.learn(GraphSection(), [whole])
    assert coder.encode(as_graph({"nodes": ["a"], "edges": []})).edge_numbers.shape == (0, 1)


@pytest.mark.parametrize("own", [None, "label", ["label"], 3])
def test_a_graph_attribute_that_is_none_is_passed_over(own, tmp_path):
    row = {"nodes": ["a"], "edges": [], "graph": own}
    with pytest.raises(DataError, match="g.jsonl:1: there must be 'label'"):
        all_of(write(tmp_path, "g.jsonl", json.dumps(row)))


@pytest.mark.parametrize("label", [None, {"a": 1}, []])
def test_what_is_no_label_is_told(label, tmp_path):
    row = {"nodes": ["a"], "edges": [], "label": label}
    with pytest.raises(DataError, match="'label' must be a text, a number or a list of texts"):
        all_of(write(tmp_path, "g.jsonl", json.dumps(row)))


def test_numbers_are_divided_into_folds_too(tmp_path):
    rows = [{"nodes": ["a"], "edges": [], "label": n / 7 + 0.01} for n in range(20)]
    path = write(tmp_path, "g.jsonl", "\n".join(map(json.dumps, rows)))
    assert [len(all_of(path, "test", folds=(5, fold))) for fold in range(5)] == [4] * 5


def test_a_split_of_nodes_in_json(tmp_path):
    row = {"nodes": ["a", "b"], "edges": [], "label": ["p", "q"], "split": ["train", "test"]}
    path = write(tmp_path, "g.jsonl", json.dumps(row))
    for part, wanted in (("train", ["p", None]), ("test", [None, "q"])):
        (graph,) = read_nodes(Source([path], part), "label", "split", "words", Faults())
        assert graph.label == wanted
