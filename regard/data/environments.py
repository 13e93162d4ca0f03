"""Processes to decide in, and records of what was decided there."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, InputError
from .histories import Seen

Array = NDArray[np.float64]
COLOURS = ("red", "green", "blue")


class Environment(Protocol):
    """What is observed, what can be done, and what comes of it."""

    columns: Sequence[str]
    actions: Sequence[str]

    def reset(self, rng: np.random.Generator) -> list[Seen]:
        """A new history: what is observed first."""

    def step(self, action: int) -> tuple[list[Seen], float, bool]:
        """What is observed then, what was gained, and whether that was the end."""

    def usual(self) -> Array:
        """How likely whoever is recorded would do what, here and now.  -> (A,)"""


class Sofar(NamedTuple):
    """A history up to the step that waits for a decision."""

    observations: list[list[Seen]]
    actions: list[str]
    rewards: list[float]


Policy = Callable[[Sofar], Sequence[float]]  # -> (A,) how likely what is done


class KeyDoor:
    """A key of some colour, a corridor, and three doors: only the key's own opens.

    The key is seen at the first step alone, so that who forgets it can but guess. In the corridor
    one may walk on or wait; at the doors one is chosen. Whoever is recorded chooses blindly.
    """

    columns: Sequence[str] = ("sees",)
    actions: Sequence[str] = ("walk", "wait", *COLOURS)

    def __init__(self, shortest: int = 2, longest: int = 6) -> None:
        self.bounds = shortest, longest

    def reset(self, rng: np.random.Generator) -> list[Seen]:
        self.colour, self.left = (
            int(rng.integers(3)),
            int(rng.integers(*self.bounds, endpoint=True)),
        )
        self.at_key = True
        return [f"a {COLOURS[self.colour]} key"]

    def step(self, action: int) -> tuple[list[Seen], float, bool]:
        if self.left == 0:
            return ["nothing"], float(action == 2 + self.colour), True
        if action == 0:
            self.at_key, self.left = False, self.left - 1
        return self.seen(), 0.0, False

    def seen(self) -> list[Seen]:
        if self.at_key:
            return [f"a {COLOURS[self.colour]} key"]
        return ["three doors" if self.left == 0 else "a corridor"]

    def usual(self) -> Array:
        if self.left == 0:
            return np.array([0.0, 0.0, 1 / 3, 1 / 3, 1 / 3])
        return np.array([0.75, 0.25, 0.0, 0.0, 0.0])


class Gymnasium:
    """An environment of Gymnasium's with actions that can be counted."""

    def __init__(self, name: str) -> None:
        try:
            import gymnasium

            if name.startswith("Sepsis/"):
                # Importing it tells Gymnasium its names.
                import icu_sepsis  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"'{name}' is an environment of Gymnasium's; pip install 'regard[decisions]'."
            ) from error
        try:
            self.made = gymnasium.make(name)
        except gymnasium.error.Error as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise InputError(
                f"'{name}': there is no such environment ({why}); keydoor comes with regard, the "
                "others are Gymnasium's."
            ) from error
        seen, done = self.made.observation_space, self.made.action_space
        if not isinstance(done, gymnasium.spaces.Discrete):
            raise InputError(f"'{name}': what is done must be one of some actions, but is {done}.")
        if isinstance(seen, gymnasium.spaces.Discrete):
            self.columns: Sequence[str] = ("state",)
        elif isinstance(seen, gymnasium.spaces.Box):
            self.columns = [f"o{at}" for at in range(math.prod(seen.shape))]
        else:
            raise InputError(f"'{name}': what is observed must be numbers or an id, but is {seen}.")
        self.actions: Sequence[str] = [str(at) for at in range(int(done.n))]

    def reset(self, rng: np.random.Generator) -> list[Seen]:
        found, _ = self.made.reset(seed=int(rng.integers(2**31)))
        return self.seen(found)

    def step(self, action: int) -> tuple[list[Seen], float, bool]:
        found, reward, ended, cut, _ = self.made.step(action)
        return self.seen(found), float(reward), bool(ended or cut)

    def seen(self, found: Any) -> list[Seen]:
        self.last = found
        return [float(value) for value in np.asarray(found).reshape(-1)]

    def usual(self) -> Array:
        told = getattr(self.made.unwrapped, "expert_policy", None)
        if told is None:
            return np.full(len(self.actions), 1 / len(self.actions))
        chances = np.asarray(told[int(self.last)], np.float64)
        found: Array = chances / chances.sum()
        return found


def make(name: str) -> Environment:
    return KeyDoor() if name == "keydoor" else Gymnasium(name)


def episodes(
    environment: Environment, policy: Policy | None, count: int, seed: int, longest: int
) -> Iterator[tuple[Sofar, list[float]]]:
    """Histories with how likely each action was; without a policy, those of the usual one."""
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        so_far, chances = Sofar([environment.reset(rng)], [], []), list[float]()
        for _ in range(longest):
            told = environment.usual() if policy is None else np.asarray(policy(so_far), np.float64)
            action = int(np.searchsorted(np.cumsum(told), rng.random() * told.sum(), side="right"))
            action = min(action, int(np.flatnonzero(told)[-1]))
            seen, reward, ended = environment.step(action)
            so_far.actions.append(environment.actions[action])
            so_far.rewards.append(reward)
            chances.append(float(told[action] / told.sum()))
            if ended:
                break
            so_far.observations.append(seen)
        del so_far.observations[len(so_far.actions) :]
        yield so_far, chances


def write(
    path: Path, environment: Environment, told: Iterator[tuple[Sofar, list[float]]]
) -> tuple[int, float]:
    """A table with a row a step.  -> how many steps, and the mean return"""
    steps, gained, count = 0, 0.0, 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(
                ["episode", "step", *environment.columns, "action", "reward", "probability"]
            )
            for so_far, chances in told:
                for at, seen in enumerate(so_far.observations):
                    shown = [f"{v:.10g}" if isinstance(v, float) else v for v in seen]
                    out.writerow([count, at, *shown, so_far.actions[at],
                                  f"{so_far.rewards[at]:g}", f"{chances[at]:.6g}"])  # fmt: skip
                steps, gained, count = steps + len(chances), gained + sum(so_far.rewards), count + 1
    except OSError as error:
        raise DataError(f"{path}: could not be written ({error.strerror}).") from error
    return steps, gained / max(count, 1)
