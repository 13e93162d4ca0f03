"""Prepared data on disk: right, rebuilt when the files change, whole or absent."""

import numpy as np
import pytest

from regard.batch import Sizes
from regard.data.load import ahead
from regard.data.read import Faults
from regard.data.store import BLOCK, TEXT, Field, Store, ids_below, write
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


def learned(files, folder, **more):
    """A task that knows the files' words; their examples are kept beside its own cache."""
    examples = Translate.examples(Settings(), files, folder / "learned", Faults())
    return Translate.learn(
        Settings(), {"text": TextSettings(kind="words", size=60, **more)}, examples
    )


@pytest.fixture
def task(corpus, tmp_path):
    return learned(corpus, tmp_path)


def data_of(task, files, cache, longest=100, faults=None):
    faults = faults or Faults()
    examples = task.examples(task.settings, files, cache, faults)
    return task.data(examples, cache, longest, faults)


def test_batches_hold_the_files_lines(task, corpus, tmp_path):
    store = data_of(task, corpus, tmp_path / "cache").store
    assert store.rows == 50
    rows = np.array([3, 0, 49])
    batch = task.batch(store, rows)
    sources, targets = (path.read_text().splitlines() for path in corpus)
    read, asked = batch.read, batch.asked
    assert task.source.decode(read.ids.tolist()) == [sources[i] for i in rows]
    assert task.target.decode(asked.ids.tolist()) == [targets[i] for i in rows]
    for row in range(3):
        assert read.ids[row, read.lengths[row] - 1] == EOS
        assert asked.ids[row, 0] == asked.inputs[row, 0] == BOS
        assert asked.labels[row, asked.lengths[row] - 1] == EOS
        assert not asked.labels[row, asked.lengths[row] :].any()
    assert task.lengths(store)[rows].tolist() == [
        [int(s), int(t)] for s, t in zip(read.lengths, asked.lengths, strict=True)
    ]


def test_lists_and_stores_make_the_same_batch(task, corpus, tmp_path):
    store = data_of(task, corpus, tmp_path / "cache").store
    ids = [[store.row(side, i) for i in (1, 2)] for side in ("source", "target")]
    for a, b in zip(
        task.batch(store, np.array([1, 2])).tensors(), task.pairs(*ids).tensors(), strict=True
    ):
        assert a.tolist() == b.tolist()


EXAMPLES = ["example.items", "example.starts", "store.json"]
PAIRS = ["source.items", "source.starts", "store.json", "target.items", "target.starts"]
ORDERS = ([EXAMPLES, PAIRS], [PAIRS, EXAMPLES])


def test_a_store_is_used_again_until_the_file_changes(task, corpus, tmp_path):
    cache = tmp_path / "cache"
    data_of(task, corpus, cache)
    made = sorted(cache.iterdir())
    assert [sorted(path.name for path in folder.iterdir()) for folder in made] in ORDERS
    before = [path.stat().st_mtime_ns for folder in made for path in folder.iterdir()]
    data_of(task, corpus, cache)
    assert made == sorted(cache.iterdir())
    assert [path.stat().st_mtime_ns for folder in made for path in folder.iterdir()] == before
    corpus[0].write_text(corpus[0].read_text().replace("one", "two", 1))
    data_of(task, corpus, cache)
    assert len(list(cache.iterdir())) == 4  # the examples anew, and their ids


def store_in(cache, field):
    """The folder in which a field is kept, if there is one."""
    found = [path.parent for path in cache.glob(f"*/{field}.items")]
    assert len(found) < 2
    return found[0] if found else None


