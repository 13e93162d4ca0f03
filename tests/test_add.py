"""docs/add.md, executed: a new kind of thing in a copy of the package, from its page alone."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard

PACKAGE = Path(regard.__file__).parent
PAGE = PACKAGE.parent / "docs/add.md"
HEAD = r"```(?:python|js|toml)\n(?:#|//) (new file|at the end of|in): (.+)\n"
BLOCK = re.compile(HEAD + r"((?:.*\n)*?)```")
SERVED = """
import asyncio, json, sys
import regard
from regard.serve.limits import ServerLimits
from regard.serve.served import ServedRun
run = regard.load(sys.argv[1], device="cpu")
one = ServedRun(run, ServerLimits())
told = asyncio.run(one.predict([[1, 2, 3, 4], "4 3 2 1"], {}))
print(json.dumps([[answer["output"] for answer in told], one.about()["gives"]]))
one.close(0.2)
"""


def series(count, seed):
    dice = random.Random(seed)
    rows = []
    for _ in range(count):
        step, start = dice.choice((-1, 1)) * dice.uniform(0.2, 1.0), dice.uniform(-6, 6)
        values = [start + step * i + dice.gauss(0, 0.05) for i in range(dice.randint(4, 12))]
        rows.append(f"{' '.join(f'{v:.3f}' for v in values)}\t{'up' if step > 0 else 'down'}\n")
    return "".join(rows)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the package with what the page says, and the files that were touched."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(PACKAGE, folder / "regard", ignore=shutil.ignore_patterns("__pycache__"))
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    made, changed = set(), set()
    for how, where, code in blocks:
        name, _, place = where.partition(", ")
        path = folder / name
        if how == "new file":
            path.write_text(code, encoding="utf-8")
            made.add(name)
            continue
        changed.add(name)
        said = path.read_text(encoding="utf-8")
        if how == "at the end of":
            said += f"\n\n{code}"
        elif place == "among its imports":
            first = re.search(r"^from (?!__future__)", said, re.M).start()
            said = f"{said[:first]}{code}{said[first:]}"
        else:
            entry = re.search(rf"{place.rpartition(' ')[2]}\b.*= {{\n", said)
            said = said[: entry.end()] + code + said[entry.end() :]
        path.write_text(said, encoding="utf-8")
    (folder / "train.txt").write_text(series(400, 0))
    (folder / "valid.txt").write_text(series(60, 1))
    return folder, made, changed


def run(house, *command):
    env = {**os.environ, "PYTHONPATH": str(house), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=house, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_new_kind_of_thing_costs_what_the_page_says(house):
    _, made, changed = house
    assert made == {"regard/data/series.py", "regard/tasks/series.py", "series.toml"}
    views, doors = "regard/see/page/tokens.js", "regard/models/door.py"
    assert changed == {"regard/batch.py", "regard/tasks/__init__.py", views, doors}


@pytest.fixture(scope="module")
def said(house):
    """What the page's commands print, one after the other."""
    shell = re.search(r"```sh\n((?:.*\n)*?)```", PAGE.read_text(encoding="utf-8"))[1]
    words = [re.findall(r'"[^"]*"|\S+', line) for line in shell.splitlines()]
    command = [sys.executable, "-m", "regard"]
    return [run(house[0], *command, *(word.strip('"') for word in line[1:])) for line in words]


def test_it_trains_answers_and_is_drawn(house, said):
    folder = house[0]
    assert said[1].split() == ["up", "down"]
    results = json.loads((folder / "runs/series/results.json").read_text())
    assert results["test"]["accuracy"] > 90
    page = (folder / "see.html").read_text(encoding="utf-8")
    assert '"row_kind": "numbers"' in page or '"row_kind":"numbers"' in page
    assert "series" in (folder / "runs/series/README.md").read_text(encoding="utf-8")


def test_it_is_served(house, said):
    answers, gives = json.loads(run(house[0], sys.executable, "-c", SERVED, "runs/series"))
    assert answers == ["up", "down"] and gives["kind"] == "numbers"


def test_its_mistakes_are_told_in_one_sentence(house, said):
    folder = house[0]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    said = '[task]\nkind="series"\n[data]\ntrain="train.txt"\n[model]\nkind="gpt"\n'
    (folder / "gpt.toml").write_text(said)
    for words, told in (
        (["predict", "runs/series", "one two"], "input 1: must be numbers"),
        (["train", "series.toml", "text.size=5"], "no section 'text'"),
        (["train", "gpt.toml"], "gpt cannot tell Label of Series"),
        (["export", "runs/series", "out", "--to", "hf"], "only runs that read text can be"),
    ):
        command = [sys.executable, "-m", "regard", *words]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 2 and told in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
