"""Several runs of one recipe, with other seeds, other settings or both; and what they reach."""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..config import literal
from ..data.given import parts
from ..errors import InputError
from ..training.checkpoint import write_text
from ..training.files import RESULTS, is_finished, said
from ..training.more import difference
from ..training.recipe import Recipe, Tables, read
from ..training.rows import keep_rows, with_rows
from . import run as runs

# What is no score, though it is a number.
ASIDE = ("seconds", "examples", "left_out", "length", "_per_second", "higher_is_better")

SHOWN = 4  # scores that a table has; the file has all


class Trial(NamedTuple):
    """One run: what is set, with which seed, and where it is kept."""

    chosen: dict[str, str]  # a setting of the sweep: its value, as it would be typed
    seed: int
    folder: Path


@dataclass
class Setting:
    """Runs that differ in their seed alone."""

    chosen: dict[str, str]
    trials: list[Trial] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)  # of each run

    def mean(self, name: str) -> float:
        return statistics.fmean(scores[name] for scores in self.scores)

    def deviation(self, name: str) -> float | None:
        """Between seeds, of a sample; one seed tells nothing of it."""
        values = [scores[name] for scores in self.scores]
        return statistics.stdev(values) if len(values) > 1 else None


@dataclass
class Several:
    """What several runs of a recipe reach: a table, and the files that it is kept in."""

    recipe: str
    on: str
    headline: str
    higher_is_better: bool
    settings: list[Setting]  # the best first, where they differ in more than their seed

    @property
    def names(self) -> list[str]:
        """The scores that all runs have, the headline first."""
        every = [scores for setting in self.settings for scores in setting.scores]
        common = [name for name in every[0] if all(name in scores for scores in every)]
        return sorted(common, key=lambda name: name != self.headline)

    @property
    def best(self) -> Path:
        """The folder of the best run of the best setting."""
        first, sign = self.settings[0], 1 if self.higher_is_better else -1
        reached = [sign * scores[self.headline] for scores in first.scores]
        return first.trials[reached.index(max(reached))].folder

    def table(self) -> list[list[str]]:
        """Rows of cells, the first of heads: each run of one setting, or each setting."""
        names = self.names[:SHOWN]
        if len(self.settings) > 1 or self.settings[0].chosen:
            keys = list(self.settings[0].chosen)
            rows = [[*s.chosen.values(), *self.means(s)] for s in self.settings]
            return [[*keys, "seeds", *names], *rows]
        only = self.settings[0]
        rows = [
            [str(trial.seed), *(f"{scores[name]:.4g}" for name in names)]
            for trial, scores in zip(only.trials, only.scores, strict=True)
        ]
        return [["seed", *names], *rows, ["mean", *self.means(only)[1:]]]

    def means(self, setting: Setting) -> list[str]:
        """How many seeds, then each score's mean with its deviation."""
        cells = [str(len(setting.trials))]
        for name in self.names[:SHOWN]:
            deviation = setting.deviation(name)
            around = "" if deviation is None else f" ± {float(f'{deviation:.2g}'):g}"
            cells.append(f"{setting.mean(name):.4g}{around}")
        return cells

    def data(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        settings = [
            {
                "chosen": setting.chosen,
                "runs": [
                    {"run": str(trial.folder), "seed": trial.seed, "scores": scores}
                    for trial, scores in zip(setting.trials, setting.scores, strict=True)
                ],
                "mean": {name: setting.mean(name) for name in self.names},
                "deviation": {name: setting.deviation(name) for name in self.names},
            }
            for setting in self.settings
        ]
        kept = ("recipe", "on", "headline", "higher_is_better")
        return {**{name: vars(self)[name] for name in kept}, "settings": settings}

    def markdown(self) -> str:
        head, *rows = self.table()
        lines = [head, ["---"] * len(head), *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{self.recipe} on {self.on}; deviations are between seeds.\n\n{table}\n"

    def __repr__(self) -> str:
        return self.markdown()


def several(
    recipe: str | Tables,
    *overrides: str,
    seeds: int = 1,
    sweep: Mapping[str, Sequence[object]] | None = None,
    run: str | Path | None = None,
    data: object = None,
    train: Callable[..., object] = runs.train,
    **options: Any,
) -> Several:
    """Train a recipe with so many seeds, or with every combination of settings, or both.

    Each run has a folder of its own beside `run`; those that are finished are not trained again. A
    sweep is judged on the validation data, and no run of it looks at the test data. `options` go to
    `train`.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("several runs are trained one after the other, in one process each.")
    if seeds < 1:
        raise InputError(f"seeds must be 1 or more, but is {seeds}.")
    first = read(recipe, overrides)
    if run is None and not first.name:
        raise InputError("run: a recipe written in Python has no name; say run=DIR.")
    base = Path(run) if run is not None else Path("runs") / first.name
    given = {part: list(rows) for part, rows in parts(data).items()} if data is not None else None
    on = "valid" if sweep else ("test" if _has(first, given, "test") else "valid")
    if not _has(first, given, on):
        raise InputError(f"data.{on}: several runs are compared by their scores, so name its file.")
    found: dict[tuple[str, ...], Setting] = {}
    trials = list(plan(base, typed(sweep or {}), first.train.seed, seeds))
    if len({trial.folder for trial in trials}) < len(trials):
        raise InputError("sweep: each combination must have a folder of its own; use plain values.")
    for trial in trials:  # what cannot be meant shows before anything is trained
        read(recipe, [*overrides, *_said(trial)])
    for trial in trials:
        said = [*overrides, *_said(trial)]
        if options.get("fresh") or not is_done(read(recipe, said), trial.folder, given):
            train(recipe, *said, run=trial.folder, data=given, on=on, **options)
        if not is_finished(trial.folder):
            break  # it was asked to stop
        scores = _scores(trial.folder, on)
        setting = found.setdefault(tuple(trial.chosen.values()), Setting(trial.chosen))
        setting.trials.append(trial)
        setting.scores.append({k: float(v) for k, v in scores.items() if _is_score(k, v)})
        headline, higher = str(scores["headline"]), bool(scores["higher_is_better"])
    if not found:
        raise InputError(f"{trials[0].folder}: no run was finished, so there is nothing to tell.")
    ranked = sorted(found.values(), key=lambda s: s.mean(headline), reverse=higher)
    told = Several(first.name or base.name, on, headline, higher, ranked)
    stem = base.with_name(f"{base.name}-{'sweep' if sweep else 'seeds'}")
    write_text(stem.with_name(f"{stem.name}.json"), json.dumps(told.data(), indent=1) + "\n")
    write_text(stem.with_name(f"{stem.name}.md"), told.markdown())
    return told


def plan(base: Path, sweep: Mapping[str, Sequence[str]], first: int, seeds: int) -> Iterator[Trial]:
    """Every combination of settings with every seed."""
    for values in itertools.product(*sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        words = [f"{key}={value}" for key, value in chosen.items()]
        for seed in range(first, first + seeds):
            named = [*words, f"seed{seed}"] if seeds > 1 or not words else words
            name = "-".join([base.name, *(re.sub(r"[^\w.=+-]", "", word) for word in named)])
            yield Trial(chosen, seed, base.with_name(name))


def typed(sweep: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
    """The values of each setting as they would be typed; none twice."""
    found = {key: [v if isinstance(v, str) else literal(v) for v in sweep[key]] for key in sweep}
    for key, values in found.items():
        if not values or len(set(values)) < len(values):
            raise InputError(
                f"sweep: {key} must have values that differ, but has {', '.join(values) or 'none'}."
            )
    return found


def is_done(recipe: Recipe, folder: Path, given: Mapping[str, Any] | None) -> bool:
    """Whether a run was trained and scored with these settings, and on these rows."""
    if not is_finished(folder):
        return False
    rows = parts(given) if given is not None else {}
    recipe = with_rows(recipe, folder, rows) if rows else recipe
    if difference(recipe, folder) is not None:
        return False  # training goes on, or says why it does not
    keep_rows(recipe, folder, rows)
    return True


def _scores(folder: Path, on: str) -> dict[str, Any]:
    """A finished run's scores; of one that was only scored elsewhere, they are made now."""
    found: dict[str, Any] = said(folder, RESULTS).get(on) or runs.load(folder).evaluate(on)
    return found


def _said(trial: Trial) -> list[str]:
    return [f"train.seed={trial.seed}", *(f"{key}={value}" for key, value in trial.chosen.items())]


def _has(recipe: Recipe, given: Mapping[str, Any] | None, part: str) -> bool:
    return part in given if given is not None else bool(recipe.data.named(part))


def _is_score(name: str, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and not any(name == word or name.endswith(word) for word in ASIDE)
