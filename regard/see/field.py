"""The receptive field: what a token at the top depends on, layer by layer below it.

Three answers stand side by side: whom it looks at, and they look at, by weights above a threshold;
how much of each arrives by weights alone (rollout); and how far each really moves it (gradient).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.read import is_text
from ..errors import InputError
from ..model import AnyBatch
from ..parts.precision import widest
from ..tasks.task import Axis, Traces
from ..training.run import Run
from . import capture, figure
from .brief import counted, quoted
from .save import save

DRAWS = 16  # directions in which the top vector is moved
SEED = 0
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Below:
    """What counts at the input of one layer."""

    layer: int  # from 0 on; what goes into it
    looked_at: list[int]  # by those above, with a weight of at least the threshold in some head
    rollout: list[float]  # (T,) sum to one
    gradient: list[float]  # (T,) sum to one


@dataclass(frozen=True, repr=False)
class Field:
    """What one token depends on; saves itself as a picture or numbers."""

    tokens: list[str]
    place: int
    threshold: float
    layers: list[Below]  # from the top to the bottom
    weights: list[NDArray[np.float32]]  # (T, T) each, of the same layers: the largest of any head
    axis: Axis  # what the tokens are: words, patches of a picture, nodes of a graph

    def __repr__(self) -> str:
        token, count = quoted(self.tokens[self.place]), len(self.tokens)
        return f"<Field of {token} among {count} tokens: {counted(len(self.layers), 'layer')}>"

    def data(self) -> dict[str, object]:
        rows = [
            {"layer": one.layer, "tokens_looked_at": len(one.looked_at), **vars(one)}
            for one in self.layers
        ]
        return {"tokens": self.tokens, "token": self.tokens[self.place], "place": self.place,
                "threshold": self.threshold, "layers": rows}  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write .json, .png, .svg or .pdf, as the name says."""
        return save(self, Path(path), WRITERS)


WRITERS: dict[str, Callable[[Field, Path], object]] = {
    ".json": lambda field, path: path.write_text(
        json.dumps(field.data(), ensure_ascii=False), encoding="utf-8"
    ),
    **{kind: lambda field, path: drawn(field, path) for kind in (".png", ".svg", ".pdf")},
}


def drawn(field: Field, path: Path) -> Path:
    """Patches where they lie in their picture, nodes in their graph; else as a tree."""
    if len(field.axis.shape) == 2 and field.axis.picture:
        return figure.growing_patches(field, path)
    if field.axis.layout is not None:
        return figure.growing_nodes(field, path)
    return figure.tree(field, path)


@torch.inference_mode(mode=False)  # a server answers without gradients; here they are asked for
def field(run: Run, source: object, token: str | int, threshold: float = 0.1) -> Field:
    """What a token of an input depends on: named by itself, or by its number from 0 on."""
    task = run.task
    if not isinstance(task, Traces):
        raise InputError(f"a run for the task {run.recipe.task_kind} cannot be looked into.")
    stack, side = looking_at_itself(run)
    given = task.looked_at(run.given(source))
    target = ""
    if task.looks_at_answer:
        target = task.predict(run.model, [given], run.recipe.decode, run.longest)[0].output
    batch, sides = task.trace(given, target)
    axis = capture.named(run, sides)[side]
    names = axis.names
    place = placed(names, token)
    kind = f"{stack}.attention"
    report = capture.look(run, source, target or None)
    looks = report.of(kind)[::-1]
    weights = [look.weights.max(0) for look in looks]  # some head looks there
    moved = gradients(run, batch, stack, place)[::-1]
    layers, above, flow = [], {place}, np.eye(len(names))[place]
    for look, table, slopes in zip(looks, weights, moved, strict=True):
        above = above | {int(j) for i in above for j in np.flatnonzero(table[i] >= threshold)}
        mean = look.weights.mean(0)
        flow = flow @ (0.5 * mean + 0.5 * np.eye(len(names)))  # half of every vector stays itself
        layers.append(Below(look.layer, sorted(above), rounded(flow), rounded(slopes)))
    return Field(names, place, threshold, layers, weights, axis)


def rounded(shares: Array) -> list[float]:
    return [round(float(share), 6) for share in shares / max(float(shares.sum()), 1e-30)]


def looking_at_itself(run: Run) -> tuple[str, str]:
    """The stack whose tokens look at each other, and what they are."""
    for name, told in run.model.looks.items():
        stack, _, rest = name.partition(".*.")
        if rest == "attention" and not isinstance(told, list) and told[0] == told[1]:
            return stack, told[1]
    raise InputError(
        f"a model of the kind {run.recipe.model_kind} has no blocks whose tokens look at each "
        "other."
    )


def as_word(token: str) -> str:
    """A token without the signs that say where words begin."""
    return token.replace("▁", " ").replace("Ġ", " ").strip() or token


def placed(names: list[str], token: str | int) -> int:
    """Where a token stands."""
    plain = [as_word(name) for name in names]
    if isinstance(token, str):
        if not is_text(token):
            raise InputError("the token must be UTF-8, but is not.")
        if token.strip() in plain:
            return plain.index(token.strip())
        if not token.lstrip("-").isdigit():
            shown = ", ".join(plain[:20])
            raise InputError(f"there is no token '{token}'; there are {shown}; or give its number.")
        token = int(token)
    if not -len(names) <= token < len(names):
        raise InputError(f"there are {len(names)} tokens, but number {token} is asked for.")
    return token % len(names)


def gradients(run: Run, batch: AnyBatch, stack: str, place: int) -> list[Array]:
    """How far each token, at the input of each layer, moves the top vector of one: the length of
    the slopes, over several directions.  -> (T,) of each layer"""
    blocks = getattr(run.model, stack)
    with kept_inputs(blocks) as (inputs, top), torch.enable_grad():
        run.model(batch.to(run.device))
        vector = top[0][0, place]
        dice = torch.Generator().manual_seed(SEED)
        sums = [torch.zeros(one.shape[1], dtype=torch.float64) for one in inputs]
        for number in range(DRAWS):
            way = torch.randn(len(vector), generator=dice).to(vector)
            slopes = torch.autograd.grad(vector @ way, inputs, retain_graph=number < DRAWS - 1)
            for total, slope in zip(sums, slopes, strict=True):
                total += slope[0].to(widest(slope.device)).square().sum(-1).cpu()
    return [np.sqrt(total.numpy() / DRAWS) for total in sums]


@contextmanager
def kept_inputs(blocks: nn.ModuleList) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """What goes into each block, to be asked how much it matters, and what the last gives."""
    inputs, top, hooks = list[Tensor](), list[Tensor](), []

    def before(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        x = given[0]
        if not inputs:  # nothing below the first block is asked
            x = x.detach().requires_grad_()
        inputs.append(x)
        return (x, *given[1:])

    for block in blocks:
        hooks.append(block.register_forward_pre_hook(before))
    hooks.append(blocks[-1].register_forward_hook(lambda _, given, out: top.append(out)))
    try:
        yield inputs, top
    finally:
        for hook in hooks:
            hook.remove()
