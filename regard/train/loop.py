"""The training loop. It tells what happens and prints nothing: `fit` yields events."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.load import ahead
from ..data.order import Order
from ..data.read import Faults
from ..data.store import Store
from ..errors import RunError
from ..tasks import TASKS
from . import checkpoint, cost, optim
from .backward import Backward, make_backward
from .checkpoint import write_text
from .distributed import World
from .events import Begun, Event, Log, Progress, Saved, Stopped, Window, record, trim_log
from .loss import LOSSES
from .recipe import Recipe
from .schedule import rate_at
from .settings import Settings
from .validate import validate


def gradient(backward: Backward, batch: Any, world: World, pieces: int) -> Tensor:
    """Leave the gradient of the whole batch's mean loss per token in the weights; the sum of -log
    p.

    The batch is cut by rows into `pieces` for each rank. Sums are divided by the tokens of the
    whole batch, so neither the cut nor the number of ranks changes the result. A rank without
    rows takes part with one row that counts nothing, so that nobody waits for it.
    """
    nll = torch.zeros((), device=world.device)
    for piece in range(pieces):
        part = batch.share(piece * world.size + world.rank, pieces * world.size)
        weight = 1.0 if len(part) else 0.0
        part = part if len(part) else batch.share(0, len(batch))
        # Peers average their gradients; the sum is wanted.
        scale = weight * world.size / batch.tokens
        nll += weight * backward(part.to(world.device), scale, piece == pieces - 1)
    return nll


def fit(
    recipe: Recipe, folder: Path, world: World, stop: Callable[[], bool] = lambda: False
) -> Iterator[Event]:
    """Train until done, from the last checkpoint where there is one."""
    settings, device = recipe.train, world.device
    faults = Faults(recipe.data.skip_bad)
    task = world.first(lambda: prepare_task(recipe, folder, faults))
    stores = world.first(lambda: prepare_stores(recipe, task, folder, faults))
    multiple = 8 if device.type == "cuda" else 1
    order = Order(task.lengths(stores["train"]), settings.batch_tokens, settings.seed, multiple)

    torch.manual_seed(settings.seed)
    model = recipe.build(task.sizes)
    if recipe.model_from and not checkpoint.all_in(folder):
        start_from(model, Path(recipe.model_from))
    model.to(device).train()
    optimizer = optim.OPTIMIZERS[settings.optimizer](model, settings)
    progress = resume(folder, model, optimizer) or Progress()
    if world.leads:
        trim_log(folder / "metrics.jsonl", progress.step)

    precision = autocast(device, settings)
    loss = LOSSES[task.loss](settings.smoothing, settings.r_drop)
    backward = make_backward(model, loss, world, settings.compile, precision)
    try_largest(backward, model, task, stores["train"], order, world, settings)
    yield Begun(
        progress.step,
        settings.steps,
        stores["train"].rows,
        order.batches,
        sum(p.numel() for p in model.parameters()),
        device_name(device),
        sum(store.skipped for store in stores.values()),
        tuple(faults.first),
    )

    log = Log(folder, settings) if world.leads else None
    window = Window(device)
    began = time.perf_counter() - progress.seconds

    def spent() -> float:
        return time.perf_counter() - began

    with cost.metered(device, settings, spent, world.size) as energy:
        for batch in ahead(batches(task, stores["train"], order, progress, settings, device)):
            step = progress.step = progress.step + 1
            seed_everything(settings.seed, step, world.rank)
            rate = rate_at(
                settings.schedule, step, settings.steps, settings.warmup, settings.final_rate
            )
            optim.set_rate(optimizer, settings.rate * rate)
            nll = gradient(backward, batch, world, settings.accumulate)
            norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip or float("inf"))
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)  # captured graphs write to the same memory again
            progress.tokens += batch.tokens
            window.add(nll, norm, batch.tokens)

            last = step == settings.steps
            if step % settings.log_every == 0 or last or step == 1:
                yield record(log, window.close(world, step, optimizer))
            with window.paused():
                if step % settings.evaluate_every == 0 or last:
                    window.check(world, step)
                    scored = validate(recipe, task, model, stores, world, progress, precision)
                    if scored is not None:
                        if scored.best and world.leads:
                            checkpoint.write_weights(folder / BEST, checkpoint.weights_of(model))
                        yield record(log, scored)
                # Peers agree on stopping, and seldom enough that asking costs nothing.
                asked = world.any(stop()) if world.size == 1 or step % 5 == 0 else False
                if step % settings.save_every == 0 or last or asked or tired(progress, settings):
                    window.check(world, step)
                    progress.seconds = spent()
                    yield record(log, save(folder, model, optimizer, progress, settings, world))
            if asked and not last:
                yield Stopped(step, "asked to stop", for_good=False)
                return
            if tired(progress, settings) and not last:
                yield Stopped(step, f"no gain in {progress.worse} validations", for_good=True)
                break
    if world.leads:
        example = task.batch(stores["train"], order.largest())
        finish(folder, recipe, task, model, progress, energy, device, example)


BEST = "best.safetensors"


def tired(progress: Progress, settings: Settings) -> bool:
    """Whether there was no gain for too long."""
    return 0 < settings.patience <= progress.worse


# Before the loop.


def prepare_task(recipe: Recipe, folder: Path, faults: Faults) -> Any:
    """The task with its vocabularies: the run's own where it has them, else learned and kept."""
    kind = TASKS[recipe.task_kind]
    if (folder / "config.json").is_file():
        return kind.load(recipe.task, recipe.text, folder)
    if recipe.model_from:
        task = kind.load(recipe.task, recipe.text, Path(recipe.model_from))
    else:
        task = kind.learn(recipe.task, recipe.text, recipe.data.files("train"), Faults(faults.skip))
    task.save(folder)
    sizes = {"model": recipe.model_kind, "sizes": vars(task.sizes), "settings": vars(recipe.model)}
    # Written last: its presence says that the vocabularies beside it are whole.
    write_text(folder / "config.json", json.dumps(sizes, indent=1) + "\n")
    return task


