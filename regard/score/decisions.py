"""What a policy is worth, told from records of others' decisions alone.

Each history counts as much as its actions fit the policy: by the product of the ratios of how
likely the policy and those who acted were to take them (Precup et al. 2000). The more decisions,
the fewer histories still count: the effective sample size says how many (Kish 1965), and stands
beside every estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    # How much oftener the policy comes to the state of each step than the records did.
    visits: Array | None = None  # (N, T)

    @property
    def real(self) -> NDArray[np.bool_]:
        return np.arange(self.rewards.shape[1]) < self.lengths[:, None]

    @property
    def discounts(self) -> Array:
        """(T,)"""
        found: Array = np.power(self.discount, np.arange(self.rewards.shape[1], dtype=np.float64))
        return found

    @property
    def gains(self) -> Array:
        """Rewards, as much as they count by then.  (N, T)"""
        found: Array = self.rewards * self.real * self.discounts
        return found

    @property
    def each(self) -> Array:
        """How much likelier the policy takes each step; 1 behind the end.  (N, T)"""
        return np.where(self.real, self.chosen / np.where(self.real, self.recorded, 1.0), 1.0)

    @cached_property
    def ratios(self) -> Array:
        """How much each history counts after each step; after its end, as at its end.  (N, T)"""
        with np.errstate(over="ignore"):
            found: Array = np.cumprod(self.each, 1, dtype=np.float64)
        return np.minimum(found, LARGEST)

    @property
    def returns(self) -> Array:
        """(N,)"""
        found: Array = self.gains.sum(1)
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


class Term(NamedTuple):
    """A part of an estimate: at each step, a sum over histories as a share of another."""

    part: Array  # (N, T)
    whole: Array  # (N, T)


# What an estimate is the sum of.
Estimator = Callable[[Histories], list[Term]]


def ordinary(histories: Histories) -> list[Term]:
    """Returns times what their histories count: right on average, and seldom close."""
    each = histories.ratios[:, -1:] * histories.returns[:, None]
    return [Term(each, np.ones_like(each))]


def weighted(histories: Histories) -> list[Term]:
    """The mean return, each history as much as it counts: a little off, and much closer."""
    ratios = histories.ratios[:, -1:]
    return [Term(ratios * histories.returns[:, None], ratios)]


def ordinary_steps(histories: Histories) -> list[Term]:
    """Each reward times what its history counted by then: later decisions do not matter to it."""
    each = histories.ratios * histories.gains
    return [Term(each, np.ones_like(each))]


def weighted_steps(histories: Histories) -> list[Term]:
    """The mean reward of each step, each history as much as it counted by then."""
    return [Term(histories.ratios * histories.gains, histories.ratios)]


def doubly_robust(histories: Histories) -> list[Term]:
    """A model's guess, put right by what was recorded: right on average if either the model or the
    recorded probabilities are (Jiang and Li 2016)."""
    guessed, put_right = weighted_doubly_robust(histories)
    each = guessed.part + put_right.part
    return [Term(each, np.ones_like(each))]


def weighted_doubly_robust(histories: Histories) -> list[Term]:
    """The same with weights that sum to one at each step (Thomas and Brunskill 2016)."""
    q, v = histories.guesses()
    ratios, discounts = histories.ratios, histories.discounts
    before = np.concatenate((np.ones((len(ratios), 1)), ratios[:, :-1]), 1)
    put_right = ratios * (histories.gains - discounts * q)
    return [Term(before * v * discounts, before), Term(put_right, ratios)]


def by_visits(histories: Histories) -> list[Term]:
    """A model's guess at the beginning, put right at each step by as much as the policy comes to
    such a state oftener than the records did (Kallus and Uehara 2020): where the state says all,
    what was done before it does not matter, and no product over a history is needed."""
    assert histories.visits is not None, "states are not counted"
    q, v = histories.guesses()
    after = histories.discount * np.concatenate((v[:, 1:], np.zeros((len(v), 1))), 1)
    surprise = histories.gains + histories.discounts * (after - q)
    first = np.concatenate((v[:, :1], np.zeros_like(v[:, 1:])), 1)
    each = first + histories.visits * histories.each * surprise
    return [Term(each, np.ones_like(each))]


def model_alone(histories: Histories) -> list[Term]:
    """What a model guesses at the first step (fitted Q evaluation, where it was learned so)."""
    _, v = histories.guesses()
    return [Term(v[:, :1], np.ones_like(v[:, :1]))]


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
    "mdr": by_visits,
    "fqe": model_alone,
}
NEED_A_MODEL = ("dr", "wdr", "mdr", "fqe")


def totals(terms: Sequence[Term], counts: Array) -> Array:
    """An estimate where histories count so often.  (D, N) -> (D,)"""
    found: Array = sum(share(counts @ t.part, counts @ t.whole).sum(1) for t in terms)
    return found


def influences(terms: Sequence[Term]) -> Array:
    """How far an estimate would move if a history counted more, for each; their mean is 0.  (N,)"""
    found = np.zeros(len(terms[0].part))
    for part, whole in terms:
        mean = whole.mean(0)
        own = part - whole * share(part.mean(0), mean)
        found += share(own, np.broadcast_to(mean, own.shape)).sum(1)
    return found


class Estimate(NamedTuple):
    """A policy's value, its 95 % interval, and how many histories it rests on."""

    value: float
    interval: tuple[float, float]
    effective: float
    degrees: float  # of freedom of the interval: how many histories its own width rests on

    @property
    def too_few(self) -> bool:
        """Whether it rests on too few histories to be believed."""
        return self.effective < FEW


