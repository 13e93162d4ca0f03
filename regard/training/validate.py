"""Looking at the validation data while training."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch

from ..data.examples import Data
from ..data.store import Store
from ..model import Model
from ..parts.precision import widest
from ..progress import counted
from ..tasks import AnyTask
from ..tasks.task import Measured, Scores
from .distributed import World
from .events import Event, Progress, Scored
from .loss import LOSSES, TokenLoss
from .recipe import Recipe
from .settings import Settings


def validate(
    recipe: Recipe,
    task: AnyTask,
    model: Model,
    data: Data | None,
    world: World,
    progress: Progress,
    precision: torch.autocast | None,
) -> Scored | None:
    """Loss on the validation data and, for the first lines, the metric by greedy decoding."""
    if data is None:
        return None
    model.eval()
    began = time.perf_counter()
    loss = store_loss(task, model, data.store, recipe.train, world.device, precision)
    scores: Scores = {"loss": round(loss.mean, 5), **loss.parts}
    if LOSSES[task.loss] is TokenLoss:
        scores["perplexity"] = round(float(np.exp(min(loss.mean, 700.0))), 4)
    count = recipe.train.evaluate_examples
    if progress.step == recipe.train.steps and part_to_score(recipe) == "valid":
        # All of them are about to be scored in full, by the weights that are chosen here.
        count = count if recipe.train.best_by == "metric" else 0
    if count and world.leads:
        with precision or nullcontext():
            scores |= task.quick_scores(model, data, recipe.decode, count)
    scores["seconds"] = round(time.perf_counter() - began, 3)
    model.train()
    worth = -loss.mean
    metric = task.chosen_by or task.metric
    if recipe.train.best_by == "metric" and metric in scores:
        worth = scores[metric] * (1 if task.higher_is_better else -1)
    worth = world.told(worth)  # only rank 0 has answered and scored; all must agree
    best = progress.best is None or worth > progress.best
    progress.best, progress.worse = (worth, 0) if best else (progress.best, progress.worse + 1)
    # A final score reads text in one strip, and computes in float32: then it is another number.
    whole = precision is None and recipe.decode.precision == "float32"
    same = whole and not loss.parts and vars(recipe.task).get("cut") != "stream"
    return Scored(progress.step, scores, best, loss.measured if same else None)


def part_to_score(recipe: Recipe) -> str:
    """The test data, or the validation data where there are no others; "" without both."""
    return next((part for part in ("test", "valid") if recipe.data.named(part)), "")


def loss_of_kept(event: Event, recipe: Recipe) -> Measured | None:
    """The loss on what is scored in the end, where this event tells it of weights that are kept."""
    if not isinstance(event, Scored) or part_to_score(recipe) != "valid":
        return None
    kept = {"best": event.best, "last": True, "average": False}[recipe.train.keep]
    return event.measured if kept else None


class StoreLoss(NamedTuple):
    """A loss over a whole store, and the means of its parts where it has several."""

    mean: float
    tokens: int
    parts: dict[str, float]

    @property
    def measured(self) -> Measured:
        return Measured(self.mean * self.tokens, self.tokens)


@torch.no_grad()
def store_loss(
    task: AnyTask,
    model: Model,
    store: Store,
    settings: Settings,
    device: torch.device,
    precision: torch.autocast | None,
    thorough: bool = False,
) -> StoreLoss:
    """The loss over a whole store."""
    loss = LOSSES[task.loss].of(settings)
    total = torch.zeros((), dtype=widest(device), device=device)
    counts = [0] * max(1, len(loss.parts))
    past: tuple[torch.Tensor, ...] = ()
    asked = store, settings.batch_tokens, thorough
    batches, rows = task.evaluation_batches(*asked), task.evaluation_rows(*asked)
    for batch in counted(batches, "measuring the loss", rows, len):
        counts = [a + b for a, b in zip(counts, batch.counts, strict=False)]
        if batch.continues:
            batch = dataclasses.replace(batch, past=past)
        with precision or nullcontext():
            found = loss(model, batch.to(device))
        total, past = total + found.nll, found.past
    sums = total.view(-1).tolist()
    means = [value / max(count, 1) for value, count in zip(sums, counts, strict=False)]
    parts = {name: round(mean, 5) for name, mean in zip(loss.parts, means, strict=False)}
    return StoreLoss(sum(means), counts[0], parts)
