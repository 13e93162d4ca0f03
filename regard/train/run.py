"""The run folder: what `train` leaves behind and everything else starts from."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..batch import Sizes
from ..config import write
from ..data.read import Faults
from ..errors import RunError
from ..parts.packed import pack
from ..tasks import TASKS, Prediction
from . import checkpoint
from .checkpoint import write_text
from .distributed import World, pick
from .events import Event
from .loop import fit
from .recipe import Recipe, read_run
from .validate import mean_loss


class Run:
    """A trained model with its task: it answers, and it can be scored."""

    def __init__(self, folder: Path, overrides: Sequence[str] = (), device: str = "auto") -> None:
        self.folder = folder
        self.recipe = read_run(folder, overrides)
        settings, path = self.recipe, find_weights(folder)
        self.task: Any = TASKS[settings.task_kind].load(settings.task, settings.text, folder)
        self.model: nn.Module = settings.build(self.task.sizes)
        checkpoint.put_weights(self.model, checkpoint.read_tensors(path), path)
        self.device = pick(device)
        self.model.to(self.device).eval()
        if self.device.type == "cpu":
            pack(self.model)

    def predict(self, inputs: Sequence[str]) -> list[Prediction]:
        """An answer to each input, in order."""
        if isinstance(inputs, str):
            inputs = [inputs]
        data, decode = self.recipe.data, self.recipe.decode
        answers: list[Prediction] = self.task.predict(self.model, inputs, decode, data.max_length)
        return answers

    def evaluate(self, on: str = "test") -> dict[str, Any]:
        """Scores on the recipe's test or validation data; kept in results.json."""
        data, began = self.recipe.data, time.perf_counter()
        files, faults = data.files(on), Faults(data.skip_bad)
        inputs, references = self.task.examples(files, faults)
        outputs = [answer.output for answer in self.predict(inputs)]
        scores: dict[str, Any] = {"on": on, **self.task.score(outputs, references)}
        store = self.task.store(
            files, self.folder.parent / ".cache", data.max_length, Faults(data.skip_bad)
        )
        loss = mean_loss(self.task, self.model, store, self.recipe.train, self.device, None)
        scores |= {
            "perplexity": round(float(torch.tensor(loss).exp()), 4),
            "perplexity_unit": self.task.unit,
            "decode": {
                k: v
                for k, v in dataclasses.asdict(self.recipe.decode).items()
                if k != "batch_tokens"
            },
            "examples": len(inputs),
            "seconds": round(time.perf_counter() - began, 2),
        }
        path = self.folder / "results.json"
        results = json.loads(path.read_text()) if path.is_file() else {}
        write_text(path, json.dumps(results | {on: scores}, indent=1) + "\n")
        return scores


def find_weights(folder: Path) -> Path:
    """The model to use; of an unfinished run, the best or the latest that there is."""
    latest = [path / "model.safetensors" for path in checkpoint.all_in(folder)[-1:]]
    for path in (folder / "model.safetensors", folder / "best.safetensors", *latest):
        if path.is_file():
            return path
    raise RunError(f"{folder}: there is no trained model here yet; go on with `regard train`.")


def start(
    recipe: Recipe,
    folder: Path,
    world: World,
    fresh: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Train in a folder: a new run, or the unfinished one that it holds."""
    world.first(lambda: settle(recipe, folder, fresh and world.leads))
    begun = bool(checkpoint.all_in(folder))
    try:
        for event in fit(recipe, folder, world, stop):
            begun = True
            yield event
    except Exception:
        if not begun and world.leads:  # nothing was trained yet: leave nothing behind
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()  # ours if it is empty
        raise


def settle(recipe: Recipe, folder: Path, fresh: bool) -> None:
    """Make the folder ready, or say why it cannot be used."""
    if fresh and folder.is_dir():
        if not (folder / "recipe.toml").is_file() and any(folder.iterdir()):
            raise RunError(
                f"{folder}: --fresh deletes a run folder, but this is none (no recipe.toml)."
            )
        shutil.rmtree(folder)
    if (folder / "model.safetensors").is_file():
        raise RunError(
            f"{folder}: this run is finished; --fresh deletes it and starts over, "
            f"--run DIR starts another."
        )
    if (folder / "recipe.toml").is_file():
        before, now = (dict(_flat(r)) for r in (read_run(folder), recipe))
        for key, value in now.items():
            if value != before.get(key) and key not in MAY_CHANGE:
                raise RunError(
                    f"{folder}: the unfinished run here has {key}={before.get(key)!r}, "
                    f"but now it is {value!r}; "
                    "--fresh deletes it and starts over, --run DIR starts another."
                )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise RunError(
            f"{folder}: a new run needs a new or empty folder, but this one holds other files."
        )
    # What can be wrong with the files' names or the model's sizes is found before anything is made.
    with torch.device("meta"):
        recipe.build(Sizes(recipe.text.size, recipe.text.size, recipe.text.joint))
    for part in ("train", "valid", "test"):
        if getattr(recipe.data, part):
            recipe.data.files(part)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: the run folder could not be made ({error.strerror}).") from error
    write_text(folder / "recipe.toml", write(recipe.rows("origin")))


# Settings that change neither the model nor the way to it.
MAY_CHANGE = {
    "train.device",
    "train.log_every",
    "train.tensorboard",
    "train.accumulate",
    "train.watts",
    "train.grams_per_kwh",
    "train.save_every",
    "data.obtain",
}


def _flat(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    for section, rows in recipe.rows("origin").items():
        if section != "decode":
            yield from ((f"{section}.{key}", value) for key, value, _ in rows)
