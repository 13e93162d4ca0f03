"""Every lab runs from top to bottom, shortened by its settings alone, and shows what it gave."""

import ast
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import OFFLINE

ROOT = Path(__file__).parents[1]
LABS = sorted((ROOT / "labs").glob("*.ipynb"))
QUESTIONS = 3
FEW = 3  # what every count in the settings is made at most
MOST_BYTES, MOST_PICTURE = 220_000, 100_000
# What a reader who has understood the lab fills in.
ANSWERS = {
    "01": (416, 4, 4.23),
    "02": (0, "location", 19),
    "03": (1, 1, 6),
    "04": (-7, 1048576, 0),
    "05": (8, 12000, (4, 8)),
    "06": (15, 1, 192),
    "07": (120, 150, 1536),
    "08": (90, 2, 720),
    "09": (197, 16, 320),
    "10": (64, 192, 0),
    "11": (50, 15, 6),
    "12": (7000, 4, 0.5),
    "13": (1, 10, 0.75),
    "14": (13, 1024, 3.15e23),
}


def lab(path):
    return nbformat.read(path, as_version=4)


def tagged(notebook, tag):
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """What was shown under a cell: streams by name, pictures and values by their format."""
    return [
        output.name if output.output_type == "stream" else sorted(output.data)
        for output in cell.outputs
    ]


def shortened(source):
    """The settings cell with every count made small."""
    return re.sub(r"(?<== )\d+", lambda found: str(min(FEW, int(found[0]))), source)


def run(notebook, folder):
    """All cells in a kernel of their own, in a folder of their own, with no network to be had."""
    env = {**os.environ, **OFFLINE, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=240, resources=where, coalesce_streams=True).execute(env=env)


@pytest.mark.timeout(300)  # ten seconds of work, and the start of a kernel
@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_a_lab_runs_from_top_to_bottom(path, tmp_path):
    """Its assertions hold, it shows pictures and values where the stored one does, and a reader's
    right answers are taken, wrong ones not."""
    stored, notebook = lab(path), lab(path)
    (settings,) = tagged(notebook, "settings")
    settings.source = shortened(settings.source)
    solutions = "(solution_1, solution_2, solution_3)"
    strict = "import warnings\n\nwarnings.simplefilter('error')\n"
    strict += "warnings.filterwarnings('ignore', category=DeprecationWarning)"
    reader = "for answer, solution in zip({}, " + solutions + "):\n    check(answer, solution)"
    notebook.cells = [
        nbformat.v4.new_code_cell(strict),
        *notebook.cells,
        nbformat.v4.new_code_cell(reader.format(ANSWERS[path.stem[:2]])),
        nbformat.v4.new_code_cell(reader.format((-1.5,) * QUESTIONS)),
    ]
    run(notebook, tmp_path)
    _, *cells, right, wrong = code(notebook)
    assert [kinds(cell) for cell in cells] == [kinds(cell) for cell in code(stored)]
    assert right.outputs[0].text == "Right.\n" * QUESTIONS
    assert wrong.outputs[0].text == "Not yet.\n" * QUESTIONS


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_what_is_stored_came_of_one_whole_run(path):
    notebook = lab(path)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in code(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    shown = [output for cell in code(notebook) for output in cell.outputs]
    assert all(output.output_type != "error" for output in shown)
    assert all(output.get("name") != "stderr" for output in shown)
    pictures = [o.data["image/png"] for o in shown if "image/png" in o.get("data", {})]
    assert len(pictures) >= 2 and max(map(len, pictures)) < MOST_PICTURE * 4 / 3
    assert path.stat().st_size < MOST_BYTES
    # Nothing of the machine that it ran on.
    assert not re.search(r"/(home|root|tmp|work|Users)/|[A-Z]:\\\\", path.read_text("utf-8"))


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.stem)
def test_a_lab_keeps_the_form(path):
    """One cell of settings, three questions with hidden solutions, and a file to read next."""
    notebook = lab(path)
    (settings,) = tagged(notebook, "settings")
    for statement in ast.parse(settings.source).body:
        assert isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        assert isinstance(statement.value.value, int)
    assert all("  # " in line for line in settings.source.splitlines())
    assert shortened(settings.source) != settings.source

    cells = notebook.cells
    asked = [place for place, cell in enumerate(cells) if cell in tagged(notebook, "question")]
    assert len(asked) == len(tagged(notebook, "solution")) == QUESTIONS
    for number, place in enumerate(asked, 1):
        question, blank, solution = cells[place - 1 : place + 2]
        assert f"**Question {number}.**" in question.source
        assert blank.source.partition("  #")[0] == f"answer_{number} = ..." and not blank.outputs
        assert solution.metadata.tags == ["solution"] and solution.metadata.jupyter.source_hidden
        assert solution.source.startswith("# ")
        assert solution.source.endswith(f"check(answer_{number}, solution_{number})")
        assert solution.outputs[0].text.startswith("Your turn")

    last = cells[-1]
    assert last.cell_type == "markdown" and "**Read on:**" in last.source
    files = re.findall(r"`(regard/\S+?\.py)`", last.source)
    assert files and all((ROOT / file).is_file() for file in files)
    compared = sum(cell.source.count("assert") for cell in code(notebook))
    assert compared >= 3, "what is built by hand is held against the part"


def test_the_labs_are_numbered_listed_and_checked_alike():
    assert [path.stem[:2] for path in LABS] == [f"{n:02}" for n in range(1, len(LABS) + 1)]
    readme = (ROOT / "labs/README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d\S+\.ipynb)\)", readme) == [path.name for path in LABS]
    checks = set()
    for path in LABS:
        notebook = lab(path)
        (setup,) = tagged(notebook, "setup")
        checks.add(setup.source.partition("def check")[2])
        title = notebook.cells[0].source.splitlines()[0]
        assert re.match(rf"# Lab {int(path.stem[:2])} · ", title)
    assert len(checks) == 1
