"""Histories out of tables, and a line for each way in which they can be wrong."""

import json

import pytest

from regard.data.histories import Columns, read
from regard.data.read import Faults
from regard.errors import DataError

COLUMNS = Columns("episode", "step", ["pulse", "ward"], "action", ["reward"], "probability")
HEAD = "episode,step,pulse,ward,action,reward,probability"
GOOD = ["a,0,80,north,wait,0,0.5", "a,1,,north,give,1.5,0.25", "b,4,nan,,wait,-1,1"]


def write(folder, rows, name="h.csv"):
    path = folder / name
    path.write_text("".join(f"{row}\n" for row in [HEAD, *rows]))
    return [path]


def test_a_row_is_a_step(tmp_path):
    one, two = read(write(tmp_path, GOOD), COLUMNS, Faults())
    assert one.episode == "a" and one.observations == [[80.0, "north"], [None, "north"]]
    assert one.actions == ["wait", "give"] and one.rewards == [[0.0], [1.5]]
    assert one.probabilities == [0.5, 0.25] and one.where.endswith("h.csv:2")
    assert two.observations == [[None, None]] and len(two.rewards) == 1  # steps may begin anywhere


def test_json_lines_say_the_same_and_more(tmp_path):
    names = HEAD.split(",")
    rows = [dict(zip(names, row.split(","), strict=True)) for row in GOOD]
    rows[1]["pulse"], rows[1]["action"], rows[0]["action"] = None, [0.5, 1], [0, 2.0]
    rows[2] |= {"step": 4, "action": 3, "reward": -1}
    path = tmp_path / "h.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    one, two = read([path], COLUMNS, Faults())
    assert one.actions == [[0.0, 2.0], [0.5, 1.0]] and two.actions == ["3"]


def test_probabilities_need_not_be_recorded(tmp_path):
    plain = COLUMNS._replace(probability="")
    assert [h.probabilities for h in read(write(tmp_path, GOOD), plain, Faults())] == [[], []]


BAD = {
    "a,0,80,north,wait,,0.5": "h.csv:2: a reward must be a number, but is ''",
    "a,0,80,north,wait,inf,0.5": "a reward must be a number, but is 'inf'",
    "a,first,80,north,wait,0,0.5": "a step must be a whole number, but is 'first'",
    "a,0.5,80,north,wait,0,0.5": "a step must be a whole number, but is '0.5'",
    "a,0,80,north,,0,0.5": "an action must be a word, a whole number or numbers, but is ''",
    "a,0,80,north,wait,0,0": "must be above 0 and at most 1, but is 0.0",
    "a,0,80,north,wait,0,1.5": "must be above 0 and at most 1, but is 1.5",
    "a,0,80,north,wait,0,often": "must be above 0 and at most 1, but is 'often'",
    "a,0,80": "the row must have 7 columns, but has 3",
}


@pytest.mark.parametrize("row", BAD)
def test_what_is_wrong_is_told_with_its_line(tmp_path, row):
    good = [f"{name},0,70,south,wait,1,0.5" for name in "bc"]
    files = write(tmp_path, [row, *good])
    with pytest.raises(DataError) as error:
        list(read(files, COLUMNS, Faults()))
    assert BAD[row] in str(error.value) and "h.csv:2" in str(error.value)
    faults = Faults(skip=True)
    # Whose a row was that cannot be read is not known: the episode after it goes too.
    kept = ["c"] if "columns" in BAD[row] else ["b", "c"]
    assert [h.episode for h in read(files, COLUMNS, faults)] == kept and faults.count == 1


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["a,0,1,n,w,0,1", "a,2,1,n,w,0,1"], "h.csv:3: the steps of an episode must count up by"),
        (["a,1,1,n,w,0,1", "a,0,1,n,w,0,1"], "after 1 comes 0"),
        (["a,0,1,n,w,0,1", "b,0,1,n,w,0,1", "a,1,1,n,w,0,1"], "'a' has ended before"),
    ],
)
def test_order_and_gaps(tmp_path, rows, told):
    with pytest.raises(DataError) as error:
        list(read(write(tmp_path, rows), COLUMNS, Faults()))
    assert told in str(error.value)


def test_a_fault_takes_its_whole_episode(tmp_path):
    rows = ["a,0,1,n,w,0,1", "a,1,1,n,w,x,1", "a,2,1,n,w,0,1", "b,0,1,n,w,0,1"]
    faults = Faults(skip=True)
    assert [h.episode for h in read(write(tmp_path, rows), COLUMNS, faults)] == ["b"]
    assert faults.count == 1


def test_a_column_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"no column 'puls' \(task.observation\); did you mean"):
        list(read(write(tmp_path, GOOD), COLUMNS._replace(observation=["puls"]), Faults()))


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ("a b b! c d", "a d"),  # of b's, or of c's
        ("a b! b c", "c"),
        ("a! a b c", "b c"),
        ("a b c!", "a"),
    ],
)
def test_a_row_that_cannot_be_read_takes_those_beside_it_with_it(tmp_path, rows, kept):
    """Whose it was cannot be told, and an episode without its end would be another."""
    lines, steps = [], {}
    for name in rows.split():
        step = steps[name[0]] = steps.get(name[0], -1) + 1
        lines.append(f"{name[0]},{step}" + ("" if "!" in name else ",80,north,wait,0,0.5"))
    faults = Faults(skip=True)
    found = [history.episode for history in read(write(tmp_path, lines), COLUMNS, faults)]
    assert found == kept.split() and faults.count == 1
