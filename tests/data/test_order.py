"""Every row once an epoch, within budget, in an order that follows from seed and epoch alone."""

import numpy as np
import pytest

from regard.data.order import Order, Shuffled, bounds
from regard.errors import DataError


def make(count=1000, budget=256, seed=0, longest=40):
    lengths = np.random.default_rng(1).integers(2, longest, (count, 2)).astype(np.int32)
    return Order(lengths, budget, seed), lengths


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_every_row_comes_once(count):
    order, _ = make(count)
    for epoch in range(3):
        batches = order.epoch(epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(count))
        assert len(batches) == order.batches


def test_no_batch_is_over_budget():
    order, lengths = make()
    for batch in order.epoch(0):
        assert len(batch) * lengths[batch].max() <= 256


def test_little_padding_and_few_shapes():
    order, lengths = make(20_000, 4096)
    batches = order.epoch(0)
    widest = lengths.max(1)
    real = sum(int(widest[batch].sum()) for batch in batches)
    padded = sum(len(batch) * int(widest[batch].max()) for batch in batches)
    assert real / padded > 0.93
    assert len({len(batch) for batch in batches}) <= len(order.bounds) + 1 <= 26


def test_an_order_is_a_pure_function_of_seed_and_epoch():
    one, two = make()[0], make()[0]
    two.epoch(0)
    for a, b in zip(one.epoch(3), two.epoch(3), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(one.epoch(0)[0], one.epoch(1)[0])
    assert not np.array_equal(one.epoch(0)[0], make(seed=1)[0].epoch(0)[0])


def test_the_largest_batch_is_the_largest():
    order, lengths = make()
    largest = order.largest()
    area = len(largest) * lengths[largest].max()
    assert all(len(batch) * lengths[batch].max() <= area * 1.15 for batch in order.epoch(0))


def test_a_line_longer_than_the_budget_is_told():
    with pytest.raises(
        DataError, match="train.batch_tokens is 10, but the longest line has 39 tokens"
    ):
        make(budget=10)
    with pytest.raises(DataError, match="no usable line"):
        Order(np.zeros((0, 2), np.int32), 10, 0)


def test_bounds_grow():
    assert bounds(10, 100) == list(range(1, 11))
    assert bounds(24, 1000)[15:] == [16, 18, 20, 22, 24]
    assert bounds(25, 25)[-2:] == [24, 25]


def test_shuffled_batches_hold_each_row_once_and_little_padding():
    lengths = np.random.default_rng(0).integers(1, 100, 1003).astype(np.int32)
    plan = Shuffled(lengths, 32, seed=3)
    assert plan.batches == 31
    first, second = plan.epoch(0), plan.epoch(1)
    rows = np.concatenate(first)
    assert len(first) == 31 and len(set(rows.tolist())) == 31 * 32
    assert [r.tolist() for r in first] == [r.tolist() for r in plan.epoch(0)]
    assert [r.tolist() for r in first] != [r.tolist() for r in second]
    padded = sum(lengths[r].max() * len(r) for r in first)
    assert padded < 1.25 * lengths[rows].sum()
    assert lengths[plan.largest()].min() >= np.sort(lengths)[-32]
    assert Shuffled(lengths[:5], 32, 0).epoch(0)[0].shape == (5,)
