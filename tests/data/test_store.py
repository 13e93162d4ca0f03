"""Tokenised data on disk: right, rebuilt when the text changes, whole or absent."""

import numpy as np
import pytest

from regard.batch import Sizes
from regard.data.load import ahead
from regard.data.read import Faults
from regard.data.store import Store, write
from regard.errors import DataError
from regard.tasks.translate import Translate
from regard.tasks.translate import TranslateSettings as Settings
from regard.text import BOS, EOS
from regard.text import Settings as TextSettings
from tests.toys import write_corpus


@pytest.fixture
def corpus(tmp_path):
    write_corpus(tmp_path / "data", train=50)
    return [tmp_path / "data/train.en", tmp_path / "data/train.fr"]


@pytest.fixture
def task(corpus):
    return Translate.learn(Settings(), TextSettings(kind="words", size=60), corpus, Faults())


def test_batches_hold_the_files_lines(task, corpus, tmp_path):
    store = task.store(corpus, tmp_path / "cache", 100, Faults())
    assert store.rows == 50
    rows = np.array([3, 0, 49])
    batch = task.batch(store, rows)
    sources, targets = (path.read_text().splitlines() for path in corpus)
    assert task.source.decode(batch.source.tolist()) == [sources[i] for i in rows]
    assert task.target.decode(batch.target.tolist()) == [targets[i] for i in rows]
    for row in range(3):
        assert batch.source[row, batch.source_lengths[row] - 1] == EOS
        assert batch.target[row, 0] == BOS
        assert batch.labels[row, batch.target_lengths[row] - 1] == EOS
        assert not batch.labels[row, batch.target_lengths[row] :].any()
    assert task.lengths(store)[rows].tolist() == [
        [int(s), int(t)] for s, t in zip(batch.source_lengths, batch.target_lengths, strict=True)
    ]


def test_lists_and_stores_make_the_same_batch(task, corpus, tmp_path):
    store = task.store(corpus, tmp_path / "cache", 100, Faults())
    ids = [[store.row(side, i) for i in (1, 2)] for side in ("source", "target")]
    for a, b in zip(
        task.batch(store, np.array([1, 2])).tensors(), task.pairs(*ids).tensors(), strict=True
    ):
        assert a.tolist() == b.tolist()


def test_a_store_is_used_again_until_the_file_changes(task, corpus, tmp_path):
    cache = tmp_path / "cache"
    task.store(corpus, cache, 100, Faults())
    (made,) = cache.iterdir()
    before = (made / "source.ids").stat().st_mtime_ns
    task.store(corpus, cache, 100, Faults())
    assert [made] == list(cache.iterdir())
    assert (made / "source.ids").stat().st_mtime_ns == before
    corpus[0].write_text(corpus[0].read_text().replace("one", "two", 1))
    task.store(corpus, cache, 100, Faults())
    assert len(list(cache.iterdir())) == 2


def test_a_line_too_long_stops_or_is_left_out(task, corpus, tmp_path):
    for path in corpus:
        first, *rest = path.read_text().splitlines()
        path.write_text("\n".join([first, " ".join([first] * 30), *rest]) + "\n")
    with pytest.raises(
        DataError, match=r"train.en:2: a line may have 40 tokens .*data.max_length.*, but has \d+"
    ):
        task.store(corpus, tmp_path / "cache", 40, Faults())
    assert not list((tmp_path / "cache").glob("*"))
    faults = Faults(skip=True)
    store = task.store(corpus, tmp_path / "cache", 40, faults)
    assert (store.rows, store.skipped, faults.count) == (50, 1, 1)


def test_an_empty_corpus_is_told(task, tmp_path):
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(DataError, match="there must be a line that can be used, but there is none"):
        task.store([tmp_path / "a.tsv"], tmp_path / "cache", 100, Faults())


def test_many_tokens_need_wider_numbers(tmp_path):
    rows = [{"a": [[70_000, 1], []]}, {"a": [[5]]}]
    store = write(tmp_path / "s", rows, 100_000, Faults(), "rows")
    assert [store.row("a", i) for i in range(3)] == [[70_000, 1], [], [5]]
    assert Store(tmp_path / "s").lengths("a").tolist() == [2, 0, 1]
    ids, lengths = store.padded("a", np.array([2, 0, 1]), [8], [9])
    assert ids.tolist() == [[8, 5, 9, 0], [8, 70_000, 1, 9], [8, 9, 0, 0]]
    assert lengths.tolist() == [3, 4, 2]


def test_separate_vocabularies(corpus, tmp_path):
    task = Translate.learn(
        Settings(), TextSettings(kind="words", size=60, joint=False), corpus, Faults()
    )
    task.save(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["source.json", "target.json"]
    again = Translate.load(Settings(), TextSettings(joint=False), tmp_path)
    assert again.sizes == task.sizes == Sizes(task.source.size, task.target.size, False)


def test_items_made_ahead_are_the_same_and_errors_come_through():
    assert list(ahead(range(20), 3)) == list(range(20))

    def broken():
        yield 1
        raise DataError("here")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(DataError, match="here"):
        next(items)


def test_leaving_early_ends_the_thread():
    import threading

    for item in ahead(range(10**9), 2):
        if item == 3:
            break
    del item
    import gc

    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "batches"]


