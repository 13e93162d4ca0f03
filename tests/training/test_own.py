"""Parts from one's own script, trained, loaded, asked and watched, as docs/add.md shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import RecipeError, RunError
from regard.models import MODELS
from regard.parts.score import SCORES
from regard.training.optim import OPTIMIZERS
from regard.training.schedule import SCHEDULES
from tests.conftest import ROOT

SCRIPT = re.search(
    r"## From your own script\n.*?```python\n(.*?)```",
    (ROOT / "docs/add.md").read_text(encoding="utf-8"),
    re.S,
)[1]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The page's script, run here; what it adds to the dictionaries goes when the tests end."""
    folder = tmp_path_factory.mktemp("own")
    before, here = [(names, dict(names)) for names in (SCORES, MODELS)], Path.cwd()
    os.chdir(folder)
    names = {"__name__": "mine"}
    try:
        exec(compile(SCRIPT, "mine.py", "exec"), names)
        yield folder, names
    finally:
        os.chdir(here)
        for kept, was in before:
            kept.clear()
            kept.update(was)


def test_it_trains_and_answers(own):
    folder, names = own
    run = regard.load(folder / "runs/glance", device="cpu")
    assert type(run.model) is names["Glance"]
    assert type(run.model.attention.attend.score) is names["Near"]
    assert [answer.output for answer in run.predict(["1 cats here", "2 dogs there"])] == [
        "cat", "dog",
    ]  # fmt: skip
    assert 'score = "near"  # recipe' in (folder / "runs/glance/recipe.toml").read_text()


def test_it_is_watched_and_drawn(own):
    folder, _ = own
    run = regard.load(folder / "runs/glance", device="cpu")
    plain = run.predict("7 dogs there")[0]
    with regard.watch(run.model) as seen:
        watched = run.predict("7 dogs there")[0]
    assert plain.probabilities == watched.probabilities
    (weights,) = seen["attention"]
    assert weights.shape[:2] == (1, 2) and torch.allclose(weights.sum(-1), torch.ones(()))
    (look,) = run.see("7 dogs there").looks
    assert look.name == "attention" and (folder / "glance.html").is_file()


def test_who_has_not_added_it_is_told_what_is_missing(own, monkeypatch):
    folder, _ = own
    told = r"runs/glance/recipe.toml: the run was trained with {}, which is not known here; whoever"
    with monkeypatch.context() as patch:
        patch.delitem(SCORES, "near")
        with pytest.raises(RunError, match=told.format("model.score='near'")):
            regard.load(folder / "runs/glance")
        patch.delitem(MODELS, "glance")
        with pytest.raises(RunError, match=told.format("model.kind='glance'")):
            regard.load(folder / "runs/glance")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["predict", "runs/glance", "1 cats here"]
    (folder / "mine.py").write_text(
        SCRIPT.partition("rows = ")[0] + "from regard.cli import main; main()\n"
    )
    for start, status, said in (
        (["-m", "regard"], 2, "trained with model.kind='glance'"),
        (["mine.py"], 0, "cat"),
    ):
        done = subprocess.run(
            [sys.executable, *start, *words], cwd=folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == status and said in done.stdout + done.stderr, done.stderr


def test_a_name_that_is_mistyped_is_told_as_such(tmp_path):
    with pytest.raises(RecipeError, match="line: model.score must be one of .*, but is 'nearby'"):
        regard.train("classify", "model.score=nearby", data=[("a", "b")], run=tmp_path / "run")


def test_schedules_and_optimizers_can_be_ones_own_too(tmp_path, monkeypatch):
    rates = []
    monkeypatch.setitem(SCHEDULES, "halves", lambda step, steps, warmup, final: 0.5**step)
    monkeypatch.setitem(OPTIMIZERS, "plain", lambda model, settings: torch.optim.SGD(
        [{"params": list(model.parameters()), "rate_scale": 1.0}], lr=settings.rate
    ))  # fmt: skip
    regard.train(
        "classify", "model.width=16", "model.heads=2", "model.depth=1", "train.schedule=halves",
        "train.optimizer=plain", "train.rate=8", "train.warmup=0", "train.steps=3",
        "train.log_every=1", "train.device=cpu", data=[("a b", "x"), ("c d", "y")] * 4,
        run=tmp_path / "run", on_event=lambda e: rates.append(getattr(e, "rate", None)),
    )  # fmt: skip
    assert [rate for rate in rates if rate] == [4.0, 2.0, 1.0]


def test_a_recipe_in_python_needs_a_folder():
    with pytest.raises(regard.errors.InputError, match="has no name; say run=DIR"):
        regard.train({"task": {"kind": "classify"}, "model": {"kind": "bert"}}, data=[("a", "b")])
