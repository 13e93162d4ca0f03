"""Looking at the validation data while training."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from ..data.read import Faults
from ..data.store import Store
from .distributed import World
from .events import Progress, Scored
from .loss import LOSSES
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
    loss = mean_loss(task, model, stores["valid"], recipe.train, world.device, precision)
    scores: dict[str, Any] = {
        "loss": round(loss, 5),
        "perplexity": round(float(np.exp(min(loss, 700.0))), 4),
    }
    if recipe.train.evaluate_examples and world.leads:
        inputs, references = task.examples(recipe.data.files("valid"), Faults(recipe.data.skip_bad))
        count = recipe.train.evaluate_examples
        greedy = dataclasses.replace(recipe.decode, **GREEDY)
        with precision or nullcontext():
            answers = task.predict(model, inputs[:count], greedy, 10**9)
        scores |= task.score([answer.output for answer in answers], references[:count], quick=True)
    scores["seconds"] = round(time.perf_counter() - began, 3)
    model.train()
    worth = -loss
    if recipe.train.best_by == "metric" and task.metric in scores:
        worth = scores[task.metric] * (1 if task.higher_is_better else -1)
    worth = world.told(worth)  # only rank 0 has answered and scored; all must agree
    best = progress.best is None or worth > progress.best
    progress.best, progress.worse = (worth, 0) if best else (progress.best, progress.worse + 1)
    return Scored(progress.step, scores, best)


GREEDY: dict[str, Any] = {
    "kind": "greedy",
    "num_return_sequences": 1,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
}


@torch.no_grad()
def mean_loss(
    task: Any,
    model: nn.Module,
    store: Store,
    settings: Settings,
    device: torch.device,
    precision: Any,
) -> float:
    """-log p per token over a whole store, in order of length."""
    lengths = task.lengths(store).max(1)
    rows = np.argsort(lengths, kind="stable")
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    loss = LOSSES[task.loss]()
    while len(rows):
        count = max(1, settings.batch_tokens // int(lengths[rows[-1]]))
        batch = task.batch(store, rows[-count:])
        with precision or nullcontext():
            total += loss(model, batch.to(device)).nll
        tokens += batch.tokens
        rows = rows[:-count]
    return float(total) / tokens
