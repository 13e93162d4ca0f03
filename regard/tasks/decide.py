"""Decisions: what to do next, learned from recorded histories, and what that is worth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Batch, Choices, HistorySizes, Nothing, Sizes, Steps
from ..data.cut import Plan
from ..data.draws import Draws
from ..data.environments import Policy, Sofar
from ..data.examples import Data, Examples, chunks
from ..data.histories import FaultError, History, read
from ..data.order import Rows, Shuffled
from ..data.read import Faults
from ..data.store import Chunk, Field, Store
from ..decode import Settings as Decode
from ..errors import DataError, InputError, RecipeError
from ..model import Model
from ..score.interval import bootstrap
from ..score.policies import SELDOM, UNLIKELY, Judged, report, value_of
from .deciding import LEARNERS, Decider, DecideSettings
from .form import Form
from .history import (
    GivenHistory,
    HistoryCoder,
    HistoryForm,
    Window,
    returns_of,
    window_of,
)
from .prediction import Prediction
from .task import Axis, Measured, Rng, Scores, Sections, Task

Array = NDArray[np.float64]
USUAL = 10  # steps of a history, to reckon with


class Decide(Task[DecideSettings, History, Rows]):
    """Recorded histories; answers with an action, how often it was recorded, and its worth."""

    Settings = DecideSettings
    Example = History
    sections: ClassVar[Mapping[str, type]] = {}
    keeps = ("history.json",)
    gets = "label"
    unit = "step"
    wanted = "a history"
    draws = True
    caution = (
        "This is no advice for treatment, nor for any decision about people: it is what records of "
        "others' decisions suggest, as far as they go."
    )
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0, "evaluate_examples": 2000, "best_by": "metric"}
    }

    def __init__(self, settings: DecideSettings, coder: HistoryCoder) -> None:
        self.settings, self.coder = settings, coder
        self.decider = Decider(settings, coder)
        self.learner = self.decider.learner
        self.loss = self.learner.loss
        if coder.degrees and settings.learner not in ("clone", "return"):
            raise RecipeError(
                f"task.learner={settings.learner} chooses among named actions, but here they are "
                "numbers; use clone or return."
            )
        # A high estimate that rests on few histories is no reason to choose anything.
        self.metric, self.higher_is_better, self.chosen_by = "value", True, "value_low"
        if coder.degrees:
            self.loss, self.metric, self.higher_is_better = "degrees", "rmse", False
            self.chosen_by = ""
        elif settings.learner == "clone":
            self.metric, self.higher_is_better, self.chosen_by = "perplexity", False, ""

    @property
    def gives(self) -> Form[GivenHistory]:
        s = self.settings
        rewards = dict(zip(s.reward, s.weights, strict=True))
        return HistoryForm(self.coder, s.episode, s.action, rewards)

    @property
    def sizes(self) -> Sizes:
        return sizes_of(self.coder.sizes(self.values, self.settings.learner == "return"))

    @property
    def values(self) -> int:
        """Numbers told beside the scores of actions."""
        return self.learner.values * len(self.coder.actions) + self.learner.extra

    @classmethod
    def usual_sizes(cls, settings: DecideSettings, sections: Sections) -> Sizes:
        learner, numbers = LEARNERS[settings.learner], len(settings.observation)
        values, wished = 10 * learner.values + learner.extra, settings.learner == "return"
        return sizes_of(HistorySizes(numbers, 1, 100, 100, 10, False, values, wished))

    @classmethod
    def longest_read(cls, settings: DecideSettings, sections: Sections) -> tuple[str, int]:
        return "task.context", settings.context

    # From files to batches.

    @staticmethod
    def read(settings: DecideSettings, files: Sequence[Path], faults: Faults) -> Iterator[History]:
        return read(files, settings.columns, faults)

    @staticmethod
    def reads_by(settings: DecideSettings) -> str:
        return repr(settings.columns)

    @classmethod
    def learn(
        cls, settings: DecideSettings, sections: Sections, examples: Examples[History]
    ) -> Self:
        columns = examples[0].columns
        odd = [name for name in settings.words if name not in columns]
        if odd:
            raise RecipeError(
                f"task.words names '{odd[0]}', which is no column of an observation "
                f"({', '.join(columns[:10])})."
            )
        coder = HistoryCoder.learn(
            columns, settings.words, settings.weights, settings.discount, examples
        )
        return cls(settings, coder)

    def artefacts(self) -> Mapping[str, str]:
        return {"history.json": self.coder.artefact()}

    @classmethod
    def load(cls, settings: DecideSettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, HistoryCoder.load(folder))

    @property
    def fields(self) -> Mapping[str, Field]:
        rewards = Field("float32", (len(self.settings.reward),))
        return {**self.coder.fields, "rewards": rewards, "chances": Field("float32")}

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.coder.artefact(),)

    def encode(self, examples: Examples[History], longest: int, faults: Faults) -> Iterator[Chunk]:
        for some in chunks(examples, 256):
            kept: dict[str, list[object]] = {name: [] for name in self.fields}
            for history in some:
                if history.columns != self.coder.columns:
                    raise DataError(
                        f"{history.where}: an observation must have the columns of training "
                        f"({', '.join(self.coder.columns[:10])}), but has "
                        f"{', '.join(history.columns[:10])}."
                    )
                try:
                    row = self.coder.row(history.observations, history.actions)
                except FaultError as error:
                    faults.report(history.where, str(error))
                    continue
                row["rewards"], row["chances"] = history.rewards, history.probabilities
                for name in self.fields:
                    kept[name].append(row[name])
            yield kept

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of about so many steps; a history comes as often as it has windows, so that every
        step counts alike."""
        lengths, whole = store.lengths("actions"), self.pieces(store)
        widths = np.minimum(lengths[whole], self.settings.context)
        return Shuffled(widths, max(1, int(budget / widths.mean())), seed)

    def pieces(self, store: Store) -> NDArray[np.int64]:
        """Of which history each window is."""
        counts = -(-store.lengths("actions") // self.settings.context)
        return np.repeat(np.arange(store.rows), counts)

    def gained(self, store: Store, row: int) -> Array:
        """Rewards of a row, as they count.  -> (T,)"""
        found: Array = store.array("rewards", row) @ np.asarray(self.settings.weights)
        return found

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Steps, Choices]:
        """A window of each history, drawn anew each time."""
        drawn = rng.uniform(2) if isinstance(rng, Draws) else np.zeros((len(rows), 2))
        rows = self.pieces(store)[rows]
        lengths, context = store.lengths("actions")[rows], self.settings.context
        windows, hidden = [], (drawn[:, 1] < self.settings.hidden).tolist()
        for row, steps, at in zip(
            rows.tolist(), lengths.tolist(), drawn[:, 0].tolist(), strict=True
        ):
            # It may begin before the history or end behind it, so that every step comes as often.
            first = int(at * (steps + context - 1)) - context + 1 if steps > context else 0
            start, end = max(first, 0), min(first + context, steps)
            windows.append(Window(row, start, end, 0, more=int(end < steps)))
        return self.windowed(store, windows, hidden)

    def windowed(
        self, store: Store, windows: Sequence[Window], hidden: Sequence[bool]
    ) -> Batch[Steps, Choices]:
        s = self.settings
        gained = [self.gained(store, window.row) for window in windows]
        came = [returns_of(some, [1.0], s.discount) for some in gained]
        rows = [self.coder.stored(store, window.row) for window in windows]
        told = [
            None if hide or s.learner != "return" else self.decider.led_to(row, whole)
            for row, whole, hide in zip(rows, came, hidden, strict=True)
        ]
        reads = self.coder.read(rows, windows, told)
        parts = 2 if self.learner.values else 1
        asked = self.coder.asked(reads, windows, gained, came, s.how, parts)
        return Batch(reads, asked)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Steps, Choices]]:
        """Every step once, with what a decision there would look back at."""
        lengths = store.lengths("actions").tolist()
        for windows in self.decider.all_windows(lengths, budget):
            further = [w._replace(more=int(w.end < lengths[w.row])) for w in windows]
            yield self.windowed(store, further, [False] * len(windows))

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        return None

    @staticmethod
    def sample_batch(
        settings: DecideSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Steps, Choices]:
        rows, learner = max(1, budget // USUAL), LEARNERS[settings.learner]
        told, whole = HistorySizes(len(settings.observation), 1, 0, 0, 0), (rows, USUAL)
        ids, zeros = torch.zeros(whole, dtype=torch.long), torch.zeros(whole)
        numbers = torch.zeros(*whole, told.numbers)
        lengths = torch.full((rows,), USUAL)
        reads = Steps(numbers, numbers, ids[..., None], ids, ids, zeros, ids, lengths)
        parts = 2 if learner.values else 1
        asked = Choices(ids, lengths * 0, lengths, zeros, zeros, zeros, parts=parts)
        return Batch(reads, asked)

    # Scores.

    def judge(self, model: Model, store: Store, count: int, budget: int) -> Judged:
        """The first histories of a store, beside what the policy says of them."""
        count = min(count, store.rows)
        rows = [self.coder.stored(store, row) for row in range(count)]
        gained = [self.gained(store, row) for row in range(count)]
        said = self.decider.says(model, rows, gained, budget)
        actions = np.concatenate([row["actions"] for row in rows]).astype(np.int64)
        policy, behaviour = (np.concatenate([one[at] for one in said]) for at in (0, 1))
        estimated = behaviour[np.arange(len(actions)), actions].clip(1e-6)
        recorded = self.recorded(store, count)
        words = np.concatenate([row["words"] for row in rows])
        numbers = np.concatenate([row["numbers"] for row in rows]).astype(np.float64)
        names, columns = self.observed(words, numbers)
        ids = np.concatenate([row["states"] for row in rows]).astype(np.int64)
        rewards = np.concatenate([store.array("rewards", row) for row in range(count)])
        # Values are told by the state where the policy is; what remembers is judged by what the
        # model makes of the history.
        by_state = bool(self.coder.states) and depends_on(policy, ids)
        if self.settings.estimator == "mdr" and not by_state:
            raise RecipeError(
                "task.estimator=mdr counts states, so what is observed must be words, and what is "
                "done must depend on them alone; use wdr."
            )
        return Judged(
            np.array([len(row["actions"]) for row in rows]),
            rewards.astype(np.float64),
            self.settings.weights, self.settings.discount, actions,
            estimated if recorded is None else recorded, policy, behaviour, columns, names,
            ids if self.coder.states else None,
            None if by_state else np.concatenate([one.states for one in said]),
        )  # fmt: skip

    def recorded(self, store: Store, count: int) -> Array | None:
        """How likely what was done was, where that was recorded."""
        found = np.concatenate([store.array("chances", row) for row in range(count)])
        steps = int(store.lengths("actions")[:count].sum())
        return found.astype(np.float64).clip(1e-12) if len(found) == steps else None

    def observed(self, words: Array, numbers: Array) -> tuple[list[str], Array]:
        """What was observed as numbers, to be compared: numbers as they are, and of words whether
        it was one of the commonest."""
        coder = self.coder
        names = [coder.columns[at] for at in coder.numeric]
        columns = [numbers]
        for at, place in enumerate(coder.worded):
            met, times = np.unique(words[:, at], return_counts=True)
            common = met[np.argsort(-times, kind="stable")[:20]]
            names += [
                coder.vocabulary[int(word)] if word > 1 else f"{coder.columns[place]}={word}"
                for word in common
            ]
            columns.append((words[:, at, None] == common).astype(np.float64))
        return names, np.concatenate(columns, 1)

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        if self.metric != "value":
            return {}
        judged = self.judge(model, data.store, count, decode.batch_tokens)
        found = value_of(judged, self.settings.estimator)
        return {
            "value": round(found.value, 5),
            "value_low": round(found.interval[0], 5),
            "effective": round(found.effective, 1),
        }

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """What the policy is worth by every estimator, and what must be known beside it."""
        began = time.perf_counter()
        mean = loss.nll / loss.tokens
        if self.coder.degrees:
            return self.evaluate_degrees(model, data.store, decode)
        judged = self.judge(model, data.store, data.store.rows, decode.batch_tokens)
        found: Scores = {"examples": len(judged.lengths), **report(judged, self.settings.estimator)}
        for row in found["coverage"].get("where", []):
            row["state"] = self.state_name(row["state"])
            row["action"] = self.coder.actions[row["action"]]
            del row["step"]
        for row in found["rewards"]:
            if "column" in row:
                row["column"] = self.settings.reward[row["column"]]
        told = self.recorded(data.store, 1) is not None
        found["behaviour"] = "recorded" if told else "estimated"
        taken = judged.behaviour[np.arange(len(judged.actions)), judged.actions]
        agree = judged.policy.argmax(1) == judged.actions
        found["agreement"] = round(float(agree.mean()), 4)
        if self.metric == "perplexity":
            found["perplexity"] = round(float(np.exp(-np.log(taken.clip(1e-12)).mean())), 4)
        found["loss"] = round(mean, 5)
        found["steps_per_second"] = round(len(agree) / (time.perf_counter() - began), 1)
        return found

    def evaluate_degrees(self, model: Model, store: Store, decode: Decode) -> Scores:
        """How far the numbers of actions are from those that were taken; without probabilities of
        numbers, nothing can be weighted."""
        rows = [self.coder.stored(store, row) for row in range(store.rows)]
        gained = [self.gained(store, row) for row in range(store.rows)]
        said = self.decider.says(model, rows, gained, decode.batch_tokens)
        squares = np.array([float(np.square(one.policy - row["actions"]).mean())
                            for one, row in zip(said, rows, strict=True)])  # fmt: skip

        def draw(rng: np.random.Generator) -> float:
            return float(np.sqrt(rng.choice(squares, len(squares)).mean()))

        returns = [returns_of(some, [1.0], self.settings.discount)[0] for some in gained]
        return {
            "rmse": round(float(np.sqrt(squares.mean())), 5),
            "rmse_interval": [round(end, 5) for end in bootstrap(draw, 200, 1)],
            "recorded_value": round(float(np.mean(returns)), 5),
            "examples": store.rows,
        }

    def state_name(self, state: int) -> str:
        if not state:
            return "never recorded"
        return ", ".join(self.coder.vocabulary[word] for word in self.coder.states[state - 1])

    # Answers.

    def given_row(self, given: GivenHistory, number: int) -> dict[str, Any]:
        try:
            return self.coder.row(given.observations, given.actions)
        except FaultError as error:
            raise InputError(f"input {number}: {error}.") from error

    def predict(
        self,
        model: Model,
        inputs: Sequence[GivenHistory],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        began = time.perf_counter()
        found = []
        for number, given in enumerate(inputs, first):
            row, window = self.given_row(given, number), self.last_window(given)
            wish = self.decider.wished(np.array(given.rewards))
            said = self.decider.say(model, [row], [window], [wish])
            policy, behaviour, values = (part[0][-1] for part in said[:3])
            seconds = round(time.perf_counter() - began, 6)
            if self.coder.degrees:
                found.append(
                    Prediction(
                        given.name,
                        " ".join(f"{n:.5g}" for n in policy),
                        seconds=seconds,
                        vector=tuple(round(float(n), 6) for n in policy),
                    )
                )
                continue
            found.append(self.answer(given, row, policy, behaviour, values, seconds))
        return found

    def policy(self, model: Model, columns: Sequence[str], actions: Sequence[str]) -> Policy | None:
        """What it would do, for whoever lets it decide; None where it knows other actions, or reads
        what is not observed."""
        coder = self.coder
        if coder.degrees or not set(coder.actions) <= set(actions):
            return None
        if not set(coder.columns) <= set(columns):
            return None
        read = [list(columns).index(name) for name in coder.columns]
        form = self.gives
        places = [self.coder.numbers.get(name) for name in actions]

        def decide(so_far: Sofar) -> list[float]:
            seen = [[one[at] for at in read] for one in so_far.observations]
            given = GivenHistory(seen, list(so_far.actions), list(so_far.rewards), "")
            found = self.predict(model, [form.accept(given)], Decode(), 0)[0].probabilities
            assert found is not None
            chances = list(found.values())
            return [0.0 if at is None else chances[at] for at in places]

        return decide

    def last_window(self, given: GivenHistory) -> Window:
        steps = len(given.observations)
        start = window_of(steps - 1, self.settings.context)
        return Window(0, start, steps, steps - 1 - start)

    def answer(
        self,
        given: GivenHistory,
        row: Mapping[str, Any],
        policy: Array,
        behaviour: Array,
        values: Array,
        seconds: float,
    ) -> Prediction:
        names, best = self.coder.actions, int(policy.argmax())
        state = int(row["states"][-1])
        recorded = {name: round(float(p), 6) for name, p in zip(names, behaviour, strict=True)}
        times, warning = None, None
        if self.coder.states:
            counts = self.coder.counts[state - 1] if state else {}
            times = {name: counts[name] for name in names if name in counts}
            seen = times.get(names[best], 0)
            if not state:
                warning = "such a state was never recorded"
            elif seen < SELDOM:
                warning = f"in this state, {names[best]} was recorded {seen} times"
        elif behaviour[best] < UNLIKELY:
            warning = f"{names[best]} was seldom recorded in such states"
        worth = None
        if self.learner.values:
            worth = round(float(values[best]), 6)
        return Prediction(
            given.name, names[best], round(float(policy[best]), 6), seconds=seconds,
            warning=warning, label=names[best],
            probabilities={n: round(float(p), 6) for n, p in zip(names, policy, strict=True)},
            value=worth, recorded=recorded, times=times,
        )  # fmt: skip

    def trace(
        self, given: GivenHistory, target: str
    ) -> tuple[Batch[Steps, Nothing], dict[str, Axis]]:
        row, window = self.given_row(given, 1), self.last_window(given)
        told = self.settings.learner == "return"
        wish = self.decider.wished(np.array(given.rewards))
        reads = self.coder.read([row], [window], [wish if told else None])
        names = []
        for at in range(window.start, window.end):
            seen = zip(self.coder.columns, given.observations[at], strict=True)
            words = [f"{name}={shown(v)}" for name, v in seen if v is not None]
            done = shown(given.actions[at]) if at < len(given.actions) else "?"
            names += [
                f"{at + 1} wish {wish[at]:.3g}" if told else f"{at + 1} –",
                f"{at + 1} " + (short(", ".join(words)) or "nothing seen"),
                f"{at + 1} did {done}",
            ]
        axis = Axis(names, "history", (window.end - window.start, 3))
        return Batch(reads, Nothing()), {"inputs": axis, "outputs": axis}

    def as_given(self, example: History) -> GivenHistory:
        """All of it but the last step's action and reward."""
        gained = (np.asarray(example.rewards) @ np.asarray(self.settings.weights)).tolist()
        name = self.as_typed(example)
        return GivenHistory(example.observations, example.actions[:-1], gained[:-1], name)

    def as_typed(self, example: History) -> str:
        s, steps = self.settings, []
        for at, seen in enumerate(example.observations):
            step: dict[str, Any] = dict(zip(example.columns, seen, strict=True))
            if at < len(example.actions) - 1:
                step[s.action] = example.actions[at]
                step |= dict(zip(s.reward, example.rewards[at], strict=True))
            steps.append(step)
        return json.dumps(steps, ensure_ascii=False)

    def example(self, examples: Examples[History], longest: int | None = None) -> str:
        return self.as_typed(examples[0])


def depends_on(policy: Array, ids: NDArray[np.int64]) -> bool:
    """Whether a policy is the same wherever the state is.  (N, A), (N,)"""
    each = np.zeros((int(ids.max()) + 1, policy.shape[1]))
    each[ids] = policy
    return bool(np.allclose(each[ids], policy, atol=1e-9))


def sizes_of(told: HistorySizes) -> Sizes:
    return Sizes(0, 0, False, told.actions + told.values, Steps, Choices, history=told)


def shown(value: float | str | list[float]) -> str:
    """As it stands beside a picture."""
    if isinstance(value, list):
        return " ".join(map(shown, value))
    return value if isinstance(value, str) else f"{value:.3g}"


def short(text: str, longest: int = 24) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
