"""The training loop. It tells what happens and prints nothing: `fit` yields events."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..data.cut import Plan
from ..data.draws import Draws
from ..data.examples import Data
from ..data.load import ahead
from ..data.read import Faults
from ..model import AnyBatch, Model
from ..progress import tell
from ..tasks import AnyTask
from . import adapt, checkpoint, cost, optim
from .backward import Backward, StepResult, make_backward
from .distil import make_loss
from .distributed import World
from .events import (
    Advanced,
    Begun,
    Event,
    Log,
    Progress,
    Saved,
    Step,
    Stopped,
    Window,
    record,
    trim_log,
)
from .files import BEST, BILL, WEIGHTS
from .prepare import (
    autocast,
    device_name,
    notes_on,
    one_batch,
    prepare_data,
    prepare_model,
    prepare_task,
    too_large,
    way_to_compile,
    whole_model,
)
from .recipe import Recipe
from .schedule import rate_at
from .settings import Settings
from .shard import full, whole_on_first
from .validate import validate


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
    run = Training(recipe, folder, world, check)
    yield run.begun
    with (
        closing(run.log) if run.log is not None else nullcontext(),
        cost.metered(world.device, recipe.train, run.spent, world.size) as energy,
    ):
        for share in ahead(run.shares()):
            yield from run.step(share)
            with run.window.paused():
                yield from run.validate()
                # Peers agree on stopping, and seldom enough that asking costs nothing.
                asked = world.any(stop()) if world.size == 1 or run.at % 5 == 0 else False
                yield from run.save(asked)
            if asked and not run.is_last:
                yield Stopped(run.at, "asked to stop", for_good=False)
                return
            if run.is_tired and not run.is_last:
                yield Stopped(run.at, f"no gain in {run.progress.worse} validations", for_good=True)
                break
    run.finish(energy)


class Share(NamedTuple):
    """A rank's rows of a batch; where there are fewer rows than ranks, one that does not count."""

    batch: AnyBatch
    counts: bool

    def parts(self) -> tuple[int, ...]:
        """What each part of the loss is a mean over, of this share."""
        return tuple(count if self.counts else 0 for count in self.batch.counts)


def gradient(
    backward: Backward, share: Share, whole: Sequence[int], world: World, pieces: int
) -> StepResult:
    """Leave the gradient of the whole batch's mean loss in the weights.

    A rank's rows are cut into `pieces`. Sums are divided by what the `whole` batch counts, so
    neither the cut nor the number of ranks changes the result. A rank without rows takes part with
    one that counts nothing, so that nobody waits for it. -> the sum of -log p, and what the next
    batch goes on from, this rank's rows of it.
    """
    batch, nll = share.batch, torch.zeros((), device=world.device)
    past: tuple[Tensor, ...] = ()
    for piece in range(pieces):
        part = batch.shard(piece, pieces)
        weight = 1.0 if len(part) and share.counts else 0.0
        part = part if len(part) else batch.shard(0, len(batch))
        # Peers average their gradients; the sum is wanted.
        scales = [weight * world.size / max(count, 1) for count in whole]
        found, new = backward(part.to(world.device), scales, piece == pieces - 1)
        nll = nll + weight * found
        if pieces == 1:
            return nll, new
        past = past or tuple(t.new_zeros(len(batch), *t.shape[1:]) for t in new)
        for kept, rows in zip(past, new, strict=True):
            kept[piece::pieces] = rows[: len(kept[piece::pieces])]
    return nll, past


