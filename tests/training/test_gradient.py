"""One batch, cut any way: the same gradient. Real processes for the ranks."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.batch import Hidden, wide_fields
from regard.data.cut import Cut
from regard.data.examples import Data
from regard.data.halves import Half
from regard.data.read import Faults
from regard.tasks import TASKS
from regard.text import Settings as TextSettings
from regard.training.backward import make_backward
from regard.training.distributed import World, join
from regard.training.loop import Share, gradient, shares
from regard.training.loss import TokenLoss
from regard.training.settings import Settings
from tests.processes import run_ranks
from tests.toys import random_pairs, sentences, small_model, translate

ALONE = World(0, 1, torch.device("cpu"))


def gradients(dtype, pieces=1, rows=11, world=ALONE):
    model = small_model("transformer").to(dtype).train()
    batch = random_pairs(rows, seed=1)
    counts = rows > world.rank
    share = Share(batch.shard(world.rank if counts else 0, world.size if counts else rows), counts)
    whole = world.count(share.parts())
    assert whole == batch.counts  # of all ranks' rows
    nll, _ = gradient(make_backward(model, TokenLoss(0.1), world), share, whole, world, pieces)
    return {name: weight.grad for name, weight in model.named_parameters()} | {"nll": nll}


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
@pytest.mark.parametrize("pieces", [2, 8, 32])
def test_pieces_do_not_change_the_gradient(dtype, near, pieces):
    """Thirty-two pieces of eleven rows: some are empty."""
    whole, cut = gradients(dtype), gradients(dtype, pieces)
    for name, value in whole.items():
        bound = 1e-6 if name == "nll" else near  # the reported sum is kept in float32
        torch.testing.assert_close(cut[name], value, rtol=bound, atol=bound)


def as_a_rank(folder):
    """What each of two processes does."""
    with join("cpu") as world:
        for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
            for rows in (11, 1):
                for pieces in (1, 3):
                    found = gradients(dtype, pieces, rows, world)
                    found["nll"] = world.sum(found["nll"])
                    if world.leads:
                        save_file(found, folder / f"{name}-{rows}-{pieces}.safetensors")


def test_two_ranks_give_one_ranks_gradient(tmp_path):
    """One row for two ranks: the second has nothing, and nobody waits."""
    run_ranks(2, "tests.training.test_gradient", str(tmp_path))
    for name, dtype, near in (("float64", torch.float64, 1e-13), ("float32", torch.float32, 1e-6)):
        for rows in (11, 1):
            expected = gradients(dtype, 1, rows)
            for pieces in (1, 3):
                found = load_file(tmp_path / f"{name}-{rows}-{pieces}.safetensors")
                for key, value in expected.items():
                    bound = 1e-6 if key == "nll" else near  # the reported sum is kept in float32
                    torch.testing.assert_close(found[key], value, rtol=bound, atol=bound)


# What each rank reads.

BLOCKS = "\n\n".join("\n".join(f"{line} ." for line in sentences(9, i)) for i in range(12)) + "\n"
BPE, PIECES = {"kind": "bpe", "size": 60, "bytes": False}, {"kind": "wordpiece", "size": 60}
QUESTIONS = [
    {
        "context": " ".join(sentences(3, i)),
        "qas": [{"id": str(i), "question": "what is first ?", "answers": [
            {"text": sentences(3, i)[0].split()[0], "answer_start": 0}]}],
    }
    for i in range(20)
]  # fmt: skip
KINDS = {
    "translate": ("translate", {}, BPE, "a.tsv"),
    "dropout": ("translate", {}, {**BPE, "dropout": 0.3}, "a.tsv"),
    "text-to-text": (
        "text-to-text", {"sample": "equal"}, {**BPE, "size": 170}, "b.tsv"
    ),
    "classify": ("classify", {}, PIECES, "c.tsv"),
    "tag": ("tag", {"context": 8}, PIECES, "a.conll"),
    "answer": ("answer", {"context": 24, "stride": 6}, PIECES, "a.json"),
    "windows": ("language", {"context": 16}, PIECES, "a.txt"),
    "stream": ("language", {"context": 16, "cut": "stream"}, PIECES, "a.txt"),
    "documents": ("language", {"context": 16, "cut": "documents"}, PIECES, "a.jsonl"),
    "permute": ("permute", {"context": 18}, PIECES, "a.txt"),
    "masked": ("masked", {"context": 24}, PIECES, "a.txt"),
    "whole words": ("masked", {"context": 24, "whole_words": True, "next": False}, PIECES, "a.txt"),
    "spans": ("spans", {"context": 40}, {"kind": "unigram", "size": 140, "bytes": False}, "a.txt"),
    "story": ("story", {}, {"kind": "spaced"}, "s_train.txt"),
}  # fmt: skip
DRAWN = ("dropout", "permute", "masked", "whole words", "spans")


def write_data(folder):
    lines = sentences(60)
    pairs = [f"{line}\t{translate(line)}" for line in lines]
    (folder / "a.tsv").write_text("\n".join(pairs) + "\n")
    (folder / "b.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n")
    labels = (f"{line}\t{'red' if 'red' in line else 'none'}" for line in lines)
    (folder / "c.tsv").write_text("\n".join(["text\tlabel", *labels]) + "\n")
    tags = ("".join(f"{word} B-{word[0]}\n" for word in line.split()) for line in lines)
    (folder / "a.conll").write_text("\n".join(tags))
    (folder / "a.json").write_text(json.dumps({"data": [{"paragraphs": QUESTIONS}]}))
    (folder / "a.txt").write_text(BLOCKS)
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    told = (f"1 {line}.\n2 {line[::-1]}.\n3 Where?\there\t1\n" for line in lines)
    (folder / "s_train.txt").write_text("".join(told))


class Recorded:
    """A store that keeps in mind which rows, or which places of its running text, are asked for."""

    def __init__(self, store):
        self.store, self.rows, self.places = store, set(), set()

    def array(self, name, index):
        self.rows.add(int(index))
        return self.store.array(name, index)

    def row(self, name, index):
        self.rows.add(int(index))
        return self.store.row(name, index)

    def first(self, name, rows):
        self.rows |= set(rows.tolist())
        return self.store.first(name, rows)

    def padded(self, name, rows, *edges):
        self.rows |= set(rows.tolist())
        return self.store.padded(name, rows, *edges)

    def flat(self, name):
        return RecordedColumn(self.store.flat(name), self.places)


class RecordedColumn:
    def __init__(self, column, places):
        self.column, self.places = column, places

    def __getitem__(self, where):
        self.places |= set(np.arange(len(self.column))[where].flatten().tolist())
        return self.column[where]


def rows_of(rows):
    """The store's rows that a part of a plan is made of."""
    return set(rows.tolist() if rows.ndim == 1 else rows[:, 0].tolist())


