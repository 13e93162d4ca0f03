"""Estimates of what a policy is worth: their formulas in loops, and a small process whose truth is
enumerated."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from regard.score.decisions import (
    ESTIMATORS,
    NEED_A_MODEL,
    Histories,
    apart,
    difference,
    drawn,
    effective_size,
    effective_sizes,
    estimate,
    influences,
    student,
    totals,
    unrecorded,
)


def random_histories(rows=30, steps=5, seed=0, discount=0.9):
    dice = np.random.default_rng(seed)
    lengths = dice.integers(1, steps + 1, rows)
    real = np.arange(steps) < lengths[:, None]
    shape = (rows, steps)
    return Histories(
        np.where(real, dice.standard_normal(shape), 0.0), dice.uniform(0.2, 1, shape),
        dice.uniform(0, 1, shape), lengths, discount, dice.standard_normal(shape),
        dice.standard_normal(shape), dice.uniform(0, 2, shape),
    )  # fmt: skip


def in_loops(h, name):
    """As the papers have them, one history and one step after the other."""
    rows, steps = h.rewards.shape
    ratio = np.ones((rows, steps + 1))  # [i, t]: before step t
    for i in range(rows):
        for t in range(steps):
            each = h.chosen[i, t] / h.recorded[i, t] if t < h.lengths[i] else 1.0
            ratio[i, t + 1] = ratio[i, t] * each
    g = [sum(h.discount**t * h.rewards[i, t] for t in range(h.lengths[i])) for i in range(rows)]
    end, every = ratio[:, -1], range(rows)
    if name == "is":
        return sum(end[i] * g[i] for i in every) / rows
    if name == "wis":
        return sum(end[i] * g[i] for i in every) / sum(end)
    total = 0.0
    for t in range(steps):
        real = [t < h.lengths[i] for i in every]
        r = [h.rewards[i, t] * real[i] for i in every]
        q = [h.action_value[i, t] * real[i] for i in every]
        v = [h.value[i, t] * real[i] for i in every]
        now, before = ratio[:, t + 1], ratio[:, t]
        if name == "pdis":
            step = sum(now[i] * r[i] for i in every) / rows
        elif name == "wpdis":
            step = sum(now[i] * r[i] for i in every) / sum(now)
        elif name == "dr":
            step = sum(before[i] * v[i] + now[i] * (r[i] - q[i]) for i in every) / rows
        elif name == "wdr":
            step = sum(before[i] * v[i] for i in every) / sum(before)
            step += sum(now[i] * (r[i] - q[i]) for i in every) / sum(now)
        else:
            step = sum(v) / rows if t == 0 else 0.0
        if name == "mdr":
            for i in every:
                if real[i]:
                    after = h.value[i, t + 1] if t + 1 < h.lengths[i] else 0.0
                    each = h.chosen[i, t] / h.recorded[i, t]
                    gap = r[i] + h.discount * after - q[i]
                    step += h.visits[i, t] * each * gap / rows
        total += h.discount**t * step
    return total


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("seed", range(3))
def test_each_is_its_formula(name, seed):
    histories = random_histories(seed=seed)
    found = estimate(histories, name, draws=50)
    assert found.value == pytest.approx(in_loops(histories, name), rel=1e-9)
    assert found.interval[0] <= found.interval[1] and found.effective == effective_size(histories)


# A process of three steps: a coin is seen, one of two actions taken; what pays depends on both.
SEEN, ACTIONS, STEPS = (0, 1), (0, 1), 3
PAYS = np.array([[1.0, 0.0], [0.2, 0.7]])  # by what is seen and what is done
ACTED = np.array([[0.6, 0.4], [0.3, 0.7]])  # by whom records are of
POLICY = np.array([[0.8, 0.2], [0.5, 0.5]])
DISCOUNT = 0.9


def worth():
    """Every history that there can be, as likely as the policy makes it."""
    total = 0.0
    for seen in itertools.product(SEEN, repeat=STEPS):
        for done in itertools.product(ACTIONS, repeat=STEPS):
            pairs = list(zip(seen, done, strict=True))
            chance = np.prod([0.5 * POLICY[s, a] for s, a in pairs])
            total += chance * sum(DISCOUNT**t * PAYS[s, a] for t, (s, a) in enumerate(pairs))
    return total


def records(rows, seed=0, off=0.0):
    """Recorded episodes; the model's guesses are off by so much."""
    dice = np.random.default_rng(seed)
    seen = dice.integers(0, 2, (rows, STEPS))
    done = (dice.uniform(size=(rows, STEPS)) > ACTED[seen, 0]).astype(int)
    rewards = PAYS[seen, done] + 0.1 * dice.standard_normal((rows, STEPS))
    mean = (0.5 * POLICY * PAYS).sum()  # of a later step
    later = np.array([mean * sum(DISCOUNT**k for k in range(STEPS - 1 - t)) for t in range(STEPS)])
    q = PAYS[seen, done] + DISCOUNT * later + off
    v = (POLICY * PAYS).sum(1)[seen] + DISCOUNT * later + off
    lengths, chosen = np.full(rows, STEPS), POLICY[seen, done]
    # Coins do not follow what is done: the policy sees what the records saw.
    met = np.ones((rows, STEPS))
    return Histories(rewards, ACTED[seen, done], chosen, lengths, DISCOUNT, q, v, met)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_each_comes_to_the_truth(name):
    assert estimate(records(40_000), name, draws=2).value == pytest.approx(worth(), abs=0.03)


