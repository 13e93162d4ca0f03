"""Forward and backward of a piece of a batch: plain, between peers, or as CUDA graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ..model import AnyBatch, Model
from ..models.door import PatchDoor
from ..parts.block import Block
from .distributed import World
from .loss import Loss
from .shard import blocks_of, shard

Made = TypeVar("Made")
# Sum of -log p, and what the next batch goes on from.
StepResult = tuple[Tensor, tuple[Tensor, ...]]


class Backward(Protocol):
    """Forward and backward of a piece of a batch.

    `scales` has what each part of its loss is multiplied by; `last` says whether it is the step's
    last piece.
    """

    def __call__(self, batch: AnyBatch, scales: Sequence[float], last: bool) -> StepResult: ...


Objectives = Callable[[Any, AnyBatch], Loss]


class Objective(nn.Module):
    """Model and loss as one module, so that peers can be kept in step around one call."""

    def __init__(self, model: Model, loss: Objectives) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: AnyBatch) -> Loss:
        return self.loss(self.model, batch)


def make_backward(
    model: Model,
    loss: Objectives,
    world: World,
    compiling: str = "off",
    precision: torch.autocast | None = None,
    sharded: bool = False,
) -> Backward:
    """The quickest way that the device has, or the one asked for.

    Between peers, each has a copy of the model, or, `sharded`, a part of it; then its weights are
    others afterwards, and an optimizer must be made after this.
    """
    on_gpu = world.device.type == "cuda"
    if compiling == "auto":
        compiling = "graph" if on_gpu else "off"
    if compiling == "full":
        compile_blocks(model)
    objective: nn.Module = Objective(model, loss)
    if world.size > 1 and sharded:
        shard(objective, model, world, precision)
        return Plain(objective, precision)
    if world.size > 1:
        # Not every task asks every part of its model: a pooler, say, or the words beside a class.
        return Plain(DistributedDataParallel(objective, find_unused_parameters=True), precision)
    plain = Plain(objective, precision)
    return Graphs(plain) if compiling in ("graph", "full") and on_gpu else plain


def checkpoint_blocks(model: Model) -> None:
    """Keep of each block its input alone; what is in between is computed again when it is needed,
    with the same dropout (Chen et al. 2016)."""
    for block in blocks_of(model):
        setattr(block, model.entered, _computed_again(getattr(block, model.entered)))


def _computed_again(plain: Callable[..., Made]) -> Callable[..., Made]:
    def forward(*args: Any, **options: Any) -> Made:
        if not torch.is_grad_enabled():
            return plain(*args, **options)
        again: Made = checkpoint(plain, *args, use_reentrant=False, **options)
        return again

    return forward


def compile_blocks(model: nn.Module) -> None:
    """Compile what is repeated: one block stands for all of its kind, so it takes seconds; and the
    door of pictures, which are changed by many small steps.

    Without gradients, both run as they are written: looking at validation data now and then is not
    worth a second compilation.
    """
    for part in model.modules():
        if isinstance(part, Block):
            part.forward = _when_training(part.forward)  # type: ignore[method-assign]
        elif isinstance(part, PatchDoor):
            part.enter = _when_training(part.enter)  # type: ignore[method-assign]


def _when_training(plain: Callable[..., Made]) -> Callable[..., Made]:
    fast = torch.compile(plain)

    def forward(*args: object, **options: object) -> Made:
        return fast(*args, **options) if torch.is_grad_enabled() else plain(*args, **options)

    return forward


class Plain:
    """Forward, then backward."""

    def __init__(self, objective: nn.Module, precision: torch.autocast | None = None) -> None:
        self.objective, self.precision = objective, precision

    def __call__(self, batch: AnyBatch, scales: Sequence[float] | Tensor, last: bool) -> StepResult:
        # Before a step's last piece, peers need not exchange gradients.
        shared = isinstance(self.objective, DistributedDataParallel)
        with self.objective.no_sync() if shared and not last else nullcontext():  # type: ignore[operator]
            with self.precision or nullcontext():
                loss = self.objective(batch)
            weighted(loss.total, scales).backward()
        return loss.nll.detach().float(), loss.past


def weighted(total: Tensor, scales: Sequence[float] | Tensor) -> Tensor:
    """The parts of a loss, each times its own; a loss may leave out the last of them."""
    parts = total.view(-1).unbind()  # numbers of the host are not copied to a device first
    return torch.stack([part * scale for part, scale in zip(parts, scales, strict=False)]).sum()


class Graphs:
    """The kernels of each shape captured once and replayed.

    A small model's step is hundreds of short kernels, and starting them one by one takes longer
    than running them. A shape is captured when it comes a second time; beyond `most` shapes, none
    is.
    """

    def __init__(self, plain: Plain, most: int = 256) -> None:
        self.plain, self.most = plain, most
        self.met: Counter[tuple[object, ...]] = Counter()
        self.graphs: dict[
            tuple[object, ...], tuple[torch.cuda.CUDAGraph, AnyBatch, Tensor, StepResult]
        ] = {}
        self.pool: Any = None

    def __call__(self, batch: AnyBatch, scales: Sequence[float], last: bool) -> StepResult:
        kinds = (type(batch.read), type(batch.asked), batch.read.fixed(), batch.asked.fixed())
        shape = (*kinds, *(tensor.shape for tensor in batch.tensors()))
        self.met[shape] += 1
        if shape not in self.graphs:
            if self.met[shape] < 2 or len(self.graphs) >= self.most:
                return self.plain(batch, scales, last)
            self.graphs[shape] = self.capture(batch, len(scales))
        graph, own, own_scales, done = self.graphs[shape]
        for mine, theirs in zip(own.tensors(), batch.tensors(), strict=True):
            mine.copy_(theirs, non_blocking=True)
        for place, scale in zip(own_scales, scales, strict=True):
            place.fill_(scale)
        graph.replay()
        return done

    def capture(
        self, batch: AnyBatch, parts: int
    ) -> tuple[torch.cuda.CUDAGraph, AnyBatch, Tensor, StepResult]:
        own = batch.put(tuple(tensor.clone() for tensor in batch.tensors()))
        scales = torch.zeros(parts, device=own.tensors()[0].device)
        rng = torch.cuda.get_rng_state()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(
            side
        ):  # libraries set themselves up outside the capture; scale 0: adds nothing
            self.plain(own, scales, True)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            done = self.plain(own, scales, True)
        torch.cuda.set_rng_state(rng)  # the step draws what it would have drawn uncaptured
        self.pool = self.pool or graph.pool()
        return graph, own, scales, done
