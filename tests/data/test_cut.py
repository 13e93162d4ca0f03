"""Running text cut three ways."""

import itertools

import numpy as np
import pytest

from regard.data.cut import Packed, Stream, Windows, pack


def inputs(cut):
    return [list(range(start, start + cut.length)) for start in cut.starts.tolist()]


@pytest.mark.parametrize("vary", [0.0, 0.1])
def test_a_stream_goes_on_where_it_ended_and_leaves_out_nothing(vary):
    plan = Stream(1001, rows=4, context=16, seed=0, vary=vary)
    cuts = plan.epoch(3)
    assert len(cuts) == plan.batches
    assert [cut.continues for cut in cuts] == [False, *[True] * (plan.batches - 1)]
    for row in range(4):
        read = [place for cut in cuts for place in inputs(cut)[row]]
        assert read == list(range(row * 250, (row + 1) * 250))


def test_lengths_vary_around_the_context_and_follow_the_epoch():
    plan = Stream(100_001, rows=4, context=70, seed=0, vary=0.07)
    one, same, other = plan.lengths(1), plan.lengths(1), plan.lengths(2)
    assert one == same != other
    assert sum(one) == plan.strip and 60 < np.mean(one) < 80 and len(set(one)) > 10


def test_windows_do_not_overlap_and_move_from_epoch_to_epoch():
    plan = Windows(10_001, rows=8, context=32, seed=0)
    starts = [np.concatenate([cut.starts for cut in plan.epoch(e)]) for e in (0, 0, 1)]
    assert (starts[0] == starts[1]).all() and not np.array_equal(*starts[1:])
    for drawn in starts:
        ordered = np.sort(drawn)
        assert (np.diff(ordered) >= 32).all() and ordered[0] >= 0 and ordered[-1] + 32 <= 10_000
        assert len(ordered) * 32 > 0.95 * 10_000


def test_a_text_of_less_than_a_batch_is_read_again():
    plan = Windows(50, rows=8, context=32, seed=0)
    (cut,) = plan.epoch(0)
    assert plan.batches == 1 and len(cut.starts) == 8 and cut.starts.max() + 32 < 50


def test_documents_are_packed_tightly_and_whole():
    chance = np.random.default_rng(0)
    starts = np.concatenate(([0], chance.integers(3, 90, 400).cumsum()))
    plan = Packed(starts, np.ones(400, bool), rows=4, context=64, seed=0)
    pieces = sorted(piece for row in plan.packs for piece in row)
    assert next(start for start, _ in pieces) == 0
    assert all(a + n == b for (a, n), (b, _) in itertools.pairwise(pieces))
    assert sum(n for _, n in pieces) == starts[-1]
    filled = [sum(n for _, n in row) for row in plan.packs]
    assert max(filled) <= 64 and np.mean(filled) > 0.95 * 64


def test_nothing_is_packed_behind_a_piece_without_an_end():
    plan = Packed(np.array([0, 10, 20]), np.array([False, True]), rows=1, context=64, seed=0)
    assert sorted(plan.packs) == [[(0, 10)], [(10, 10)]]


def test_the_best_place_is_taken():
    assert pack([(0, 6), (6, 5), (11, 4), (15, 5)], 10) == [[(0, 6), (11, 4)], [(6, 5), (15, 5)]]
