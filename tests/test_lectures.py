"""docs/lectures.md is what its numbers say, and every word in it leads somewhere."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def lectures(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import lectures

    yield lectures
    sys.modules.pop("lectures", None)


def test_the_page_is_made_of_its_numbers(lectures):
    assert (ROOT / "docs/lectures.md").read_text(encoding="utf-8") == lectures.page()
    for name in lectures.CLAIMS:
        found = json.loads((ROOT / f"docs/lectures/{name}.json").read_text(encoding="utf-8"))
        assert found["commands"] and found["seen"] and len({len(r) for r in found["table"]}) == 1
        for picture in found["pictures"]:
            assert (ROOT / "docs/lectures" / picture).stat().st_size > 1000


def test_every_word_of_the_lectures_has_a_place(lectures):
    for _, place in lectures.WORDS:
        files = re.findall(r"`(\w+/\w*(?:\.py)?)`", place)
        assert files
        whole = "".join(
            (ROOT / "regard" / file).read_text(encoding="utf-8")
            for file in files
            if file.endswith(".py")
        )
        for name in re.findall(r"`([A-Za-z]+)`", place):
            assert re.search(rf"\b{name}\b", whole), name


def test_the_sinusoids_shift_is_a_linear_map(lectures):
    import torch

    from regard.parts.position import Sinusoid

    table = Sinusoid(16).add(torch.zeros(1, 60, 16), torch.arange(60))[0].double()
    for tau in (1, 5, 20):
        moved = table[:40] @ lectures._turn(16, tau)
        torch.testing.assert_close(moved, table[tau : 40 + tau], atol=1e-5, rtol=0)
