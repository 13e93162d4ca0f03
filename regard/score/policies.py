"""A policy judged on records: every estimate, how many histories it rests on, and where the
evidence ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decisions import (
    ESTIMATORS,
    NEED_A_MODEL,
    Array,
    Estimate,
    Histories,
    apart,
    around,
    difference,
    drawn,
    effective_size,
    effective_sizes,
    estimate,
    to_go,
    unrecorded,
)
from .fitted import Named, Numbered, Records, States, evaluated, visits
from .interval import SEED

REFITS = 40  # bootstrap samples that values are fitted to anew
STRENGTHS = (1.0, 1.25, 1.5, 2.0, 3.0)  # of what was not recorded, Γ
UNLIKELY = 0.05  # the same where states cannot be counted
SELDOM = 10  # times that an action was recorded, below which its evidence is thin
MOST = 20  # rows of a table that is told


@dataclass(frozen=True)
class Judged:
    """Steps of recorded histories, one history after another, and what a policy says of each."""

    lengths: NDArray[np.int64]  # (E,) steps of each history
    rewards: Array  # (N, R) one of each column
    weights: Sequence[float]  # what each column counts
    discount: float
    actions: NDArray[np.int64]  # (N,)
    recorded: Array  # (N,) how likely the recorded action was
    policy: Array  # (N, A)
    behaviour: Array  # (N, A) what those who acted would do, as far as that was learned
    observations: Array  # (N, F) NaN: not recorded
    columns: Sequence[str]  # (F,) their names
    ids: NDArray[np.int64] | None = None  # (N,) of states, where they have them
    numbers: Array | None = None  # (N, D) of steps, where they have not, or more than that counts

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate(([0], np.cumsum(self.lengths)[:-1]))

    @cached_property
    def gained(self) -> Array:
        """(N,)"""
        found: Array = self.rewards @ np.asarray(self.weights, np.float64)
        return found

    @cached_property
    def ends(self) -> NDArray[np.bool_]:
        found = np.zeros(len(self.actions), np.bool_)
        found[self.starts + self.lengths - 1] = True
        return found

    def padded(self, flat: Array) -> Array:
        """(N,) -> (E, T)"""
        out = np.zeros((len(self.lengths), int(self.lengths.max())))
        out[np.arange(out.shape[1]) < self.lengths[:, None]] = flat
        return out

    @property
    def rows(self) -> NDArray[np.int64]:
        """Which history each step is of."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def states(self) -> States:
        if self.numbers is not None:
            return Numbered(self.numbers)
        assert self.ids is not None
        return Named(self.ids, int(self.ids.max()) + 1)

    @cached_property
    def records(self) -> Records:
        return Records(self.actions, self.gained, self.ends, self.policy, self.discount)

    def values(self, counts: Array) -> Array:
        """Fitted Q values of the policy, where each history counts so often.  (E,) -> (N, A)"""
        sweeps = int(self.lengths.max()) + 1
        return evaluated(self.records, self.states(), counts[self.rows], sweeps)

    def visited(self, counts: Array) -> Array:
        """How much oftener the policy comes to each step's state, the same way.  (E,) -> (N,)"""
        assert self.ids is not None
        first = np.zeros(len(self.ids), np.bool_)
        first[self.starts] = True
        count = int(self.ids.max()) + 1
        return visits(self.records, self.ids, count, counts[self.rows], first)

    def crossed(self, told: Callable[[Array], Array]) -> Array:
        """What is told of each step by the other half of the histories: what puts an estimate right
        must not have seen what it is put right with.  -> (N, …)"""
        if len(self.lengths) < 2:
            return told(np.ones(len(self.lengths)))
        even = np.arange(len(self.lengths)) % 2 == 0
        by_even, by_odd = told(even.astype(np.float64)), told((~even).astype(np.float64))
        own = even[self.rows].reshape(-1, *(1,) * (by_even.ndim - 1))
        return np.where(own, by_odd, by_even)

    @cached_property
    def worth(self) -> Array:
        """Values at each step, by the other half.  (N, A)"""
        return self.crossed(self.values)

    @cached_property
    def oftener(self) -> Array:
        """Visits to each step's state, by the other half.  (N,)"""
        return self.crossed(self.visited)

    @property
    def by_state(self) -> bool:
        """Whether the state says all that counts."""
        return self.numbers is None

    def histories(self, fitted: bool = True) -> Histories:
        """As the estimators take them."""
        taken = np.arange(len(self.actions)), self.actions
        values: dict[str, Array] = {}
        if fitted:
            values["action_value"] = self.padded(self.worth[taken])
            values["value"] = self.padded((self.policy * self.worth).sum(1))
            if self.by_state:
                values["visits"] = self.padded(self.oftener)
        return Histories(
            self.padded(self.gained), self.padded(self.recorded) + 1e-300,
            self.padded(self.policy[taken]), self.lengths, self.discount, **values,
        )  # fmt: skip

    def some(self, rows: NDArray[np.int64]) -> Judged:
        """Of some histories alone."""
        bounds = zip(self.starts[rows], self.lengths[rows], strict=True)
        steps = np.concatenate([np.arange(start, start + count) for start, count in bounds])
        names = ("rewards", "actions", "recorded", "policy", "behaviour", "observations")
        flat = {name: getattr(self, name)[steps] for name in names}
        return Judged(
            lengths=self.lengths[rows], weights=self.weights, discount=self.discount,
            columns=self.columns, ids=None if self.ids is None else self.ids[steps],
            numbers=None if self.numbers is None else self.numbers[steps], **flat,
        )  # fmt: skip