def test_a_line_too_long_stops_or_is_left_out(task, corpus, tmp_path):
    for path in corpus:
        first, *rest = path.read_text().splitlines()
        path.write_text("\n".join([first, " ".join([first] * 30), *rest]) + "\n")
    with pytest.raises(
        DataError, match=r"train.en:2: a line may have 40 tokens .*data.max_length.*, but has \d+"
    ):
        data_of(task, corpus, tmp_path / "cache", 40)
    assert store_in(tmp_path / "cache", "source") is None  # the examples are whole, the ids not
    faults = Faults(skip=True)
    data = data_of(task, corpus, tmp_path / "cache", 40, faults)
    assert (data.store.rows, data.store.skipped, faults.count) == (50, 1, 1)
    assert (len(data.examples), data.skipped) == (51, 1)


def test_an_empty_corpus_is_told(task, tmp_path):
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(DataError, match="there must be a line that can be used, but there is none"):
        data_of(task, [tmp_path / "a.tsv"], tmp_path / "cache")


def test_many_tokens_need_wider_numbers(tmp_path):
    rows = [{"a": [[70_000, 1], []]}, {"a": [[5]]}]
    store = write(tmp_path / "s", {"a": ids_below(100_000)}, rows, Faults(), "rows")
    assert [store.row("a", i) for i in range(3)] == [[70_000, 1], [], [5]]
    assert Store(tmp_path / "s").lengths("a").tolist() == [2, 0, 1]
    ids, lengths = store.padded("a", np.array([2, 0, 1]), [8], [9])
    assert ids.tolist() == [[8, 5, 9, 0], [8, 70_000, 1, 9], [8, 9, 0, 0]]
    assert lengths.tolist() == [3, 4, 2]


def test_separate_vocabularies(corpus, tmp_path):
    task = learned(corpus, tmp_path, joint=False)
    task.save(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["source.json", "target.json"]
    again = Translate.load(Settings(), {"text": TextSettings(joint=False)}, tmp_path)
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
    data_of(task, corpus, tmp_path / "cache", 256)
    assert not left.exists() and busy.exists()


def cached(task, corpus, tmp_path):
    """The store, and the folder that it is kept in."""
    store = data_of(task, corpus, tmp_path / "cache").store
    return store, store_in(tmp_path / "cache", "source")


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-8])


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


