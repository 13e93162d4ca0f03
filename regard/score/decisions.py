"""What a policy is worth, told from records of others' decisions alone.

Each history counts as much as its actions fit the policy: by the product of the ratios of how
likely the policy and those who acted were to take them (Precup et al. 2000). The more decisions,
the fewer histories still count: the effective sample size says how many (Kish 1965), and stands
beside every estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .interval import DRAWS, SEED

Array = NDArray[np.float64]
LARGEST = 1e140  # of what one history may count, so that its square is a number
AT_ONCE = 50  # bootstrap samples worked out together
FEW = 50  # an effective sample size below this is marked as too small


@dataclass(frozen=True)
class Histories:
    """Recorded episodes beside a policy to be judged; a row each, padded behind its end.

    `recorded` and `chosen` are how likely those who acted and the policy were to take the action
    that was taken. `action_value` and `value` are a model's guess of the policy's return from each
    step on: after the action that was taken, and before any.
    """

    rewards: Array  # (N, T), 0 behind the end
    recorded: Array  # (N, T) above 0
    chosen: Array  # (N, T)
    lengths: NDArray[np.int64]  # (N,) steps
    discount: float = 1.0
    action_value: Array | None = None  # (N, T)
    value: Array | None = None  # (N, T)

    @property
    def real(self) -> NDArray[np.bool_]:
        return np.arange(self.rewards.shape[1]) < self.lengths[:, None]

    @property
    def discounts(self) -> Array:
        """(T,)"""
        found: Array = np.power(self.discount, np.arange(self.rewards.shape[1], dtype=np.float64))
        return found

    @cached_property
    def ratios(self) -> Array:
        """How much each history counts after each step; after its end, as at its end.  (N, T)"""
        each = np.where(self.real, self.chosen / np.where(self.real, self.recorded, 1.0), 1.0)
        with np.errstate(over="ignore"):
            found: Array = np.cumprod(each, 1, dtype=np.float64)
        return np.minimum(found, LARGEST)

    @property
    def returns(self) -> Array:
        """(N,)"""
        found: Array = (self.rewards * self.real) @ self.discounts
        return found

    def guesses(self) -> tuple[Array, Array]:
        """A model's guesses, 0 behind the end: there is nothing more to come."""
        assert self.action_value is not None and self.value is not None, "there is no model"
        return self.action_value * self.real, self.value * self.real


def to_go(rewards: Array, discount: float) -> Array:
    """What comes from each step of a history on.  (T,) -> (T,)"""
    found, after = np.zeros(len(rewards)), 0.0
    for at in reversed(range(len(rewards))):
        after = found[at] = rewards[at] + discount * after
    return found


# Each: histories and how often each is counted, a row for each way to count (D, N) -> (D,)
Estimator = Callable[[Histories, Array], Array]


def ordinary(histories: Histories, counts: Array) -> Array:
    """Returns times what their histories count: right on average, and seldom close."""
    each = histories.ratios[:, -1] * histories.returns
    found: Array = counts @ each / counts.sum(1)
    return found


def weighted(histories: Histories, counts: Array) -> Array:
    """The mean return, each history as much as it counts: a little off, and much closer."""
    ratios = histories.ratios[:, -1]
    return share(counts @ (ratios * histories.returns), counts @ ratios)


def ordinary_steps(histories: Histories, counts: Array) -> Array:
    """Each reward times what its history counted by then: later decisions do not matter to it."""
    rewards = histories.rewards * histories.real
    found: Array = counts @ ((histories.ratios * rewards) @ histories.discounts) / counts.sum(1)
    return found


def weighted_steps(histories: Histories, counts: Array) -> Array:
    """The mean reward of each step, each history as much as it counted by then."""
    rewards = histories.rewards * histories.real
    means = share(counts @ (histories.ratios * rewards), counts @ histories.ratios)  # (D, T)
    found: Array = means @ histories.discounts
    return found


def doubly_robust(histories: Histories, counts: Array) -> Array:
    """A model's guess, put right by what was recorded: right on average if either the model or the
    recorded probabilities are (Jiang and Li 2016)."""
    q, v = histories.guesses()
    ratios, rewards = histories.ratios, histories.rewards * histories.real
    before = np.concatenate((np.ones((len(ratios), 1)), ratios[:, :-1]), 1)
    each = (before * v + ratios * (rewards - q)) @ histories.discounts
    found: Array = counts @ each / counts.sum(1)
    return found


def weighted_doubly_robust(histories: Histories, counts: Array) -> Array:
    """The same with weights that sum to one at each step (Thomas and Brunskill 2016)."""
    q, v = histories.guesses()
    ratios, rewards = histories.ratios, histories.rewards * histories.real
    before = np.concatenate((np.ones((len(ratios), 1)), ratios[:, :-1]), 1)
    guessed = share(counts @ (before * v), counts @ before)  # (D, T)
    put_right = share(counts @ (ratios * (rewards - q)), counts @ ratios)
    found: Array = (guessed + put_right) @ histories.discounts
    return found


