"""Tables against values that can be reckoned by hand or by a plain loop."""

import numpy as np
import pytest
import torch

from regard.batch import Batch, Choices, HistorySizes, Learning, Sizes, Steps
from regard.models.table import LEARNERS, Counted, TableModel, TableSettings, counted

STATES, ACTIONS, DISCOUNT = 4, 3, 0.9


def records(rows=400, seed=0, least=1):
    """Random walks among three states (0 is none), which end now and then."""
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.ones(STATES - 1), (STATES, ACTIONS))
    gains = rng.normal(size=(STATES, ACTIONS))
    told = []
    for _ in range(rows):
        state, one = int(rng.integers(1, STATES)), []
        for _ in range(6):
            action = int(rng.integers(ACTIONS))
            one.append((state, action, gains[state, action] + rng.normal()))
            if rng.random() < 0.2:
                break
            state = 1 + int(rng.choice(STATES - 1, p=moves[state, action]))
        told.append(one)
    return told, batch_of(told, least)


def batch_of(told, least=1):
    width, rows = max(map(len, told)), len(told)
    states, actions, rewards, ends = (torch.zeros(rows, width) for _ in range(4))
    for at, one in enumerate(told):
        for step, (s, a, r) in enumerate(one):
            states[at, step], actions[at, step], rewards[at, step] = s, a, r
        ends[at, len(one) - 1] = 1
    lengths = torch.tensor([len(one) for one in told])
    nothing = torch.zeros(rows, width, 0)
    steps = Steps(
        nothing, nothing, states.long()[..., None], states.long(), actions.long(),
        torch.zeros(rows, width), torch.zeros(rows, width, dtype=torch.long), lengths,
    )  # fmt: skip
    zero = torch.zeros_like(lengths)
    asked = Choices(
        actions.long(), zero, lengths, rewards, rewards, ends, Learning(DISCOUNT, 0.0, least)
    )
    return Batch(steps, asked)


def like(some, **how):
    return some._replace(how=some.how._replace(**how))


def plain(told, worth, sweeps=300):
    """The same in loops: means of reward and what comes after, again and again."""
    values = np.zeros((STATES, ACTIONS))
    for _ in range(sweeps):
        sums, counts = np.zeros_like(values), np.zeros_like(values)
        for one in told:
            for at, (s, a, r) in enumerate(one):
                after = worth(values, one[at + 1][0]) if at + 1 < len(one) else 0.0
                sums[s, a] += r + DISCOUNT * after
                counts[s, a] += 1
        values = sums / np.maximum(counts, 1)
    return values, counts


def test_one_step_is_the_value_of_what_was_done():
    told, batch = records(60)
    counts = np.zeros((STATES, ACTIONS))
    for one in told:
        for s, a, _ in one:
            counts[s, a] += 1
    policy = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    wanted, _ = plain(told, lambda q, s: policy[s] @ q[s])
    found = LEARNERS["one-step"](counted([batch], STATES, ACTIONS), None, TableSettings())
    np.testing.assert_allclose(found[1:], wanted[1:], atol=1e-5)


def test_iteration_takes_the_best_that_has_support():
    told, batch = records(60, least=25)
    _, counts = plain(told, lambda q, s: 0.0, 1)
    policy = counts / np.maximum(counts.sum(1, keepdims=True), 1)

    def worth(q, s):
        allowed = counts[s] >= 25
        return q[s][allowed].max() if allowed.any() else policy[s] @ q[s]

    wanted, _ = plain(told, worth)
    some = counted([batch], STATES, ACTIONS)
    assert some.how.least == 25
    found = LEARNERS["iteration"](some, some.counts >= some.how.least, TableSettings())
    np.testing.assert_allclose(found[1:], wanted[1:], atol=1e-5)
    assert not (counts[1:] >= 25).all()  # or nothing was tried


def test_what_was_seldom_done_is_held_towards_the_usual():
    _, batch = records(60)
    some = counted([batch], STATES, ACTIONS)
    raw = LEARNERS["one-step"](some, some.counts >= 1, TableSettings())
    usual = (some.policy * raw).sum(1, keepdim=True)
    held = like(some, prior=10.0).held(raw)
    wanted = (some.counts * raw + 10 * usual) / (some.counts + 10)
    torch.testing.assert_close(held[1:], wanted[1:])
    # And the best is the best of what is held: a lucky few do not win over many.
    two = Counted(
        torch.tensor([[50.0, 2.0, 100.0]]).double(), torch.tensor([[0.2, 1.0, 0.8]]).double(),
        *(torch.zeros(0, dtype=torch.long),) * 2, torch.zeros(0).double(), Learning(prior=50.0),
    )  # fmt: skip
    assert two.held(two.rewards).argmax(1) == 2 and two.rewards.argmax(1) == 1


def test_an_expectile_lies_between_the_mean_and_the_best():
    _, batch = records()
    some = counted([batch], STATES, ACTIONS)
    supported = some.counts >= 1
    mean = LEARNERS["one-step"](some, supported, TableSettings())
    best = LEARNERS["iteration"](some, supported, TableSettings())
    half = LEARNERS["implicit"](like(some, expectile=0.5), supported, TableSettings())
    torch.testing.assert_close(half[1:], mean[1:])
    found = [
        LEARNERS["implicit"](like(some, expectile=e), supported, TableSettings())[1:].mean()
        for e in (0.5, 0.7, 0.9, 0.999)
    ]
    assert found == sorted(found) and found[-1] <= best[1:].mean() + 1e-6
    assert found[-1] > best[1:].mean() - 0.05


def test_conservatism_presses_down_what_was_seldom_done():
    told, _ = records(200)
    told = [[(s, a, r) for s, a, r in one if a != 2 or s != 1] for one in told]
    batch = batch_of([one for one in told if one])
    some = counted([batch], STATES, ACTIONS)
    supported = some.counts >= 0
    plainly, careful = (
        LEARNERS["conservative"](like(some, conservatism=c), supported, TableSettings())
        for c in (0.0, 0.05)
    )
    torch.testing.assert_close(plainly, LEARNERS["iteration"](some, supported, TableSettings()))
    lowered = (plainly - careful)[1]
    assert lowered.argmax() == 2 and lowered[2] > 5 * lowered[:2].max()


@pytest.mark.parametrize("learner", ["tokens", "one-step", "iteration", "conservative", "implicit"])
def test_what_is_solved_is_told(learner):
    _, batch = records()
    values = {"tokens": 0, "implicit": ACTIONS + 1}.get(learner, ACTIONS)
    told = HistorySizes(0, 1, STATES, STATES, ACTIONS, values=values)
    model = TableModel(Sizes(0, 0, False, 0, Steps, Choices, history=told))
    model.solve([batch], learner)
    scores = model(batch)
    assert scores.shape[-1] == ACTIONS + values and scores.isfinite().all()
    some = counted([batch], STATES, ACTIONS)
    chances = scores[..., :ACTIONS].softmax(-1)
    torch.testing.assert_close(chances, some.policy[batch.read.states].float())
