"""Going on in a folder that holds a run: what may differ by now, and more steps after its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config import write
from ..errors import RunError
from ..model import Solves
from ..models import MODELS
from . import checkpoint
from .checkpoint import write_text
from .events import Progress
from .files import BEST, BILL, CARD, RECIPE, RESULTS, WEIGHTS, is_finished, is_trained
from .recipe import Recipe, read_run
from .schedule import rate_at

# Settings that may be others when a run goes on.
MAY_CHANGE = {
    "train.device",
    "train.log_every",
    "train.tensorboard",
    "train.wandb",
    "train.accumulate",
    "train.shard",
    "train.checkpoint_activations",
    "train.patience",
    "train.watts",
    "train.grams_per_kwh",
    "train.price_per_hour",
    "train.flops_per_second",
    "data.obtain",
}


def wants_more(recipe: Recipe, folder: Path) -> bool:
    """Whether it asks for more steps than the run in the folder was to have; said by the user, not
    by a recipe whose run was cut short on purpose."""
    asked = recipe.origins.get("train.steps") == "command line"
    if not asked or not (folder / RECIPE).is_file():
        return False
    return recipe.train.steps > read_run(folder).train.steps


def check_same(recipe: Recipe, folder: Path) -> None:
    """A run goes on with the settings that it began with, and a finished one for more steps."""
    finished, more = is_finished(folder), wants_more(recipe, folder)
    state, steps = "finished" if finished else "unfinished", read_run(folder).train.steps
    others = "--fresh deletes it and starts over, --run DIR starts another."
    odd = difference(recipe, folder, "train.steps" if more else "")
    if odd is not None:
        key, before, now = odd
        longer = key == "train.steps" and recipe.train.steps > steps
        way = "" if finished else "the command it was begun with goes on with it, "
        way = f"{key}={now} after the recipe goes on, " if longer else way
        if finished and key == "train.steps" and not longer:
            way = f"it has no steps left; more than {steps} go on from its end, "
        raise RunError(
            f"{folder}: the {state} run here has {key}={before!r}, but now it is {now!r}; "
            f"{way}{others}"
        )
    if finished and not more:
        raise RunError(
            f"{folder}: this run is finished; train.steps=N with more than {steps} goes on from "
            f"its end, {others}"
        )
    if more:
        check_can_go_on(recipe, folder)


def difference(recipe: Recipe, folder: Path, but: str = "") -> tuple[str, object, object] | None:
    """A setting that the run in the folder has otherwise, with both values; None: none that counts
    is."""
    before, now = (dict(_flat(each)) for each in (read_run(folder), recipe))
    for key, value in now.items():
        if value != before.get(key) and key not in MAY_CHANGE and key != but:
            return key, before.get(key), value
    return None


def check_can_go_on(recipe: Recipe, folder: Path) -> None:
    """More steps need something to go on from."""
    if issubclass(MODELS[recipe.model_kind], Solves):
        raise RunError(
            f"{folder}: a {recipe.model_kind} is worked out at once, so train.steps says nothing; "
            "leave it out."
        )
    if not is_trained(folder):
        return
    progress = stored_progress(folder)
    if progress is None:
        raise RunError(
            f"{folder}: there must be a checkpoint to go on from, but there is none; model.from="
            f"{folder} with another --run starts from its weights."
        )
    if 0 < recipe.train.patience <= progress.worse:
        raise RunError(
            f"{folder}: this run stopped at step {progress.step}, for {progress.worse} validations "
            "brought no gain; add train.patience=0, or more than that, to go on."
        )


def note_on(recipe: Recipe, folder: Path) -> str:
    """What going on changes in the schedule; "" where it is what it would have been."""
    now, before, progress = recipe.train, read_run(folder).train, stored_progress(folder)
    if progress is None:
        return ""
    step = progress.step + 1

    def rate(steps: int, at: int) -> float:
        return now.rate * rate_at(now.schedule, at, steps, now.warmup, now.final_rate)

    planned, last = rate(now.steps, step), rate(before.steps, progress.step)
    if rate(before.steps, step) == planned:
        return ""
    return (
        f"train.schedule={now.schedule} follows train.steps: planned for {before.steps} steps the "
        f"rate had come to {last:.3g}, for {now.steps} it goes on at {planned:.3g}; "
        "train.schedule=constant or inverse-sqrt from the start would have stayed as it was."
    )


def reopen(recipe: Recipe, folder: Path) -> None:
    """Make it a run of more steps, unfinished; killed on the way, the same command does the rest.

    What told of its end goes; its weights are those that validation chose, until better ones come.
    """
    for name in (CARD, RESULTS, BILL):
        (folder / name).unlink(missing_ok=True)
    progress, weights = stored_progress(folder), folder / WEIGHTS
    if weights.is_file():
        chosen = recipe.train.keep == "best" and progress is not None and progress.best is not None
        if chosen:
            weights.replace(folder / BEST)
        else:
            weights.unlink()
    write_recipe(recipe, folder)


def write_recipe(recipe: Recipe, folder: Path) -> None:
    """What the run is trained with; files that the folder itself holds are named from there, so
    that it may be moved."""
    rows, home = recipe.rows("origin"), str(folder.resolve())

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(each) for each in value]
        return value.removeprefix(f"{home}/") if isinstance(value, str) else value

    rows["data"] = [(key, named(value), origin) for key, value, origin in rows["data"]]
    write_text(folder / RECIPE, write(rows))


def stored_progress(folder: Path) -> Progress | None:
    """How far the newest checkpoint is; None where there is none."""
    kept = checkpoint.all_in(folder)
    return Progress(**checkpoint.state_in(kept[-1])) if kept else None


def _flat(recipe: Recipe) -> Iterator[tuple[str, object]]:
    for section, rows in recipe.rows("origin").items():
        if section != "decode":
            yield from ((f"{section}.{key}", value) for key, value, _ in rows)