class Training:
    """A run in the making: all that is made before the first step, and what each step does."""

    def __init__(
        self, recipe: Recipe, folder: Path, world: World, check: Callable[[], None]
    ) -> None:
        self.recipe, self.folder, self.world, self.check = recipe, folder, world, check
        settings, device = recipe.train, world.device
        self.settings, self.device = settings, device
        self.faults = Faults(recipe.data.skip_bad)
        is_new = not (folder / "config.json").is_file()
        self.task = world.first(lambda: prepare_task(recipe, folder, self.faults))
        cache = folder.parent / ".cache"
        self.data = world.first(lambda: prepare_data(recipe, self.task, cache, self.faults))
        self.plan = self.task.plan(self.data["train"].store, settings.batch_tokens, settings.seed)

        self.sharded = settings.shard and world.size > 1
        self.model = prepare_model(recipe, self.task.sizes, folder, world)
        self.precision = autocast(device, settings)
        loss = make_loss(self.task.loss, settings, device, self.task)
        compiling = way_to_compile(settings, device)
        self.backward = make_backward(
            self.model, loss, world, compiling, self.precision, self.sharded
        )
        self.optimizer = optim.OPTIMIZERS[settings.optimizer](self.model, settings)
        self.progress, past = resume(folder, self.model, self.optimizer, self.writers, device)
        # What the next batch goes on from: this rank's rows of it.
        self.past = tuple(tensor[self.own(len(tensor))] for tensor in past)
        self.counts = True  # whether the last share did
        if world.leads:
            trim_log(folder / "metrics.jsonl", self.progress.step)

        self.try_largest()
        tell("reckoning what a step takes")
        usual = one_batch(self.task, self.data["train"], self.plan.usual(), settings)
        self.example = cost.Estimate(0, 0, 0)
        if world.leads:  # who alone tells and writes
            on_paper = make_loss(self.task.loss, settings, torch.device("meta"))
            self.example = cost.count(recipe.build, self.task.sizes, usual, on_paper)
        self.flops_a_token = self.example.flops / max(1, usual.tokens)
        self.peak = cost.peak_rate(device)
        self.begun = self.tell_begun(is_new)
        self.log = Log(folder, settings, check, self.progress.step) if world.leads else None
        share = self.flops_a_token / (self.peak.flops * world.size)
        self.window = Window(device, share, loss.parts)
        self.began = time.perf_counter() - self.progress.seconds

    def tell_begun(self, is_new: bool) -> Begun:
        settings, data = self.settings, self.data
        return Begun(
            self.progress.step,
            settings.steps,
            data["train"].store.rows,
            self.task.amount(data["train"].store),
            self.plan.batches,
            sum(p.numel() for p in self.model.parameters()),
            device_name(self.device),
            sum(part.skipped for part in data.values()),
            tuple(self.faults.first),
            self.peak.flops,
            self.peak.method,
            (*notes_on(settings), *(self.task.notes if is_new else ()), *self.faults.notes),
        )

    def try_largest(self) -> None:
        """Run the largest batch, so that too little memory shows now and not in an hour."""
        compiles = way_to_compile(self.settings, self.device) == "full"
        tell("compiling, and trying the largest batch" if compiles else "trying the largest batch")
        rows = self.plan.largest()
        batch = one_batch(self.task, self.data["train"], rows[self.own(len(rows))], self.settings)
        batch = batch.pad_to_multiple(8) if self.device.type == "cuda" else batch
        share = Share(batch, True)
        try:
            whole = self.world.count(share.parts())
            gradient(self.backward, share, whole, self.world, self.settings.accumulate)
        except (RuntimeError, MemoryError) as error:
            # The CPU's allocator has no error of its own.
            known = isinstance(error, torch.OutOfMemoryError | MemoryError)
            if not known and "can't allocate memory" not in str(error):
                raise
            raise too_large(batch, self.settings) from error
        self.model.zero_grad(set_to_none=False)

    # Where it stands.

    @property
    def writers(self) -> World:
        """Those who keep a checkpoint and go on from it together; each by itself where nothing is
        cut."""
        return self.world if self.sharded else self.world.alone

    def spent(self) -> float:
        """Seconds, with those before it was interrupted."""
        return time.perf_counter() - self.began

    @property
    def at(self) -> int:
        return self.progress.step

    @property
    def is_last(self) -> bool:
        return self.at == self.settings.steps

    @property
    def is_tired(self) -> bool:
        """Whether there was no gain for too long."""
        return 0 < self.settings.patience <= self.progress.worse

    # A step.

    def own(self, rows: int) -> slice:
        """This rank's rows of so many; the first, where there are fewer than ranks."""
        if rows <= self.world.rank:
            return slice(0, 1)
        return slice(self.world.rank, None, self.world.size)

    def shares(self) -> Iterator[Share]:
        """This rank's part of every batch that is left."""
        # A run that was killed between its last checkpoint and its end has no step left.
        left = range(0) if self.is_tired else range(self.at, self.settings.steps)
        return shares(self.task, self.data["train"], self.plan, left, self.settings, self.world)

    def step(self, share: Share) -> Iterator[Step | Advanced]:
        """One update; told now and then."""
        settings, batch = self.settings, share.batch
        step = self.progress.step = self.progress.step + 1
        seed_everything(settings.seed, step, self.world.rank)
        rate = rate_at(
            settings.schedule, step, settings.steps, settings.warmup, settings.final_rate
        )
        optim.set_rate(self.optimizer, settings.rate * rate * batch.rate_scale)
        if batch.continues:
            share = share._replace(batch=dataclasses.replace(batch, past=self.past))
        self.model.on_progress(step / settings.steps)
        whole = self.world.count(share.parts())
        self.counts = share.counts
        nll, self.past = gradient(self.backward, share, whole, self.world, settings.accumulate)
        weights = self.model.parameters()
        norm = full(nn.utils.clip_grad_norm_(weights, settings.clip or float("inf")))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)  # captured graphs write to the same memory
        self.progress.tokens += whole[0]
        self.window.add(nll, norm, whole)
        if step % settings.log_every == 0 or self.is_last or step == 1:
            told = self.window.close(self.world, step, self.optimizer)
            record(self.log, told)
            yield told
        elif (advanced := self.window.glance(self.world, step)) is not None:
            yield advanced

    # Between two steps.

    def validate(self) -> Iterator[Event]:
        """Look at the validation data where it is time to, and keep the best weights."""
        if self.at % self.settings.evaluate_every and not self.is_last:
            return
        self.window.check(self.world, self.at, self.optimizer)
        with optim.averaged(self.optimizer):
            model = self.model
            if self.sharded:  # rank 0 is to answer, and the others have no part in that
                model = whole_model(self.recipe, self.task.sizes, model)
            scored = validate(
                self.recipe,
                self.task,
                model,
                self.data.get("valid"),
                self.world,
                self.progress,
                self.precision,
            )
            if scored is not None and scored.best and self.world.leads:
                weights = adapt.merged(checkpoint.weights_of(model), self.settings)
                self.check()
                checkpoint.write_weights(self.folder / BEST, weights)
        if scored is not None:
            yield record(self.log, scored)
        optim.average_if_stalled(self.optimizer, self.progress.worse, self.settings)

    def save(self, asked: bool) -> Iterator[Event]:
        """Keep a checkpoint where it is time to, or where this is the end."""
        due = self.at % self.settings.save_every == 0
        if not (due or self.is_last or asked or self.is_tired):
            return
        self.window.check(self.world, self.at, self.optimizer)
        self.progress.seconds = self.spent()
        past = self.whole_past()
        self.check()
        if self.sharded or self.world.leads:
            tensors = {
                "model": checkpoint.weights_of(self.model),
                "optimizer": optim.state_of(self.model, self.optimizer),
            }
            if past:
                tensors["past"] = {str(i): tensor for i, tensor in enumerate(past)}
            kept = dataclasses.asdict(self.progress)
            checkpoint.save(self.folder, self.at, tensors, kept, self.writers)
        if self.world.leads:
            drop_old(self.folder, self.settings)
        yield record(self.log, Saved(self.at, str(self.folder / f"checkpoint-{self.at}")))

    def whole_past(self) -> tuple[Tensor, ...]:
        """What the next batch goes on from, all ranks' rows of it."""
        found = []
        for tensor in self.past:
            own = tensor if self.counts else tensor[:0]
            rows = self.world.count((len(own),))[0]
            whole = tensor.new_zeros(rows, *tensor.shape[1:])
            whole[self.world.rank :: self.world.size] = own
            found.append(self.world.sum(whole))
        return tuple(found)

    def finish(self, energy: cost.Energy) -> None:
        """Keep the weights that were chosen, and write down what they took."""
        self.check()
        with optim.averaged(self.optimizer):
            weights = whole_on_first(checkpoint.weights_of(self.model), self.world)
            if not self.world.leads:
                return
            # Killed after its last save, a run comes here at once.
            drop_old(self.folder, self.settings)
            weights = chosen_weights(self.folder, self.settings, weights, self.progress)
            weights = adapt.merged(weights, self.settings)
        flops = self.flops_a_token * self.progress.tokens
        name = device_name(self.device)
        bill = cost.bill(
            self.progress, self.example.parameters, flops, self.peak, energy, self.settings, name,
            self.world.size,
        )  # fmt: skip
        cost.write_bill(self.folder / BILL, bill, self.device)
        checkpoint.write_weights(self.folder / WEIGHTS, weights)
        (self.folder / BEST).unlink(missing_ok=True)