def places_of(rows):
    """The places of running text that a part of a plan is made of."""
    if isinstance(rows, Cut):
        return {s + i for s in rows.starts.tolist() for i in range(rows.length + 1)}
    found = set()
    for row in rows:
        if isinstance(row, Half):
            found |= {*range(row.one, row.middle), *range(row.two, row.end)}
        elif isinstance(row, list):  # documents: where they begin, and how long they are
            found |= {start + i for start, length in row for i in range(length)}
        else:
            found |= set(range(*row))
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_data(folder)
    return folder


@pytest.fixture
def made(request, files, tmp_path):
    """A task of that kind, its data, and a plan of more than one batch."""
    kind, settings, text, name = KINDS[request.param]
    task, data = prepared(kind, settings, text, files / name, tmp_path / "cache")
    budget = 7 if kind == "story" else 7 * 24
    return task, data, task.plan(data.store, budget, 0)


def prepared(kind, settings, text, path, cache):
    asked = TASKS[kind].Settings(**settings)
    examples = TASKS[kind].examples(asked, [path], cache, Faults())
    task = TASKS[kind].learn(asked, {"text": TextSettings(**text)}, examples)
    return task, task.data(examples, cache, 256, Faults())


def each_share(made, rank, size, steps):
    """A rank's shares, each with the rows or places that were read for it."""
    task, data, plan = made
    store = Recorded(data.store)
    world = World(rank, size, torch.device("cpu"))
    for share in shares(task, Data(data.examples, store), plan, steps, Settings(seed=3), world):
        yield share, store.rows.copy(), store.places.copy()
        store.rows.clear(), store.places.clear()


