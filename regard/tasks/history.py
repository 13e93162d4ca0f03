"""Histories as tasks meet them: how they are given, kept in a store, and put into a batch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Choices, HistorySizes, Learning, Steps
from ..data.histories import Done, FaultError, History, Seen, as_done, as_number, as_seen
from ..data.read import Faults, parse_json, read_json, records, table
from ..data.read import kind_of as kind_of_file
from ..data.store import Field, Store, ids_below
from ..errors import DataError, InputError, RunError
from ..score.decisions import to_go
from ..score.fitted import Named, Records, evaluated
from .form import kind_of
from .graph import Scale

MOST_STATES = 2**17  # combinations of words that are counted one by one
MOST_SENT = 10_000  # steps of a history over HTTP
FARTHEST = 1e4  # spreads that a number may lie from its mean
HELD_BACK = 30  # made-up steps of no advantage that each action begins with
MISSING, UNHEARD = "[not recorded]", "[unknown]"


class GivenHistory(NamedTuple):
    """A history that somebody gives: the last step waits for a decision."""

    observations: list[list[Seen]]
    actions: list[Done]  # of all steps but the last
    rewards: list[float]  # as many
    name: str


class HistoryForm:
    """A history: JSON, a list of steps; or the path of a table of them."""

    kind = "history"
    from_file = False

    def __init__(
        self, coder: HistoryCoder, episode: str, action: str, rewards: Mapping[str, float]
    ) -> None:
        self.coder, self.episode, self.action, self.rewards = coder, episode, action, rewards
        # What is known only after a decision has an arrow before its name.
        self.labels: tuple[str, ...] = (
            *coder.columns, f"→ {action}", *(f"→ {name}" for name in rewards),
        )  # fmt: skip

    def parse(self, word: str, number: int = 1) -> GivenHistory:
        if word.lstrip().startswith(("[", "{")):
            return self.accept(word, number)
        path = Path(word)
        try:
            if kind_of_file(path) == ".jsonl":
                rows = [record for _, record in records(path, Faults())]
            elif kind_of_file(path) == ".json":
                return self.accept(read_json(path), number)._replace(name=word)
            elif kind_of_file(path) in (".csv", ".tsv"):
                lines = table(path, "\t" if kind_of_file(path) == ".tsv" else ",", False)
                _, head = next(lines, (1, []))
                named = [name.strip() for name in head]
                rows = [dict(zip(named, cells, strict=False)) for _, cells in lines if any(cells)]
            else:
                raise InputError(
                    f"input {number}: must be a history as JSON, or a .jsonl, .json, .csv or .tsv "
                    f"file of one, but is '{word[:60]}'."
                )
        except (ValueError, DataError) as error:
            raise InputError(f"input {number}: {word}: cannot be read ({error}).") from error
        several = {str(row.get(self.episode, "")) for row in rows}
        if len(several) > 1:
            raise InputError(
                f"input {number}: {word}: must hold one history, but holds {len(several):,}; give "
                "the rows of one."
            )
        return self.accept(rows, number)._replace(name=word)

    def accept(self, sent: object, number: int = 1) -> GivenHistory:
        if isinstance(sent, GivenHistory):
            return sent
        given = sent
        if isinstance(sent, str):
            try:  # a list; or, as the page has it, a step a line
                text = sent.strip()
                lines = [line for line in text.splitlines() if line.strip()]
                given = (
                    [parse_json(line) for line in lines]
                    if text.startswith("{") and len(lines) > 1
                    else parse_json(text)
                )
            except ValueError as error:
                raise InputError(f"input {number}: {error}.") from error
        if isinstance(given, dict):
            given = given.get("history", [given])
        if not isinstance(given, list) or not all(isinstance(step, dict) for step in given):
            example = json.dumps(dict.fromkeys(self.coder.columns[:2], "…"), ensure_ascii=False)
            raise InputError(
                f"input {number}: must be a list of steps, [{example}, …], but is {kind_of(sent)}."
            )
        if not 0 < len(given) <= MOST_SENT:
            raise InputError(
                f"input {number}: a history has 1 to {MOST_SENT:,} steps here, but this has "
                f"{len(given):,}."
            )
        found = GivenHistory([], [], [], "")
        for at, step in enumerate(given, 1):
            try:
                self.add(found, step, last=at == len(given))
            except FaultError as error:
                raise InputError(f"input {number}: step {at}: {error}.") from error
        return found._replace(
            name=sent if isinstance(sent, str) else json.dumps(given, ensure_ascii=False)
        )

    def add(self, found: GivenHistory, step: Mapping[str, Any], last: bool) -> None:
        """One more step; what was done at the last, and came of it, is not looked at."""
        missing = [name for name in self.coder.columns if name not in step]
        if missing:
            raise FaultError(
                f"'{missing[0]}' is missing; an observation has {', '.join(self.coder.columns)} "
                "(null: not recorded)"
            )
        found.observations.append([as_seen(step[name]) for name in self.coder.columns])
        if last:
            return
        if self.action not in step:
            raise FaultError(f"'{self.action}' is missing: what was done there must be told")
        found.actions.append(self.coder.known_action(as_done(step[self.action])))
        gained = 0.0
        for name, weight in self.rewards.items():
            told = step.get(name)
            value = 0.0 if told is None or told == "" else as_number(told)
            if value is None:
                raise FaultError(f"'{name}' must be a number, but is {step[name]!r}")
            gained += weight * value
        found.rewards.append(gained)

    def show(self, given: GivenHistory) -> str:
        return given.name


class Window(NamedTuple):
    """Steps of a history that are read together, and from which on they are asked about."""

    row: int
    start: int
    end: int
    first: int  # counted from the start
    more: int = 0  # steps that are read behind them, to see what an action led to


class Column:
    """What is met in a column of observations: numbers, or words."""

    def __init__(self, name: str, named: bool) -> None:
        """`named`: its numbers are names."""
        self.name, self.named = name, named
        self.words, self.numbers = set[str](), Scale()

    def add(self, values: Sequence[Seen], where: str) -> None:
        there = [value for value in values if value is not None]
        numbers = [v for v in there if isinstance(v, float) and not self.named]
        self.words |= {as_word(v) for v in there if self.named or isinstance(v, str)}
        self.numbers.add([[number] for number in numbers], where)

    def scale(self) -> list[float] | None:
        """Mean and spread of its numbers; None: it has words, or nothing."""
        if self.words and self.numbers.count:
            raise DataError(
                f"task.observation: '{self.name}' has numbers and words ({min(self.words)!r}); "
                f'name it in task.words if all are names, such as task.words=["{self.name}"].'
            )
        if not self.numbers.count:
            return None
        (mean,), (spread,) = self.numbers.found()
        return [mean, spread or 1.0]


class HistoryCoder:
    """Histories on their way into a model: what columns, words, states and actions there are."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """`told` is what `learn` found."""
        self.told = dict(told)
        self.columns: list[str] = told["columns"]
        self.actions: list[str] = told["actions"]
        self.degrees: int = told["degrees"]  # numbers of an action, where it has some
        # Mean and spread of each column of numbers; None: it has words.
        self.scales: list[list[float] | None] = told["scales"]
        self.vocabulary: list[str] = told["vocabulary"]
        self.scale: float = told["scale"]  # of returns
        self.best: float = told["best"]  # return that was recorded
        # Which words came together, and how often each action was taken there.
        self.states: list[list[int]] = told["states"]
        self.counts: list[dict[str, int]] = told["counts"]
        self.gains: list[dict[str, float]] = told["gains"]  # of actions beyond what is usual there
        self.ids = {word: at for at, word in enumerate(self.vocabulary)}
        self.numbers = {name: at for at, name in enumerate(self.actions)}
        self.state_ids = {tuple(words): at for at, words in enumerate(self.states, 1)}
        self.numeric = [at for at, scale in enumerate(self.scales) if scale is not None]
        self.worded = [at for at, scale in enumerate(self.scales) if scale is None]

    @classmethod
    def learn(
        cls,
        columns: Sequence[str],
        words: Sequence[str],
        weights: Sequence[float],
        discount: float,
        histories: Iterable[History],
    ) -> HistoryCoder:
        """`words`: columns whose numbers are names."""
        seen = [Column(name, name in words) for name in columns]
        actions: dict[str, None] = {}
        degrees, best, scale = 0, -math.inf, 0.0
        for history in histories:
            if history.columns != list(columns):
                raise DataError(
                    f"{history.where}: all files must have the same columns of observations "
                    f"({', '.join(columns[:10])}), but here are {', '.join(history.columns[:10])}."
                )
            for column, values in zip(seen, zip(*history.observations, strict=True), strict=True):
                column.add(values, history.where)
            for done in history.actions:
                size = len(done) if isinstance(done, list) else 0
                if degrees != size and (degrees or actions):
                    raise DataError(
                        f"{history.where}: all actions must be words, or all the same number of "
                        "numbers, but here they differ."
                    )
                degrees = size
                if isinstance(done, str):
                    actions[done] = None
            gained = returns_of(history.rewards, weights, discount)
            best, scale = max(best, gained[0]), max(scale, float(np.abs(gained).max()))
        vocabulary = [MISSING, UNHEARD]
        vocabulary += [f"{column.name}={word}" for column in seen for word in sorted(column.words)]
        made = cls({
            "columns": list(columns), "actions": sorted(actions, key=by_number),
            "degrees": degrees, "scales": [column.scale() for column in seen],
            "vocabulary": vocabulary, "scale": scale if scale > 1e-9 else 1.0, "best": best,
            "states": [], "counts": [], "gains": [],
        })  # fmt: skip
        return made if made.numeric or degrees else made.counted(histories, weights, discount)

    def counted(
        self, histories: Iterable[History], weights: Sequence[float], discount: float
    ) -> HistoryCoder:
        """With which words came together, and what was done there; without, where too many did."""
        met: dict[tuple[int, ...], dict[str, int]] = {}
        for history in histories:
            for seen, done in zip(history.observations, history.actions, strict=True):
                state = met.setdefault(tuple(self.words_of(seen)), {})
                state[str(done)] = state.get(str(done), 0) + 1
            if len(met) > MOST_STATES:
                return self
        told = {"states": [list(state) for state in met], "counts": [*met.values()]}
        known = HistoryCoder(self.told | told)
        return HistoryCoder(known.told | {"gains": known.advantages(histories, weights, discount)})

    def advantages(
        self, histories: Iterable[History], weights: Sequence[float], discount: float
    ) -> list[dict[str, float]]:
        """How much more each action was worth in each state than what was usual there, by values
        fitted to all histories; what was seldom done is held back."""
        ids, actions, gained, ends = [], list[int](), list[float](), list[bool]()
        for history in histories:
            ids += [self.state_ids[tuple(self.words_of(seen))] for seen in history.observations]
            actions += [self.numbers[str(done)] for done in history.actions]
            gained += (np.asarray(history.rewards) @ np.asarray(weights)).tolist()
            ends += [False] * (len(history.actions) - 1) + [True]
        table = np.zeros((len(self.states) + 1, len(self.actions)))
        np.add.at(table, (ids, actions), 1.0)
        usual = table / np.maximum(table.sum(1, keepdims=True), 1.0)
        states = Named(np.array(ids), len(table))
        records = Records(np.array(actions), np.array(gained), np.array(ends), usual[ids], discount)
        evaluated(records, states, np.ones(len(ids)), 1000)
        worth = (usual * states.table).sum(1, keepdims=True)
        held = (states.table - worth) * table / (table + HELD_BACK)
        spread = math.sqrt(float((table * held**2).sum() / table.sum()))
        held /= spread if spread > 1e-9 else 1.0
        return [
            {self.actions[at]: round(float(held[state, at]), 4) for at in np.flatnonzero(row)}
            for state, row in enumerate(table[1:], 1)
        ]

    def artefact(self) -> str:
        return json.dumps(self.told, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, folder: Path) -> HistoryCoder:
        path = folder / "history.json"
        try:
            return cls(read_json(path))
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path}: the columns and actions must be there and readable, but are not."
            ) from error

    def sizes(self, values: int, wished: bool) -> HistorySizes:
        return HistorySizes(
            len(self.numeric), len(self.worded), len(self.vocabulary),
            len(self.states) + 1 if self.states else 0, self.degrees or len(self.actions),
            bool(self.degrees), values, wished,
        )  # fmt: skip

    # One step.

    def words_of(self, seen: Sequence[Seen]) -> list[int]:
        found = []
        for at in self.worded:
            value = seen[at]
            name = "" if value is None else f"{self.columns[at]}={as_word(value)}"
            found.append(self.ids.get(name, 1) if name else 0)
        return found

    def numbers_of(self, seen: Sequence[Seen]) -> list[float]:
        """NaN: not recorded."""
        found = []
        for at in self.numeric:
            value, scale = seen[at], self.scales[at]
            assert scale is not None
            if isinstance(value, str):
                raise FaultError(f"'{self.columns[at]}' must be a number, but is '{value[:40]}'")
            scaled = math.nan if value is None else (value - scale[0]) / scale[1]
            found.append(scaled if value is None else max(-FARTHEST, min(FARTHEST, scaled)))
        return found

    def known_action(self, done: Done) -> Done:
        if isinstance(done, list) != bool(self.degrees):
            wanted = f"{self.degrees} numbers" if self.degrees else "a word"
            raise FaultError(f"an action must be {wanted} here, but is {done}")
        if isinstance(done, list) and len(done) != self.degrees:
            raise FaultError(f"an action must have {self.degrees} numbers, but has {len(done)}")
        if isinstance(done, str) and done not in self.numbers:
            some = ", ".join(self.actions[:8]) + (", …" if len(self.actions) > 8 else "")
            raise FaultError(f"an action must be one that training has ({some}), but is '{done}'")
        return done

    def action_id(self, done: Done) -> Any:
        return done if isinstance(done, list) else self.numbers[done]

    # As rows of a store.

    @property
    def fields(self) -> Mapping[str, Field]:
        found = {
            "numbers": Field("float32", (len(self.numeric),)),
            "words": Field(ids_below(len(self.vocabulary)).dtype, (len(self.worded),)),
            "states": ids_below(len(self.states) + 1),
            "actions": Field("float32", (self.degrees,))
            if self.degrees
            else ids_below(len(self.actions)),
        }
        return {name: f for name, f in found.items() if 0 not in f.shape}

    def row(
        self, observations: Sequence[Sequence[Seen]], actions: Sequence[Done]
    ) -> dict[str, Any]:
        """Steps as arrays; a step that waits for its action has the first."""
        words = [self.words_of(seen) for seen in observations]
        blank = [0.0] * self.degrees if self.degrees else 0
        done = [self.action_id(self.known_action(one)) for one in actions]
        done += [blank] * (len(observations) - len(done))
        return {
            "numbers": np.array([self.numbers_of(seen) for seen in observations], np.float32),
            "words": np.array(words, np.int64).reshape(len(observations), -1),
            "states": np.array([self.state_ids.get(tuple(w), 0) for w in words], np.int64),
            "actions": np.array(done, np.float32 if self.degrees else np.int64),
        }

    # As a batch.

    def stored(self, store: Store, row: int) -> dict[str, Any]:
        """The same of a row of a store."""
        found = {name: store.array(name, row) for name in self.fields}
        steps = len(found["actions"])
        for name in ("numbers", "words"):
            if name not in found:
                found[name] = np.zeros((steps, 0), np.float32)
        return found

    def read(
        self,
        rows: Sequence[Mapping[str, Any]],
        windows: Sequence[Window],
        wished: Sequence[NDArray[np.float64] | None],
    ) -> Steps:
        """Windows side by side; `wished` are the returns of the whole of each row."""
        width = max(window.end + window.more - window.start for window in windows)

        def put(name: str, fill: float, dtype: torch.dtype) -> Tensor:
            first = np.asarray(rows[0][name])
            out = np.full((len(rows), width, *first.shape[1:]), fill, np.float64)
            for at, (row, window) in enumerate(zip(rows, windows, strict=True)):
                piece = np.asarray(row[name])[window.start : window.end + window.more]
                out[at, : len(piece)] = piece
            return torch.from_numpy(out).to(dtype)

        numbers = put("numbers", 0.0, torch.float32)
        known = numbers.isfinite()
        returns = np.full((len(rows), width), math.nan)
        times = np.zeros((len(rows), width), np.int64)
        for at, window in enumerate(windows):
            end = window.end + window.more
            size = end - window.start
            times[at, :size] = np.arange(window.start, end)
            told = wished[at]
            if told is not None:
                returns[at, :size] = told[window.start : end] / self.scale
        return Steps(
            numbers.nan_to_num(), known.float(), put("words", 0, torch.long),
            put("states", 0, torch.long),
            put("actions", 0, torch.float32 if self.degrees else torch.long),
            torch.from_numpy(returns).float(), torch.from_numpy(times),
            torch.tensor([window.end + window.more - window.start for window in windows]),
        )  # fmt: skip

    def asked(
        self,
        read: Steps,
        windows: Sequence[Window],
        gained: Sequence[NDArray[np.float64]],
        came: Sequence[NDArray[np.float64]],
        how: Learning,
        parts: int,
    ) -> Choices:
        """What was done in the windows; `gained` and `came` are rewards and returns of the whole of
        each row."""
        rewards, returns, ends = (np.zeros(read.returns.shape) for _ in range(3))
        for at, (window, some, whole) in enumerate(zip(windows, gained, came, strict=True)):
            size = window.end - window.start
            rewards[at, :size] = some[window.start : window.end] / self.scale
            returns[at, :size] = whole[window.start : window.end] / self.scale
            ends[at, size - 1] = window.end == len(some)
        told = (torch.from_numpy(x).float() for x in (rewards, returns, ends))
        first = torch.tensor([window.first for window in windows])
        lengths = torch.tensor([window.end - window.start for window in windows])
        gains, later, over = told
        return Choices(read.actions, first, lengths, gains, later, over, how, parts)


def window_of(step: int, context: int) -> int:
    """Where the window begins that a decision at a step reads: the same whoever asks.

    Windows move on by half of their length, so that many decisions share one.
    """
    half = max(context // 2, 1)
    return 0 if step < context else ((step - context) // half + 1) * half


def windows_of(row: int, steps: int, context: int) -> list[Window]:
    """Windows in which each step is asked about once."""
    found: list[Window] = []
    for step in range(steps):
        start = window_of(step, context)
        if found and found[-1].start == start:
            found[-1] = found[-1]._replace(end=step + 1)
        else:
            found.append(Window(row, start, step + 1, step - start))
    return found


def returns_of(
    rewards: Sequence[Sequence[float]] | NDArray[Any], weights: Sequence[float], discount: float
) -> NDArray[np.float64]:
    """What came from each step on.  (T, R) -> (T,)"""
    each = np.asarray(rewards, np.float64).reshape(-1, len(weights)) @ np.asarray(weights)
    return to_go(each, discount)


def as_word(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if value.is_integer() else repr(value)


def by_number(name: str) -> tuple[float, str]:
    """Names that are numbers in their order, before the others."""
    number = as_number(name)
    return (math.inf if number is None else number, name)
