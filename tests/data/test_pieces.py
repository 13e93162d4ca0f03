"""Data prepared in pieces: the same store as by one process, gone on from, with the first fault."""

import os
import signal

import pytest

from regard.data import pieces
from regard.data.read import Faults
from regard.data.store import Field
from regard.errors import DataError
from regard.progress import Work, heard_by
from tests.data.test_store import corpus, data_of, task  # noqa: F401

FIELDS = {"ids": Field("uint16"), "label": Field("float32", (2,))}


@pytest.fixture(params=["processes", "one"])
def processes(request, monkeypatch):
    """How many processes work at once."""
    monkeypatch.setattr(pieces, "cores", lambda: 1 if request.param == "one" else 3)


def content(store_folder):
    return {path.name: path.read_bytes() for path in store_folder.iterdir()}


def only_store(cache, task, examples):  # noqa: F811
    """The folder of what was made of the examples, beside which nothing is left."""
    made = [path for path in cache.iterdir() if path.name != examples.store.name]
    assert len(made) == 1, made
    return made[0]


def test_many_pieces_are_one_store(task, corpus, tmp_path, monkeypatch, processes):  # noqa: F811
    whole = data_of(task, corpus, tmp_path / "whole")
    monkeypatch.setattr(pieces, "LARGE", 300)
    assert len(pieces.ranges(50, whole.examples.size)) > 5
    told = []
    with heard_by(told.append):
        parts = data_of(task, corpus, tmp_path / "parts")
    assert content(only_store(tmp_path / "parts", task, parts.examples)) == content(
        only_store(tmp_path / "whole", task, whole.examples)
    )
    assert told[-1] == Work("preparing train.en", 50, 50)


def rows(number):
    return {"ids": [[number], [], [7] * number], "label": [[[1, number]], [], [[2, 3], [4, 5]]]}


def made(folder, jobs, faults=None, wanted="there must be a row"):
    return pieces.prepared(
        folder, ["marks"], FIELDS, jobs, faults or Faults(), wanted, Work("preparing", total=9)
    )


def test_rows_of_any_shape_are_joined_in_order(tmp_path, processes, monkeypatch):
    monkeypatch.setattr(pieces, "COPIED", 2)
    store = made(tmp_path, [lambda faults, n=n: [rows(n)] for n in (1, 2, 3)])
    assert store.rows == 9
    assert [store.row("ids", i) for i in range(9)] == [
        row for n in (1, 2, 3) for row in ([n], [], [7] * n)
    ]
    assert store.array("label", 8).tolist() == [[2, 3], [4, 5]]
    assert made(tmp_path, [None, None, None]).name == store.name  # not made again


def test_a_piece_without_rows_is_no_fault_but_nothing_at_all_is(tmp_path, processes):
    store = made(tmp_path / "some", [lambda faults: [], lambda faults: [rows(2)]])
    assert store.rows == 3
    with pytest.raises(DataError, match="there must be a row, but there is none"):
        made(tmp_path / "none", [lambda faults: []] * 2)


def test_what_was_finished_is_kept(tmp_path, processes):
    made_now = tmp_path / "made"
    made_now.mkdir()

    def job(number, fails):
        def piece(faults):
            (made_now / f"{number}").touch()
            yield rows(number)
            if fails:
                faults.report(f"line {number}", "no good")

        return piece

    with pytest.raises(DataError, match="line 2: no good"):
        made(tmp_path / "cache", [job(n, n == 2) for n in range(4)])
    left = [path.name for path in (tmp_path / "cache").glob("*.pieces/*")]
    finished = {int(name) for name in left if name.isdecimal()}  # the rest was being written
    assert {0, 1} <= finished and 2 not in finished
    for path in made_now.iterdir():
        path.unlink()
    store = made(tmp_path / "cache", [job(n, False) for n in range(4)])
    assert {int(p.name) for p in made_now.iterdir()} == set(range(4)) - finished
    assert store.rows == 12
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [store.name]


def test_the_first_fault_of_the_files_is_told(tmp_path, processes):
    """However much sooner another process meets its own."""

    def late(faults):
        for number in range(200):
            yield rows(number % 5)
        faults.report("early line", "no good")

    def early(faults):
        faults.report("late line", "no good")
        yield rows(1)

    with pytest.raises(DataError, match="early line"):
        made(tmp_path, [late, early, early])


def test_faults_that_are_passed_over_are_counted_and_told_in_order(tmp_path, processes):
    def job(number):
        def piece(faults):
            faults.report(f"line {number}", "no good")
            faults.notes.append("a note")
            yield rows(number)

        return piece

    faults = Faults(skip=True)
    store = made(tmp_path, [job(n) for n in range(7)], faults)
    assert faults.count == store.skipped == 7
    assert faults.first == [f"line {n}: no good" for n in range(5)]
    assert faults.notes == ["a note"]


def test_a_process_that_is_killed_is_told_and_the_rest_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "cores", lambda: 2)

    def killed(faults):
        os.kill(os.getpid(), signal.SIGKILL)
        yield rows(1)

    if pieces.sys.platform != "linux":
        return  # there, one process does all
    with pytest.raises(DataError, match=r"ended early \(signal 9\).*what was finished is kept"):
        made(tmp_path, [lambda faults: [rows(1)], killed])
    store = made(tmp_path, [None, lambda faults: [rows(2)]])
    assert store.rows == 6


def test_ranges_are_even_and_whole():
    assert pieces.ranges(10, 0) == [(0, 10)]
    assert pieces.ranges(0, 0) == [(0, 0)]
    some = pieces.ranges(1001, 4 * pieces.LARGE)
    assert [b - a for a, b in some] == [250, 250, 250, 251] and some[-1][1] == 1001
