"""Stories: files, questions typed by hand, scores, and what is said about bad ones."""

import gzip
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.corpora.stories import generate
from regard.data.babi import one_word, parse, read, words
from regard.data.read import Faults
from regard.errors import DataError, InputError, RegardError
from regard.tasks.story import Story, StorySettings
from regard.text import Settings as TextSettings

TEXT = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Mary took the apple.
5 What has Mary? \tapple,milk\t4
1 Sandra ran to the garden.
2 Where is Sandra?\tgarden\t1
"""


def put(folder, text, name="qa1_x_train.txt"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def learned(path, longest=99, **more):
    """A task that has learned the words of a file, and what it makes of it."""
    settings, cache = StorySettings(**more), path.parent / "cache"
    examples = Story.examples(settings, [path], cache, Faults())
    task = Story.learn(settings, {"text": TextSettings(kind="spaced")}, examples)
    return task, task.data(examples, cache, longest, Faults())


def test_stories_are_read_with_their_supporting_facts(tmp_path):
    first, second, third = read([put(tmp_path, TEXT)], Faults())
    assert first.story == ["Mary moved to the bathroom.", "John went to the hallway."]
    assert (first.question, first.answer, first.support) == ("Where is Mary?", "bathroom", [0])
    assert (second.support, len(second.story), one_word(second.answer)) == ([2], 3, "apple,milk")
    assert third.story == ["Sandra ran to the garden."] and third.task == "qa1_x"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("4 Mary left.", "a line must begin with its number in the story, 1 or 3, but begins"),
        ("Mary left.", "1 or 3, but begins with 'Mary'"),
        ("3 Where is Mary?\t\t1", "a question must have an answer after a tab"),
        ("3 Where is Mary?", "a question must have an answer after a tab"),
        ("9" * 5000 + " Mary left.", "1 or 3, but begins with '9999"),
    ],
)  # fmt: skip
def test_a_broken_line_is_named_or_left_out(tmp_path, line, message):
    path = put(tmp_path, "1 Mary ran.\n2 Where is Mary?\there\t1\n" + line + "\n")
    with pytest.raises(DataError) as told:
        list(read([path], Faults()))
    assert str(told.value).startswith(f"{path}:3: ") and message in str(told.value)
    faults = Faults(skip=True)
    assert len(list(read([path], faults))) == 1 and faults.count == 1


def test_a_store_gives_the_batch_that_the_examples_give(tmp_path):
    path = put(tmp_path, TEXT)
    task, data = learned(path)
    ours = task.batch(data.store, np.array([0, 1, 2]))
    plain = task.stories(list(read([path], Faults())))
    for a, b in zip(ours.tensors(), plain.tensors(), strict=True):
        assert torch.equal(a, b)
    assert ours.read.sentences.shape == (3, 3, 5) and ours.read.counts.tolist() == [2, 3, 1]
    answers = ["bathroom", "apple,milk", "garden"]
    assert task.text.decode(ours.asked.labels.tolist()) == answers
    assert ours.asked.real.all() and ours.counts == (3,)


def test_only_the_newest_sentences_are_kept(tmp_path):
    path = put(tmp_path, TEXT)
    task, _ = learned(path, sentences=1)
    batch = task.stories(list(read([path], Faults()))[1:2])
    assert batch.read.counts.tolist() == [1]
    assert task.text.decode([batch.read.sentences[0, 0].tolist()]) == ["mary took the apple"]


def test_a_question_is_typed_in_one_line_or_as_babi():
    told = parse("Mary ran home. John left!  Where is Mary?")
    assert told.story == ["Mary ran home.", "John left!"] and told.question == "Where is Mary?"
    told = parse("1 Mary ran.\n2 Where is Mary?\there\t1\n3 John left.\n4 Where is John? \tx\t3 1")
    assert told.story == ["Mary ran.", "John left."] and told.support == [1, 0]
    with pytest.raises(InputError, match="input 3: the last sentence must be a question"):
        parse("Mary ran home.", 3)
    assert parse("Ada ran. Where is Ada?\n").story == ["Ada ran."]
    assert parse("Ada left.\nBen ran. Where is Ada?").story == ["Ada left.", "Ben ran."]
    assert parse("3 men left. Where are the men?").story == ["3 men left."]
    assert words("दिल्ली cafe\u0301 - 'so'") == "दिल्ली café so"
    assert words("Don't go, Émile-2!") == "don't go émile-2"


def test_the_bundled_stories_are_what_the_generator_makes():
    folder = Path(regard.__file__).parent / "corpora/stories"
    for task in generate.TASKS:
        for part, size in generate.SIZES.items():
            path = folder / f"{task}_{part}.txt.gz"
            text = gzip.decompress(path.read_bytes()).decode()
            assert text == generate.text(task, part)
            examples = list(read([path], Faults()))
            assert len(examples) == size
            for example in examples:  # the facts named do hold the answer
                assert example.support
                facts = " ".join(example.story[i] for i in example.support)
                if task != "yes-or-no":
                    assert example.answer in facts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stories") / "run"
    return regard.train(
        "memory-stories", "data.train=one-fact_train.txt.gz", "data.valid=one-fact_valid.txt.gz",
        "data.test=*_test.txt.gz", "train.steps=700", "train.evaluate_every=350",
        "train.device=cpu", run=folder,
    )  # fmt: skip


def test_it_learns_where_people_are(run):
    results = json.loads((run.folder / "results.json").read_text())["test"]
    assert results["error"]["one-fact"] < 15 and results["error"]["two-facts"] > 30
    mean = sum(results["error"].values()) / 3
    assert results["mean_error"] == pytest.approx(mean) and results["tasks"] == 3
    low, high = results["accuracy_interval"]
    assert low < results["accuracy"] < high
    answer = run.predict(["Ada went to the hall. Ben ran to the attic. Where is Ada?"])[0]
    assert answer.output == "hall" and answer.warning is None and -1 < answer.score < 0


def test_a_word_never_met_is_answered_with_a_warning(run):
    answer = run.predict(["Ada teleported to the hall. Where is Ada?"])[0]
    assert answer.output and answer.warning == "input 1: never met in training: teleported"
    assert answer.json()["warning"] == answer.warning
    done = subprocess.run(
        [sys.executable, "-m", "regard", "predict", str(run.folder), "Ada flew. Where is Ada?"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "never met in training: flew" in done.stderr


def test_each_hop_is_seen_with_the_supporting_facts_marked(run, tmp_path):
    sight = run.see("1 Ada went to the hall.\n2 Ben ran to the attic.\n3 Where is Ada?\thall\t1")
    assert [look.name for look in sight.looks] == ["hops.0", "hops.1", "hops.2"]
    assert sight.looks[0].columns == ["★ Ada went to the hall.", "Ben ran to the attic."]
    assert sight.looks[0].weights.shape == (1, 1, 2)
    picture = sight.alignment()
    assert picture.rows == ["hop 1", "hop 2", "hop 3"] and picture.weights.shape == (1, 3, 2)
    assert picture.weights[0, :, 0].max() > 0.5  # some hop finds the fact
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as: no room was left for the drawing
        assert sight.save(tmp_path / "see.png").stat().st_size > 1000
    with pytest.raises(InputError, match="a sentence to look at"):
        run.see("Where is Ada?")


def test_the_numbers_behind_a_hop_are_its_own(run):
    """A hop's score is the bare product: softmaxed, it is the weights shown."""
    looks = run.see(run.task.example(run.data("valid").examples)).looks
    for look in looks:
        weights = torch.from_numpy(look.scores).softmax(-1)
        torch.testing.assert_close(weights, torch.from_numpy(look.weights), atol=1e-4, rtol=1e-4)
        assert look.scale == 1.0


def test_zero_hops_and_another_unit_of_text_are_refused(tmp_path):
    with pytest.raises(RegardError, match=r"model\.hops"):
        regard.train("memory-stories", "model.hops=0", run=tmp_path / "a")
    with pytest.raises(RegardError, match="word by word"):
        regard.train("memory-stories", "text.kind=bpe", run=tmp_path / "b")
    with pytest.raises(RegardError, match=r"\*_none.txt: no such file"):
        regard.train("memory-stories", "data.train=*_none.txt", run=tmp_path / "c")


def test_a_table_of_scores_holds_scores_alone(run):
    from regard.see.card import told

    rows = {
        name: value
        for name, value, _, _ in told(json.loads((run.folder / "results.json").read_text())["test"])
    }
    assert {"accuracy", "mean_error", "error: one-fact", "tasks_passed"} <= set(rows)
    assert not [name for name in rows if "second" in name] and rows["tasks_passed"].endswith("of 3")


def test_nobody_is_told_anything(tmp_path):
    path = put(tmp_path, "1 Where is Mary?\there\n")
    task, _ = learned(path)
    told = task.stories(list(read([path], Faults()))).read
    assert told.sentences.shape == (1, 1, 1) and told.counts.tolist() == [0]
