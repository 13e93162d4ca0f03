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

from ..data.cut import Plan
from ..data.load import ahead
from ..data.read import Faults
from ..data.store import Store
from ..errors import RunError
from ..tasks import TASKS
from ..text import Text
from . import adapt, checkpoint, cost, optim
from .backward import Backward, Done, make_backward
from .checkpoint import write_text
from .distil import make_loss, start_from
from .distributed import World
from .events import Begun, Event, Log, Progress, Saved, Stopped, Window, record, trim_log
from .recipe import Recipe
from .schedule import rate_at
from .settings import Settings
from .validate import validate


def gradient(backward: Backward, batch: Any, world: World, pieces: int) -> Done:
    """Leave the gradient of the whole batch's mean loss per token in the weights.

    The batch is cut by rows into `pieces` for each rank. Sums are divided by the tokens of the
    whole batch, so neither the cut nor the number of ranks changes the result. A rank without
    rows takes part with one row that counts nothing, so that nobody waits for it. -> the sum of
    -log p, and what the next batch goes on from, this rank's rows of it.
    """
    nll = torch.zeros((), device=world.device)
    past: tuple[Tensor, ...] = ()
    step = pieces * world.size
    for piece in range(pieces):
        first = piece * world.size + world.rank
        part = batch.shard(first, step)
        weight = 1.0 if len(part) else 0.0
        part = part if len(part) else batch.shard(0, len(batch))
        # Peers average their gradients; the sum is wanted.
        scale = weight * world.size / batch.tokens
        found, new = backward(part.to(world.device), scale, piece == pieces - 1)
        nll = nll + weight * found
        if step == 1:
            return nll, new
        past = past or tuple(t.new_zeros(len(batch), *t.shape[1:]) for t in new)
        for whole, rows in zip(past, new, strict=True):
            whole[first::step] = rows[: len(whole[first::step])]
    return nll, past


