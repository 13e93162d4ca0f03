"""Graphs and nodes from files to answers: what is learned, said of bad input, and seen."""

import gzip
import json

import numpy as np
import pytest

import regard
from regard.corpora.cycles import generate
from regard.errors import InputError, RecipeError
from regard.tasks.graphs import as_typed
from regard.tasks.nodes import around
from regard.training.recipe import read
from tests.test_corpora import FOLDER

SQUARE = {"nodes": ["o"] * 5, "edges": [[0, 1], [1, 2], [2, 3], [3, 0], [3, 4]]}
SMALL = ("train.device=cpu", "data.valid=", "data.test=", "train.evaluate_examples=0")


def test_the_corpus_is_what_its_generator_makes(tmp_path):
    generate.main(tmp_path)
    for part, count in generate.SIZES.items():
        made = gzip.decompress((tmp_path / f"{part}.jsonl.gz").read_bytes())
        assert made == gzip.decompress((FOLDER / f"cycles/{part}.jsonl.gz").read_bytes())
        rows = [json.loads(line) for line in made.splitlines()]
        assert len(rows) == count
        # As many with as without, of every number of nodes and edges.
        seen: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            sizes = (len(row["nodes"]), len(row["edges"]))
            square = generate.has_square([tuple(e) for e in row["edges"]], sizes[0])
            assert row["label"] == ("square" if square else "none")
            seen.setdefault(sizes, [0, 0])[square] += 1
        assert all(with_one == without for with_one, without in seen.values())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A smaller model for fewer steps than the recipe has: about fifteen seconds."""
    less = ("train.steps=250", "model.width=32", "model.depth=3", "train.rate=0.004")
    less += ("train.warmup=30", "train.batch_tokens=512", "train.evaluate_every=250")
    return regard.train("graph-cycles", *less, "train.device=cpu",
                        run=tmp_path_factory.mktemp("cycles") / "run")  # fmt: skip


def test_a_cycle_is_found(run):
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    assert scores["accuracy"] > 80 and scores["headline"] == "accuracy"
    chain = {"nodes": ["o"] * 5, "edges": [[0, 1], [1, 2], [2, 3], [3, 4]]}
    found = run.predict([SQUARE, json.dumps(chain)])
    assert found[0].probabilities["square"] > found[1].probabilities["square"]
    other = {"nodes": ["o"] * 5, "edges": [[3, 1], [1, 0], [0, 4], [4, 3], [4, 2]]}
    (again,) = run.predict([other])  # the same, numbered otherwise
    assert again.probabilities["square"] == pytest.approx(
        found[0].probabilities["square"], abs=1e-4
    )


def test_without_structure_it_is_a_coin(tmp_path):
    less = ("train.steps=60", "model.layer=all", "graph.position=none", "train.device=cpu")
    regard.train("graph-cycles", *less, "train.evaluate_every=60", run=tmp_path / "bag")
    scores = json.loads((tmp_path / "bag/results.json").read_text())["test"]
    # All nodes alike: graphs of one size get one answer, but for a rounding near the middle.
    assert scores["accuracy"] == pytest.approx(50, abs=2)


def test_what_it_attends_to_is_drawn_on_the_graph(run, tmp_path):
    sight = run.see(SQUARE)
    assert len(sight.layout["places"]) == 5 and [0, 1] in sight.layout["edges"]
    assert {look.kind for look in sight.looks} == {"blocks.attention", "blocks.local"}
    local = sight.of("blocks.local")[0]
    assert local.row_kind == "nodes" and local.weights[:, 4, 0].max() == 0  # no edge joins them
    assert np.allclose(local.weights.sum(-1), 1, atol=1e-5)
    for name in ("a.png", "a.svg", "a.html", "a.json"):
        assert sight.save(tmp_path / name).stat().st_size > 1000
    assert json.loads((tmp_path / "a.json").read_text())["layout"]["edges"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("CCO", 'input 1: must be a graph, {"nodes": […], "edges": [[0, 1], …]}, but is a text.'),
        ([1, 2], "but is a list."),
        ({"nodes": [], "edges": []}, "input 1: a graph must have a node, but has none."),
        ({"nodes": ["o"], "edges": [[0, 1]]}, "input 1: edge 0 names node 1, but there are 1"),
        ('{"nodes": ["o"]', "input 1: "),
        ({"graph": 3}, "must be a graph"),
        ({"nodes": ["o"] * 30_000, "edges": []}, "may have 20,000 nodes here, but has 30,000."),
        ({"nodes": ["o"] * 9000, "edges": []}, "may have 8,192 of them, but has 9,000; train with"),
    ],
)
def test_what_is_no_graph_is_told(run, given, wanted):
    with pytest.raises(InputError) as error:
        run.predict([given])
    assert wanted in str(error.value)


def test_what_cannot_be_looked_into_is_told(run):
    with pytest.raises(InputError, match="input 1: each node must have 0 numbers, but has 1"):
        run.see({"nodes": [[1.5], [2.5]], "edges": []})


def test_a_path_is_read_from_the_shell(run, tmp_path):
    path = tmp_path / "square.json"
    path.write_text(json.dumps(SQUARE))
    form = run.task.gives
    assert form.parse(str(path)).graph == form.parse(json.dumps(SQUARE)).graph
    with pytest.raises(InputError, match="input 2: .*none.json: cannot be read"):
        form.parse(str(tmp_path / "none.json"), 2)


def test_folds_must_make_sense():
    with pytest.raises(RecipeError, match="task.fold must be below task.folds"):
        read("graph-mutag", ["task.fold=10"])
    with pytest.raises(RecipeError, match="both say what the test is"):
        read("graph-mutag", ["task.split=split"])


# Nodes.


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Two subjects that cite their own, each with its words; few labels are told."""
    folder, dice = tmp_path_factory.mktemp("papers"), np.random.default_rng(0)
    subject = np.arange(80) % 2
    rows = ["node\tlabel\tsplit\twords"]
    for node, which in enumerate(subject):
        part = "train" if node < 8 else "valid" if node < 30 else "test"
        words = " ".join(map(str, dice.integers(0, 12, 3) + 6 * which))
        rows.append(f"p{node}\t{('cells', 'stars')[which]}\t{part}\t{words}")
    edges = [(a, b) for a in range(80) for b in dice.integers(0, 80, 3) if subject[a] == subject[b]]
    (folder / "nodes.tsv").write_text("\n".join(rows) + "\n")
    (folder / "edges.tsv").write_text("".join(f"p{a}\tp{b}\n" for a, b in edges))
    (folder / "papers.toml").write_text(
        """
[task]
kind = "node"
words = "words"
[data]
train = ["nodes.tsv", "edges.tsv"]
valid = ["nodes.tsv", "edges.tsv"]
test = ["nodes.tsv", "edges.tsv"]
[model]
kind = "graph"
layer = "gat"
score = "gat"
width = 16
depth = 2
heads = 2
dropout = 0.3
[train]
steps = 60
rate = 0.02
warmup = 5
evaluate_every = 20
device = "cpu"
"""
    )
    return regard.train(str(folder / "papers.toml"), run=folder / "run")


