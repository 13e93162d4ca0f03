"""Read this first: docs/walk.md, executed; a sentence goes through the rooms."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WALK = (ROOT / "docs/walk.md").read_text(encoding="utf-8")


def test_the_walk_runs_as_it_is_written():
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", WALK, re.DOTALL)
    assert len(blocks) >= 14
    for block in blocks:
        exec(compile(block, "docs/walk.md", "exec"), names)


def test_every_file_of_the_walk_exists():
    headings = " ".join(re.findall(r"^## .*", WALK, re.M))
    stops = re.findall(r"`(regard/\S+?)`", headings)
    assert len(stops) >= 14
    for path in stops:
        assert (ROOT / path).is_file(), path
