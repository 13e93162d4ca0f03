"""Tables of what was done in each state and what came of it: solved at once, not stepped towards.

A state is a combination of words that was recorded. It is what sequence models are compared with,
and where all that matters is in the state, it is hard to beat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Gt, Le
from torch import Tensor, nn

from ..batch import Asked, Batch, Choices, Learning, ModelOutput, Nothing, Sizes, Steps
from ..model import Model
from ..parts.output import Output

SELDOM = -30.0  # the logarithm of a count of none


@dataclass(frozen=True)
class TableSettings:
    """What a table goes by."""

    sweeps: Annotated[int, Gt(0), Le(10**6), "how often values are worked out anew at most"] = 1000


class Counted(NamedTuple):
    """What was recorded, by state and action; state 0 stands for all that were not."""

    counts: Tensor  # (S, A)
    rewards: Tensor  # (S, A) mean
    before: Tensor  # (W,) ways that were gone: from which state by which action, as one number, …
    then: Tensor  # (W,) … to which state, …
    shares: Tensor  # (W,) … and how often of all times; what ended went nowhere
    how: Learning

    def after(self, values: Tensor) -> Tensor:
        """Reward and what comes after it.  (S,) -> (S, A)"""
        ahead = torch.zeros(self.rewards.numel(), dtype=values.dtype)
        ahead.index_add_(0, self.before, self.shares * values[self.then])
        ahead = ahead.view_as(self.rewards)
        return self.rewards + self.how.discount * ahead

    def held(self, values: Tensor) -> Tensor:
        """Values as if every action had been taken some times more, to what is usual in its state:
        the best of many that were seldom tried is mostly luck.  (S, A) -> (S, A)"""
        prior = self.how.prior
        if not prior:
            return values
        usual = (self.policy * values).sum(1, keepdim=True)
        return (self.counts * values + prior * usual) / (self.counts + prior)

    @property
    def policy(self) -> Tensor:
        """How often each action was taken where it could be.  (S, A)"""
        total = self.counts.sum(1, keepdim=True)
        even = torch.full_like(self.counts, 1 / self.counts.shape[1])
        return torch.where(total > 0, self.counts / total.clamp_min(1), even)


def solved(records: Counted, worth: Callable[[Tensor], Tensor], sweeps: int) -> Tensor:
    """Values of actions, where `worth` says what a state is worth by those of its actions.

    (S, A) -> (S,) each; -> (S, A)
    """
    values = torch.zeros_like(records.rewards)
    for _ in range(sweeps):
        before, values = values, records.after(worth(values))
        if (values - before).abs().max() < 1e-9:
            break
    return values


def best_of(records: Counted, values: Tensor, supported: Tensor) -> Tensor:
    """What a state is worth by its best supported action; without one, by what was done there."""
    mean = (records.policy * values).sum(1)
    values = records.held(values)
    best = values.masked_fill(~supported, float("-inf")).amax(1)
    return torch.where(supported.any(1), best, mean)


def one_step(records: Counted, supported: Tensor, s: TableSettings) -> Tensor:
    """What actions are worth where all goes on as recorded."""
    return solved(records, lambda q: (records.policy * q).sum(1), s.sweeps)


def iteration(records: Counted, supported: Tensor, s: TableSettings) -> Tensor:
    """What they are worth where the best is done ever after."""
    return solved(records, lambda q: best_of(records, q, supported), s.sweeps)


def conservative(records: Counted, supported: Tensor, s: TableSettings) -> Tensor:
    """The same, less the penalty that CQL has in a table: α (π / β - 1), where π is the softmax of
    the values (Kumar et al. 2020, section 3)."""
    policy = records.policy.clamp_min(1e-3)
    values = torch.zeros_like(records.rewards)
    for _ in range(s.sweeps):
        before = values
        penalty = records.how.conservatism * (values.softmax(1) / policy - 1)
        values = records.after(best_of(records, values, supported)) - penalty
        if (values - before).abs().max() < 1e-9:
            break
    return values


def implicit(records: Counted, supported: Tensor, s: TableSettings) -> Tensor:
    """The value of a state is an expectile of its recorded actions' (Kostrikov et al. 2022)."""
    policy, high = records.policy, records.how.expectile

    def expectile(values: Tensor) -> Tensor:
        found = (policy * values).sum(1)
        for _ in range(50):  # weighted means, until they are their own
            weights = policy * torch.where(values > found[:, None], high, 1 - high)
            found = (weights * values).sum(1) / weights.sum(1).clamp_min(1e-12)
        return found

    return solved(records, expectile, s.sweeps)


