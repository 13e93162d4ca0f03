"""Prompting: what the model reads, how labels are weighed, and the table of shots."""

import json

import numpy as np
import pytest

import regard
from regard.data.labelled import Example
from regard.errors import InputError, RegardError
from regard.exchange.gguf import read
from regard.see.prompt import (
    CHOICES,
    PromptSettings,
    Question,
    as_chat,
    as_text,
    drawn,
    log_probabilities,
    settings_of,
)
from tests.exchange import gguf_files

WORDS = {"cat": "cat", "dog": "dog"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompt")
    gguf_files.write(folder / "tiny.gguf", max_position_embeddings=512)
    read(folder / "tiny.gguf", folder / "run")
    rows = [f"the {('cat', 'dog')[i % 2]} number {i}\t{('cat', 'dog')[i % 2]}" for i in range(24)]
    (folder / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return regard.load(folder / "run", "decode.kind=greedy")


def row(text, label):
    return Example(text, None, label, "")


def spoken(run, ids):
    return run.task.text.tokenizer.decode(ids, skip_special_tokens=False)


def test_examples_stand_one_below_the_other(run):
    s = PromptSettings(instruction="Which is it?", template="It is {text}: {label}")
    shown = [row("{label} x", "cat")]  # what a row says is text, whatever it spells
    question = as_text(run, s, shown, row("old", "dog"), ["a cat", "a dog"], ["cat", "dog"])
    wanted = "Which is it?\n\nIt is {label} x: a cat\n\nIt is old:"
    assert spoken(run, question.prompt) == wanted
    assert [spoken(run, answer) for answer in question.answers] == [" a cat", " a dog"]


def test_a_conversation_has_a_turn_for_each(run):
    s = PromptSettings(instruction="Which?")
    question = as_chat(
        run, s, [row("old", "cat")], row("red", "dog"), ["cat", "dog"], ["cat", "dog"]
    )
    said = [("system", "Which?"), ("user", "Text: old\nLabel:"), ("assistant", "cat"),
            ("user", "Text: red\nLabel:")]  # fmt: skip
    assert question.prompt == run.template.ids([{"role": r, "content": c} for r, c in said])
    assert [spoken(run, answer) for answer in question.answers] == ["cat", "dog"]


def test_labels_are_as_likely_as_their_tokens(run):
    """Each label's tokens read alone behind the prompt, whatever the others share with it."""
    prompt = run.task.text.encode(["the cat sees"])[0]
    texts = [" red", " old", " the dog", " the bird", " dog"]
    answers = run.task.text.encode(texts)
    found = log_probabilities(run, Question(prompt, answers, texts))
    for text, answer, logs in zip(texts, answers, found, strict=True):
        alone = [log for _, log in run.logprobs(f"the cat sees{text}")][-len(answer) :]
        assert logs == pytest.approx(alone, abs=1e-4)
    sums = [sum(logs) for logs in found]
    means = [sum(logs) / len(logs) for logs in found]
    question = Question(prompt, answers, texts)
    assert CHOICES["sum"](run, question) == int(np.argmax(sums))
    assert CHOICES["mean"](run, question) == int(np.argmax(means))


def test_what_is_written_is_read(run):
    prompt = run.task.text.encode(["the cat sees"])[0]
    text = "".join(run.task.stream_ids(run.model, prompt, regard.load(
        run.folder, "decode.kind=greedy", "decode.max_new_tokens=6").recipe.decode))  # fmt: skip
    answers = run.task.text.encode(["##", text[:3]])
    assert CHOICES["writing"](run, Question(prompt, answers, ["##", text[:3].upper()])) == 1
    assert CHOICES["writing"](run, Question(prompt, answers, ["##", "#!"])) is None


def test_as_many_of_each_class_are_drawn_and_none_twice():
    labels = ["a"] * 5 + ["b"] * 9
    rows = list(drawn(np.random.default_rng(1), range(14), labels))
    assert sorted(rows) == list(range(14))
    for count in range(0, 10, 2):
        assert [labels[i] for i in rows[:count]].count("a") == count // 2
    assert rows == list(drawn(np.random.default_rng(1), range(14), labels))
    assert rows != list(drawn(np.random.default_rng(2), range(14), labels))


def test_the_table_of_shots(folder, main):
    words = ["prompt", folder / "run", folder / "rows.tsv", "--examples", "10", "--shots", "0,2"]
    said = main(*words, "--out", folder / "found.json").out
    assert "10 rows; the commonest of cat, dog has" in said and "95 % interval" in said
    found = json.loads((folder / "found.json").read_text())
    assert [one["shots"] for one in found["rows"]] == [0, 2]
    assert found == json.loads(main(*words, "--json").out)
    last = found["example"]
    numbers = {line.split()[-1] for line in last.splitlines() if line.startswith("Text")}
    assert len(numbers) == 3  # two that are shown, and another that is scored
    chat = main(*words, "--chat", "task.by=writing", "--out", folder / "found.md").out
    assert "without a label" in chat
    assert (folder / "found.md").read_text().startswith("| shots | accuracy |")


WRONG = {
    "no place for the text": (["task.template=x {label}"], "must have {text} in it"),
    "the label elsewhere": (["task.template={label} {text}"], "and {label} at its end"),
    "no such column": (["task.text=txt"], "there is no column 'txt' (task.text)"),
    "too few rows": (["--examples", "23"], "lower --examples"),
    "no numbers": (["--shots", "0,x"], "--shots must be numbers such as 0,1,4"),
    "another way": (["task.by=luck"], "task.by must be 'sum', 'mean' or 'writing'"),
    "too long": (
        ["--shots", "12", "--examples", "2", "task.instruction=" + "x " * 400],
        "show fewer",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_meant_is_one_line(case, folder, main):
    more, wanted = WRONG[case]
    assert wanted in main("prompt", folder / "run", folder / "rows.tsv", *more, status=2).err


def test_only_what_writes_text_can_be_prompted(folder, monkeypatch):
    with pytest.raises(RegardError, match="of a prompt, only task.KEY=VALUE can be set"):
        settings_of(["train.steps=3"])
    with pytest.raises(InputError, match="must have"):
        PromptSettings(template="nothing")
