"""Optimizers, and their state as named tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..model import Model
from ..parts.output import Output
from ..parts.position import LearnedPosition
from .shard import as_cut, local, with_all_rows

if TYPE_CHECKING:
    from .settings import Settings

MOST_COLOURS = 4  # a kernel that reads no more channels reads pixels


def adamw(model: Model, settings: Settings) -> torch.optim.Optimizer:
    """AdamW over all weights; matrices decay, vectors (norms and biases) do not."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    top = 1 + max(map(model.level, named))
    groups: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    for name, weight in named.items():
        level = model.level(name)
        rate_scale = settings.layer_decay ** (0 if level < 0 else top - level)
        groups[rate_scale, settings.weight_decay if weight.dim() > 1 else 0.0].append(weight)
    return _adamw(
        [
            {"params": p, "weight_decay": decay, "rate_scale": rate_scale}
            for (rate_scale, decay), p in groups.items()
        ],
        next(iter(named.values())).device,
        settings,
    )


def adam(model: Model, settings: Settings) -> torch.optim.Optimizer:
    """Adam over all weights; the decay of all of them is a part of the gradient (L2)."""
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}]
    return _adamw(groups, weights[0].device, settings, torch.optim.Adam)


def muon(model: Model, settings: Settings) -> torch.optim.Optimizer:
    """Muon for the matrices behind the doors and for kernels of convolutions, AdamW for what first
    meets the data, for tables, norms and biases."""
    kinds = (nn.Embedding, Output, LearnedPosition)
    tables = {id(part.weight) for part in model.modules() if isinstance(part, kinds)}

    def is_inner(name: str, weight: nn.Parameter) -> bool:
        if weight.dim() == 4:
            return weight.shape[1] > MOST_COLOURS
        matrix = weight.dim() == 2 and min(weight.shape) > 1
        return matrix and id(weight) not in tables and model.level(name) != 0

    inner, others = list[nn.Parameter](), list[nn.Parameter]()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            (inner if is_inner(name, weight) else others).append(weight)
    device = next(model.parameters()).device
    adamw = _adamw([{"params": others, "weight_decay": 0.0}], device, settings)
    return Muon(inner, adamw, settings)