def prepare_stores(recipe: Recipe, task: Any, folder: Path, faults: Faults) -> dict[str, Store]:
    """All data as ids, in the cache beside the run; faults in any file show before training."""
    data, cache = recipe.data, folder.parent / ".cache"
    limits = {"train": data.max_length, "valid": ANY_LENGTH, "test": ANY_LENGTH}
    return {
        part: task.store(data.files(part), cache, longest, faults)
        for part, longest in limits.items()
        if getattr(data, part)
    }


ANY_LENGTH = 10**9  # what is only scored may be as long as it likes


def start_from(model: nn.Module, folder: Path) -> None:
    path = folder / "model.safetensors"
    if not path.is_file():
        raise RunError(
            f"{folder}: model.from must name a finished run, but there is no model.safetensors."
        )
    checkpoint.put_weights(model, checkpoint.read_tensors(path), path)


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress | None:
    """Go on from the newest checkpoint."""
    found = checkpoint.all_in(folder)
    if not found:
        return None
    tensors, state = checkpoint.load(found[-1])
    checkpoint.put_weights(model, tensors["model"], found[-1])
    optim.restore(model, optimizer, tensors["optimizer"])
    return Progress(**state)


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    settings: Settings,
    world: World,
) -> Saved:
    path = folder / f"checkpoint-{progress.step}"
    if world.leads:
        tensors = {
            "model": checkpoint.weights_of(model),
            "optimizer": optim.state_of(model, optimizer),
        }
        checkpoint.save(folder, progress.step, tensors, dataclasses.asdict(progress))
        checkpoint.clean(folder, settings.average + 1 if settings.keep == "average" else 2)
    return Saved(progress.step, str(path))


