"""Several corpora to translate by: real ones, and what a run made of texts in one language."""

import json

import pytest

import regard
from regard.data.parallel import corpora, read
from regard.data.read import Faults
from regard.data.settings import Settings
from regard.errors import DataError, RecipeError
from tests.toys import sentences, translate, write_recipe


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.fr").write_text("un\ndeux\n")
    (tmp_path / "b.tsv").write_text("three\ttrois\n")
    (tmp_path / "c.jsonl").write_text(json.dumps({"en": "four", "fr": "quatre"}) + "\n")
    return lambda *names: [tmp_path / name for name in names]


def test_patterns_of_two_sides_are_aligned_file_by_file(tmp_path):
    for name in ("a1.en", "a2.en", "a1.fr", "a2.fr"):
        (tmp_path / name).write_text("x\n")
    named = Settings(["a*.en", "a*.fr"], root=str(tmp_path)).named("train")
    assert [path.name for path in named] == ["a1.en", "a1.fr", "a2.en", "a2.fr"]
    one_side = Settings(["a*.en"], root=str(tmp_path)).named("train")
    assert [path.name for path in one_side] == ["a1.en", "a2.en"]


def test_corpora_follow_each_other_with_their_tags(files):
    named = files("b.tsv", "a.en", "a.fr", "c.jsonl", "b.tsv")
    assert list(map(len, corpora(named))) == [1, 2, 1, 1]
    found = [(p.source, p.target) for p in read(named, ("en", "fr"), Faults(),
                                                ["", "<BT> ", "", "2 "])]  # fmt: skip
    assert found == [
        ("three", "trois"), ("<BT> one", "un"), ("<BT> two", "deux"), ("four", "quatre"),
        ("2 three", "trois"),
    ]  # fmt: skip


def test_what_belongs_to_nothing_is_refused(files):
    for names in (["a.en"], ["a.en", "b.tsv"], ["b.tsv", "a.en"]):
        with pytest.raises(DataError, match="must be two aligned files, .*; or several such, one"):
            list(read(files(*names), ("en", "fr"), Faults()))
    with pytest.raises(RecipeError, match="task.tag must say something of each of 2 corpora in da"):
        list(read(files("b.tsv", "c.jsonl"), ("en", "fr"), Faults(), ["<BT> "]))


def test_tags_are_for_training_alone(tmp_path):
    recipe = write_recipe(tmp_path, train=60)
    (tmp_path / "more.tsv").write_text(
        "".join(f"{line}\t{translate(line)}\n" for line in sentences(30, 9))
    )
    run = regard.train(
        str(recipe), 'data.train=["train.en", "train.fr", "more.tsv"]', f"data.root={tmp_path}",
        'task.tag=["", "bt "]', "train.steps=2", run=tmp_path / "run",
    )  # fmt: skip
    sources = [example.source for example in run.examples("train")]
    assert len(sources) == 90
    assert [source.startswith("bt ") for source in sources] == [False] * 60 + [True] * 30
    assert "▁bt" in run.task.source.tokenizer.get_vocab()
    assert not any(e.source.startswith("bt ") for part in ("valid", "test")
                   for e in run.examples(part))  # fmt: skip
