"""Conversations as examples: answers alone count; LoRA on a run that converses, and out again."""

import json

import numpy as np
import pytest
import torch
import transformers as hf

import regard
from regard.errors import RegardError
from regard.exchange import WRITERS
from regard.exchange.gguf import read
from tests.exchange import gguf_files
from tests.toys import tokens

RECIPE = """
[task]
kind = "chat"
context = 90
[data]
train = "rows.jsonl"
valid = "rows.jsonl"
[model]
kind = "gpt"
from = "base"
[train]
steps = 60
batch_tokens = 400
rate = 0.02
warmup = 5
adapters = 4
evaluate_every = 60
device = "cpu"
[decode]
kind = "greedy"
max_new_tokens = 20
"""
ASKED = ["the cat", "a dog", "small bird", "old red home"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A random model that learns by heart what to answer; its base beside it."""
    folder = tmp_path_factory.mktemp("converse")
    gguf_files.write(folder / "base.gguf", max_position_embeddings=200)
    read(folder / "base.gguf", folder / "base")
    rows = [{"instruction": line, "response": line.split()[-1]} for line in ASKED]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows * 4))
    (folder / "tune.toml").write_text(RECIPE)
    return regard.train(str(folder / "tune.toml"), run=folder / "run")


def test_answers_alone_count_and_each_is_an_example(tuned, tmp_path):
    messages = [{"role": role, "content": content} for role, content in (
        ("system", "be kind"), ("user", "the cat"), ("assistant", "sees"), ("user", "a dog"),
        ("assistant", "runs home"))]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": messages}))
    run = regard.load(tuned.folder, f"data.valid={tmp_path / 'rows.jsonl'}")
    data = run.data("valid")
    batch = run.task.batch(data.store, np.array([0, 1]))
    text = run.task.text
    for row, said in enumerate(("sees", "runs home")):
        first, last = batch.asked.label_range[row].tolist()
        labels = batch.asked.labels[row, first:last].tolist()
        assert labels == [*text.encode([said])[0], text.controls["<|im_end|>"]]
        prompt = run.template.ids(messages[: 2 + 2 * row])
        assert batch.read.ids[row, : first + 1].tolist() == prompt


def test_what_was_answered_is_learned(tuned):
    """Of some 300 tokens each was as likely as the others at first."""
    scores = json.loads((tuned.folder / "results.json").read_text())["valid"]
    assert scores["perplexity"] < 60 and scores["examples"] == 16
    assert [answer.output for answer in tuned.predict(ASKED)] == [tuned.chat(s) for s in ASKED]


def test_adapters_are_merged_and_go_out_to_both(tuned, tmp_path):
    """Nothing but queries, keys and values has changed; others score what was merged as we do."""
    base = regard.load(tuned.folder.parent / "base").model.state_dict()
    changed = {
        name.split(".")[-2] for name, weight in tuned.model.state_dict().items()
        if not torch.equal(weight, base[name])
    }  # fmt: skip
    assert changed == {"query", "memory"}
    ids = tuned.template.ids([{"role": "user", "content": "the cat"}])
    with torch.no_grad():
        own = tuned.model(tokens(torch.tensor([[*ids, 0]]), torch.zeros(1, 2)))[0]
    WRITERS["hf"](tuned, tmp_path / "hf")
    WRITERS["gguf"](tuned, tmp_path / "gguf")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "hf")
    asked = [{"role": "user", "content": "the cat"}]
    assert tokenizer.apply_chat_template(asked, add_generation_prompt=True)["input_ids"] == ids
    for folder, more in (("hf", {}), ("gguf", {"gguf_file": "model.gguf"})):
        theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path / folder, **more).eval()
        with torch.no_grad():
            wanted = theirs(torch.tensor([ids])).logits[0]
        torch.testing.assert_close(own, wanted, atol=1e-4, rtol=1e-4)
    read(tmp_path / "gguf/model.gguf", tmp_path / "again")
    again = regard.load(tmp_path / "again", "decode.kind=greedy", "decode.max_new_tokens=20")
    assert again.chat("the cat") == tuned.chat("the cat")


WRONG = {
    "no answer": ({"messages": [{"role": "user", "content": "x"}]}, "an assistant must answer"),
    "nothing": ({"text": "x"}, "there must be messages, or instruction and response"),
    "a strange role": (
        {"messages": [{"role": "king", "content": "x"}, {"role": "assistant", "content": "y"}]},
        "roles must be system, ",
    ),
    "no text": ({"instruction": "x", "response": 3}, "the content of a message must be text"),
    "too long": ({"instruction": "x " * 99, "response": "y"}, "may have 90 tokens (task.context)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_row_that_cannot_be_used_is_told(case, tuned, tmp_path):
    row, wanted = WRONG[case]
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    run = regard.load(tuned.folder, f"data.valid={tmp_path / 'rows.jsonl'}")
    with pytest.raises(RegardError) as error:
        run.data("valid")
    assert "rows.jsonl:1: " in str(error.value) and wanted in str(error.value)


def test_a_base_without_a_template_is_told(tuned, tmp_path):
    folder = tuned.folder.parent
    (folder / "base/chat.json").rename(tmp_path / "chat.json")
    try:
        with pytest.raises(RegardError, match="a run must have a chat template to learn"):
            regard.train(str(folder / "tune.toml"), run=tmp_path / "run")
    finally:
        (tmp_path / "chat.json").rename(folder / "base/chat.json")