# By the name of the loss that a network would have.
LEARNERS: dict[str, Callable[[Counted, Tensor, TableSettings], Tensor]] = {
    "tokens": one_step,
    "one-step": one_step,
    "iteration": iteration,
    "conservative": conservative,
    "implicit": implicit,
}


class TableModel(Model):
    """For each state, how often each action was taken there and what it is worth.

    -> (B, T, 2 A): logarithms of counts, and values
    """

    Settings = TableSettings
    reads = (Steps,)
    answers = (Choices, Nothing)
    heads = ("counts", "values", "output")

    def __init__(self, sizes: Sizes, settings: TableSettings = TableSettings()) -> None:
        super().__init__(sizes, settings)
        told = sizes.history
        assert told is not None
        assert told.states, (
            "model.kind=table needs observations that are all words and actions that are named; "
            "use model.kind=decision"
        )
        assert not told.wished, (
            "model.kind=table knows no returns; set task.learner to one-step, iteration, "
            "conservative, implicit or clone"
        )
        self.told, shape = told.values, (told.states, told.actions)
        self.counts = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.values = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.output = Output(told.actions + told.values, told.actions + told.values)
        nn.init.eye_(self.output.weight.requires_grad_(False))  # what the tables say is the answer

    def states(self, batch: Batch[Steps, Asked]) -> ModelOutput:
        states = batch.read.states
        found = self.counts[states]
        if self.told:
            more = self.told - self.counts.shape[1]  # a value of the state, which no policy needs
            found = torch.cat((found, F.pad(self.values[states], (0, more))), -1)
        return ModelOutput(found, slow=found)

    def solve(self, batches: Iterable[Batch[Steps, Choices]], learner: str) -> None:
        """Count what is in the batches, and work the values out."""
        records = counted(batches, *self.counts.shape)
        values = LEARNERS[learner](records, records.counts >= records.how.least, self.settings)
        values = records.held(values)
        with torch.no_grad():
            self.counts.copy_(records.counts.log().clamp_min(SELDOM))
            self.values.copy_(values)


def counted(batches: Iterable[Batch[Steps, Choices]], states: int, actions: int) -> Counted:
    counts = torch.zeros(states * actions, dtype=torch.float64)
    rewards, how = torch.zeros_like(counts), Learning()
    went: list[Tensor] = []
    for batch in batches:
        read, asked = batch.read, batch.asked
        how, real = asked.how, asked.real
        places = read.states * actions + asked.actions  # (B, T)
        counts.index_add_(0, places[real], torch.ones_like(places[real], dtype=torch.float64))
        rewards.index_add_(0, places[real], asked.rewards[real].double())
        follows = real & (asked.ends == 0)
        after = torch.roll(read.states, -1, 1)
        went.append(torch.stack((places[follows], after[follows])))
    flat = torch.cat(went, 1)
    # The same way, once, with how often it was gone.
    ways, times = torch.unique(flat[0] * states + flat[1], return_counts=True)
    before, after = ways // states, ways % states
    shares = times.double() / counts[before].clamp_min(1)
    mean = rewards / counts.clamp_min(1)
    shape = (states, actions)
    return Counted(counts.view(shape), mean.view(shape), before, after, shares, how)