def fit(
    recipe: Recipe,
    folder: Path,
    world: World,
    stop: Callable[[], bool] = lambda: False,
    check: Callable[[], None] = lambda: None,
) -> Iterator[Event]:
    """Train until done, from the last checkpoint where there is one.

    `check` is asked before each write whether the folder is still this run's.
    """
    settings, device = recipe.train, world.device
    faults = Faults(recipe.data.skip_bad)
    new = not (folder / "config.json").is_file()
    task = world.first(lambda: prepare_task(recipe, folder, faults))
    stores = world.first(lambda: prepare_stores(recipe, task, folder, faults))
    plan = task.plan(stores["train"], settings.batch_tokens, settings.seed)

    torch.manual_seed(settings.seed)
    model = recipe.build(task.sizes)
    origin = recipe.model_from or settings.teacher
    if origin and not checkpoint.all_in(folder):
        start_from(model, Path(origin), may_differ=not recipe.model_from)
    adapt.prepare(model, settings)
    model.to(device).train()
    optimizer = optim.OPTIMIZERS[settings.optimizer](model, settings)
    progress, past = resume(folder, model, optimizer, device)
    if world.leads:
        trim_log(folder / "metrics.jsonl", progress.step)

    precision = autocast(device, settings)
    loss = make_loss(task, settings, device)
    backward = make_backward(model, loss, world, way_to_compile(settings, device), precision)
    largest = task.batch(stores["train"], plan.largest(), np.random.default_rng(settings.seed))
    try_largest(backward, model, largest, world, settings)
    usual = task.batch(stores["train"], plan.usual(), np.random.default_rng(settings.seed))
    example = cost.Estimate(0, 0, 0)
    if world.leads:  # who alone tells and writes
        meta = torch.device("meta")
        example = cost.count(recipe.build, task.sizes, usual, make_loss(task, settings, meta))
    peak = cost.peak_rate(device)
    yield Begun(
        progress.step,
        settings.steps,
        stores["train"].rows,
        plan.batches,
        sum(p.numel() for p in model.parameters()),
        device_name(device),
        sum(store.skipped for store in stores.values()),
        tuple(faults.first),
        peak.flops,
        peak.method,
        (*notes_on(settings), *(notes_of(task) if new else ())),
    )

    log = Log(folder, settings, check, progress.step) if world.leads else None
    parts = getattr(loss, "parts", ())
    window = Window(device, example.flops / usual.tokens / (peak.flops * world.size), parts)
    began = time.perf_counter() - progress.seconds

    def spent() -> float:
        return time.perf_counter() - began

    with cost.metered(device, settings, spent, world.size) as energy:
        for batch in ahead(batches(task, stores["train"], plan, progress, settings, device)):
            step = progress.step = progress.step + 1
            seed_everything(settings.seed, step, world.rank)
            rate = rate_at(
                settings.schedule, step, settings.steps, settings.warmup, settings.final_rate
            )
            optim.set_rate(optimizer, settings.rate * rate * batch.rate_scale)
            if batch.continues:
                batch = dataclasses.replace(batch, past=past)
            if (told := getattr(model, "on_progress", None)) is not None:
                told(step / settings.steps)
            nll, past = gradient(backward, batch, world, settings.accumulate)
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
                    window.check(world, step, optimizer)
                    with optim.averaged(optimizer):
                        scored = validate(recipe, task, model, stores, world, progress, precision)
                        if scored is not None and scored.best and world.leads:
                            weights = adapt.merged(checkpoint.weights_of(model), settings)
                            check()
                            checkpoint.write_weights(folder / BEST, weights)
                    if scored is not None:
                        yield record(log, scored)
                    optim.average_if_stalled(optimizer, progress.worse, settings)
                # Peers agree on stopping, and seldom enough that asking costs nothing.
                asked = world.any(stop()) if world.size == 1 or step % 5 == 0 else False
                if step % settings.save_every == 0 or last or asked or tired(progress, settings):
                    window.check(world, step, optimizer)
                    progress.seconds = spent()
                    kept = tuple(world.sum(tensor.clone()) for tensor in past)
                    check()
                    yield record(
                        log, save(folder, model, optimizer, progress, kept, settings, world)
                    )
            if asked and not last:
                yield Stopped(step, "asked to stop", for_good=False)
                return
            if tired(progress, settings) and not last:
                yield Stopped(step, f"no gain in {progress.worse} validations", for_good=True)
                break
    check()
    if world.leads:
        drop_old(folder, settings)  # killed right after its last save, a run comes here at once
        with optim.averaged(optimizer):
            weights = adapt.merged(chosen_weights(folder, settings, model, progress), settings)
        flops = example.flops / usual.tokens * progress.tokens
        write_bill(folder, settings, example.parameters, flops, peak, progress, energy, device)
        checkpoint.write_weights(folder / "model.safetensors", weights)
        (folder / BEST).unlink(missing_ok=True)


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
    origin = recipe.model_from or recipe.train.teacher
    if origin and hasattr(kind, "adopt"):  # what it is asked differs, the vocabulary does not
        text = Text.load(Path(origin) / "tokenizer.json")
        task = kind.adopt(recipe.task, text, recipe.data.files("train"), Faults(faults.skip))
    elif origin:
        task = kind.load(recipe.task, recipe.text, Path(origin))
    else:
        task = kind.learn(recipe.task, recipe.text, recipe.data.files("train"), Faults(faults.skip))
    task.save(folder)
    # Written last: its presence says that the vocabularies beside it are whole.
    write_text(folder / "config.json", recipe.config(task.sizes))
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


def notes_on(settings: Settings) -> list[str]:
    """What is no mistake, but can hardly be meant."""
    if settings.warmup <= settings.steps:
        return []
    return [
        f"train.warmup ({settings.warmup}) is longer than the training ({settings.steps} steps), "
        f"so the rate never reaches train.rate; set train.warmup={max(settings.steps // 10, 1)} "
        "or so."
    ]


def notes_of(task: Any) -> list[str]:
    """What its vocabularies have to say, each once."""
    texts = {id(part): part for part in vars(task).values() if isinstance(part, Text)}
    return [text.note for text in texts.values() if text.note]