def batches(
    task: Any,
    store: Store,
    order: Order,
    progress: Progress,
    settings: Settings,
    device: torch.device,
) -> Iterator[Any]:
    """The batch of every step that is left; what is drawn depends on seed and step alone."""
    epoch, plan = -1, []
    # A run that was killed between its last checkpoint and its end has no step left.
    left = range(0) if tired(progress, settings) else range(progress.step, settings.steps)
    for step in left:
        wanted, place = divmod(step, order.batches)
        if wanted != epoch:
            epoch, plan = wanted, order.epoch(wanted)
        batch = task.batch(store, plan[place], np.random.default_rng((settings.seed, step)))
        yield batch.widen(8).pin() if device.type == "cuda" else batch


def autocast(device: torch.device, settings: Settings) -> Any:
    """bfloat16 products where the hardware has them and the recipe does not forbid it."""
    choice = settings.precision
    if choice == "auto":
        fit_for_it = device.type == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        choice = "bfloat16" if fit_for_it else "float32"
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = choice == "bfloat16"
    # Casts are not cached: a captured graph must make its own.
    return (
        torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
        if choice == "bfloat16"
        else None
    )


def try_largest(
    backward: Backward,
    model: nn.Module,
    task: Any,
    store: Store,
    order: Order,
    world: World,
    settings: Settings,
) -> None:
    """Run the largest batch, so that too little memory shows now and not in an hour."""
    batch = task.batch(store, order.largest())
    batch = batch.widen(8) if world.device.type == "cuda" else batch
    try:
        gradient(backward, batch, world, settings.accumulate)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise RunError(
            f"the largest batch ({len(batch)} lines) does not fit into memory; halve "
            f"train.batch_tokens "
            f"({settings.batch_tokens}), or set "
            f"train.accumulate={settings.accumulate * 2}, which costs only time."
        ) from error
    model.zero_grad(set_to_none=False)


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Dropout follows from seed, step and rank alone: there is no random state to save."""
    mixed = np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0]
    torch.manual_seed(int(mixed >> 1))


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def finish(
    folder: Path,
    recipe: Recipe,
    task: Any,
    model: nn.Module,
    progress: Progress,
    energy: cost.Energy,
    device: torch.device,
    batch: Any,
) -> None:
    """Choose the weights, write the bill; model.safetensors comes last."""
    settings = recipe.train
    saved = checkpoint.all_in(folder)
    best = folder / BEST
    if settings.keep == "average":
        # A checkpoint made because somebody interrupted does not count.
        steps = [int(path.name.removeprefix("checkpoint-")) for path in saved]
        regular = [s for s in steps if s % settings.save_every == 0 or s == progress.step]
        paths = [
            folder / f"checkpoint-{step}/model.safetensors" for step in regular[-settings.average :]
        ]
        weights = checkpoint.average(paths)
    elif settings.keep == "best" and best.is_file():
        weights = checkpoint.read_tensors(best)
    else:
        weights = checkpoint.weights_of(model)
    per_update = cost.count(recipe.build, task.sizes, batch)
    flops = per_update.flops / batch.tokens * progress.tokens
    bill = {
        "steps": progress.step,
        "target_tokens": progress.tokens,
        "parameters": per_update.parameters,
        "flops": flops,
        "flops_method": "counted on one batch's shape, scaled by target tokens",
        "seconds": round(progress.seconds, 2),
        "tokens_per_second": round(progress.tokens / max(progress.seconds, 1e-9), 1),
        "peak_memory_bytes": cost.peak_memory(device),
        "device": device_name(device),
        "kwh": energy.kwh,
        "kwh_method": energy.method,
        "co2e_grams": energy.kwh * settings.grams_per_kwh,
        "grams_per_kwh": settings.grams_per_kwh,
    }
    write_text(folder / "cost.json", json.dumps(bill, indent=1) + "\n")
    checkpoint.write_weights(folder / "model.safetensors", weights)
    best.unlink(missing_ok=True)
