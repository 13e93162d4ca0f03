"""Graphs over HTTP and on the page: asked, answered, and drawn with who looks at whom."""

import json

import pytest
from playwright.sync_api import expect

import regard
from regard.serve.limits import ServerLimits
from tests.serve.conftest import Served, shot

RING = {"nodes": ["o"] * 4, "edges": [[0, 1], [1, 2], [2, 3], [3, 0]]}


@pytest.fixture(scope="module")
def cycles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served-cycles") / "run"
    less = ("train.steps=3", "model.width=16", "model.depth=2", "data.test=", "train.device=cpu")
    regard.train("graph-cycles", *less, "train.evaluate_examples=0", run=folder)
    server = Served([folder], ServerLimits(seconds=30))
    yield server
    server.close()


def test_a_graph_is_sent_as_an_object_or_a_text(cycles):
    with cycles.client() as client:
        sent = [{"graph": RING}, RING, json.dumps(RING)]
        answer = client.post("/predict", json={"inputs": sent})
        told = [one["probabilities"] for one in answer.json()]
        assert answer.status_code == 200 and told[0] == told[1] == told[2]
        for bad in ({"graph": {}}, {"nodes": ["o"], "edges": [[0, 7]]}, "CCO"):
            said = client.post("/predict", json={"inputs": [bad]})
            assert said.status_code == 422 and said.json()["error"]["message"].startswith("input 1")
        looked = client.post("/attention", json={"input": {"graph": RING}}).json()
        assert len(looked["layout"]["places"]) == 4 and looked["looks"][0]["row_kind"] == "nodes"


def test_a_graph_is_drawn_on_the_page(page, cycles):
    page.goto(cycles.url)
    page.fill("#text", json.dumps(RING))
    page.click("#go")
    expect(page.locator("#answer")).not_to_be_empty()
    meshes = page.locator("#views .mesh svg")
    expect(meshes).to_have_count(1 + 1 + 4)  # the mean, all layers, four heads
    expect(meshes.first.locator("circle")).to_have_count(4)
    meshes.first.locator("circle").nth(2).click()
    expect(page.locator("#views .hint")).to_contain_text("Where “2” looks")
    expect(page.locator("#views .mesh .node.on")).to_have_count(6)
    shot(page, "graph")
