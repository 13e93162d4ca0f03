"""Several seeds and a sweep: what is trained, what is not trained again, and what is told."""

import json
import statistics

import pytest

import regard
from regard.errors import InputError, RecipeError, RunError
from regard.see.several import plan

QUICK = ("train.steps=4", "train.save_every=4", "train.evaluate_every=4",
         "train.evaluate_examples=0", "decode.kind=greedy", "decode.max_new_tokens=4")  # fmt: skip


def several(toy, tmp_path, *more, **options):
    return regard.several(str(toy), *QUICK, *more, run=tmp_path / "r", **options)


def test_seeds_have_folders_of_their_own_and_a_table_of_means(toy, tmp_path, main):
    said = main("train", toy.name, *QUICK, "--run", "r", "--seeds", "3").out
    runs = [tmp_path / f"r-seed{seed}" for seed in range(3)]
    scores = [json.loads((run / "results.json").read_text())["test"] for run in runs]
    told = json.loads((tmp_path / "r-seeds.json").read_text())
    assert (told["on"], told["headline"]) == ("test", "bleu")
    (setting,) = told["settings"]
    assert [run["seed"] for run in setting["runs"]] == [0, 1, 2]
    for name in ("bleu", "perplexity"):
        values = [each[name] for each in scores]
        assert len(set(values)) > 1 or name == "bleu"  # each seed has a run of its own
        assert setting["mean"][name] == pytest.approx(statistics.fmean(values))
        assert setting["deviation"][name] == pytest.approx(statistics.stdev(values))
    assert not {"seconds", "examples"} & set(setting["mean"])
    table = (tmp_path / "r-seeds.md").read_text()
    assert table.startswith("toy on test; deviations are between seeds.\n\n| seed | bleu |")
    assert "| mean | " in table and " ± " in table and "mean" in said


def test_who_is_finished_is_not_trained_again(toy, tmp_path):
    seen = []
    several(toy, tmp_path, seeds=2)
    several(toy, tmp_path, seeds=3, on_event=seen.append)
    begun = [event.step for event in seen if type(event).__name__ == "Begun"]
    assert begun == [0]  # the third alone
    with pytest.raises(RunError, match="r-seed0: the finished run here has train.rate=0.01, but"):
        several(toy, tmp_path, "train.rate=0.5", seeds=2)
    # More steps go on with each from its end.
    seen.clear()
    several(toy, tmp_path, "train.steps=6", seeds=2, on_event=seen.append)
    assert [e.step for e in seen if type(e).__name__ == "Begun"] == [4, 4]


def test_a_stop_leaves_what_is_to_be_gone_on_with(toy, tmp_path):
    def asked():
        return (tmp_path / "r-seed1").exists()

    found = several(toy, tmp_path, seeds=3, stop=asked)
    assert [trial.seed for trial in found.settings[0].trials] == [0]
    assert not (tmp_path / "r-seed2").exists()
    assert len(several(toy, tmp_path, seeds=3).settings[0].trials) == 3


def test_a_sweep_is_sorted_by_validation_and_no_test_set_is_looked_at(toy, tmp_path, main):
    said = main("train", toy.name, *QUICK, "--run", "r", "--sweep", "train.rate=1e-9,0.02",
                "--sweep", 'train.betas=[0.9, 0.98],[0.8, 0.9]', "--seeds", "1").out  # fmt: skip
    told = json.loads((tmp_path / "r-sweep.json").read_text())
    assert told["on"] == "valid" and len(told["settings"]) == 4
    reached = [setting["mean"]["bleu"] for setting in told["settings"]]
    assert reached == sorted(reached, reverse=True)
    assert {s["chosen"]["train.rate"] for s in told["settings"]} == {"1e-9", "0.02"}
    assert {s["chosen"]["train.betas"] for s in told["settings"]} == {"[0.9, 0.98]", "[0.8, 0.9]"}
    for setting in told["settings"]:
        (run,) = setting["runs"]
        results = json.loads((tmp_path / run["run"] / "results.json").read_text())
        assert list(results) == ["valid"] and setting["deviation"]["bleu"] is None
    assert "The best is r-train.rate=" in said and "scores it on test data" in said


def test_settings_with_several_seeds_on_rows_of_python(tmp_path):
    rows = [(f"{n} {what}", what) for n in range(12) for what in ("cats", "dogs")]
    small = {"kind": "bert", "width": 16, "depth": 1, "heads": 2, "positions": 128}
    found = regard.several(
        {"task": {"kind": "classify"}, "text": {"kind": "words"}, "model": small},
        "train.steps=3", "train.device=cpu", "train.warmup=1", seeds=2,
        sweep={"train.rate": [1e-3, 0.02], "model.pool": ["mean"]},
        data={"train": iter(rows), "valid": rows[:8]}, run=tmp_path / "own",
    )  # fmt: skip
    assert [len(setting.scores) for setting in found.settings] == [2, 2]
    assert found.table()[0][:4] == ["train.rate", "model.pool", "seeds", "accuracy"]
    assert found.best.is_dir() and "±" in repr(found)
    # So good that its place is first, whichever way a score is better.
    for higher in (True, False):
        found.higher_is_better = higher
        scores = found.settings[0].scores
        scores[0]["accuracy"], scores[1]["accuracy"] = (101.0, 0.0) if higher else (-1.0, 0.0)
        assert found.best == found.settings[0].trials[0].folder


def test_what_cannot_be_meant_shows_before_anything_is_trained(toy, tmp_path, main, monkeypatch):
    for options, told, kind in (
        ({"sweep": {"train.rate": ["1e-3", "1e -3"]}}, "a folder of its own", InputError),
        ({"seeds": 0}, "seeds must be 1 or more, but is 0", InputError),
        ({"sweep": {"train.rate": []}}, "values that differ, but has none", InputError),
        ({"sweep": {"train.rate": [1, 1]}}, "values that differ, but has 1, 1", InputError),
        ({"sweep": {"train.rate": [0.1], "train.rat": [1]}}, "no setting 'train.rat'", RecipeError),
        ({"sweep": {"train.rate": [0.1, -1]}}, "train.rate must be greater than 0", RecipeError),
    ):  # fmt: skip
        with pytest.raises(kind, match=told):
            several(toy, tmp_path, **options)
    with pytest.raises(InputError, match="data.valid: several runs are compared by their scores"):
        several(toy, tmp_path, "data.valid=", sweep={"train.rate": [0.1]})
    said = main("train", toy.name, "--sweep", "train.rate", status=2).err
    assert "--sweep: 'train.rate' must look like KEY=A,B, such as train.rate=0.001,0.002." in said
    twice = ("--sweep", "train.rate=0.1", "--sweep", "train.rate=0.2")
    assert "a setting must come once" in main("train", toy.name, *twice, status=2).err
    small, large = plan(tmp_path / "r", {"train.rate": ["1e-3", "1e3"]}, 0, 1)
    assert small.folder != large.folder
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="one after the other, in one process each"):
        several(toy, tmp_path, seeds=2)
    assert not list(tmp_path.glob("r*"))