def test_a_wrong_model_is_put_right_by_the_records():
    wrong = records(40_000, off=1.0)
    assert abs(estimate(wrong, "fqe", draws=2).value - worth()) > 0.9
    for name in ("dr", "wdr", "mdr"):
        assert estimate(wrong, name, draws=2).value == pytest.approx(worth(), abs=0.05)


def test_what_is_right_on_average_is_so():
    """Over many small records; whose weights sum to one are off by a little, and closer."""
    found = {name: [] for name in ("is", "pdis", "dr", "wis")}
    for seed in range(400):
        small = records(20, seed)
        for name, values in found.items():
            values.append(estimate(small, name, draws=1).value)
    for name in ("is", "pdis", "dr"):
        spread = np.std(found[name]) / 400**0.5
        assert abs(np.mean(found[name]) - worth()) < 4 * spread
    assert np.std(found["dr"]) < np.std(found["pdis"]) < np.std(found["is"])
    assert np.std(found["wis"]) < np.std(found["is"])


def test_students_quantile_is_scipys():
    for degrees in (1.0, 1.5, 2.7, 5.0, 30.0, 1e4):
        assert student(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-3)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_influences_are_what_another_history_moves(name):
    histories = random_histories()
    terms, rows = ESTIMATORS[name](histories), len(histories.rewards)
    step = 1e-6
    more = np.ones((rows, rows)) + step * np.eye(rows)
    moved = (totals(terms, more) - totals(terms, np.ones((1, rows)))) / step * rows
    np.testing.assert_allclose(influences(terms), moved, rtol=1e-3, atol=1e-3)
    assert influences(terms).mean() == pytest.approx(0, abs=1e-9)


def test_an_interval_that_rests_on_few_histories_is_wide():
    """One history in a thousand counts most: what its return would have been otherwise, nobody
    saw."""
    chosen = np.full((1000, 1), 0.5)
    chosen[0] = 500.0
    rewards = (np.arange(1000) % 2)[:, None].astype(float)
    few = Histories(rewards, np.full((1000, 1), 0.5), chosen, np.ones(1000, int))
    plain = replace(few, chosen=np.full((1000, 1), 0.5))
    assert estimate(plain, "wis").degrees == pytest.approx(1000)
    found = estimate(few, "wis")
    assert found.degrees < 3 and found.too_few
    width = found.interval[1] - found.interval[0]
    assert width > 4 * 1.96 * drawn(few, "wis").std()


@pytest.mark.parametrize("name", ["wis", "wpdis", "dr", "wdr", "mdr"])
def test_intervals_hold_the_truth(name):
    hits = 0
    for seed in range(60):
        low, high = estimate(records(200, seed), name, draws=200).interval
        hits += low <= worth() <= high
    assert hits >= 51  # of 60; 95 % would be 57


def test_the_effective_sample_size_shrinks_with_every_decision():
    sizes = effective_sizes(records(1000))
    assert (
        sizes[0] == 1000
        and (np.diff(sizes) < 0).all()
        and sizes[-1] == pytest.approx(effective_size(records(1000)))
    )
    same = replace(records(1000), chosen=records(1000).recorded)
    assert np.allclose(effective_sizes(same), 1000)  # those who acted judge themselves
    one = Histories(
        np.ones((4, 1)), np.full((4, 1), 0.5), np.array([[1.0], [0], [0], [0]]), np.ones(4, int)
    )
    assert effective_size(one) == 1 and estimate(one, "wis", draws=5).too_few


def test_a_policy_that_never_agrees_has_no_estimate_and_no_histories():
    never = replace(records(50), chosen=np.zeros((50, STEPS)))
    for name in ESTIMATORS:
        assert np.isfinite(estimate(never, name, draws=20).value)
    assert effective_size(never) == 0 and estimate(never, "wis", draws=5).too_few


def test_two_policies_are_compared_on_the_same_draws():
    one = records(500)
    other = replace(one, chosen=one.recorded)
    value, (low, high) = difference(one, other, "wis")
    alone = [estimate(h, "wis") for h in (one, other)]
    assert value == pytest.approx(alone[0].value - alone[1].value)
    width = sum(a.interval[1] - a.interval[0] for a in alone)
    assert low < value < high and high - low < width
    assert difference(one, one, "wis")[1] == (0.0, 0.0)


def test_unrecorded_causes_move_an_estimate_no_further_than_this():
    histories = records(40)
    plain = estimate(histories, "wis", draws=2).value
    assert unrecorded(histories, 1.0) == (pytest.approx(plain), pytest.approx(plain))
    wide = [unrecorded(histories, strength) for strength in (1.0, 1.5, 3.0)]
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(wide))
    dice, weights = np.random.default_rng(0), histories.ratios[:, -1]
    low, high = wide[1]
    for _ in range(2000):  # no way to multiply the weights goes beyond it
        moved = weights * 1.5 ** dice.choice([-1.0, 1.0], 40)
        assert low - 1e-9 <= moved @ histories.returns / moved.sum() <= high + 1e-9


def test_those_who_are_left_differ_from_those_who_began():
    ages = np.array([[20.0, 1], [40, 1], [60, 1], [80, 1]])
    found = apart(ages, np.array([0.0, 0, 1, 1]))
    assert found[0] == pytest.approx(20 / ages[:, 0].std()) and found[1] == 0
    assert (apart(ages, np.zeros(4)) == 0).all()


def test_what_needs_a_model_says_so():
    plain = replace(records(5), value=None, action_value=None)
    for name in NEED_A_MODEL:
        with pytest.raises(AssertionError, match="there is no model"):
            estimate(plain, name)
