"""Histories over HTTP and on the page: sent, edited, and how the advice changes."""

import json

import pytest
from playwright.sync_api import expect

import regard
from regard.serve.limits import ServerLimits
from tests.serve.conftest import Served, shot

SEEN = [{"sees": "a red key", "action": "walk", "reward": 0}, {"sees": "a corridor"}]


@pytest.fixture(scope="module")
def keydoor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served-keydoor") / "run"
    less = ("train.steps=3", "model.width=16", "data.test=", "train.device=cpu")
    regard.train("decide-keydoor", *less, "train.evaluate_examples=0", run=folder)
    server = Served([folder], ServerLimits(seconds=30))
    yield server
    server.close()


def test_a_history_is_sent_as_an_object_a_list_or_a_text(keydoor):
    with keydoor.client() as client:
        sent = [{"history": SEEN}, SEEN, json.dumps(SEEN)]
        answer = client.post("/predict", json={"inputs": sent})
        assert answer.status_code == 200, answer.text
        one, two, three = answer.json()
        assert one["probabilities"] == two["probabilities"] == three["probabilities"]
        assert set(one["times"]) <= {"walk", "wait"} and one["times"]["walk"] > 1000
        assert one["recorded"].keys() == one["probabilities"].keys()
        for bad in ({"history": []}, [{"hears": "a bell"}], "walk"):
            said = client.post("/predict", json={"inputs": [bad]})
            assert said.status_code == 422 and said.json()["error"]["message"].startswith("input 1")
        looked = client.post("/attention", json={"input": {"history": SEEN}}).json()
        assert looked["looks"][0]["rows"][1] == "1 sees=a red key"


def test_a_history_is_edited_on_the_page(page, keydoor):
    page.goto(keydoor.url)
    steps = page.locator("#steps tbody tr")
    expect(page.locator("#answer")).not_to_be_empty()  # an example's
    expect(steps).to_have_count(3)
    expect(page.locator("#steps thead")).to_contain_text("→ action")
    expect(page.locator("#more .change")).to_have_count(0)
    expect(page.locator("#more")).to_contain_text("recorded")
    page.uncheck("#live")
    steps.nth(2).locator("button").click()
    expect(steps).to_have_count(2)
    steps.nth(0).locator("input").nth(0).fill("a red key")
    page.click("#go")
    expect(page.locator("#more .change").first).to_be_visible()
    expect(page.locator("#views .hint")).to_contain_text("“2 sees=a corridor”")
    strips = page.locator("#views .along tbody")
    expect(strips).to_have_count(1 + 1 + 4)  # the mean, all layers, four heads
    expect(strips.first.locator(".cell")).to_have_count(2 * 3)
    ahead = strips.first.locator(".cell").nth(5)  # what is done then is not decided yet
    expect(ahead).to_have_attribute("title", "2 did ?: 0.000")
    shot(page, "history")
    page.click("#add")
    expect(steps).to_have_count(3)
