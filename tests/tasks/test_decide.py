"""Decisions from files to advice: what is learned, judged, said, and refused."""

import json
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import regard
from regard.data.environments import KeyDoor, episodes, make, write
from regard.data.histories import Columns, read
from regard.data.read import Faults
from regard.errors import DataError, InputError, RecipeError
from regard.see.compare import compare
from regard.tasks.history import returns_of, window_of, windows_of

RECIPE = """
[task]
kind = "decide"
learner = "{learner}"
context = 4
least = 3
[data]
train = "train.csv"
valid = "valid.csv"
test = "test.csv"
[model]
kind = "{model}"
{more}
[train]
steps = {steps}
batch_tokens = 256
rate = 0.003
warmup = 10
evaluate_every = 1000
save_every = 1000
device = "cpu"
"""
NETWORK = "width = 32\ndepth = 1\nheads = 2\ndropout = 0.0\npositions = 32"


def stays(count, seed, numbers=False, head=True):
    """Patients who are calm or ill; giving helps the ill, harms the calm. A nurse gives too often
    to the calm. With numbers, a temperature says how they are, and is sometimes not taken."""
    dice = random.Random(seed)
    rows = ["episode,step,how,action,reward,probability"] if head else []
    for number in range(count):
        for step in range(dice.randrange(2, 7)):
            ill = dice.random() < 0.5
            chance = 0.6
            give = dice.random() < chance
            how = "ill" if ill else "calm"
            if numbers:
                how = (
                    "" if dice.random() < 0.2 else f"{(39 if ill else 37) + dice.gauss(0, 0.3):.2f}"
                )
            gained = 1 if give == ill else 0
            told = chance if give else 1 - chance
            rows.append(f"{number},{step},{how},{'give' if give else 'wait'},{gained},{told:.3g}")
    return "".join(f"{row}\n" for row in rows)


def made(folder, learner="one-step", model="table", steps=1, numbers=False, more=NETWORK):
    for seed, part in enumerate(("train", "valid", "test")):
        (folder / f"{part}.csv").write_text(stays(300, seed, numbers))
    path = folder / "stays.toml"
    path.write_text(
        RECIPE.format(
            learner=learner, model=model, steps=steps, more="" if model == "table" else more
        )
    )
    return str(path)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    return regard.train(made(folder), run=folder / "run")


# Windows and returns.


def test_every_step_is_asked_about_once_with_the_window_of_a_decision():
    for steps in range(1, 40):
        for context in (1, 2, 3, 4, 7, 10):
            asked = []
            for window in windows_of(0, steps, context):
                assert window.end - window.start <= context
                own = range(window.start + window.first, window.end)
                assert all(window_of(step, context) == window.start for step in own)
                asked += own
            assert asked == list(range(steps))


def test_a_table_sees_every_step_lead_to_the_next_however_short_the_context(tmp_path):
    path = made(tmp_path)
    values = [
        regard.train(path, f"task.context={c}", "task.discount=0.9", run=tmp_path / f"run{c}").model
        for c in (2, 50)
    ]
    torch.testing.assert_close(values[0].values, values[1].values)


