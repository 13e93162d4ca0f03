"""Recorded histories: what was observed, done and gained, step after step; a row of a table each.

Rows of an episode stand together and count up by one. A row that cannot be used takes its whole
episode with it, for what comes after it would not be what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from .read import Faults
from .table import rows

Seen = float | str | None  # None: it was not recorded
Done = str | list[float]


class History(NamedTuple):
    """One episode. `probabilities` are those of what was done, under whoever did it; empty where
    they were not recorded."""

    episode: str
    observations: list[list[Seen]]  # a list a step
    actions: list[Done]
    rewards: list[float]
    probabilities: list[float]
    where: str  # its first row


class Columns(NamedTuple):
    """Which columns of a table hold what; a column that nobody names is empty."""

    episode: str
    step: str
    observation: Sequence[str]
    action: str
    reward: str
    probability: str = ""

    def named(self) -> list[tuple[str, str]]:
        """Each after the setting that names it, for messages."""
        found = [("task.episode", self.episode), ("task.step", self.step)]
        found += [("task.action", self.action), ("task.reward", self.reward)]
        found += [("task.probability", self.probability)] if self.probability else []
        return found + [("task.observation", name) for name in self.observation]


class Step(NamedTuple):
    """One row."""

    number: int
    seen: list[Seen]
    done: Done
    reward: float
    probability: float | None


class FaultError(ValueError):
    """Why a row cannot be used."""


def read(files: Sequence[Path], columns: Columns, faults: Faults) -> Iterator[History]:
    """Episodes in the order of the files."""
    ended: set[str] = set()
    for path in files:
        told = rows(path, columns.named(), faults)
        for episode, group in groupby(told, lambda row: str(row[1][0])):
            some = list(group)
            where = some[0][0]
            if episode in ended:
                faults.report(
                    where,
                    f"the rows of an episode must stand together, but '{episode}' has ended before",
                )
                continue
            ended.add(episode)
            steps: list[Step] = []
            for place, values in some:
                try:
                    step = one(values, bool(columns.probability))
                    if steps and step.number != steps[-1].number + 1:
                        raise FaultError(
                            "the steps of an episode must count up by one, but after "
                            f"{steps[-1].number} comes {step.number}"
                        )
                except FaultError as error:
                    faults.report(place, str(error))
                    break
                steps.append(step)
            else:
                yield History(
                    episode, [s.seen for s in steps], [s.done for s in steps],
                    [s.reward for s in steps],
                    [s.probability for s in steps if s.probability is not None], where,
                )  # fmt: skip


def one(values: Sequence[Any], has_probability: bool) -> Step:
    """A row's values, in the order of `Columns.named`."""
    _, step, action, reward, *rest = values
    number = as_number(step)
    if number is None or number != int(number):
        raise FaultError(f"a step must be a whole number, but is {shown(step)}")
    gained = as_number(reward)
    if gained is None:
        raise FaultError(f"a reward must be a number, but is {shown(reward)}")
    chance: float | None = None
    if has_probability:
        chance = as_number(rest.pop(0))
        if chance is None or not 0 < chance <= 1:
            raise FaultError(
                f"the probability of what was done must be above 0 and at most 1, but is "
                f"{shown(chance if chance is not None else values[4])}"
            )
    return Step(int(number), [as_seen(value) for value in rest], as_done(action), gained, chance)


def as_number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def as_seen(value: Any) -> Seen:
    """A number or a word; nothing, or what is no number, was not recorded."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and value.strip().lower() in ("", "nan", "na", "null"):
        return None
    number = as_number(value)
    if number is not None:
        return number
    if isinstance(value, str):
        return value
    raise FaultError(f"an observation must be a number or a word, but is {shown(value)}")


def as_done(value: Any) -> Done:
    """A word or a whole number; or a list of numbers, where what is done is a matter of degree."""
    if isinstance(value, list):
        found = [as_number(each) for each in value]
        if found and all(each is not None for each in found):
            return [each for each in found if each is not None]
    elif isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    elif isinstance(value, str) and value.strip():
        return value.strip()
    raise FaultError(f"an action must be a word, a whole number or numbers, but is {shown(value)}")


def shown(value: object) -> str:
    said = repr(value) if isinstance(value, str) else str(value)
    return said if len(said) <= 40 else f"{said[:40]}…"
