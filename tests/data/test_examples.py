"""Examples: read once, the same as their files have them, and shared by all who need them."""

import json
from pathlib import Path

import pytest

import regard
from regard.data import babi, conll, labelled, parallel, read, running, squad, store
from regard.data.examples import read_once
from regard.data.read import Faults
from regard.errors import DataError
from regard.tasks.story import Story, StorySettings
from regard.tasks.translate import Translate, TranslateSettings
from regard.text import Settings as TextSettings
from regard.training.events import Begun
from tests.toys import sentences

STORY = "1 Mary went home.\n2 Where is Mary?\thome\t1\n1 Where is Ada? \there, there\n"
QUESTIONS = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Two “red” cats in Zürich.",
                    "qas": [
                        {
                            "id": "q0",
                            "question": "Which?",
                            "answers": [
                                {"text": "red", "answer_start": 5},
                                {"text": "Zürich", "answer_start": 18},
                            ],
                        },
                        {"id": 7, "question": "Where?", "is_impossible": True, "answers": []},
                    ],
                }
            ]
        }
    ]
}
RECORDS = [
    {"text": "One été 日本", "pair": "tab\there", "label": "a"},
    {"text": 'two "quoted"\nlines', "pair": "a\u2028b", "label": ["a", "b"]},
    {"text": "three", "pair": "x", "label": 3},
    {"text": "four", "pair": "x", "label": 0.1},
    {"text": "five", "pair": "x", "label": True},
    {"text": "six", "pair": "x", "label": []},
    {"text": "seven 👍🏽", "pair": "x", "label": "x"},
]
READERS = {
    "parallel": ("a.tsv", "one\tun\ntwo « cats »\tdeux chats\n",
                 lambda p: parallel.read(p, ("source", "target"), Faults())),
    "labelled": ("a.jsonl", "".join(json.dumps(row) + "\n" for row in RECORDS),
                 lambda p: labelled.read(p, "text", "pair", "label", Faults())),
    "without a pair": ("a.jsonl", "".join(json.dumps(row) + "\n" for row in RECORDS),
                       lambda p: labelled.read(p, "text", "", "label", Faults())),
    "conll": ("a.conll", "EU I-ORG\nin O\n\nRome I-LOC\n",
              lambda p: conll.read(p, 1, 0, Faults())),
    "squad": ("a.json", json.dumps(QUESTIONS), lambda p: squad.read(p, Faults())),
    "babi": ("a_train.txt", STORY, lambda p: babi.read(p, Faults())),
    "pieces": ("a.txt", "one two\n\nthree\n", lambda p: running.pieces(p, True, Faults())),
    "sentences": ("a.txt", "A cat. A dog.\n\nMore.\n",
                  lambda p: running.sentences(p, "blank", Faults())),
    "texts": ("a.txt", "A cat. A dog.\n\nMore.\n",
              lambda p: running.texts(p, "blank", Faults())),
}  # fmt: skip