def value_of(judged: Judged, name: str, draws: int = 200) -> Estimate:
    """One estimate, quick enough to choose by: values are fitted once."""
    return estimate(judged.histories(fitted=name in NEED_A_MODEL), name, draws)


def estimates(judged: Judged) -> dict[str, Estimate]:
    """Every estimate with its interval."""
    histories = judged.histories()
    usual = [name for name in ESTIMATORS if name != "fqe" and (name != "mdr" or judged.by_state)]
    return {**{name: estimate(histories, name) for name in usual}, "fqe": fitted_estimate(judged)}


def fitted_estimate(judged: Judged) -> Estimate:
    """What values fitted to all histories say of how they began; its interval comes of fitting them
    anew, for most of what is unsure is in the fit."""
    count = len(judged.lengths)

    def first(counts: Array) -> float:
        values = judged.values(counts)[judged.starts]
        worth = (judged.policy[judged.starts] * values).sum(1)
        return float(counts @ worth / counts.sum())

    value, rng = first(np.ones(count)), np.random.default_rng(SEED)
    chances = np.full(count, 1 / count)
    refits = [first(rng.multinomial(count, chances).astype(np.float64)) for _ in range(REFITS)]
    effective = effective_size(judged.histories(fitted=False))
    return Estimate(value, around(value, np.array(refits), REFITS - 1), effective, REFITS - 1)


def told(found: Estimate) -> dict[str, Any]:
    return {
        "value": round(found.value, 5),
        "interval": [round(end, 5) for end in found.interval],
        "effective": round(found.effective, 1),
        "too_few": found.too_few,
    }


def recorded_value(judged: Judged) -> Estimate:
    """What the records themselves came to."""
    return estimate(as_recorded(judged).histories(fitted=False), "is")


def as_recorded(judged: Judged) -> Judged:
    """Judged as if the policy were that of the records, so that every history counts once."""
    policy = np.zeros_like(judged.policy)
    policy[np.arange(len(judged.actions)), judged.actions] = judged.recorded
    return replace(judged, policy=policy)


def report(judged: Judged, headline: str) -> dict[str, Any]:
    """All that is told of a policy."""
    every = estimates(judged)
    histories = judged.histories()
    mean = recorded_value(judged)
    best = every[headline]
    more, interval = difference(histories, compared(judged), headline)
    sizes = effective_sizes(histories)
    return {
        "value": round(best.value, 5),
        "value_interval": [round(end, 5) for end in best.interval],
        "effective": round(best.effective, 1),
        "too_few": best.too_few,
        "histories": len(judged.lengths),
        "estimator": headline,
        "recorded_value": round(mean.value, 5),
        "recorded_value_interval": [round(end, 5) for end in mean.interval],
        "difference": round(more, 5),
        "difference_interval": [round(end, 5) for end in interval],
        "estimates": {name: told(found) for name, found in every.items()},
        "effective_by_step": [round(float(size), 1) for size in sizes],
        # The same draws for whoever is judged on the same records, so that two can be compared.
        "value_draws": [] if headline == "fqe" else drawn(histories, headline).round(5).tolist(),
        "value_degrees": round(best.degrees, 1),
        "left": who_is_left(judged, histories),
        "coverage": coverage(judged),
        "confounding": confounding(histories),
        "rewards": by_reward(judged, headline),
        "shift": shift(judged, headline),
    }


