"""Read this first: docs/walk.md and docs/walk-picture.md, executed: two ways through the rooms."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WALKS = {"walk.md": 14, "walk-picture.md": 7}  # and how many stops each has at least


@pytest.mark.parametrize("name", WALKS)
def test_the_walk_runs_as_it_is_written(name):
    names: dict[str, object] = {}
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= WALKS[name]
    for block in blocks:
        exec(compile(block, f"docs/{name}", "exec"), names)


@pytest.mark.parametrize("name", WALKS)
def test_every_file_of_the_walk_exists(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"^## .*", text, re.M))
    stops = re.findall(r"`(regard/\S+?)`", headings)
    assert len(stops) >= WALKS[name]
    for path in stops:
        assert (ROOT / path).exists(), path
