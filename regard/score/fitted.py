"""Fitted Q evaluation: what a policy is worth from each step on, learned from records alone.

The value of an action is a mean of the reward and what the policy is worth at the next step; fitted
again and again, it looks one step further each time (Le et al. 2019). A state is known by an id, of
which every one has its own values, or by numbers that values are linear in.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
RIDGE = 1.0  # as many made-up steps of no value hold each number back
ENOUGH = 1e-5
SWEEPS = 1000  # after which visits are counted as they are: of a text without end they have no sum


class Records(NamedTuple):
    """Steps one after another; histories one after another."""

    actions: Whole  # (N,)
    rewards: Array  # (N,)
    ends: NDArray[np.bool_]  # (N,) after which a history ended
    policy: Array  # (N, A) what the policy would do there
    discount: float

    def ahead(self, worth: Array) -> Array:
        """The reward, and what the next step is worth.  (N,) -> (N,)"""
        return self.rewards + self.discount * np.where(self.ends, 0.0, np.roll(worth, -1))


class States(Protocol):
    """What is known of each step, and a fit of values to it."""

    def begin(self, records: Records, weights: Array) -> None:
        """Made ready for goals of these steps, each of which counts so much."""

    def fit(self, goals: Array) -> None:
        """Have the values of taken actions be near these goals.  (N,)"""

    def worth(self) -> Array:
        """What the policy is worth at every step.  -> (N,)"""

    def values(self) -> Array:
        """What each action is worth.  -> (N, A)"""


class Named(States):
    """States that have ids: the mean of each action in each; without one, the state's."""

    def __init__(self, ids: Whole, count: int) -> None:
        self.ids, self.count = ids, count

    def begin(self, records: Records, weights: Array) -> None:
        self.policy, self.weights = records.policy, weights
        self.actions = records.policy.shape[1]
        self.places = self.ids * self.actions + records.actions
        totals = np.bincount(self.places, weights, self.count * self.actions)
        self.totals = totals.reshape(-1, self.actions)
        # A policy of the state alone need be looked at once in each.
        by_state = np.zeros((self.count, self.actions))
        by_state[self.ids] = records.policy
        self.by_state = by_state if np.array_equal(by_state[self.ids], records.policy) else None

    def fit(self, goals: Array) -> None:
        sums = np.bincount(self.places, self.weights * goals, self.totals.size)
        sums = sums.reshape(-1, self.actions)
        all_of, seen = sums.sum(1), self.totals.sum(1)
        whole = all_of.sum() / max(seen.sum(), 1e-12)
        means = np.where(seen > 0, all_of / np.maximum(seen, 1e-12), whole)
        # One made-up step at the state's mean, so that a single one is not taken for the truth.
        self.table = (sums + means[:, None]) / (self.totals + 1.0)

    def worth(self) -> Array:
        if self.by_state is not None:
            found: Array = (self.by_state * self.table).sum(1)[self.ids]
            return found
        step_by_step: Array = np.einsum("na,na->n", self.policy, self.table[self.ids])
        return step_by_step

    def values(self) -> Array:
        found: Array = self.table[self.ids]
        return found


class Numbered(States):
    """States that are numbers: values of each action are linear in them (ridge regression)."""

    def __init__(self, numbers: Array) -> None:
        spread = numbers.std(0)
        scaled = (numbers - numbers.mean(0)) / np.where(spread > 1e-9, spread, 1.0)
        self.numbers = np.concatenate((scaled, np.ones((len(scaled), 1))), 1)  # (N, D)

    def begin(self, records: Records, weights: Array) -> None:
        self.policy, self.weights = records.policy, weights
        self.taken = [np.flatnonzero(records.actions == a) for a in range(records.policy.shape[1])]
        self.solvers = list[Array]()
        for rows in self.taken:
            x, w = self.numbers[rows], weights[rows, None]
            held = RIDGE * np.eye(x.shape[1])
            self.solvers.append(np.linalg.solve(x.T @ (w * x) + held, (w * x).T))

    def fit(self, goals: Array) -> None:
        # Held back towards the mean of all, and not beyond what was ever aimed at: a straight line
        # knows no bounds.
        self.mean = float(np.average(goals, weights=self.weights)) if self.weights.any() else 0.0
        self.bounds = float(goals.min()), float(goals.max())
        slopes = [s @ (goals[rows] - self.mean) for rows, s in
                  zip(self.taken, self.solvers, strict=True)]  # fmt: skip
        self.slopes = np.stack(slopes, 1)  # (D, A)

    def worth(self) -> Array:
        found: Array = np.einsum("na,na->n", self.policy, self.values())
        return found

    def values(self) -> Array:
        return np.clip(self.numbers @ self.slopes + self.mean, *self.bounds)


def evaluated(records: Records, states: States, weights: Array, sweeps: int) -> Array:
    """What each action is worth at each step, if the policy is followed ever after.  -> (N, A)

    Steps with a weight of 0 are not learned from, but told about.
    """
    states.begin(records, weights)
    worth = np.zeros(len(records.actions))
    enough = ENOUGH * float(np.abs(records.rewards).max(initial=0.0))
    for _ in range(sweeps):
        states.fit(records.ahead(worth))
        before, worth = worth, states.worth()
        if np.abs(worth - before).max() <= enough:
            break
    return states.values()


def visits(
    records: Records, ids: Whole, count: int, weights: Array, first: NDArray[np.bool_]
) -> Array:
    """How much oftener the policy comes to the state of each step than the records did, as far as
    steps with a weight tell; 1 where they say nothing.  -> (N,)

    From each state the recorded ways are gone on, each as much as the policy takes its action.
    """
    actions = records.policy.shape[1]
    places = ids * actions + records.actions
    seen = np.bincount(places, weights, count * actions)[places]
    taken = np.where(seen > 0, weights * records.policy[np.arange(len(ids)), records.actions], 0.0)
    taken = np.divide(taken, seen, out=np.zeros_like(taken), where=seen > 0)
    ways = np.bincount(ids, taken, count)[ids]
    taken = np.divide(taken, ways, out=np.zeros_like(taken), where=ways > 0)
    after = np.roll(ids, -1)
    since = np.arange(len(ids)) - np.maximum.accumulate(np.where(first, np.arange(len(ids)), 0))
    discounts = records.discount**since
    began = np.bincount(ids[first], weights[first], count)
    often = began
    for _ in range(SWEEPS):
        goes_on = np.where(records.ends, 0.0, records.discount * taken * often[ids])
        before, often = often, began + np.bincount(after, goes_on, count)
        if np.abs(often - before).sum() <= ENOUGH * began.sum():
            break
    recorded = np.bincount(ids, weights * discounts, count)
    found: Array = np.divide(often, recorded, out=np.ones(count), where=recorded > 0)[ids]
    return found