def listed(value):
    """A tuple inside a row comes back as a list, which says the same."""
    return [listed(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("case", READERS)
def test_examples_come_back_equal(case, tmp_path):
    name, text, reader = READERS[case]
    files = [tmp_path / name]
    files[0].write_text(text, encoding="utf-8")
    plain = list(reader(files))
    assert len(plain) > 1
    kind = type(plain[0])
    for _ in range(2):  # made, and found in the cache
        made = read_once(tmp_path / "c", files, kind, (), reader(files), Faults(), "rows")
        assert len(made) == len(plain) and made.first_file == files[0]
        for index, (row, again) in enumerate(zip(plain, made, strict=True)):
            assert type(again) is kind and again._fields == row._fields
            assert listed(again) == listed(row) == listed(made[index])
            assert list(map(type, again)) == list(map(type, row))


def test_examples_may_be_of_any_size(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["x" * 900_000, "", *(f"line {i}" for i in range(20_000))]) + "\n")
    plain = list(running.pieces([path], True, Faults()))
    rows = running.pieces([path], True, Faults())
    made = read_once(tmp_path / "c", [path], running.Piece, (), rows, Faults(), "rows")
    assert list(made) == plain and made[len(plain) - 1] == plain[-1]


def test_nothing_to_read_is_told(tmp_path):
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(DataError) as told:
        Translate.examples(TranslateSettings(), [tmp_path / "a.tsv"], tmp_path / "c", Faults())
    assert str(told.value) == (
        f"{tmp_path / 'a.tsv'}: there must be a line that can be used, but there is none."
    )
    assert not list((tmp_path / "c").iterdir())


# Read once.


@pytest.fixture
def opened(monkeypatch):
    """How often each file is opened to be parsed, and how often to be hashed."""
    parsed, hashed = {}, {}

    def count(of, path):
        of[path.name] = of.get(path.name, 0) + 1

    plain, digest = read._opened, store.hashlib.file_digest

    def opening(path):
        count(parsed, path)
        return plain(path)

    def hashing(file, how):
        count(hashed, Path(file.name))
        return digest(file, how)

    monkeypatch.setattr(read, "_opened", opening)
    monkeypatch.setattr(store.hashlib, "file_digest", hashing)
    opens = {}
    whole = Path.open

    def every(path, *args, **more):
        count(opens, path)
        return whole(path, *args, **more)

    monkeypatch.setattr(Path, "open", every)
    return parsed, hashed, opens


CLASSIFY = """
[task]
kind = "classify"
[data]
train = "train.tsv"
valid = "valid.tsv"
test = "test.tsv"
[text]
size = 60
[model]
kind = "bert"
width = 16
depth = 1
heads = 2
[train]
steps = 6
evaluate_every = 2
save_every = 2
batch_tokens = 300
device = "cpu"
"""


def write_classes(folder, **more):
    for seed, part in enumerate(("train", "valid", "test")):
        rows = [(line, "red" if "red" in line else "none") for line in sentences(60, seed)]
        header = "text\tlabel\tsame\n"
        text = header + "".join(f"{line}\t{label}\t{label}\n" for line, label in rows)
        (folder / f"{part}.tsv").write_text(text + more.get(part, ""))
    (folder / "toy.toml").write_text(CLASSIFY)
    return str(folder / "toy.toml")


def test_a_training_parses_every_file_once(opened, tmp_path):
    """Learning, making batches, validating thrice, scoring and the card look at one reading."""
    parsed, hashed, opens = opened
    recipe = write_classes(tmp_path)
    opens.clear()
    run = regard.train(recipe, run=tmp_path / "runs/a")
    once = {"train.tsv": 1, "valid.tsv": 1, "test.tsv": 1}
    assert parsed == once
    for name in once:  # nobody opens it but to hash or to parse it
        assert opens[name] == parsed[name] + hashed[name]
    # Whoever comes later finds what was read.
    run.evaluate("valid"), run.evaluate("test")
    regard.load(run.folder).evaluate("valid")
    regard.train(recipe, "train.seed=1", run=tmp_path / "runs/b")
    assert parsed == once


def test_a_changed_file_is_read_again_and_no_other(opened, tmp_path):
    parsed, _, _ = opened
    recipe = write_classes(tmp_path)
    regard.train(recipe, run=tmp_path / "runs/a")
    with (tmp_path / "valid.tsv").open("a") as file:
        file.write("one red cats\tred\tred\n")
    regard.train(recipe, run=tmp_path / "runs/b")
    assert parsed == {"train.tsv": 1, "valid.tsv": 2, "test.tsv": 1}


def test_a_setting_that_does_not_shape_what_is_read_does_not_read_it_again(opened, tmp_path):
    parsed, _, _ = opened
    recipe = write_classes(tmp_path)
    regard.train(recipe, run=tmp_path / "runs/a")
    regard.train(recipe, "task.context=16", "text.size=50", run=tmp_path / "runs/b")
    assert set(parsed.values()) == {1}
    regard.train(recipe, "task.label=same", run=tmp_path / "runs/c")
    assert set(parsed.values()) == {2}


def test_validation_and_scoring_share_one_store(tmp_path):
    run = regard.train(write_classes(tmp_path), run=tmp_path / "runs/a")
    cache = tmp_path / "runs/.cache"
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert len(list(cache.iterdir())) == 6  # of three parts, the examples and their ids
    data = run.data("valid")
    assert len(data.examples) == data.store.rows == 60
    scores = run.evaluate("valid")
    assert scores["examples"] == 60
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


def test_lines_that_cannot_be_used_are_told_and_counted_once(tmp_path):
    """Also those of the training data, which are read before the task is made."""
    bad = {part: f"no label in {part}\t\tred\n\t\t\n" for part in ("train", "valid")}
    recipe = write_classes(tmp_path, **bad)
    seen = []
    regard.train(recipe, "data.skip_bad=true", run=tmp_path / "runs/a", on_event=seen.append)
    (begun,) = (event for event in seen if isinstance(event, Begun))
    assert begun.left_out == 2 and begun.examples == 60
    told = "there must be a label ('label'), but there is none"
    assert begun.faults == tuple(f"{tmp_path / part}.tsv:62: {told}" for part in ("train", "valid"))


# The same content under another name.


def told(path, cache):
    return Story.examples(StorySettings(), [path], cache, Faults())


def test_a_task_named_by_its_file_is_not_that_of_another(tmp_path):
    one, two = tmp_path / "qa1_train.txt", tmp_path / "qa2_train.txt"
    for path in (one, two):
        path.write_text(STORY)
    for path, name in ((one, "qa1"), (two, "qa2"), (one, "qa1")):
        assert {row.task for row in told(path, tmp_path / "c")} == {name}


def test_where_a_row_stands_is_told_of_the_file_at_hand(tmp_path):
    """The same lines, copied: a message names the copy."""
    one, two = tmp_path / "one.tsv", tmp_path / "two.tsv"
    long = " ".join(["cats"] * 90)
    for path in (one, two):
        path.write_text(f"one\tun\n{long}\tx\n")
    settings, cache = TranslateSettings(), tmp_path / "c"
    made = Translate.examples(settings, [one], cache, Faults())
    task = Translate.learn(settings, {"text": TextSettings(kind="words", size=60)}, made)
    for path in (one, two):
        examples = task.examples(settings, [path], cache, Faults())
        with pytest.raises(DataError, match=rf"{path.name}:2: a line may have 40 tokens"):
            task.data(examples, cache, 40, Faults())


ODD = "a\udcff.tsv"  # as Linux hands on a name that is not UTF-8


def test_a_file_whose_name_is_no_text_can_be_read(tmp_path):
    path = tmp_path / ODD
    try:
        path.write_text("one\tun\n")
    except OSError:
        pytest.skip("no such name can be given here")
    made = Translate.examples(TranslateSettings(), [path], tmp_path / "c", Faults())
    assert [row[:2] for row in made] == [("one", "un")]
    assert made[0].where == f"{path}:1"


def test_what_no_text_is_made_of_may_be_odd(tmp_path):
    """Half a character in a question's name, which is only told."""
    said = json.loads(json.dumps(QUESTIONS))
    said["data"][0]["paragraphs"][0]["qas"][0]["id"] = "q\ud800"
    path = tmp_path / "a.json"
    path.write_text(json.dumps(said))
    rows = squad.read([path], Faults())
    made = read_once(tmp_path / "c", [path], squad.Question, (), rows, Faults(), "rows")
    assert made[0].name == "q\ud800"
