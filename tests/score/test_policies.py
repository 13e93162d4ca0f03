"""Fitted values against plain loops and the truth of a small process; what a report says."""

from dataclasses import replace

import numpy as np
import pytest

from regard.score.fitted import Named, Numbered, evaluated
from regard.score.policies import Judged, estimates, report, value_of

STATES, ACTIONS, DISCOUNT = 3, 2, 0.9
rng = np.random.default_rng(5)
MOVES = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS)) * 0.8  # what is left of 1 is the end
GAINS = rng.normal(size=(STATES, ACTIONS))
BEHAVIOUR = np.array([[0.5, 0.5], [0.7, 0.3], [0.4, 0.6]])
POLICY = np.array([[0.8, 0.2], [0.4, 0.6], [0.1, 0.9]])


def truth(policy):
    """By a linear solve."""
    moves = np.einsum("sa,sat->st", policy, MOVES)
    values = np.linalg.solve(np.eye(STATES) - DISCOUNT * moves, (policy * GAINS).sum(1))
    return values.mean()


def recorded(count, seed=0, policy=POLICY):
    dice = np.random.default_rng(seed)
    lengths, rows = [], []
    for _ in range(count):
        state, steps = int(dice.integers(STATES)), 0
        while True:
            action = int(dice.random() < BEHAVIOUR[state, 1])
            rows.append((state, action, GAINS[state, action] + 0.1 * dice.normal()))
            steps += 1
            draw, reach = dice.random(), MOVES[state, action].cumsum()
            if draw > reach[-1]:
                break
            state = int((draw > reach).sum())
        lengths.append(steps)
    states, actions, rewards = (np.array(column) for column in zip(*rows, strict=True))
    return Judged(
        np.array(lengths), rewards[:, None], [1.0], DISCOUNT, actions,
        BEHAVIOUR[states, actions], policy[states], BEHAVIOUR[states],
        np.eye(STATES)[states], ["a", "b", "c"], states,
    )  # fmt: skip


def test_fitted_values_equal_a_plain_loop():
    judged = recorded(40)
    records = judged.records
    found = evaluated(records, Named(judged.ids, STATES), np.ones(len(records.actions)), 500)
    table = np.zeros((STATES, ACTIONS))
    for _ in range(500):
        goals = []
        for at in range(len(records.actions)):
            after = 0.0
            if not records.ends[at]:
                after = POLICY[judged.ids[at + 1]] @ table[judged.ids[at + 1]]
            goals.append(records.rewards[at] + DISCOUNT * after)
        goals, new = np.array(goals), np.zeros_like(table)
        for state in range(STATES):
            mean = goals[judged.ids == state].mean()
            for action in range(ACTIONS):
                own = goals[(judged.ids == state) & (records.actions == action)]
                new[state, action] = (own.sum() + mean) / (len(own) + 1)
        table = new
    np.testing.assert_allclose(found, table[judged.ids], atol=1e-3)


def test_a_policy_that_remembers_is_worked_out_step_by_step():
    """The quick way for policies of the state, and the one for all others, agree."""
    judged = recorded(60)
    records = judged.records
    weights = np.ones(len(records.actions))
    quick, slow = Named(judged.ids, STATES), Named(judged.ids, STATES)
    one = evaluated(records, quick, weights, 50)
    nudged = records.policy.copy()
    nudged[0] += (1e-9, -1e-9)
    other = evaluated(records._replace(policy=nudged), slow, weights, 50)
    assert quick.by_state is not None and slow.by_state is None
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_numbers_that_name_a_state_are_as_good_as_its_name():
    judged = recorded(3000)
    weights = np.ones(len(judged.actions))
    named = evaluated(judged.records, Named(judged.ids, STATES), weights, 100)
    numbered = evaluated(judged.records, Numbered(np.eye(STATES)[judged.ids]), weights, 100)
    np.testing.assert_allclose(named, numbered, atol=0.02)


def test_all_estimates_come_near_the_truth_and_hold_it():
    wanted = truth(POLICY)
    found = estimates(recorded(4000))
    for name, one in found.items():
        assert abs(one.value - wanted) < 0.15, name
        assert one.interval[0] - 0.05 < wanted < one.interval[1] + 0.05, name
    assert found["fqe"].interval[1] - found["fqe"].interval[0] < 0.3


def test_values_do_not_see_what_they_put_right():
    """Halves are crossed: an outlier moves the values of the other half alone."""
    judged = recorded(20)
    before = judged.worth
    rewards = judged.rewards.copy()
    rewards[: judged.lengths[0]] += 100.0  # of the first history, which is in the first half
    after = Judged(**{**{f: getattr(judged, f) for f in judged.__dataclass_fields__},
                      "rewards": rewards}).worth  # fmt: skip
    moved = np.abs(after - before).max(1) > 1
    own = judged.rows % 2 == 0
    assert not moved[own].any() and moved[~own].any()


