"""Runs side by side, and what may not stand there."""

import json
import subprocess
import sys

import pytest

from regard.errors import InputError, RunError
from regard.score.length import buckets
from regard.see.compare import compare


def write_run(folder, name, bleu, seconds=100.0, **changed):
    """The three files that a comparison stands on."""
    path = folder / name
    path.mkdir(parents=True)
    test = {
        "on": "test", "set": "abc", "headline": "bleu", "higher_is_better": True, "bleu": bleu,
        "bleu_interval": [bleu - 1, bleu + 1], "bleu_signature": "tok:13a", "examples": 50,
        "by_length": [
            {"from": 0, "to": 3, "examples": 20, "bleu": bleu + 2},
            {"from": 4, "to": 9, "examples": 30, "bleu": bleu - 2},
        ],
        "by_length_unit": "words of the source", "predict_tokens_per_second": 1000.0,
        **changed,
    }  # fmt: skip
    bill = {
        "parameters": 1_234_567, "seconds": seconds, "tokens_per_second": 5000.0, "flops": 1e12,
        "kwh": 0.01, "kwh_method": "estimated", "co2e_grams": 3.0, "device": "CPU",
    }  # fmt: skip
    (path / "results.json").write_text(json.dumps({"test": test}))
    (path / "cost.json").write_text(json.dumps(bill))
    events = [
        {"event": "step", "step": 50, "seconds": 4.0},
        {"event": "step", "step": 100, "seconds": 6.0},
        {"event": "scored", "step": 100, "scores": {"loss": 2.5}, "best": True},
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_the_best_comes_first_with_all_that_is_compared(tmp_path):
    found = compare([write_run(tmp_path, "a", 20.0), write_run(tmp_path, "b <x>", 30.0)])
    rows = found.rows()
    assert [row["run"] for row in rows] == ["b <x>", "a"]
    assert rows[0]["interval"] == [29.0, 31.0] and rows[0]["parameters"] == 1_234_567
    assert found.entries[0].curve == [(10.0, 2.5)]
    text = found.markdown()
    assert (
        "| b <x> | 30.0 | 29.0 – 31.0 | 1,234,567 | 100 | 5,000 | 1,000 | 1e+12 | 0.01 | 3 |"
        in text
    )
    assert "| words of the source: | 0–3 | 4–9 |" in text and "| a | 22.0 | 18.0 |" in text
    assert "tok:13a" in text and "Energy: estimated." in text
    for kind in ("html", "md", "json", "png", "svg", "pdf"):
        assert found.save(tmp_path / f"out/compare.{kind}").stat().st_size > 100
    page = (tmp_path / "out/compare.html").read_text()
    assert "b &lt;x&gt;" in page and "<script" not in page and "http" not in page.split("base64")[0]
    assert json.loads((tmp_path / "out/compare.json").read_text()) == rows
    with pytest.raises(InputError, match=r"must end in \.html, .* but ends in '\.gif'"):
        found.save(tmp_path / "x.gif")


def test_lower_perplexity_is_better(tmp_path):
    more = {
        "headline": "word_perplexity",
        "higher_is_better": False,
        "word_perplexity_unit": "word",
    }
    a = write_run(tmp_path, "a", 1.0, **more, word_perplexity=90.0)
    b = write_run(tmp_path, "b", 1.0, **more, word_perplexity=80.0)
    assert [row["run"] for row in compare([a, b]).rows()] == ["b", "a"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"set": "other"},
            "b: the set must be the same as a's to stand side by side, but their data.test ",
        ),
        ({"bleu_signature": "tok:none"}, "its signature must be the same .* 'tok:none' is not"),
        ({"headline": "chrf", "chrf": 3.0}, "the score must be the same as a's"),
    ],
)
def test_unlike_scores_are_refused(tmp_path, changed, message):
    runs = [write_run(tmp_path, "a", 20.0), write_run(tmp_path, "b", 30.0, **changed)]
    with pytest.raises(InputError, match=message):
        compare(runs)


def test_what_is_not_a_finished_run_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="empty: a finished run is needed"):
        compare([tmp_path / "empty"])
    run = write_run(tmp_path, "a", 20.0)
    with pytest.raises(RunError, match="no scores on valid that can be compared"):
        compare([run], on="valid")
    with pytest.raises(InputError, match="each only once"):
        compare([run, run])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("results.json", "[]"),
        ("results.json", '{"test": 5}'),
        ("results.json", '{"test": {"headline": "bleu"}}'),
        ("results.json", '{"test": {"headline": "bleu", "bleu": null}}'),
        ("cost.json", "{}"),
        ("cost.json", "{"),
    ],
)
def test_damaged_files_are_named_in_one_line(tmp_path, name, text):
    run = write_run(tmp_path, "a", 20.0)
    (run / name).write_text(text)
    with pytest.raises(RunError, match="a: "):
        compare([run])


def test_a_cut_line_of_the_log_is_left_out(tmp_path):
    run = write_run(tmp_path, "a", 20.0)
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"event": "scor')
    assert compare([run]).entries[0].curve == [(10.0, 2.5)]


def test_odd_names_are_shown_as_they_are(tmp_path):
    runs = [write_run(tmp_path / part, "x|[b]$^$", 20.0) for part in ("old", "new")]
    found = compare(runs)
    assert sorted(row["run"] for row in found.rows()) == ["new/x|[b]$^$", "old/x|[b]$^$"]
    assert "| new/x\\|[b]$^$ |" in found.markdown()
    found.save(tmp_path / "out.png")


def test_buckets_have_enough_examples_and_leave_none_out():
    lengths = [1] * 5 + [5] * 30 + [9] * 50 + [14] * 3 + [90]
    found = buckets(lengths)
    assert found == [(0, 6), (7, 90)]
    assert buckets([2, 3]) == [(0, 3)]
    assert buckets([]) == [(0, 0)]


def test_the_command_trains_what_is_missing_and_compares(tmp_path):
    def regard(*words):
        command = [sys.executable, "-m", "regard", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    small = [
        "train.steps=2",
        "model.width=16",
        "train.device=cpu",
        "data.train=one-fact_train.txt.gz",
    ]
    done = regard("compare", "--recipes", "memory-stories", *small, "--out", "compare.md")
    assert done.returncode == 0, done.stderr
    assert (
        "accuracy" in done.stdout and "| memory-stories |" in (tmp_path / "compare.md").read_text()
    )
    other = regard("compare", "--recipes", "memory-stories", *small, "train.seed=3")
    assert other.returncode == 2 and "has train.seed=0 and not 3" in other.stderr
    other = regard("compare", "--recipes", "memory-stories", *small[:-1])
    assert other.returncode == 2 and "has data.train='one-fact" in other.stderr
    again = regard("compare", "runs/memory-stories", "--json")
    assert json.loads(again.stdout)["run"] == "memory-stories"
    assert "by_length" in again.stdout
    refused = regard("compare", "runs/memory-stories", "train.steps=2")
    assert refused.returncode == 2 and "settings need --recipes" in refused.stderr