def model_alone(histories: Histories, counts: Array) -> Array:
    """What a model guesses at the first step (fitted Q evaluation, where it was learned so)."""
    _, v = histories.guesses()
    found: Array = counts @ v[:, 0] / counts.sum(1)
    return found


def share(part: Array, whole: Array) -> Array:
    """0 of nothing: a policy that never agrees with the records has no estimate."""
    found: Array = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return found


ESTIMATORS: dict[str, Estimator] = {
    "is": ordinary,
    "wis": weighted,
    "pdis": ordinary_steps,
    "wpdis": weighted_steps,
    "dr": doubly_robust,
    "wdr": weighted_doubly_robust,
    "fqe": model_alone,
}
NEED_A_MODEL = ("dr", "wdr", "fqe")


class Estimate(NamedTuple):
    """A policy's value, its 95 % interval, and how many histories it rests on."""

    value: float
    interval: tuple[float, float]
    effective: float

    @property
    def too_few(self) -> bool:
        """Whether it rests on too few histories to be believed."""
        return self.effective < FEW


def estimate(histories: Histories, name: str, draws: int = DRAWS, seed: int = SEED) -> Estimate:
    """What a policy is worth by one of `ESTIMATORS`; episodes are drawn anew for the interval."""
    value = float(ESTIMATORS[name](histories, np.ones((1, len(histories.rewards))))[0])
    low, high = np.quantile(drawn(histories, name, draws, seed), (0.025, 0.975))
    return Estimate(value, (float(low), float(high)), effective_size(histories))


def drawn(histories: Histories, name: str, draws: int = DRAWS, seed: int = SEED) -> Array:
    """The estimate for episodes drawn anew; as many episodes and the same seed, the same draws.

    -> (draws,)
    """
    rows = len(histories.rewards)
    return np.concatenate([ESTIMATORS[name](histories, c) for c in resampled(rows, draws, seed)])


def difference(
    one: Histories, other: Histories, name: str, draws: int = DRAWS, seed: int = SEED
) -> tuple[float, tuple[float, float]]:
    """How much more one policy is worth than another on the same records, and the interval of that:
    both are judged on the same draws."""
    assert len(one.rewards) == len(other.rewards), "both must be judged on the same histories"
    work, once = ESTIMATORS[name], np.ones((1, len(one.rewards)))
    apart = drawn(one, name, draws, seed) - drawn(other, name, draws, seed)
    low, high = np.quantile(apart, (0.025, 0.975))
    return float(work(one, once)[0] - work(other, once)[0]), (float(low), float(high))


def resampled(rows: int, draws: int, seed: int) -> list[Array]:
    """How often each episode is drawn, some samples at a time.  -> (D, N) each"""
    rng = np.random.default_rng(seed)
    sizes = [min(AT_ONCE, draws - first) for first in range(0, draws, AT_ONCE)]
    chances = np.full(rows, 1 / rows)
    return [rng.multinomial(rows, chances, size).astype(np.float64) for size in sizes]


def effective_size(histories: Histories) -> float:
    """How many histories still count at their end: (Σ w)² / Σ w² (Kish 1965)."""
    return float(effective_sizes(histories)[-1])


def effective_sizes(histories: Histories) -> Array:
    """The same after each step; before the first, all do.  -> (T + 1,)"""
    ratios = histories.ratios
    ratios = ratios / np.maximum(ratios.max(0, keepdims=True), 1e-300)  # no square overflows
    found = share(ratios.sum(0) ** 2, (ratios**2).sum(0))
    return np.concatenate(([float(len(ratios))], found))


def unrecorded(histories: Histories, strength: float) -> tuple[float, float]:
    """How far the weighted estimate could move if something that was not recorded had made the
    recorded actions up to `strength` times likelier or less likely (Tan 2006; Γ).

    Weights may each be multiplied by a number from 1/Γ to Γ. The least and the largest mean are
    reached where all histories above some return have the one, and all below it the other.
    """
    assert strength >= 1, "a strength is 1 or more"
    order = np.argsort(histories.returns)
    returns, weights = histories.returns[order], histories.ratios[order, -1]
    both = np.stack((weights, weights * returns))  # (2, N)
    zero = np.zeros((2, 1))
    below = np.concatenate((zero, both.cumsum(1)), 1)  # the first n, by return
    above = both.sum(1, keepdims=True) - below
    ends = []
    for low, high in ((1 / strength, strength), (strength, 1 / strength)):
        whole, part = low * below + high * above
        ends.append(share(part, whole))
    return float(ends[1].min()), float(ends[0].max())


def apart(observations: Array, weights: Array) -> Array:
    """How those who still count differ from those who began: the standardised difference of each
    column's mean.  (N, F), (N,) -> (F,)"""
    began = observations.mean(0)
    total = weights.sum()
    left = weights @ observations / total if total > 0 else began
    spread = observations.std(0)
    found: Array = np.divide(left - began, spread, out=np.zeros_like(began), where=spread > 0)
    return found