def test_a_report_says_what_the_estimate_rests_on():
    judged = recorded(300)
    found = report(judged, "wdr")
    assert found["histories"] == 300 and found["estimator"] == "wdr"
    assert set(found["estimates"]) == {"is", "wis", "pdis", "wpdis", "dr", "wdr", "mdr", "fqe"}
    sizes = found["effective_by_step"]
    assert sizes[0] == 300 and sizes[-1] < 300
    assert found["left"][0]["differences"] == {"a": 0.0, "b": 0.0, "c": 0.0}
    assert any(abs(v) > 0.05 for v in found["left"][3]["differences"].values())
    low, high = found["difference_interval"]
    assert low < found["difference"] < high
    widths = [high - low for low, high in found["confounding"].values()]
    assert widths == sorted(widths) and widths[0] < 1e-9 < widths[-1]
    assert [row["discount"] for row in found["rewards"]] == [1.0, 0.99, 0.9]
    assert [row["histories"] for row in found["shift"]] == [150, 150]


def test_what_was_never_done_is_named():
    judged = recorded(200)
    other = judged.actions.copy()
    other[judged.ids == 1] = 0
    only = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    found = report(recorded_with(judged, other, only), "wis")["coverage"]
    share = (judged.ids == 1).mean()
    assert found["never"] == found["seldom"] == pytest.approx(share, abs=1e-3)
    assert [(row["state"], row["action"], row["recorded"]) for row in found["where"]] == [(1, 1, 0)]


def recorded_with(judged, actions, policy):
    kept = {name: getattr(judged, name) for name in judged.__dataclass_fields__}
    return Judged(**{**kept, "actions": actions, "policy": policy[judged.ids]})


def test_a_policy_that_never_agrees_has_no_evidence():
    judged = recorded(50)
    never = np.zeros_like(judged.policy)
    never[np.arange(len(never)), 1 - judged.actions] = 1.0
    kept = {name: getattr(judged, name) for name in judged.__dataclass_fields__}
    found = report(Judged(**{**kept, "policy": never}), "wis")
    assert found["effective"] == 0 and found["too_few"] and found["value"] == 0


def test_one_history_alone_is_judged():
    found = report(recorded(1), "wdr")
    assert np.isfinite(found["value"]) and found["too_few"] and found["shift"] == []


def test_several_rewards_are_weighed():
    judged = recorded(100)
    kept = {name: getattr(judged, name) for name in judged.__dataclass_fields__}
    two = np.concatenate((judged.rewards, np.ones_like(judged.rewards)), 1)
    found = report(Judged(**{**kept, "rewards": two, "weights": [1.0, -0.1]}), "wdr")["rewards"]
    assert [(row["column"], row["factor"]) for row in found] == [
        (0, 0.5), (0, 2.0), (1, 0.5), (1, 2.0),
    ]  # fmt: skip
    more, less = found[2]["value"], found[3]["value"]
    assert more > less  # what each step costs


def test_the_quick_estimate_is_the_whole_one():
    judged = recorded(100)
    assert value_of(judged, "wdr").value == pytest.approx(estimates(judged)["wdr"].value)


def test_visits_are_how_much_oftener_a_policy_comes_to_a_state():
    """Against the ratio of both occupancies by a linear solve; and put to use, it is close."""
    judged = recorded(20_000)

    def occupancy(policy):
        moves = np.einsum("sa,sat->st", policy, MOVES)
        return np.linalg.solve(np.eye(STATES) - DISCOUNT * moves.T, np.full(STATES, 1 / STATES))

    truly = occupancy(POLICY) / occupancy(BEHAVIOUR)
    found = judged.visited(np.ones(len(judged.lengths)))
    np.testing.assert_allclose(found, truly[judged.ids], rtol=0.05)
    few = recorded(300, seed=3)
    every = estimates(few)
    assert abs(every["mdr"].value - truth(POLICY)) < 0.15
    apart = {name: one.interval[1] - one.interval[0] for name, one in every.items()}
    assert apart["mdr"] < apart["dr"] < apart["wis"]


def test_the_records_own_policy_comes_as_often():
    """However short histories are beside how long a state may lead to itself."""
    judged = recorded(300, policy=BEHAVIOUR)
    counted = np.zeros((STATES, ACTIONS))
    np.add.at(counted, (judged.ids, judged.actions), 1)
    own = (counted / counted.sum(1, keepdims=True))[judged.ids]
    plain = replace(judged, policy=own, discount=1.0)
    np.testing.assert_allclose(plain.visited(np.ones(300)), 1, atol=1e-3)


def test_what_remembers_has_no_count_of_states():
    judged = recorded(50)
    assert "mdr" in estimates(judged)
    remembers = replace(judged, numbers=np.eye(STATES)[judged.ids])
    assert "mdr" not in estimates(remembers)
