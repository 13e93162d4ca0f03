"""The site builds strictly, brings all that it shows, and can be searched without a server."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
import typer

from regard import cli, config
from regard.models import MODELS
from regard.training.recipe import read
from tests.pages import ROOT
from tests.serve.conftest import browser  # noqa: F401

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src",
          "audio": "src", "video": "src", "object": "data", "embed": "src"}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Every page but for classes, of which two rooms stand for all: they take half a minute."""
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1",
           "REGARD_SITE_ROOMS": "models parts"}  # fmt: skip
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(build, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """What a page loads as soon as it is opened, and where it leads."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        if tag == "a" and told.get("href"):
            self.links.append(urlsplit(told["href"]))
        shown = tag != "link" or told.get("rel") not in ("next", "prev", "canonical")
        if told.get(LOADED.get(tag)) and shown:
            self.addresses.append(told[LOADED[tag]])


def test_it_builds(site):
    """Each page of docs/, the README first; a page for each lab; the reference from the code."""
    for path in (ROOT / "docs").glob("*.md"):
        assert (site / f"{path.stem}.html").is_file()
    for path in (ROOT / "labs").glob("*.ipynb"):
        assert (site / f"labs/{path.stem}.html").is_file()
    assert "Every attention model of the classic lectures" in (site / "index.html").read_text()
    assert not list(site.rglob("*.py"))


def test_solutions_are_folded_until_somebody_asks(site):
    for lab in (ROOT / "labs").glob("*.ipynb"):
        page = (site / f"labs/{lab.stem}.html").read_text(encoding="utf-8")
        folded = re.findall(r"<details[^>]*>.*?</details>", page, re.DOTALL)
        assert len([one for one in folded if "Solution" in one]) == 3, lab
        assert not re.search(r"solution_\d</span>\s*<span[^>]*>=", re.sub(
            r"<details[^>]*>.*?</details>", "", page, flags=re.DOTALL)), lab  # fmt: skip


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        for address in Loads(page.read_text(encoding="utf-8")).addresses:
            where = urlsplit(address)
            assert where.scheme in ("", "data") and not where.netloc, (page, address)
            if where.scheme == "" and where.path and page.name != "404.html":
                assert (page.parent / where.path).exists(), (page, address)
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//|@import", style.read_text("utf-8")), style


def test_every_link_within_the_site_leads_somewhere(site):
    for page in site.rglob("*.html"):
        for where in Loads(page.read_text(encoding="utf-8")).links:
            if where.scheme == "" and where.path and page.name != "404.html":
                assert (page.parent / unquote(where.path)).exists(), (page, where.path)


def test_the_search_index_has_every_page(site):
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    assert (site / "search/search_index.js").read_text("utf-8").startswith("var __index = {")
    indexed = {entry["location"].partition("#")[0] for entry in index["docs"]}
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert pages - indexed <= {"404.html", "index.html"}


def test_every_setting_command_recipe_and_route_is_there(site):
    def text(name):
        return (site / f"reference/{name}.html").read_text(encoding="utf-8")

    for name in typer.main.get_command(cli.app).commands:
        assert f"regard {name}" in text("commands")
    for name in config.names():
        assert f"<code>{name}</code>" in text("recipes")
    for recipe in ("translate-tatoeba", "speech-digits", "graph-cycles", "decide-keydoor"):
        for section, rows in read(recipe).rows("comment").items():
            for key, _, note in rows:
                if key not in ("kind", "from"):
                    assert f"<code>{section}.{key}</code>" in text(f"settings/{section}"), note
    for kind in MODELS:
        assert f"model.kind = {kind}" in text("settings/model")
    assert "POST /v1/completions" in text("routes") and "max_tokens" in text("routes")
    assert "attention" in text("python/parts/attention")


def test_search_works_without_a_server(site, browser):  # noqa: F811
    """In a real browser, from the files: typed, found, and nothing asked of anybody."""
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click("[data-md-component=search-query]")
    page.wait_for_selector("text=Type to start searching", timeout=60_000)
    found = "() => [...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"
    for words, wanted in (("Bahdanau", ".html"), ("temperature", "reference/settings/decode.html"),
                          ("decode.temperature", "reference/settings/decode.html"),
                          ("lora", "chat.html")):  # fmt: skip
        page.fill("[data-md-component=search-query]", "")
        page.keyboard.type(words)
        page.wait_for_function(
            f"([wanted]) => ({found})().slice(0, 4).some(a => a.includes(wanted))", arg=[wanted],
            timeout=60_000,
        )  # fmt: skip
    page.close()
    assert asked and {urlsplit(address).scheme for address in asked} <= {"file", "data"}