def test_what_a_killed_process_left_is_dropped(task, corpus, tmp_path):
    import os
    import subprocess
    import sys

    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    left = tmp_path / f"cache/abc.part-{gone.stdout.decode().strip()}"
    busy = tmp_path / f"cache/abc.part-{os.getppid()}"
    for folder in (left, busy):
        folder.mkdir(parents=True)
    task.store(corpus, tmp_path / "cache", 256, Faults())
    assert not left.exists() and busy.exists()


def cached(task, corpus, tmp_path):
    """The store, and the folder that it is kept in."""
    store = task.store(corpus, tmp_path / "cache", 100, Faults())
    (made,) = (tmp_path / "cache").iterdir()
    return store, made


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-8])


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


DAMAGE = {
    "cut ids": ("source.ids", cut_short),
    "cut starts": ("source.starts", cut_short),
    "zeroed starts": ("target.starts", zeroed),
    "emptied": ("target.ids", lambda path: path.write_bytes(b"")),
    "gone": ("target.ids", lambda path: path.unlink()),
    "grown": ("source.ids", lambda path: path.write_bytes(path.read_bytes() + bytes(2))),
    "no list": ("store.json", lambda path: path.write_text("[]")),
    "zeroed list": ("store.json", zeroed),
    "no sums": (
        "store.json",
        lambda path: path.write_text(
            '{"rows": 50, "fields": ["source", "target"], "type": "uint16", "skipped": 0}'
        ),
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_seen_to_be_damaged_at_once_is_made_anew(case, task, corpus, tmp_path):
    store, made = cached(task, corpus, tmp_path)
    rows = [store.row("target", i) for i in range(50)]
    name, damage = DAMAGE[case]
    whole = (made / name).read_bytes()
    damage(made / name)
    again, same = cached(task, corpus, tmp_path)
    assert same == made and (made / name).read_bytes() == whole
    assert [again.row("target", i) for i in range(50)] == rows


@pytest.mark.parametrize("change", [zeroed, lambda path: path.write_bytes(b"\1\0" * 999)])
def test_ids_that_changed_on_disk_are_never_trained_on(change, task, corpus, tmp_path):
    _, made = cached(task, corpus, tmp_path)
    size = (made / "source.ids").stat().st_size
    change(made / "source.ids")
    with (made / "source.ids").open("r+b") as file:
        file.truncate(size)
    store, _ = cached(task, corpus, tmp_path)  # opening does not read them
    with pytest.raises(DataError) as told:
        task.batch(store, np.array([3, 0]))
    assert str(told.value) == (
        f"{made}: the tokenised data must be as they were written, but source.ids is damaged; "
        "delete this folder, it will be made anew."
    )
    with pytest.raises(DataError, match="delete this folder"):
        store.row("source", 7)


def test_a_block_is_checked_when_it_is_first_touched(tmp_path):
    count = 3 * 2**19 + 5  # of two bytes each: three blocks and a little
    rows = [{"a": [list(range(1000))] * (count // 1000)}, {"a": [[7] * (count % 1000)]}]
    whole = write(tmp_path / "s", rows, 1000, Faults(), "rows").flat("a")[:].copy()
    assert len(whole) == count
    with (tmp_path / "s/a.ids").open("r+b") as file:
        file.seek(2**20 + 17)  # in the second block
        file.write(b"\xff")
    flat = Store(tmp_path / "s").flat("a")
    assert flat[: 2**19].tolist() == whole[: 2**19].tolist()
    assert flat[2 * 2**19 :].tolist() == whole[2 * 2**19 :].tolist()
    places = np.array([[0, 2**19 - 1], [2**20, count - 1]])
    assert flat[places].tolist() == whole[places].tolist()
    assert flat[5] == whole[5] and flat[-1] == whole[-1] and flat[2:2].tolist() == []
    for touched in (
        slice(2**19 - 1, 2**19 + 1), slice(2**20 - 1, 2**20 + 1), slice(None, None, -1),
        np.array([3, 2**19]), -(2**19) - 6, 2**19,
    ):  # fmt: skip
        with pytest.raises(DataError, match="a.ids is damaged"):
            flat[touched]
    with pytest.raises(DataError, match="a.ids is damaged"):
        np.asarray(flat)


def test_a_store_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    import os

    done = []
    names = {}
    rename = os.rename
    monkeypatch.setattr(os, "open", (lambda of: lambda p, *a: keep(names, of(p, *a), p))(os.open))
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(names[handle].name))
    monkeypatch.setattr(os, "rename", lambda a, b: done.append("renamed") or rename(a, b))
    write(tmp_path / "s", [{"a": [[1, 2]]}], 9, Faults(), "rows")
    work = f"s.part-{os.getpid()}"
    assert sorted(done[:3]) == ["a.ids", "a.starts", "store.json"]
    assert done[3:] == [work, "renamed", tmp_path.name]


def keep(names, handle, path):
    names[handle] = path
    return handle