def estimate(histories: Histories, name: str, draws: int = DRAWS, seed: int = SEED) -> Estimate:
    """What a policy is worth by one of `ESTIMATORS`, and how sure that is.

    Episodes are drawn anew to see how far it moves. Where few histories count most, that is itself
    unsure, so the interval is Student's, with as many degrees of freedom as squares still count.
    """
    terms = ESTIMATORS[name](histories)
    value = float(totals(terms, np.ones((1, len(histories.rewards))))[0])
    degrees = kish(influences(terms) ** 2)
    interval = around(value, drawn(histories, name, draws, seed), degrees)
    return Estimate(value, interval, effective_size(histories), degrees)


def around(value: float, moved: Array, degrees: float) -> tuple[float, float]:
    """A 95 % interval of a value, of how it moved when episodes were drawn anew."""
    half = student(degrees) * float(moved.std())
    return value - half, value + half


def student(degrees: float) -> float:
    """Where Student's distribution leaves 2.5 % above it, for one degree of freedom or more.

    12.71 for 1, 2.57 for 5, 1.96 for very many. With t = √ν tan θ, its density is that of
    cosines to the power ν - 1.
    """
    degrees = max(1.0, degrees)
    edges = np.linspace(0, np.pi / 2, 2**17 + 1)
    mass = np.cos((edges[1:] + edges[:-1]) / 2) ** (degrees - 1)
    sums = np.concatenate(([0.0], mass.cumsum()))
    return float(degrees**0.5 * np.tan(np.interp(0.95 * sums[-1], sums, edges)))


def drawn(histories: Histories, name: str, draws: int = DRAWS, seed: int = SEED) -> Array:
    """The estimate for episodes drawn anew; as many episodes and the same seed, the same draws.

    -> (draws,)
    """
    terms, rows = ESTIMATORS[name](histories), len(histories.rewards)
    return np.concatenate([totals(terms, counts) for counts in resampled(rows, draws, seed)])


def difference(
    one: Histories, other: Histories, name: str, draws: int = DRAWS, seed: int = SEED
) -> tuple[float, tuple[float, float]]:
    """How much more one policy is worth than another on the same records, and the interval of that:
    both are judged on the same draws."""
    assert len(one.rewards) == len(other.rewards), "both must be judged on the same histories"
    pair, once = [ESTIMATORS[name](h) for h in (one, other)], np.ones((1, len(one.rewards)))
    value = float(totals(pair[0], once)[0] - totals(pair[1], once)[0])
    moved = drawn(one, name, draws, seed) - drawn(other, name, draws, seed)
    degrees = kish((influences(pair[0]) - influences(pair[1])) ** 2)
    return value, around(value, moved, degrees)


def resampled(rows: int, draws: int, seed: int) -> list[Array]:
    """How often each episode is drawn, some samples at a time.  -> (D, N) each"""
    rng = np.random.default_rng(seed)
    sizes = [min(AT_ONCE, draws - first) for first in range(0, draws, AT_ONCE)]
    chances = np.full(rows, 1 / rows)
    return [rng.multinomial(rows, chances, size).astype(np.float64) for size in sizes]


def effective_size(histories: Histories) -> float:
    """How many histories still count at their end (Kish 1965)."""
    return float(effective_sizes(histories)[-1])


def effective_sizes(histories: Histories) -> Array:
    """The same after each step; before the first, all do.  -> (T + 1,)"""
    found = [kish(counted) for counted in histories.ratios.T]
    return np.array([float(len(histories.ratios)), *found])


def kish(weights: Array) -> float:
    """As how many equal ones they count: (Σ w)² / Σ w²."""
    scaled = weights / max(float(weights.max(initial=0.0)), 1e-300)  # no square overflows
    return float(share(scaled.sum()[None] ** 2, (scaled @ scaled)[None])[0])


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
