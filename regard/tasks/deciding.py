"""How a decision is learned, and what a trained model would do: policy, values, support."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Batch, Learning, Nothing
from ..data.histories import AUTO, Columns
from ..errors import RecipeError
from ..model import Model
from ..score.decisions import ESTIMATORS
from .history import HistoryCoder, Window, windows_of

Array = NDArray[np.float64]


class Learner(NamedTuple):
    """A way to learn what to do."""

    loss: str
    values: int  # numbers told beside the scores of actions: so many times those, …
    extra: int  # … and so many more
    acts: Literal["likely", "best", "weighted"]


LEARNERS = {
    "clone": Learner("tokens", 0, 0, "likely"),
    "return": Learner("tokens", 0, 0, "likely"),
    "one-step": Learner("one-step", 1, 0, "best"),
    "iteration": Learner("iteration", 1, 0, "best"),
    "conservative": Learner("conservative", 1, 0, "best"),
    "implicit": Learner("implicit", 1, 1, "weighted"),
}


@dataclass(frozen=True)
class DecideSettings:
    """Where histories stand in a table, and how a decision is learned from them."""

    episode: Annotated[str, "the column that says which history a row is of"] = "episode"
    step: Annotated[str, "the column that counts its steps"] = "step"
    observation: Annotated[
        list[str], "the columns of what is observed, numbers or words; empty: all others"
    ] = field(default_factory=list)
    words: Annotated[list[str], "those of them whose numbers are names, such as ids of states"] = (
        field(default_factory=list)
    )
    action: Annotated[str, "the column of what was done"] = "action"
    reward: Annotated[list[str], "the columns of what was gained"] = field(
        default_factory=lambda: ["reward"]
    )
    reward_weights: Annotated[list[float], "what each of them counts; empty: 1 each"] = field(
        default_factory=list
    )
    probability: Annotated[
        str,
        "the column of how likely what was done was; auto: 'probability', where there is one; "
        "empty: it is estimated",
    ] = AUTO
    discount: Annotated[float, Gt(0), Le(1), "how much less the next reward counts"] = 1.0
    context: Annotated[int, Gt(0), Le(4096), "steps that a decision looks back at most"] = 20
    learner: Annotated[
        str, LEARNERS,
        "clone: do as was done; return: do what led to the return wished for; one-step: the best "
        "by what came of it; iteration: the best if the best is done ever after; conservative, "
        "implicit: the same with care",
    ] = "return"  # fmt: skip
    wish: Annotated[
        Literal["best"] | float,
        "learner=return: the return wished for, or how many spreads of advantage; best: the best "
        "recorded, or two",
    ] = "best"
    returns: Annotated[
        Literal["recorded", "advantage"],
        "learner=return: what a step is told to have led to: the return that was recorded; or how "
        "much more its action was worth than what was usual in its state, by all records (where "
        "observations are words)",
    ] = "recorded"
    guidance: Annotated[
        float, Ge(0), Le(100),
        "learner=return: how much further than the records the wish takes; 1: as they have it",
    ] = 1.0  # fmt: skip
    hidden: Annotated[
        float, Gt(0), Lt(1),
        "learner=return: share of histories read without their return, so that what was done is "
        "learned too",
    ] = 0.25  # fmt: skip
    support: Annotated[
        float, Ge(0), Le(1),
        "learners of values, and guidance above 1: an action is done only where it is at least so "
        "likely, beside the likeliest",
    ] = 0.3  # fmt: skip
    least: Annotated[
        int, Ge(1), "the same where observations are words alone: where it was recorded so often"
    ] = 10
    prior: Annotated[
        float, Ge(0),
        "tables: every action begins with so many made-up steps that led to what is usual in its "
        "state, so that a few lucky ones count little",
    ] = 0.0  # fmt: skip
    conservatism: Annotated[
        float, Ge(0), "learner=conservative: how far what was not done is pressed down"
    ] = 0.1
    expectile: Annotated[
        float, Gt(0), Lt(1), "learner=implicit: 0.5 is the mean of recorded actions, 1 the best"
    ] = 0.7
    temperature: Annotated[
        float, Gt(0), "learner=implicit: how much an action must be worth more to be done e times "
        "as often",
    ] = 0.1  # fmt: skip
    estimator: Annotated[
        str, ESTIMATORS, "the headline: wis, wpdis, dr, wdr, mdr, fqe, is or pdis"
    ] = "wdr"

    def __post_init__(self) -> None:
        if self.reward_weights and len(self.reward_weights) != len(self.reward):
            raise RecipeError(
                f"task.reward_weights must have one for each of {len(self.reward)} columns, but "
                f"has {len(self.reward_weights)}."
            )
        if not self.reward:
            raise RecipeError("task.reward must name a column.")

    @property
    def columns(self) -> Columns:
        return Columns(
            self.episode, self.step, self.observation, self.action, self.reward, self.probability
        )

    @property
    def how(self) -> Learning:
        return Learning(
            self.discount, self.support, self.least, self.prior, self.conservatism, self.expectile
        )

    @property
    def weights(self) -> list[float]:
        return list(self.reward_weights) or [1.0] * len(self.reward)


class Said(NamedTuple):
    """What a model says of the steps of a history."""

    policy: Array  # (T, A) how likely it would do what; or the numbers of what it would do
    behaviour: Array  # (T, A) the same of those who acted
    values: Array | None  # (T, A) what actions are worth
    states: Array  # (T, D) what it makes of each


class Decider:
    """What a model would do, told from what it says of each step."""

    def __init__(self, settings: DecideSettings, coder: HistoryCoder) -> None:
        self.settings, self.coder = settings, coder
        self.learner = LEARNERS[settings.learner]
        counts = [[row.get(name, 0) for name in coder.actions] for row in coder.counts]
        # What may be done in each state; in one that was never recorded, nothing was often enough.
        known = np.array(counts).reshape(len(counts), len(coder.actions)) >= settings.least
        self.allowed = torch.from_numpy(np.pad(known, ((1, 0), (0, 0))))  # (S, A)
        gains = [[row.get(name, 0.0) for name in coder.actions] for row in coder.gains]
        flat = np.array(gains).reshape(len(gains), len(coder.actions))
        self.gains = np.pad(flat, ((1, 0), (0, 0)))  # (S, A)
        if settings.returns == "advantage" and not coder.states:
            raise RecipeError(
                "task.returns=advantage needs observations that are words; use recorded."
            )

    def led_to(self, row: Mapping[str, Any], returns: Array) -> Array:
        """What each step of a row is told to have led to.  (T,)"""
        if self.settings.returns == "recorded":
            return returns
        found: Array = self.gains[row["states"], row["actions"]] * self.coder.scale
        return found

    def all_windows(self, lengths: Sequence[int], budget: int) -> Iterator[list[Window]]:
        """Windows of histories of these lengths, some at a time."""
        context = self.settings.context
        every = [w for row, steps in enumerate(lengths) for w in windows_of(row, steps, context)]
        every.sort(key=lambda window: window.end - window.start)
        while every:
            count = max(1, budget // (every[-1].end - every[-1].start))
            yield every[-count:]
            del every[-count:]

    def wished(self, gained: Array) -> Array:
        """What is still to come at each step, if the wish is to be had.  (T,) -> (T + 1,)"""
        s = self.settings
        if s.returns == "advantage":
            wish = 2.0 if s.wish == "best" else float(s.wish)
            return np.full(len(gained) + 1, wish * self.coder.scale)
        left = [self.coder.best if s.wish == "best" else float(s.wish)]
        for some in gained:
            left.append((left[-1] - float(some)) / s.discount)
        # What is left of a wish grows where later rewards count less; no more was ever recorded.
        found: Array = np.clip(np.array(left), -self.coder.scale, self.coder.scale)
        return found

    def says(
        self,
        model: Model,
        rows: Sequence[Mapping[str, Any]],
        gained: Sequence[Array],
        budget: int,
    ) -> list[Said]:
        """What a model says of every step of some histories."""
        lengths = [len(row["actions"]) for row in rows]
        found: list[dict[int, tuple[Array, ...]]] = [{} for _ in rows]
        for windows in self.all_windows(lengths, budget):
            some = [rows[window.row] for window in windows]
            wishes = [self.wished(gained[window.row]) for window in windows]
            for window, *said in zip(windows, *self.say(model, some, windows, wishes), strict=True):
                for at in range(window.first, window.end - window.start):
                    found[window.row][window.start + at] = tuple(part[at] for part in said)
        made = []
        for steps, row in zip(lengths, found, strict=True):
            policy, behaviour, values, states = (
                np.stack(part) for part in zip(*(row[at] for at in range(steps)), strict=True)
            )
            made.append(Said(policy, behaviour, values if self.learner.values else None, states))
        return made

    @torch.inference_mode()
    def say(
        self,
        model: Model,
        rows: Sequence[Mapping[str, Any]],
        windows: Sequence[Window],
        wishes: Sequence[Array],
    ) -> tuple[list[Array], ...]:
        """Policy, behaviour, values and states of windows.  -> (T, …) each, by window"""
        device = next(model.parameters()).device
        plain = Batch(self.coder.read(rows, windows, [None] * len(rows)), Nothing()).to(device)
        states = model.states(plain).states
        scores: Tensor = model.output(states).float()
        count = self.coder.degrees or len(self.coder.actions)
        logits, values = scores[..., :count], scores[..., count : 2 * count] * self.coder.scale
        if self.settings.learner == "return":
            towards = Batch(self.coder.read(rows, windows, list(wishes)), Nothing()).to(device)
            policy: Tensor = model(towards).float()
            if not self.coder.degrees:
                more = self.settings.guidance
                apart = policy.log_softmax(-1) - logits.log_softmax(-1)
                policy = logits.log_softmax(-1) + more * apart
                if more > 1:  # beyond what the records have, only as far as they go
                    supported = self.supported(logits.softmax(-1), plain.read.states)
                    policy = policy.masked_fill(~supported, float("-inf"))
                policy = policy.softmax(-1)
        else:
            policy = logits if self.coder.degrees else self.act(logits, values, plain.read.states)
        behaviour = logits if self.coder.degrees else logits.softmax(-1)
        parts = (policy, behaviour, values, states.float())
        return tuple(list(part.double().cpu().numpy()) for part in parts)

    def act(self, logits: Tensor, values: Tensor, states: Tensor) -> Tensor:
        """How likely each action is done.  (…, A), (…, A), (…) -> (…, A)"""
        chances = logits.softmax(-1)
        if self.learner.acts == "likely":
            return chances
        if self.learner.acts == "weighted":
            weighed = logits.log_softmax(-1) + values / self.settings.temperature
            return weighed.masked_fill(~self.supported(chances, states), float("-inf")).softmax(-1)
        supported = self.supported(chances, states)
        best = values.masked_fill(~supported, float("-inf")).argmax(-1)
        return torch.nn.functional.one_hot(best, logits.shape[-1]).to(chances)

    def supported(self, chances: Tensor, states: Tensor) -> Tensor:
        """Which actions the records speak of.  (…, A), (…) -> (…, A)"""
        most = chances.amax(-1, keepdim=True)
        if not self.coder.states:
            return chances >= self.settings.support * most
        found = self.allowed.to(states.device)[states]
        # Where nothing was done often enough, what was done most often is done.
        return torch.where(found.any(-1, keepdim=True), found, chances == most)
