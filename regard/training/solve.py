"""Training without steps, of models that are worked out at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..data.read import Faults
from ..model import AnyBatch, Model, Solves
from . import checkpoint, cost
from .distributed import World
from .events import Begun, Event, Log, Progress, record
from .files import BILL, WEIGHTS
from .prepare import device_name, prepare_data, prepare_task
from .recipe import Recipe
from .validate import validate


def solve(recipe: Recipe, folder: Path, world: World, check: Callable[[], None]) -> Iterator[Event]:
    """Work a model out, look at the validation data, and keep it."""
    if not world.leads:  # one is enough
        return
    faults, settings, progress = Faults(recipe.data.skip_bad), recipe.train, Progress()
    is_new = not (folder / "config.json").is_file()
    task = prepare_task(recipe, folder, faults)
    data = prepare_data(recipe, task, folder.parent / ".cache", faults)
    model: Model = recipe.build(task.sizes)
    store, peak, name = data["train"].store, cost.peak_rate(world.device), device_name(world.device)
    weights = sum(p.numel() for p in model.parameters())
    skipped = sum(part.skipped for part in data.values())
    notes = (*(task.notes if is_new else ()), "worked out at once: train.steps says nothing here")
    yield Begun(
        0, 0, store.rows, task.amount(store), 1, weights, name, skipped, tuple(faults.first),
        peak.flops, peak.method, notes,
    )  # fmt: skip
    log, began = Log(folder, settings, check, 0), time.perf_counter()
    with cost.metered(world.device, settings, lambda: time.perf_counter() - began, 1) as energy:
        assert isinstance(model, Solves)
        model.solve(
            counted(task.evaluation_batches(store, settings.batch_tokens), progress), task.loss
        )
        model.to(world.device).eval()
        progress.seconds = time.perf_counter() - began
        alone = World(0, 1, world.device)  # nobody else looks at the validation data
        scored = validate(recipe, task, model, data.get("valid"), alone, progress, None)
    if scored is not None:
        yield record(log, scored)
    check()
    bill = cost.bill(progress, weights, 0.0, peak, energy, settings, name)
    cost.write_bill(folder / BILL, bill, world.device)
    checkpoint.write_weights(folder / WEIGHTS, checkpoint.weights_of(model))


def counted(batches: Iterable[AnyBatch], progress: Progress) -> Iterator[AnyBatch]:
    for batch in batches:
        progress.tokens += batch.tokens
        yield batch
