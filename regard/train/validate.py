"""Looking at the validation data while training."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ..data.read import Faults
from ..data.store import Store
from .distributed import World
from .events import Progress, Scored
from .loss import LOSSES, TokenLoss
from .recipe import Recipe
from .settings import Settings


def validate(
    recipe: Recipe,
    task: Any,
    model: nn.Module,
    stores: dict[str, Store],
    world: World,
    progress: Progress,
    precision: Any,
) -> Scored | None:
    """Loss on the validation data and, for the first lines, the metric by greedy decoding."""
    if "valid" not in stores:
        return None
    model.eval()
    began = time.perf_counter()
    swept = sweep_loss(task, model, stores["valid"], recipe.train, world.device, precision)
    loss = swept.nll / swept.tokens
    scores: dict[str, Any] = {"loss": round(loss, 5), **swept.parts}
    if LOSSES[task.loss] is TokenLoss:
        scores["perplexity"] = round(float(np.exp(min(loss, 700.0))), 4)
    count = recipe.train.evaluate_examples
    if count and world.leads:
        files, faults = recipe.data.files("valid"), Faults(recipe.data.skip_bad)
        with precision or nullcontext():
            scores |= task.quick_scores(model, files, recipe.decode, faults, count)
    scores["seconds"] = round(time.perf_counter() - began, 3)
    model.train()
    worth = -loss
    if recipe.train.best_by == "metric" and task.metric in scores:
        worth = scores[task.metric] * (1 if task.higher_is_better else -1)
    worth = world.told(worth)  # only rank 0 has answered and scored; all must agree
    best = progress.best is None or worth > progress.best
    progress.best, progress.worse = (worth, 0) if best else (progress.best, progress.worse + 1)
    return Scored(progress.step, scores, best)


class Swept(NamedTuple):
    """Sum of a loss, how many tokens it is of, and the means of its parts where it has several."""

    nll: float
    tokens: int
    parts: dict[str, float]


@torch.no_grad()
def sweep_loss(
    task: Any,
    model: nn.Module,
    store: Store,
    settings: Settings,
    device: torch.device,
    precision: Any,
    thorough: bool = False,
) -> Swept:
    """The loss over a whole store."""
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    loss = LOSSES[task.loss]()
    past: tuple[torch.Tensor, ...] = ()
    for batch in task.evaluation_batches(store, settings.batch_tokens, thorough):
        tokens += batch.tokens
        if batch.continues:
            batch = dataclasses.replace(batch, past=past)
        with precision or nullcontext():
            found = loss(model, batch.to(device))
        total, past = total + found.nll, found.past
    values = total.view(-1).tolist()
    means = (round(value / max(tokens, 1), 5) for value in values)
    return Swept(sum(values), tokens, dict(zip(loss.parts, means, strict=False)))
