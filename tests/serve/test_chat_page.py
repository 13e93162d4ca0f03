"""A conversation on the page: bubbles, an answer as it comes, and a button that ends it."""

import json

import pytest
from playwright.sync_api import expect

from regard.exchange.gguf import read
from regard.serve.limits import ServerLimits
from tests.exchange import gguf_files
from tests.serve.conftest import Served, shot


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat-page")
    fields = {"tokenizer.chat_template": gguf_files.TEMPLATE}
    gguf_files.write(folder / "talker.gguf", fields=fields, max_position_embeddings=256)
    read(folder / "talker.gguf", folder / "talker")
    server = Served([folder / "talker"], ServerLimits(prompt=200, new_tokens=30, seconds=30))
    yield server
    server.close()


def test_messages_are_bubbles_and_the_answer_is_the_servers(page, talker):
    asked, told = [], []

    def overhear(route):
        answer = route.fetch()
        asked.append(route.request.post_data_json["messages"])
        told.append(answer.text())
        route.fulfill(response=answer)

    page.route("**/v1/chat/completions", overhear)
    page.goto(talker.url)
    for text in ("the cat?", "the dog?"):
        page.fill("#say", text)
        with page.expect_response("**/v1/chat/completions"):
            page.keyboard.press("Enter")
        expect(page.locator("#hush")).to_be_disabled()
        chunks = [json.loads(line[6:]) for line in told[-1].splitlines() if "{" in line]
        said = "".join(row["delta"].get("content", "") for c in chunks for row in c["choices"])
        expect(page.locator(".bubble.user p").last).to_have_text(text)
        assert page.locator(".bubble.assistant p").last.text_content() == (said or "(nothing)")
    assert [message["role"] for message in asked[1]] == ["user", "assistant", "user"]
    shot(page, "chat")
    page.click("#anew")
    expect(page.locator(".bubble")).to_have_count(0)


def test_ways_to_begin_are_offered_and_what_was_said_can_be_looked_into(page, talker):
    page.goto(talker.url)
    chips = page.locator("#openers .chip")
    expect(chips).to_have_count(3)
    first = chips.first.text_content()
    with page.expect_response("**/v1/chat/completions"):
        chips.first.click()
    expect(page.locator(".bubble.user p")).to_have_text(first)
    expect(page.locator("#openers")).to_be_hidden()
    expect(page.locator("#hush")).to_be_disabled()
    page.click("#mode")
    expect(page.locator("#text")).to_have_value(first)
    expect(page.locator("#views .lines")).to_be_visible()
    page.click("#mode")  # the conversation is still there
    expect(page.locator(".bubble.user p")).to_have_text(first)
    page.click("#anew")
    expect(page.locator("#openers")).to_be_visible()


def test_the_same_run_is_looked_into(page, talker):
    page.goto(talker.url)
    expect(page.locator("#conversation")).to_be_visible()
    page.click("#mode")
    expect(page.locator("#conversation")).to_be_hidden()
    page.fill("#text", "the cat")
    expect(page.locator("#views .lines")).to_be_visible()
    page.click("#mode")
    expect(page.locator("#say")).to_be_visible()