def sgd(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Plain gradient descent."""
    weights = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(weights, lr=settings.rate, weight_decay=settings.weight_decay)


def asgd(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Gradient descent whose weights are averaged once validation stalls."""
    return AveragedSGD([p for p in model.parameters() if p.requires_grad], settings)


OPTIMIZERS: dict[str, Callable[[Model, Settings], torch.optim.Optimizer]] = {
    "adamw": adamw,
    "adam": adam,
    "muon": muon,
    "sgd": sgd,
    "asgd": asgd,
}


def _adamw(
    groups: Any,
    device: torch.device,
    settings: Settings,
    kind: type[torch.optim.Adam] = torch.optim.AdamW,
) -> torch.optim.Adam:
    on_gpu = device.type == "cuda"
    rate = settings.rate
    if on_gpu:
        groups = [{**group, "lr": torch.tensor(rate, device=device)} for group in groups]
    return kind(
        groups, lr=rate, betas=settings.betas, eps=settings.epsilon, fused=True, capturable=on_gpu
    )


class AveragedSGD(torch.optim.SGD):
    """The mean of the weights since a moment, beside the weights themselves (NT-ASGD, Merity et al.
    2018, algorithm 1). The moment is when validation has not gained for `stall` times."""

    def __init__(self, weights: list[nn.Parameter], settings: Settings) -> None:
        super().__init__(weights, lr=settings.rate, weight_decay=settings.weight_decay)
        self.weights = weights

    @property
    def averaging(self) -> bool:
        return "mean" in self.state[self.weights[0]]

    def begin(self) -> None:
        """From now on, average."""
        for weight in self.weights:
            self.state[weight] |= {"mean": weight.detach().clone(), "count": torch.ones(())}

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        if not self.averaging:
            return
        for weight in self.weights:
            kept = self.state[weight]
            kept["count"] += 1
            kept["mean"].lerp_(weight, 1 / float(kept["count"]))


def average_if_stalled(optimizer: torch.optim.Optimizer, worse: int, settings: Settings) -> None:
    """Begin to average where the optimizer does so and validation has not gained for long."""
    if isinstance(optimizer, AveragedSGD) and not optimizer.averaging and worse >= settings.stall:
        optimizer.begin()


@contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """The model with its averaged weights, where they are being averaged."""
    if not (isinstance(optimizer, AveragedSGD) and optimizer.averaging):
        yield
        return
    _swap(optimizer)
    try:
        yield
    finally:
        _swap(optimizer)


@torch.no_grad()
def _swap(optimizer: AveragedSGD) -> None:
    for weight in optimizer.weights:
        mean = optimizer.state[weight]["mean"]
        now = weight.detach().clone()
        weight.copy_(mean)
        mean.copy_(now)


class Muon(torch.optim.Optimizer):
    """Momentum whose singular values are all made one (Jordan et al. 2024).

    Each update is as long as AdamW's would be (Liu et al. 2025, eq. 4: 0.2 · √max(rows, columns)),
    so one rate serves both. A kernel is a matrix with a row for each channel that it writes.
    Matrices of one shape are worked on together.
    """

    def __init__(
        self, weights: list[nn.Parameter], adamw: torch.optim.Adam, settings: Settings
    ) -> None:
        super().__init__(weights, {"lr": settings.rate})
        self.adamw, self.momentum, self.decay = adamw, 0.95, settings.weight_decay
        self.param_groups += adamw.param_groups
        for weight in weights:
            self.state[weight]["momentum"] = torch.zeros_like(weight)
        adamw.state = self.state  # one state, so that it is saved and restored as one

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.adamw.step()
        group = self.param_groups[0]
        shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is not None:
                shapes[weight.shape].append(weight)
        for shape, weights in shapes.items():
            past = [local(self.state[weight]["momentum"]) for weight in weights]
            gradients = [local(weight.grad) for weight in weights if weight.grad is not None]
            torch._foreach_lerp_(past, gradients, 1 - self.momentum)
            ahead = torch.stack(torch._foreach_lerp(gradients, past, self.momentum)).flatten(2)
            updates = with_all_rows(orthogonal, ahead, weights[0])
            updates = updates * (0.2 * max(shape[0], ahead.shape[2]) ** 0.5)
            updates = updates.unflatten(-1, shape[1:])
            rows = [local(weight) for weight in weights]
            torch._foreach_mul_(rows, 1 - group["lr"] * self.decay)
            torch._foreach_add_(rows, list((updates * -group["lr"]).unbind()))


def orthogonal(x: Tensor, iterations: int = 5) -> Tensor:
    """The nearest matrices with singular values near one, by a quintic Newton-Schulz iteration."""
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = x.mT if x.shape[-2] > x.shape[-1] else x
    wide = wide.bfloat16() if wide.is_cuda else wide
    wide = wide / (wide.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        square = wide @ wide.mT
        wide = torch.baddbmm(
            wide, torch.baddbmm(square, square, square, beta=b, alpha=c), wide, beta=a
        )
    return (wide.mT if x.shape[-2] > x.shape[-1] else wide).to(x.dtype)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        own = rate * group.get("rate_scale", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers, by the weight's name: `exp_avg/encoder.0.…`."""
    return {
        f"{key}/{name}": value
        for name, weight in model.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
        if isinstance(value, Tensor)
    }


def restore(model: Model, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    weights = dict(model.named_parameters())
    for full, value in tensors.items():
        key, _, name = full.partition("/")
        name = model.earlier.get(name, name)
        # Step counts stay where the optimizer wants them: with the weights where it is fused.
        device = value.device if key == "count" else weights[name].device
        optimizer.state[weights[name]][key] = as_cut(value.to(device), weights[name])
