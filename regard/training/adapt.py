"""Training less than all of a model: the first blocks frozen, or low-rank adapters alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import RecipeError
from ..model import Model
from ..parts.attention import Attention
from .settings import Settings


class LowRank(nn.Module):
    """W + s/r · up down: a change of rank r beside a matrix that stays (Hu et al. 2022, eq. 3)."""

    def __init__(self, rows: int, columns: int, rank: int, scale: float) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, columns))
        self.up = nn.Parameter(torch.zeros(rows, rank))  # so that nothing changes at first
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        self.scale = scale / rank

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down)


ORIGINAL, UP, DOWN = (f"parametrizations.weight.{part}" for part in ("original", "0.up", "0.down"))


def prepare(model: Model, settings: Settings) -> None:
    """Decide what learns; before the optimizer is made."""
    if settings.adapters:
        add_adapters(model, settings)
    if not settings.freeze:
        return
    blocks = max(model.level(name) for name, _ in model.named_parameters())
    if settings.freeze > blocks:
        raise RecipeError(
            f"train.freeze must be {blocks} or less, for the model has no more blocks, but is "
            f"{settings.freeze}."
        )
    for name, weight in model.named_parameters():
        if 0 <= model.level(name) <= settings.freeze:
            weight.requires_grad_(False)


def add_adapters(model: Model, settings: Settings) -> None:
    """On every attention's queries, keys and values; beside them only heads learn."""
    heads = (*model.heads, "words")
    found = [part for part in model.modules() if isinstance(part, Attention)]
    if not found:
        raise RecipeError("train.adapters: a model without attention has nothing to adapt.")
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.partition(".")[0] in heads)
    for attention in found:
        for layer in (attention.query, attention.memory):
            rows, columns = layer.weight.shape
            adapter = LowRank(rows, columns, settings.adapters, settings.adapter_scale)
            parametrize.register_parametrization(layer, "weight", adapter)


def merged_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes that weights have when their adapters are added to them."""
    return {
        name.replace(ORIGINAL, "weight"): shape
        for name, shape in shapes.items()
        if not name.endswith((UP, DOWN))
    }


def merged(weights: dict[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    """Adapters added to what they adapt, under the plain names: a model like any other."""
    if not settings.adapters:
        return weights
    scale, whole = settings.adapter_scale / settings.adapters, dict(weights)
    for name in [name for name in weights if name.endswith(ORIGINAL)]:
        stem = name.removesuffix(ORIGINAL)
        up, down = whole.pop(stem + UP), whole.pop(stem + DOWN)
        whole[f"{stem}weight"] = whole.pop(name) + scale * (up @ down)
    return whole