DAMAGE = {
    "cut items": ("source.items", cut_short),
    "cut starts": ("source.starts", cut_short),
    "zeroed starts": ("target.starts", zeroed),
    "emptied": ("target.items", lambda path: path.write_bytes(b"")),
    "gone": ("target.items", lambda path: path.unlink()),
    "grown": ("source.items", lambda path: path.write_bytes(path.read_bytes() + bytes(2))),
    "no list": ("store.json", lambda path: path.write_text("[]")),
    "zeroed list": ("store.json", zeroed),
    "no sums": (
        "store.json",
        lambda path: path.write_text(
            '{"rows": 50, "fields": ["source", "target"], "type": "uint16", "skipped": 0}'
        ),
    ),
    "no type": (
        "store.json",
        lambda path: path.write_text(path.read_text().replace("uint16", "no type")),
    ),
    "another type": (
        "store.json",
        lambda path: path.write_text(path.read_text().replace("uint16", "complex256")),
    ),
    "another shape": (
        "store.json",
        lambda path: path.write_text(path.read_text().replace('"uint16", []', '"uint16", [999]')),
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
    size = (made / "source.items").stat().st_size
    change(made / "source.items")
    with (made / "source.items").open("r+b") as file:
        file.truncate(size)
    store, _ = cached(task, corpus, tmp_path)  # opening does not read them
    with pytest.raises(DataError) as told:
        task.batch(store, np.array([3, 0]))
    assert str(told.value) == (
        f"{made}: the prepared data must be as they were written, but source.items is damaged; "
        "delete this folder, it will be made anew."
    )
    with pytest.raises(DataError, match="delete this folder"):
        store.row("source", 7)


def test_a_block_is_checked_when_it_is_first_touched(tmp_path):
    count = 3 * 2**19 + 5  # of two bytes each: three blocks and a little
    rows = [{"a": [list(range(1000))] * (count // 1000)}, {"a": [[7] * (count % 1000)]}]
    fields = {"a": ids_below(1000)}
    whole = write(tmp_path / "s", fields, rows, Faults(), "rows").flat("a")[:].copy()
    assert len(whole) == count
    with (tmp_path / "s/a.items").open("r+b") as file:
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
        with pytest.raises(DataError, match="a.items is damaged"):
            flat[touched]
    with pytest.raises(DataError, match="a.items is damaged"):
        np.asarray(flat)


def test_a_store_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    import os

    done = []
    names = {}
    rename = os.rename
    monkeypatch.setattr(os, "open", (lambda of: lambda p, *a: keep(names, of(p, *a), p))(os.open))
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(names[handle].name))
    monkeypatch.setattr(os, "rename", lambda a, b: done.append("renamed") or rename(a, b))
    write(tmp_path / "s", {"a": ids_below(9)}, [{"a": [[1, 2]]}], Faults(), "rows")
    work = f"s.part-{os.getpid()}"
    assert sorted(done[:3]) == ["a.items", "a.starts", "store.json"]
    assert done[3:] == [work, "renamed", tmp_path.name]


def keep(names, handle, path):
    names[handle] = path
    return handle


# Fields of every type.


def random_rows(field, count=40, longest=5, seed=0):
    """Rows of random items, among them empty ones."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(longest + 1, size=count)
    lengths[[0, count // 5, -1]] = 0
    return [
        (chance.random((n, *field.shape)) * 200 - 50 * (field.dtype[0] == "f")).astype(field.dtype)
        for n in lengths
    ]


TYPES = {
    "numbers": Field("float32"),
    "bytes": Field("uint8"),
    "wide ids": Field("uint32"),
    "points": Field("float32", (2,)),
    "places": Field("uint32", (2,)),
    "pictures": Field("uint8", (3, 4, 4)),
    "frames": Field("float32", (3, 4, 4)),
    "halves": Field("float16", (5,)),
}


@pytest.mark.parametrize("case", TYPES)
def test_items_of_any_type_and_shape_come_back(case, tmp_path):
    field, rows = TYPES[case], random_rows(TYPES[case])
    # As arrays in one chunk and as lists in another, and a chunk without rows between.
    chunks = [{"a": rows[:25]}, {"a": []}, {"a": [row.tolist() for row in rows[25:]]}]
    made = write(tmp_path / "s", {"a": field}, chunks, Faults(), "rows")
    for store in (made, Store(tmp_path / "s")):
        assert store.rows == 40 and store.lengths("a").tolist() == [len(row) for row in rows]
        assert store.flat("a")[:].dtype == field.dtype
        for index, row in enumerate(rows):
            found = store.array("a", index)
            assert found.shape == row.shape and found.dtype == row.dtype
            assert found.tolist() == row.tolist() == store.row("a", index)
        whole = np.concatenate(rows)
        assert np.asarray(store.flat("a")).tolist() == whole.tolist()
        full = np.array([i for i, row in enumerate(rows) if len(row)])
        first = store.first("a", full)
        assert first.shape == (len(full), *field.shape)
        assert first.tolist() == [rows[i][0].tolist() for i in full]
        assert store.first("a", full[:0]).shape == (0, *field.shape)


def test_texts_are_kept_as_bytes(tmp_path):
    texts = ["one", "", "été 日本 👍🏽", "two\nlines\0", ""]
    chunks = [{"a": [text.encode() for text in texts[:3]]}, {"a": [t.encode() for t in texts[3:]]}]
    write(tmp_path / "s", {"a": TEXT}, chunks, Faults(), "rows")
    store = Store(tmp_path / "s")
    assert [store.text("a", i) for i in range(store.rows)] == texts


def test_fields_of_several_types_lie_side_by_side(tmp_path):
    fields = {"text": TEXT, "label": Field("float32"), "pixels": TYPES["pictures"]}
    pixels = random_rows(fields["pixels"], 6)
    rows = {
        "text": [f"row {i}".encode() for i in range(6)],
        "label": [[i / 3] for i in range(6)],
        "pixels": pixels,
    }
    parts = [{name: some[a:b] for name, some in rows.items()} for a, b in ((0, 2), (2, 6))]
    store = write(tmp_path / "s", fields, parts, Faults(), "rows")
    assert store.text("text", 4) == "row 4"
    assert store.first("label", np.array([3, 1])).tolist() == pytest.approx([1.0, 1 / 3])
    assert store.array("pixels", 4).tolist() == pixels[4].tolist()


def test_nothing_but_empty_rows(tmp_path):
    for name, field in TYPES.items():
        store = write(tmp_path / name, {"a": field}, [{"a": [[], []]}], Faults(), "rows")
        assert store.rows == 2 and len(store.flat("a")) == 0
        assert store.array("a", 1).shape == (0, *field.shape)
        assert store.flat("a")[:].dtype == field.dtype
    with pytest.raises(DataError, match="there must be rows, but there is none"):
        write(tmp_path / "none", {"a": TEXT}, [{"a": []}], Faults(), "there must be rows")


ODD = Field("float32", (7, 100, 3))  # 8400 bytes: no block holds a whole number of them
assert BLOCK % 8400


@pytest.fixture
def spanning(tmp_path):
    """Three blocks and a half of items that do not end where blocks do."""
    count = 7 * BLOCK // 2 // 8400
    items = np.random.default_rng(0).random((count, *ODD.shape)).astype("float32")
    rows = [items[i : i + 3] for i in range(0, count, 3)]
    write(tmp_path / "s", {"a": ODD}, [{"a": rows}], Faults(), "rows")
    return tmp_path / "s", items


@pytest.mark.parametrize("block", [0, 1, 2, 3])
def test_damage_is_found_in_an_item_that_spans_two_blocks(block, spanning):
    folder, items = spanning
    ends = [-1, *(BLOCK * (b + 1) // 8400 for b in range(3)), len(items)]  # items across an end
    assert all(BLOCK * (b + 1) % 8400 for b in range(3))
    place = min(block * BLOCK + 4711, (folder / "a.items").stat().st_size - 1)
    with (folder / "a.items").open("r+b") as file:
        file.seek(place)
        old = file.read(1)
        file.seek(place)
        file.write(bytes([old[0] ^ 1]))
    bad = range(max(0, ends[block]), min(ends[block + 1] + 1, len(items)))
    near = {end + more for end in ends for more in (-1, 0, 1)} & set(range(len(items)))
    for index in sorted(near):
        for how in (index, slice(index, index + 1), np.array([index]), np.array([[index]])):
            flat = Store(folder).flat("a")  # which nobody has touched yet
            if index in bad:
                with pytest.raises(DataError, match="a.items is damaged"):
                    flat[how]
            else:
                assert np.array_equal(flat[how].reshape(ODD.shape), items[index])
    some = np.array([i for i in range(len(items)) if i not in bad])
    store = Store(folder)
    assert np.array_equal(store.flat("a")[some], items[some])
    with pytest.raises(DataError, match="a.items is damaged"):
        store.flat("a")[np.array([some[0], bad[0]])]
    with pytest.raises(DataError, match="a.items is damaged"):
        store.array("a", bad[0] // 3)


def test_a_row_s_first_item_is_checked_as_far_as_it_goes(tmp_path):
    across = BLOCK // 8400  # begins in the first block and ends in the second
    items = np.ones((2 * across, *ODD.shape), "float32")
    rows = [items[:across], items[across:]]
    write(tmp_path / "s", {"a": ODD}, [{"a": rows}], Faults(), "rows")
    with (tmp_path / "s/a.items").open("r+b") as file:
        file.seek(BLOCK + 5)
        file.write(b"\xff\xff")
    store = Store(tmp_path / "s")
    assert store.array("a", 0).all() and store.first("a", np.array([0, 0])).all()
    with pytest.raises(DataError, match="a.items is damaged"):
        store.first("a", np.array([0, 1]))
