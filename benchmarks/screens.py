"""The page's pictures for the docs: `python benchmarks/screens.py RUN [OUT]`, by chromium.

Takes the first screen in light and dark, the story of a head, and how an answer came about.
"""

from __future__ import annotations

import io
import shutil
import sys
import threading
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import regard
from regard.serve.app import make_app
from regard.serve.limits import ServerLimits
from regard.serve.served import ServedRun
from regard.serve.server import bind, make_server

SCREENS = Path(__file__).parents[1] / "docs/screens"
COLOURS = 128  # of a picture: drawings need no more, and the repository stays small


def save(page: Page, path: Path) -> None:
    page.wait_for_timeout(300)
    taken = Image.open(io.BytesIO(page.screenshot()))
    taken.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} KiB")


def main(folder: str, out: Path = SCREENS) -> None:
    limits = ServerLimits()
    socket = bind("127.0.0.1", 0)
    server = make_server(make_app([ServedRun(regard.load(folder), limits)], limits), limits)
    threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    with sync_playwright() as driver:
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
        page = driver.chromium.launch(**options).new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"http://127.0.0.1:{socket.getsockname()[1]}#text=The little cat is sleeping.")
        page.locator("#answer .word").nth(1).hover()
        save(page, out / "playground.png")
        page.click("#theme")
        page.locator("#views .map .thumb").last.click()
        page.locator("#answer .word").nth(2).hover()
        save(page, out / "heads.png")
        page.click("#theme")
        page.click("[role=tab][data-view=story]")
        page.click("[data-stage=mix]")
        page.wait_for_selector("#views .mixed .strip i:nth-child(9)")
        page.select_option("[data-key=query]", "1")
        save(page, out / "story.png")
        page.click("[role=tab][data-view=generation]")
        save(page, out / "generation.png")
    server.should_exit = True


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:3]))
