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

from ..errors import DataError
from .read import Faults
from .table import names, rows

Seen = float | str | None  # None: it was not recorded
Done = str | list[float]
AUTO = "auto"  # a probability is taken where there is a column of that name


class History(NamedTuple):
    """One episode. `probabilities` are those of what was done, under whoever did it; empty where
    they were not recorded."""

    episode: str
    observations: list[list[Seen]]  # a list a step
    actions: list[Done]
    rewards: list[list[float]]  # one of each column of rewards a step
    probabilities: list[float]
    where: str  # its first row
    columns: list[str]  # what an observation has


class Columns(NamedTuple):
    """Which columns of a table hold what; a column that nobody names is empty."""

    episode: str
    step: str
    observation: Sequence[str]
    action: str
    reward: Sequence[str]
    probability: str = ""

    def named(self) -> list[tuple[str, str]]:
        """Each after the setting that names it, for messages."""
        found = [("task.episode", self.episode), ("task.step", self.step)]
        found += [("task.action", self.action)]
        found += [("task.reward", name) for name in self.reward]
        found += [("task.probability", self.probability)] if self.probability else []
        return found + [("task.observation", name) for name in self.observation]


class Step(NamedTuple):
    """One row."""

    number: int
    seen: list[Seen]
    done: Done
    rewards: list[float]
    probability: float | None


class FaultError(ValueError):
    """Why a row cannot be used."""


class Unread(Faults):
    """Rows that cannot be read at all, counted by themselves too."""

    def __init__(self, faults: Faults) -> None:
        self.faults, self.own, self.skip = faults, 0, faults.skip

    def report(self, where: str, what: str) -> None:
        self.faults.report(where, what)
        self.own += 1


def read(files: Sequence[Path], columns: Columns, faults: Faults) -> Iterator[History]:
    """Episodes in the order of the files. Where no column of an observation is named, all are that
    nobody names; and a probability is taken where there is one."""
    ended: set[str] = set()
    asked = columns
    for path in files:
        if path.suffix in (".hdf5", ".h5"):
            yield from minari(path, faults)
            continue
        columns = complete(path, asked)
        unread, torn = Unread(faults), False
        told = rows(path, columns.named(), unread)
        for episode, group in groupby(told, lambda row: str(row[1][0])):
            # Whose a row was that could not be read, nobody knows: of this episode or of the next.
            before, unread.own = torn or unread.own > 0, 0
            some = list(group)
            where = some[0][0]
            torn, unread.own = unread.own > 0, 0
            if before or torn:
                ended.add(episode)
                continue
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
                    step = one(values, len(columns.reward), bool(columns.probability))
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
                    [s.rewards for s in steps],
                    [s.probability for s in steps if s.probability is not None], where,
                    list(columns.observation),
                )  # fmt: skip


def minari(path: Path, faults: Faults) -> Iterator[History]:
    """Episodes of a Minari dataset, its `main_data.hdf5`; observations are o0, o1, …"""
    try:
        import h5py
    except ImportError as error:
        raise DataError(f"{path}: HDF5 needs h5py; pip install 'regard[decisions]'.") from error
    try:
        with h5py.File(path) as file:
            names = sorted(file, key=lambda name: int(name.rpartition("_")[2]))
            for name in names:
                group = file[name]
                seen, done, gained = (group[k][()] for k in ("observations", "actions", "rewards"))
                try:
                    yield episode_of(name, seen, done, gained, f"{path}:{name}")
                except FaultError as error:
                    faults.report(f"{path}:{name}", str(error))
    except (OSError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: cannot be read as a Minari dataset ({error}).") from error


def episode_of(name: str, seen: Any, done: Any, gained: Any, where: str) -> History:
    """Arrays (T + 1, …), (T, …) and (T,) as a history; what was seen at its end is left out."""
    steps = len(done)
    if not steps or len(gained) != steps or len(seen) < steps:
        raise FaultError(
            f"there must be as many actions as rewards, and observations of all, but there are "
            f"{len(done)}, {len(gained)} and {len(seen)}"
        )
    flat = seen.reshape(len(seen), -1)[:steps].tolist()
    columns = ["state"] if seen.ndim == 1 else [f"o{at}" for at in range(len(flat[0]))]
    return History(
        name, [[as_seen(value) for value in one] for one in flat],
        [as_done(one) for one in done.tolist()], [[as_reward(value)] for value in gained.tolist()],
        [], where, columns,
    )  # fmt: skip


def complete(path: Path, columns: Columns) -> Columns:
    """With what a file says itself."""
    if columns.observation and columns.probability != AUTO:
        return columns
    known = names(path)
    if columns.probability == AUTO:
        found = "probability" if "probability" in known else ""
        columns = columns._replace(probability=found)
    if not columns.observation:
        # How likely what was done was tells what was done: it is never observed.
        taken = {"probability", *(name for _, name in columns.named())}
        columns = columns._replace(observation=[name for name in known if name not in taken])
    if not columns.observation:
        raise DataError(f"{path}: there must be a column of observations, but there is none.")
    return columns


def one(values: Sequence[Any], rewards: int, has_probability: bool) -> Step:
    """A row's values, in the order of `Columns.named`."""
    _, step, action, *rest = values
    number = as_number(step)
    if number is None or number != int(number):
        raise FaultError(f"a step must be a whole number, but is {shown(step)}")
    gained = [as_reward(value) for value in rest[:rewards]]
    rest, chance = rest[rewards:], None
    if has_probability:
        told = rest.pop(0)
        chance = as_number(told)
        if chance is None or not 0 < chance <= 1:
            raise FaultError(
                f"the probability of what was done must be above 0 and at most 1, but is "
                f"{shown(told if chance is None else chance)}"
            )
    return Step(int(number), [as_seen(value) for value in rest], as_done(action), gained, chance)


def as_reward(value: Any) -> float:
    found = as_number(value)
    if found is None:
        raise FaultError(f"a reward must be a number, but is {shown(value)}")
    return found


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
