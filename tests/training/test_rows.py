"""Rows given in Python: the same training as from files, in a folder that needs nothing else."""

import csv
import json
import shutil
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import regard
from regard.errors import InputError, RunError
from tests.test_contract import TOYS, write_recipe


def jsonl(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def sentences(path):
    rows = (line.split() for line in path.read_text().splitlines())
    for some, group in groupby(rows, bool):
        if some:
            words, tags = zip(*group, strict=True)
            yield {"words": words, "tags": tags}


def questions(path):
    for paragraph in json.loads(path.read_text())["data"][0]["paragraphs"]:
        asked = paragraph["qas"][0]
        yield asked["question"], paragraph["context"], asked["answers"]


def pictures(folder):
    for path in sorted(folder.rglob("*.png")):
        yield np.asarray(Image.open(path)), path.parent.name


# How rows of each kind are given, and the model that is tried.
KINDS = {
    "translate": ("transformer", jsonl),
    "text-to-text": ("t5", lambda path: ((row["source"], row["target"]) for row in jsonl(path))),
    "classify": ("bert", lambda path: pandas.DataFrame(table(path))),
    "tag": ("bert", sentences),
    "answer": ("bert", questions),
    "picture": ("vit", pictures),
    "graph": ("graph", lambda path: [(row, row.pop("label")) for row in jsonl(path)]),
    "decide": ("decision", table),
}


@pytest.mark.parametrize("task", KINDS)
def test_rows_train_the_same_as_files(task, tmp_path):
    """Bit for bit; and the run folder goes elsewhere as it is."""
    model, rows_of = KINDS[task]
    recipe = write_recipe(tmp_path, task, model)
    named = {part: tmp_path / TOYS[task][1].format(part) for part in ("train", "valid", "test")}
    given = {part: rows_of(path) for part, path in named.items()}
    regard.train(recipe, run=tmp_path / "files")
    regard.train(recipe, data=given, run=tmp_path / "rows")
    one, two = (load_file(tmp_path / run / "model.safetensors") for run in ("files", "rows"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    for path in tmp_path.iterdir():  # nothing but the run is left
        if path.name not in ("files", "rows"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    moved = (tmp_path / "rows").rename(tmp_path / "elsewhere")
    scores = regard.load(moved, device="cpu").evaluate("test")
    kept = json.loads((moved / "results.json").read_text())["test"]
    assert scores[scores["headline"]] == kept[kept["headline"]]


ROWS = [{"text": f"number {i} is {'good' if i % 2 else 'bad'}", "label": "yn"[i % 2]}
        for i in range(24)]  # fmt: skip
SMALL = ("model.width=16", "model.depth=1", "model.heads=2", "text.kind=words", "train.steps=4",
         "train.save_every=2", "train.evaluate_every=2", "train.device=cpu")  # fmt: skip


def train(run, rows, **more):
    return regard.train("classify", *SMALL, data=rows, run=run, **more)


def test_rows_alone_are_there_to_learn_from(tmp_path):
    run = train(tmp_path / "run", ((row["text"], np.str_(row["label"])) for row in ROWS))
    assert run.recipe.data.named("train") == [tmp_path / "run/data/train.jsonl"]
    assert not run.recipe.data.named("valid") and not run.recipe.data.named("test")
    assert (
        'train = "data/train.jsonl"  # given in Python'
        in (tmp_path / "run/recipe.toml").read_text()
    )
    assert run.predict("number 3 is good")[0].output in "yn"


def test_texts_are_rows_of_a_language_model(tmp_path):
    texts = ["one two three four five six seven eight"] * 6
    run = regard.train("lm-shakespeare-cpu", "model.width=16", "model.depth=1", "model.heads=2",
                       "task.context=8", "model.positions=8", "train.steps=2", "train.device=cpu",
                       data=texts, run=tmp_path / "run")  # fmt: skip
    assert Path(run.folder / "data/train.jsonl").read_text().count("\n") == 6


def test_an_unfinished_run_goes_on_with_its_own_rows_alone(tmp_path):
    class EnoughError(Exception):
        pass

    def end(event):
        if getattr(event, "folder", None):
            raise EnoughError

    for rows in (ROWS, {"train": ROWS, "valid": ROWS[:4]}):
        shutil.rmtree(tmp_path, ignore_errors=True)
        with pytest.raises(EnoughError):
            train(tmp_path / "run", rows, on_event=end)
        others = [{**ROWS[0], "label": "n"}, *ROWS[1:]]
        with pytest.raises(RunError, match="the rows given as train must be those that the run"):
            train(tmp_path / "run", {**rows, "train": others} if rows != ROWS else others)
        assert train(tmp_path / "run", rows).predict("good")
    # The folder's own recipe names the rows: more steps need nothing else.
    own = str(tmp_path / "run/recipe.toml")
    longer = regard.train(own, "train.steps=6", run=tmp_path / "run")
    assert (longer.folder / "checkpoint-6").is_dir()
    train(tmp_path / "run", others, fresh=True)


@pytest.mark.parametrize(("data", "told"), [
    ({"dev-set": ROWS}, "data: its parts must be train, valid or test, but one is 'dev-set'; giv"),
    ({"valid": ROWS}, "data: there must be rows to train on, but there is no part 'train'"),
    ("rows.csv", "data: must be rows, or rows by part, but is 'rows.csv'; files are named by"),
    ([*ROWS, 7], r"data, train, row 25: must be a dict or \(text, label\), but is 7"),
    ([("one", "y", "more")], r"data, train, row 1: must be a dict or \(text, label\), but is \('o"),
    ([{"text": "a", "label": object()}], "data, train, row 1: cannot be written as JSON"),
    ([{"text": "a"}], r"data/train.jsonl:1: there is no column 'label' \(task.label\)"),
])  # fmt: skip
def test_rows_that_cannot_be_used_leave_nothing_behind(tmp_path, data, told):
    with pytest.raises(regard.errors.RegardError, match=told):
        train(tmp_path / "run", data)
    assert not (tmp_path / "run").exists()


def test_a_task_that_reads_files_alone_says_so(tmp_path):
    with pytest.raises(InputError, match="data: the task story takes its data from files alone"):
        regard.train("memory-stories", data=[], run=tmp_path / "run")


@pytest.mark.parametrize(("task", "row", "told"), [
    ("tag", (["two words", "b"], ["O", "O"]), "a word must have no space, but is 'two words'"),
    ("tag", (["b"], ["O", "O"]), "must have as many 'words' as 'tags'"),
    ("answer", ("Who?", "Nobody is here.", "Mary"), r"answers that stand there \(substring not"),
    ("picture", (np.zeros((3, 3)), "red"), "a picture must be a file, a PIL.Image, or bytes"),
    ("picture", ("gone.png", "red"), "gone.png cannot be read"),
])  # fmt: skip
def test_what_a_row_must_be_is_told(tmp_path, task, row, told):
    recipe = write_recipe(tmp_path, task, KINDS[task][0])
    with pytest.raises(InputError, match=rf"data, train, row 1: .*{told}"):
        regard.train(recipe, data=[row], run=tmp_path / "run")