def way_to_compile(settings: Settings, device: torch.device) -> str:
    """Compiling takes half a minute, which a long training on a GPU earns back."""
    if settings.compile != "auto" or device.type != "cuda":
        return settings.compile
    return "full" if settings.steps * settings.batch_tokens >= 2 * 10**7 else "graph"


def resume(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[Progress, tuple[Tensor, ...]]:
    """Go on from the newest checkpoint, where there is one."""
    found = checkpoint.all_in(folder)
    if not found:
        return Progress(), ()
    tensors, state = checkpoint.load(found[-1])
    checkpoint.put_weights(model, tensors["model"], found[-1])
    optim.restore(model, optimizer, tensors["optimizer"])
    past = tensors.get("past", {})
    return Progress(**state), tuple(past[str(i)].to(device) for i in range(len(past)))


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    past: tuple[Tensor, ...],
    settings: Settings,
    world: World,
) -> Saved:
    path = folder / f"checkpoint-{progress.step}"
    if world.leads:
        tensors = {
            "model": checkpoint.weights_of(model),
            "optimizer": optim.state_of(model, optimizer),
        }
        if past:
            tensors["past"] = {str(i): tensor for i, tensor in enumerate(past)}
        checkpoint.save(folder, progress.step, tensors, dataclasses.asdict(progress))
        drop_old(folder, settings)
    return Saved(progress.step, str(path))


def drop_old(folder: Path, settings: Settings) -> None:
    """Keep the checkpoints that resuming and averaging need."""
    averaged = settings.average if settings.keep == "average" else 1
    checkpoint.clean(folder, averaged, settings.save_every)


def batches(
    task: Any,
    store: Store,
    plan: Plan,
    progress: Progress,
    settings: Settings,
    device: torch.device,
) -> Iterator[Any]:
    """The batch of every step that is left; what is drawn depends on seed and step alone."""
    epoch, cuts = -1, []
    # A run that was killed between its last checkpoint and its end has no step left.
    left = range(0) if tired(progress, settings) else range(progress.step, settings.steps)
    for step in left:
        wanted, place = divmod(step, plan.batches)
        if wanted != epoch:
            epoch, cuts = wanted, plan.epoch(wanted)
        batch = task.batch(store, cuts[place], np.random.default_rng((settings.seed, step)))
        yield batch.pad_to_multiple(8).pin() if device.type == "cuda" else batch


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
    backward: Backward, model: nn.Module, batch: Any, world: World, settings: Settings
) -> None:
    """Run the largest batch, so that too little memory shows now and not in an hour."""
    batch = batch.pad_to_multiple(8) if world.device.type == "cuda" else batch
    try:
        gradient(backward, batch, world, settings.accumulate)
    except (RuntimeError, MemoryError) as error:
        # The CPU's allocator has no error of its own.
        known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not known and "can't allocate memory" not in str(error):
            raise
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


# After the loop.


def chosen_weights(
    folder: Path, settings: Settings, model: nn.Module, progress: Progress
) -> dict[str, Tensor]:
    """The best on validation, the last, or the average of the last checkpoints."""
    if settings.keep == "average":
        # Those made because somebody interrupted do not count; the last one always does.
        last, every = progress.step, settings.save_every
        steps = [*range(every, last, every), last][-settings.average :]
        return checkpoint.average([folder / f"checkpoint-{s}/model.safetensors" for s in steps])
    if settings.keep == "best" and (folder / BEST).is_file():
        return checkpoint.read_tensors(folder / BEST)
    return {name: weight.clone() for name, weight in checkpoint.weights_of(model).items()}


def write_bill(
    folder: Path,
    settings: Settings,
    parameters: int,
    flops: float,
    peak: cost.Peak,
    progress: Progress,
    energy: cost.Energy,
    device: torch.device,
) -> None:
    """cost.json: what the training took."""
    bill = {
        "steps": progress.step,
        "target_tokens": progress.tokens,
        "parameters": parameters,
        "flops": flops,
        "flops_method": "counted on one batch's shape, scaled by target tokens",
        "use": flops / max(progress.seconds, 1e-9) / peak.flops,
        "use_method": f"FLOPs a second, as a part of {peak.method}",
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