def shares(
    task: AnyTask, data: Data, plan: Plan[object], steps: range, settings: Settings, world: World
) -> Iterator[Share]:
    """A rank's part of the batch of each step; what is drawn depends on seed, step and row alone.

    Only a rank's own rows are read, so that reading costs no more with more ranks.
    """
    epoch, batches = -1, list[Any]()
    for step in steps:
        wanted, place = divmod(step, plan.batches)
        if wanted != epoch:
            epoch, batches = wanted, list(plan.epoch(wanted))
        rows = batches[place]
        count = len(rows)
        counts = count > world.rank
        picked = slice(world.rank, None, world.size) if counts else slice(0, 1)
        rng = None
        if task.draws:
            rng = Draws(settings.seed, step, range(count)[picked])
        batch = task.batch(data.store, rows[picked], rng)
        on_gpu = world.device.type == "cuda"
        yield Share(batch.pad_to_multiple(8).pin() if on_gpu else batch, counts)


def resume(
    folder: Path,
    model: Model,
    optimizer: torch.optim.Optimizer,
    world: World,
    device: torch.device,
) -> tuple[Progress, tuple[Tensor, ...]]:
    """Go on from the newest checkpoint, where there is one; of what is cut, each of a `world` has
    its rows."""
    found = checkpoint.all_in(folder)
    if not found:
        return Progress(), ()
    tensors, state = checkpoint.load(found[-1], world)
    checkpoint.put_weights(model, tensors["model"], found[-1])
    optim.restore(model, optimizer, tensors["optimizer"])
    past = tensors.get("past", {})
    return Progress(**state), tuple(past[str(i)].to(device) for i in range(len(past)))


def drop_old(folder: Path, settings: Settings) -> None:
    """Keep the checkpoints that resuming and averaging need."""
    averaged = settings.average if settings.keep == "average" else 1
    checkpoint.clean(folder, averaged, settings.save_every)


def seed_everything(seed: int, step: int, rank: int) -> None:
    """Dropout follows from seed, step and rank alone: there is no random state to save."""
    mixed = np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0]
    torch.manual_seed(int(mixed >> 1))


def chosen_weights(
    folder: Path, settings: Settings, last_weights: dict[str, Tensor], progress: Progress
) -> dict[str, Tensor]:
    """The best on validation, the last, or the average of the last checkpoints."""
    if settings.keep == "average":
        # Those made because somebody interrupted do not count; the last one always does.
        last, every = progress.step, settings.save_every
        steps = [*range(every, last, every), last][-settings.average :]
        return checkpoint.average([folder / f"checkpoint-{s}/{WEIGHTS}" for s in steps])
    if settings.keep == "best" and (folder / BEST).is_file():
        return checkpoint.read_tensors(folder / BEST)
    return {name: weight.clone() for name, weight in last_weights.items()}
