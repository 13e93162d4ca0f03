"""A language model in the shell: trained from one text file, writing on, scoring, refusing."""

import json

import pytest

from tests.tasks.test_language import write_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs: characters, and words, which a draft cannot help."""
    import regard

    folder = tmp_path_factory.mktemp("language")
    regard.train(write_recipe(folder), "train.steps=200", run=folder / "run")
    regard.train(write_recipe(folder, text="spaced"), "train.steps=2", run=folder / "words")
    return folder


def test_it_writes_on(folder, main, shell):
    out = main("predict", folder / "run", "that is").out
    assert out.endswith("\n") and len(out) > 10
    same = shell("predict", folder / "run", stdin="that is").stdout
    assert same == out  # all of standard input is one prompt
    ahead = main("predict", folder / "run", "that is", "--draft", folder / "run").out
    assert ahead == out


def test_answers_as_json(folder, main):
    options = ["decode.kind=sample", "decode.num_return_sequences=2", "decode.seed=5"]
    row = json.loads(main("predict", folder / "run", "that is", *options, "--json").out)
    assert row["input"] == "that is" and len(row["nbest"]) == 2
    assert row["output"] == row["nbest"][0]["output"]


def test_how_likely_a_text_is(folder, main):
    rows = main("predict", folder / "run", "to be", "--logprobs").out.splitlines()
    assert rows[0] == "t\t" and len(rows) == 6
    found = json.loads(main("predict", folder / "run", "to be", "--logprobs", "--json").out)
    assert found["tokens"] == list("to be") and found["logprobs"][0] is None
    assert found["score"] == pytest.approx(sum(found["logprobs"][1:]))


def test_scores_say_their_units(folder, main):
    scores = json.loads(main("evaluate", folder / "run", "--on", "valid", "--json").out)
    assert scores["perplexity_unit"] == "token (characters), windows of 16, each adding 16"
    assert scores["scored"] == f"{scores['tokens']:,} tokens in 1 text"
    said = main("evaluate", folder / "run", "--on", "valid").out
    assert f"on valid, {scores['scored']}" in said
    assert scores["bits_per_byte"] > 0 and scores["tokens"] == scores["bytes"] - 1
    strided = json.loads(main("evaluate", folder / "run", "task.stride=4", "--json").out)
    assert "each adding 4" in strided["perplexity_unit"]


def test_speed_is_logged_against_a_peak(folder):
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    assert all(0 < row["use"] < 1 for row in rows if row["event"] == "step")
    bill = json.loads((folder / "run/cost.json").read_text())
    assert 0 < bill["use"] < 1 and "TFLOP/s" in bill["use_method"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["that is Zoë"],
            "input 1: every character must be one that the model has met, but 'Z' at",
        ),
        (["x" * 9, "--draft", "{words}"], "a draft must have the vocabulary of"),
        (["a", "decode.kind=beam", "--draft", "{run}"], "a draft cannot search by beam"),
        (["a", "decode.stop=['']"], "decode.stop: a text to stop at must not be empty"),
        (["a", "decode.top_k=5"], "decode.top_k only matters when drawing"),
        (
            ["a", "decode.overflow=refuse", "decode.max_new_tokens=1025"],
            "decode.max_new_tokens must be at most 1024, which the model can place, but is 1025",
        ),
        (["aa", "decode.overflow=refuse", "decode.max_new_tokens=1024"], "may have 1, but has 2"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, main, words, said):
    places = {"run": folder / "run", "words": folder / "words"}
    words = [word.format(**places) if "{" in word else word for word in words]
    error = main("predict", folder / "run", *words, status=2).err
    assert said in error and error.count("\n") == 1 and error.startswith("regard: ")


def test_a_text_too_long_slides_and_says_so(folder, main, tmp_path):
    prompt = "to be or not " * 100
    found = main("predict", folder / "run", prompt)
    assert "its beginning is forgotten" in found.err and found.out.strip()
    error = main("predict", folder / "run", prompt, "decode.overflow=refuse", status=2).err
    assert "with 12 new tokens a prompt may have 1013, but has 1300" in error


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no text to learn a vocabulary from"), ("x", "there must be at least two tokens")],
)
def test_a_text_too_short_is_told(main, tmp_path, text, said):
    recipe = write_recipe(tmp_path)
    (tmp_path / "train.txt").write_text(text)
    error = main("train", recipe, status=2).err
    assert said in error and not (tmp_path / "runs/lm").exists()


def test_the_cost_before_training(main, tmp_path):
    bill = json.loads(main("cost", write_recipe(tmp_path), "--json").out)
    assert bill["parameters"] > 0 and bill["flops_per_step"] > 0 and bill["batch_columns"] == 16