def compared(judged: Judged) -> Histories:
    """The records beside the policy: they are worth what they came to, by any estimator."""
    same = as_recorded(judged)
    histories = same.histories(fitted=False)
    each = np.split(judged.gained, judged.starts[1:])
    ahead = np.concatenate([to_go(rewards, judged.discount) for rewards in each])
    worth = judged.padded(ahead)
    return replace(histories, action_value=worth, value=worth, visits=np.ones_like(worth))


def who_is_left(judged: Judged, histories: Histories) -> list[dict[str, Any]]:
    """The lecture's figure: how many histories count after each step, and how far those who are
    left differ from those who began, by what was observed at the beginning."""
    began = judged.observations[judged.starts]
    began = np.where(
        np.isnan(began), np.nanmean(np.where(np.isnan(began).all(0), 0, began), 0), began
    )
    sizes, found = effective_sizes(histories), []
    for step in range(len(sizes)):
        weights = np.ones(len(began)) if step == 0 else histories.ratios[:, step - 1]
        differences = apart(began, weights)
        widest = np.argsort(-np.abs(differences), kind="stable")[:5]
        found.append(
            {
                "step": step,
                "effective": round(float(sizes[step]), 1),
                "went_on": int((judged.lengths > step).sum()),
                "differences": {
                    judged.columns[at]: round(float(differences[at]), 3) for at in widest.tolist()
                },
            }
        )
    return found


def coverage(judged: Judged) -> dict[str, Any]:
    """Where the policy does what was seldom or never recorded."""
    wanted = judged.policy.argmax(1)
    if judged.ids is None:
        chance = judged.behaviour[np.arange(len(wanted)), wanted]
        return {
            "by": "likelihood",
            "seldom": round(float((chance < UNLIKELY).mean()), 4),
            "never": round(float((chance < 0.001).mean()), 4),
        }
    actions = judged.policy.shape[1]
    counts = np.bincount(judged.ids * actions + judged.actions,
                         minlength=(int(judged.ids.max()) + 1) * actions)  # fmt: skip
    each = counts.reshape(-1, actions)[judged.ids, wanted]
    chosen = judged.ids * actions + wanted
    met, first, times = np.unique(chosen, return_index=True, return_counts=True)
    thin = [(int(t), int(counts[c]), int(f)) for c, f, t in zip(met, first, times, strict=True)
            if counts[c] < SELDOM]  # fmt: skip
    thin.sort(key=lambda row: (-row[0], row[2]))
    return {
        "by": "counts",
        "seldom": round(float((each < SELDOM).mean()), 4),
        "never": round(float((each == 0).mean()), 4),
        "where": [
            {"step": at, "state": int(judged.ids[at]), "action": int(wanted[at]),
             "met": times_, "recorded": seen}
            for times_, seen, at in thin[:MOST]
        ],
    }  # fmt: skip


def confounding(histories: Histories) -> dict[str, list[float]]:
    """How far the weighted estimate could move, by how strong what was not recorded may be."""
    return {
        f"{strength:g}": [round(end, 5) for end in unrecorded(histories, strength)]
        for strength in STRENGTHS
    }


def by_reward(judged: Judged, headline: str) -> list[dict[str, Any]]:
    """The estimate where one column of rewards counts half or twice as much; with one column, where
    later rewards count less."""
    found: list[dict[str, Any]] = []
    if len(judged.weights) > 1:
        for at in range(len(judged.weights)):
            for factor in (0.5, 2.0):
                weights = list(judged.weights)
                weights[at] *= factor
                found.append({"column": at, "factor": factor,
                              **both(replace(judged, weights=weights), headline)})  # fmt: skip
        return found
    for discount in (1.0, 0.99, 0.9):
        found.append({"discount": discount, **both(replace(judged, discount=discount), headline)})
    return found


def both(judged: Judged, headline: str) -> dict[str, float]:
    mean = value_of(as_recorded(judged), "is", draws=2).value
    value = value_of(judged, headline, draws=2).value
    return {"value": round(value, 5), "recorded_value": round(mean, 5)}


def shift(judged: Judged, headline: str) -> list[dict[str, Any]]:
    """The first and the second half of the records, each by itself: would it have been judged the
    same a year before?"""
    count = len(judged.lengths)
    if count < 4:
        return []
    halves = np.arange(count // 2), np.arange(count // 2, count)
    return [
        {"histories": len(rows), **told(estimate_of(judged.some(rows), headline))}
        for rows in halves
    ]


def estimate_of(judged: Judged, name: str) -> Estimate:
    if name == "fqe":
        return fitted_estimate(judged)
    return estimate(judged.histories(fitted=name in NEED_A_MODEL), name)