def test_nodes_are_told_by_those_around_them(papers):
    results = json.loads((papers.folder / "results.json").read_text())["test"]
    assert results["accuracy"] > 85 and results["examples"] == 50
    assert sum(map(sum, results["confusion"]["matrix"])) == 50
    found = papers.predict(["p70", "p71"])
    assert [one.label for one in found] == ["cells", "stars"]
    loaded = regard.load(papers.folder, device="cpu")  # with the graph it was trained on
    assert loaded.predict(["p70"])[0].probabilities == found[0].probabilities
    new = {"nodes": [["3"], ["2"], ["4"]], "edges": [[0, 1], [1, 2]], "node": 2}
    assert papers.predict([new])[0].label == "cells"  # another graph altogether


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("p99", 'input 1: must be one of 80 nodes, or {"nodes"'),
        (["p1"], "but is a list."),
        ({"nodes": ["1"], "edges": [], "node": 4}, '"node" must be the number of one of 1 nodes'),
        ('{"nodes":', "input 1: "),
    ],
)
def test_what_is_no_node_is_told(papers, given, wanted):
    with pytest.raises(InputError) as error:
        papers.predict([given])
    assert wanted in str(error.value)


def test_what_is_around_a_node_is_seen(papers):
    sight = papers.see("p5")
    assert sight.looks[0].rows[0] == "p5" and len(sight.looks[0].rows) < 80
    # Two layers look two edges far, so what is cut off changes nothing of the node itself.
    near = around(papers.task.graph, 5, 2)
    (cut,) = papers.predict([{**json.loads(as_typed(near)), "node": 0}])
    (whole,) = papers.predict(["p5"])
    assert cut.probabilities["stars"] == pytest.approx(whole.probabilities["stars"], abs=1e-4)