def test_returns_are_discounted_sums():
    rewards = [[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]
    found = returns_of(rewards, [1.0, -0.5], 0.5)
    np.testing.assert_allclose(found, [0 + 0.5 * (-0.5 + 0.5 * 3), -0.5 + 1.5, 3.0])


# Learning.


@pytest.mark.parametrize("learner", ["one-step", "iteration", "conservative"])
def test_a_table_finds_what_helps(tmp_path, learner):
    run = regard.train(made(tmp_path, learner), run=tmp_path / "run")
    ill, calm = run.predict([[{"how": "ill"}], [{"how": "calm"}]])
    assert (ill.label, calm.label) == ("give", "wait")
    assert ill.value > 1 and ill.times["give"] > 100 and 0.5 < ill.recorded["give"] < 0.7
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    assert scores["difference"] > 1 and scores["difference_interval"][0] > 0.5


@pytest.mark.parametrize(
    ("learner", "numbers"),
    [("one-step", True), ("iteration", False), ("conservative", True), ("implicit", True)],
)
def test_a_network_finds_what_helps(tmp_path, learner, numbers):
    torch.manual_seed(0)
    path = made(tmp_path, learner, "decision", 250, numbers, f"{NETWORK}\nfollow = 0.1")
    run = regard.train(path, run=tmp_path / "run")
    ill, calm = run.predict([[{"how": 39.2 if numbers else "ill"}],
                             [{"how": 36.9 if numbers else "calm"}]])  # fmt: skip
    assert (ill.label, calm.label) == ("give", "wait")
    assert np.isfinite(ill.value) and (ill.times is None) == numbers


def test_a_wish_is_what_a_decision_follows(tmp_path):
    path = made(tmp_path, "return", "decision", 300)
    run = regard.train(path, "task.context=1", run=tmp_path / "run")
    chance = {}
    for wish in (0.0, 6.0):
        asked = regard.load(run.folder, f"task.wish={wish}", device="cpu")
        chance[wish] = asked.predict([[{"how": "ill"}]])[0].probabilities["give"]
    assert chance[6.0] > chance[0.0] + 0.1
    plain, guided = (
        regard.load(run.folder, f"task.guidance={g}", device="cpu").predict([[{"how": "ill"}]])[0]
        for g in (1, 8)
    )
    assert guided.probabilities["give"] > plain.probabilities["give"]


def test_a_clone_knows_how_likely_what_was_done_was(tmp_path):
    run = regard.train(made(tmp_path, "clone", "decision", 150), run=tmp_path / "run")
    (answer,) = run.predict([[{"how": "ill"}]])
    assert abs(answer.probabilities["give"] - 0.6) < 0.1
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    assert scores["headline"] == "perplexity" and 1.8 < scores["perplexity"] < 2.1


def test_actions_may_be_numbers(tmp_path):
    rng = np.random.default_rng(0)
    for part in ("train", "valid", "test"):
        rows = []
        for number in range(100):
            for step in range(3):
                seen = rng.normal()
                rows.append({"episode": number, "step": step, "seen": seen,
                             "action": [seen / 2, -seen / 4], "reward": 1.0})  # fmt: skip
        (tmp_path / f"{part}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    path = made(tmp_path, "clone", "decision", 300)
    files = [f"data.{part}={part}.jsonl" for part in ("train", "valid", "test")]
    root = f"data.root={tmp_path}"
    run = regard.train(path, root, *files, "model.bounded=true", run=tmp_path / "run")
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    assert scores["headline"] == "rmse" and scores["rmse"] < 0.1
    (answer,) = run.predict([[{"seen": 1.0}]])
    assert np.allclose(answer.vector, [0.5, -0.25], atol=0.15)
    with pytest.raises(RecipeError, match="chooses among named actions, but here they are numbers"):
        regard.train(path, root, *files, "task.learner=one-step", run=tmp_path / "other")


def test_a_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    """With the slow copy and the windows, too."""
    path = made(tmp_path, "iteration", "decision", 12)
    whole = regard.train(path, "train.save_every=6", run=tmp_path / "whole")
    told = []
    part, folder = ("train.save_every=6", "train.log_every=1"), tmp_path / "part"
    regard.train(
        path, *part, run=folder, on_event=told.append,
        stop=lambda: any(getattr(event, "step", 0) >= 6 for event in told),
    )  # fmt: skip
    assert (folder / "checkpoint-6").is_dir() and not (folder / "README.md").exists()
    again = regard.train(path, *part, run=folder)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name


def test_a_wish_far_beyond_the_records_is_still_a_policy(tmp_path):
    run = regard.train(made(tmp_path, "return", "decision", 60), run=tmp_path / "run")
    far = regard.load(run.folder, "task.guidance=100", "task.wish=50.0", device="cpu")
    for how in ("ill", "calm", "never seen"):
        chances = far.predict([[{"how": how}]])[0].probabilities.values()
        assert abs(sum(chances) - 1) < 1e-4


def test_advantages_are_what_an_action_is_worth_beyond_the_usual(tmp_path):
    path = made(tmp_path, "return", "decision", 300)
    run = regard.train(path, "task.returns=advantage", "task.wish=1.0", "task.context=1",
                       run=tmp_path / "run")  # fmt: skip
    gains = dict(zip(
        (run.task.state_name(at + 1) for at in range(2)), run.task.coder.gains, strict=True
    ))  # fmt: skip
    assert gains["how=ill"]["give"] > 0 > gains["how=ill"]["wait"]
    assert gains["how=calm"]["wait"] > 0 > gains["how=calm"]["give"]
    ill, calm = run.predict([[{"how": "ill"}], [{"how": "calm"}]])
    assert (ill.label, calm.label) == ("give", "wait")
    with pytest.raises(
        RecipeError, match="task.returns=advantage needs observations that are word"
    ):
        other = made(tmp_path, "return", "decision", 2, numbers=True)
        regard.train(other, "task.returns=advantage", run=tmp_path / "other")


# Judging.


def test_the_card_says_where_the_evidence_ends(table):
    card = (table.folder / "README.md").read_text()
    first = next(line for line in card.splitlines()[1:] if line)
    assert first.startswith("**This is no advice for treatment")
    for said in ("effective sample size", "Γ = 2", "Was what it does ever tried?", "evidence.png",
                 "The records themselves came to", "discount 0.9", "was recorded."):  # fmt: skip
        assert said in card, said
    assert (table.folder / "evidence.png").stat().st_size > 10_000


def test_probabilities_are_estimated_where_they_are_not_recorded(tmp_path, table):
    path = made(tmp_path)
    run = regard.train(
        path, "task.observation=['how']", 'task.probability=""', run=tmp_path / "run"
    )
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    other = json.loads((table.folder / "results.json").read_text())["test"]
    assert (scores["behaviour"], other["behaviour"]) == ("estimated", "recorded")
    assert abs(scores["value"] - other["value"]) < 0.2
    assert "was estimated." in (run.folder / "README.md").read_text()


def test_two_policies_are_compared_on_the_same_draws(tmp_path):
    path = made(tmp_path)
    for learner in ("one-step", "implicit"):
        more = f"task.learner={learner}", "task.temperature=10.0"  # nearly as was recorded
        regard.train(path, *more, run=tmp_path / learner)
    both = compare([tmp_path / "one-step", tmp_path / "implicit"])
    (said,) = both.differences()
    assert said.startswith("one-step is worth +") and "more than implicit" in said
    low, high = (float(end) for end in re.findall(r"([+-][\d.]+) – ([+-][\d.]+)", said)[0])
    assert 0 < low < high
    assert said in both.markdown()


def test_few_histories_are_marked_everywhere(tmp_path, table):
    path = made(tmp_path)
    (tmp_path / "test.csv").write_text(stays(3, 9))
    run = regard.train(path, run=tmp_path / "run")
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    assert scores["too_few"] and all(one["too_few"] for one in scores["estimates"].values())
    assert "too few: not to be relied on" in (run.folder / "README.md").read_text()


# Saying.


def test_a_history_is_given_as_json_or_as_a_file(table, tmp_path):
    steps = [{"how": "calm", "action": "give", "reward": 0}, {"how": "ill"}]
    wanted = table.predict([steps])[0]
    rows = tmp_path / "h.jsonl"
    rows.write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    lines = tmp_path / "h.csv"
    lines.write_text("how,action,reward\ncalm,give,0\nill,,\n")
    for word in (json.dumps(steps), str(rows), str(lines)):
        found = table.predict([word])[0]
        assert (found.label, found.value) == (wanted.label, wanted.value)
    assert wanted.json()["times"] == table.predict([[{"how": "ill"}]])[0].json()["times"]


def test_a_file_holds_one_history(table, tmp_path):
    (tmp_path / "two.csv").write_text("episode,how\na,ill\nb,calm\n")
    with pytest.raises(InputError, match="must hold one history, but holds 2"):
        table.predict([str(tmp_path / "two.csv")])


def test_what_was_never_seen_is_warned_of(table):
    (answer,) = table.predict([[{"how": "gone"}]])
    assert answer.warning == "such a state was never recorded" and answer.times == {}


BAD = {
    "[]": "a history has 1 to 10,000 steps here, but this has 0",
    '[{"pulse": 1}]': "step 1: 'how' is missing; an observation has how",
    '[{"how": "ill"}, {"how": "ill"}]': "step 1: 'action' is missing",
    '[{"how": "ill", "action": "pray"}, {"how": "ill"}]':
        "step 1: an action must be one that training has (give, wait), but is 'pray'",
    '[{"how": "ill", "action": "give", "reward": "much"}, {"how": "ill"}]':
        "'reward' must be a number, but is 'much'",
    '[{"how": ["ill"]}]': "an observation must be a number or a word",
    "[1]": "must be a list of steps",
    "{": "input 1:",
    "nowhere.csv": "cannot be read",
    "ill": "must be a history as JSON, or a .jsonl, .json, .csv or .tsv file",
}  # fmt: skip


@pytest.mark.parametrize("word", BAD)
def test_what_cannot_be_decided_about_is_told(table, word):
    with pytest.raises(InputError) as told:
        table.predict([word])
    assert BAD[word] in str(told.value) and "\n" not in str(told.value)


def test_see_shows_which_steps_were_looked_at(tmp_path):
    run = regard.train(made(tmp_path, "return", "decision", 2), run=tmp_path / "run")
    steps = [{"how": "calm", "action": "give", "reward": 0}, {"how": "ill"}]
    report = run.see(json.dumps(steps))
    (look,) = [one for one in report.looks if one.name.startswith("blocks.0")][:1]
    assert look.weights.shape[-1] == 6
    path = report.save(tmp_path / "see.html")
    said = path.read_text()
    assert "1 did give" in said and "2 how=ill" in said


# Files.


def test_columns_are_found_and_held_to(tmp_path):
    path = made(tmp_path)
    (tmp_path / "test.csv").write_text("episode,step,pulse,action,reward\n1,0,80,give,1\n")
    with pytest.raises(DataError, match="must have the columns of training .how., but has pulse"):
        regard.train(path, run=tmp_path / "run")
    (tmp_path / "test.csv").write_text("episode,step,how,action,reward\n1,0,ill,pray,1\n")
    with pytest.raises(DataError, match="test.csv:2: an action must be one that training has"):
        regard.train(path, run=tmp_path / "run")
    (tmp_path / "train.csv").write_text(
        "episode,step,how,action,reward\n1,0,ill,give,1\n1,1,3,wait,1\n"
    )
    with pytest.raises(DataError, match="'how' has numbers and words"):
        regard.train(path, run=tmp_path / "run")


def test_files_must_have_the_same_columns(tmp_path):
    path = made(tmp_path)
    (tmp_path / "more.csv").write_text("episode,step,how,pulse,action,reward\nz,0,ill,80,give,1\n")
    with pytest.raises(DataError, match="more.csv:2: all files must have the same columns"):
        regard.train(path, 'data.train=["train.csv", "more.csv"]', f"data.root={tmp_path}",
                     run=tmp_path / "run")  # fmt: skip


def test_how_likely_what_was_done_was_is_never_observed(tmp_path):
    path = made(tmp_path)
    run = regard.train(path, 'task.probability=""', run=tmp_path / "run")
    assert run.task.coder.columns == ["how"]


def test_long_ids_stay_apart_and_huge_numbers_are_taken(tmp_path):
    rows = ["episode,step,id,action,reward"]
    rows += [f"{n},0,{1234567 + n % 2},{'give' if n % 2 else 'wait'},1" for n in range(20)]
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.csv").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "other").mkdir()
    path = made(tmp_path / "other")
    root = f"data.root={tmp_path}"
    run = regard.train(path, root, 'task.words=["id"]', run=tmp_path / "run")
    assert len(run.task.coder.states) == 2
    assert run.predict([[{"id": 1234567}], [{"id": 1234568}]])[0].times == {"wait": 10}
    network = made(tmp_path / "other", "clone", "decision", 3)
    run = regard.train(network, root, run=tmp_path / "run2")
    (answer,) = run.predict([[{"id": 1e300}]])
    assert np.isfinite(list(answer.probabilities.values())).all()


def test_a_table_needs_words(tmp_path):
    with pytest.raises(RecipeError, match="model.kind=table needs observations that are all words"):
        regard.train(made(tmp_path, numbers=True), run=tmp_path / "run")
    with pytest.raises(RecipeError, match="knows no returns; set task.learner"):
        regard.train(made(tmp_path, "return"), run=tmp_path / "run")


def test_one_history_is_enough_to_be_told_so(tmp_path):
    path = made(tmp_path)
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.csv").write_text(stays(1, 1))
    run = regard.train(path, run=tmp_path / "run")
    assert json.loads((run.folder / "results.json").read_text())["test"]["too_few"]


def test_parquet_and_minari_hold_the_same(tmp_path):
    h5py = pytest.importorskip("h5py")
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    (tmp_path / "h.csv").write_text(stays(5, 0))
    table = csv.read_csv(tmp_path / "h.csv")
    parquet.write_table(table, tmp_path / "h.parquet")
    columns = Columns("episode", "step", [], "action", ["reward"], "auto")
    one, other = (
        list(read([tmp_path / f"h.{kind}"], columns, Faults())) for kind in ("csv", "parquet")
    )
    assert [h._replace(where="") for h in one] == [h._replace(where="") for h in other] and arrow
    with h5py.File(tmp_path / "main_data.hdf5", "w") as file:
        group = file.create_group("episode_0")
        group["observations"], group["actions"] = np.ones((3, 2)), np.array([0, 1])
        group["rewards"] = np.array([0.5, 1.0])
    (found,) = read([tmp_path / "main_data.hdf5"], columns, Faults())
    assert found.columns == ["o0", "o1"] and found.actions == ["0", "1"]
    assert found.observations == [[1.0, 1.0]] * 2 and found.rewards == [[0.5], [1.0]]
    (tmp_path / "main_data.hdf5").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read as a Minari dataset"):
        list(read([tmp_path / "main_data.hdf5"], columns, Faults()))
    (tmp_path / "h.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(read([tmp_path / "h.parquet"], columns, Faults()))


# Records.


def test_records_are_the_same_for_the_same_seed(tmp_path):
    for name in ("a", "b"):
        process = KeyDoor()
        steps, gained = write(tmp_path / name, process, episodes(process, None, 300, 3, 100))
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    assert 300 < steps < 3000 and 0.25 < gained < 0.42  # who chooses blindly opens every third


def test_records_are_made_in_the_shell(tmp_path, table):
    def record(*words):
        said = [sys.executable, "-m", "regard", "record", *words]
        return subprocess.run(said, capture_output=True, text=True, cwd=tmp_path, check=False)

    done = record("keydoor", "--out", "new/k.csv", "--episodes", "20")
    assert done.returncode == 0 and done.stdout.startswith("new/k.csv: 20 histories")
    assert (
        len({row.split(",")[0] for row in (tmp_path / "new/k.csv").read_text().splitlines()}) == 21
    )
    for words, told in (
        (("keydoor", "--policy", str(table.folder)), "is no run that decides among such actions"),
        (("keydoor", "--policy", "nowhere"), "nowhere"),
        (("NoSuchThing-v0",), "NoSuchThing"),
    ):
        done = record(*words, "--out", "x.csv", "--episodes", "1")
        assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1
        assert not (tmp_path / "x.csv").exists()


def test_who_remembers_opens_the_door():
    process = KeyDoor()

    def remembers(so_far):
        if so_far.observations[-1] == ["three doors"]:
            colour = so_far.observations[0][0].split()[1]
            return [float(name == colour) for name in process.actions]
        return [1.0, 0, 0, 0, 0]

    told = list(episodes(process, remembers, 50, 0, 100))
    assert all(so_far.rewards[-1] == 1.0 and set(chances) == {1.0} for so_far, chances in told)


def test_an_environment_that_is_none_is_refused():
    pytest.importorskip("gymnasium")
    with pytest.raises(InputError, match="NoSuchThing"):
        make("NoSuchThing-v0")


def test_a_run_decides_in_a_process(tmp_path):
    gymnasium = pytest.importorskip("gymnasium")
    made_env = make("CartPole-v1")
    assert made_env.columns == ["o0", "o1", "o2", "o3"] and made_env.actions == ["0", "1"]
    write(tmp_path / "train.csv", made_env, episodes(made_env, None, 30, 0, 50))
    for part in ("valid", "test"):
        (tmp_path / f"{part}.csv").write_text((tmp_path / "train.csv").read_text())
    path = tmp_path / "stays.toml"
    path.write_text(RECIPE.format(learner="clone", model="decision", steps=3, more=NETWORK))
    run = regard.train(str(path), run=tmp_path / "run")
    decide = run.task.policy(run.model, made_env.columns, made_env.actions)
    told = list(episodes(made_env, decide, 2, 0, 20))
    assert len(told) == 2 and gymnasium
    assert run.task.policy(run.model, made_env.columns, ["left"]) is None
    assert run.task.policy(run.model, ["o0"], made_env.actions) is None