def steps_of(plan):
    """The end of one epoch, and the beginning of the next."""
    return range(max(0, plan.batches - 3), plan.batches + 3)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_each_rank_reads_its_own_rows_and_no_others(made, size):
    plan, steps = made[2], steps_of(made[2])
    assert plan.batches > 2
    for rank in range(size):
        for step, (share, rows, places) in zip(
            steps, each_share(made, rank, size, steps), strict=True
        ):
            whole = plan.epoch(step // plan.batches)[step % plan.batches]
            assert share.counts == (len(whole) > rank)
            own = whole[rank::size] if share.counts else whole[:1]
            assert len(share.batch) == len(own)
            if places:
                assert places == places_of(own) and not rows
            else:
                assert rows == rows_of(own)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_the_ranks_rows_are_those_of_one_rank(made, size):
    """Also what is drawn of them; and what they count adds up."""
    steps = steps_of(made[2])
    alone = [share for share, _, _ in each_share(made, 0, 1, steps)]
    ranks = [[share for share, _, _ in each_share(made, r, size, steps)] for r in range(size)]
    for whole, *parts in zip(alone, *ranks, strict=True):
        assert whole.counts and whole.parts() == whole.batch.counts
        summed = [sum(counts) for counts in zip(*(p.parts() for p in parts), strict=True)]
        assert tuple(summed) == whole.batch.counts
        for rank, part in enumerate(parts):
            if not part.counts:
                assert set(part.parts()) == {0}
            first = rank if part.counts else 0
            for row in range(len(part.batch)):
                assert_same_row(part.batch, row, whole.batch, first + row * size)
            assert part.batch.continues == whole.batch.continues
            assert part.batch.rate_scale == whole.batch.rate_scale


def assert_same_row(one, row, other, place):
    """But for padding, which is as wide as the longest of a rank's own rows."""
    for half in ("read", "asked"):
        mine, theirs = getattr(one, half), getattr(other, half)
        assert type(mine) is type(theirs)
        marks = wide_fields(type(mine))
        known = mine.known[row] if isinstance(mine, Hidden) else None
        for name, tensor in mine.named().items():
            a, b = tensor[row], theirs.named()[name][place]
            if known is not None and name in ("places", "words"):
                a, b = a[:known], b[:known]
            if name in marks:
                shared = tuple(slice(0, min(n)) for n in zip(a.shape, b.shape, strict=True))
                fill = marks[name].fill
                for side in (a, b):
                    beyond = torch.ones_like(side, dtype=torch.bool)
                    beyond[shared] = False
                    assert (side[beyond] == fill).all()
                a, b = a[shared], b[shared]
            assert torch.equal(a, b), name


@pytest.mark.parametrize("made", DRAWN, indirect=True)
def test_what_is_drawn_differs_from_step_to_step_and_follows_the_seed(made):
    task, data, plan = made
    assert task.draws

    class Same:
        """The same rows in every step."""

        batches = 1

        def epoch(self, number):
            return [plan.epoch(0)[0]]

    world = World(0, 1, torch.device("cpu"))

    def tensors(seed, steps):
        found = shares(task, data, Same(), steps, Settings(seed=seed), world)
        return [[t.tolist() for t in share.batch.tensors()] for share in found]

    first, second = tensors(3, range(2))
    assert first != second and [first, second] == tensors(3, range(2))
    assert tensors(3, range(1, 2)) == [second]  # wherever a run goes on from
    assert tensors(4, range(1)) != [first]


def test_rows_that_ask_nothing_count_nothing_on_any_rank(tmp_path):
    """Of a word that fills several windows, only the first has its tag."""
    long = "cats" * 30
    path = tmp_path / "a.conll"
    path.write_text(f"{long} B-x\n\none O\ntwo O\n\n" * 3)
    made = prepared("tag", {"context": 12}, {"kind": "characters"}, path, tmp_path / "c")
    task, data = made
    plan = task.plan(data.store, 12 * 40, 0)
    (alone,) = (share for share, _, _ in each_share((*made, plan), 0, 1, range(1)))
    words = int(alone.batch.asked.real.sum())
    for size in (1, 2, 3, len(alone.batch)):
        ranks = [next(each_share((*made, plan), r, size, range(1)))[0] for r in range(size)]
        assert sum(share.parts()[0] for share in ranks) == words, size


if __name__ == "__main__":
    as_a_rank(Path(sys.argv[1]))
