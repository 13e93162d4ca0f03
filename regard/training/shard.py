"""A model cut over the ranks (FSDP2): each holds some rows of every weight, of its gradient and of
what the optimizer remembers of it; a block is whole only while it computes.

The library is imported where it is used: it takes longer than all else, and few need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..model import Model
from .distributed import World


@runtime_checkable
class Sharded(Protocol):
    """A weight of which this rank holds some rows, the first ranks the first."""

    def to_local(self) -> Tensor: ...
    def full_tensor(self) -> Tensor: ...


def birthplace(world: World) -> AbstractContextManager[Any]:
    """Where a model that is to be cut is made: on rank 0's host, and without numbers elsewhere."""
    return nullcontext() if world.leads else torch.device("meta")


def blocks_of(model: Model) -> Iterator[nn.Module]:
    for stack in model.stacks:
        yield from model.get_submodule(stack).children()


def shard(
    objective: nn.Module, model: Model, world: World, precision: torch.autocast | None
) -> None:
    """Leave each rank its rows of every weight, as rank 0 has them; block by block, so that no
    device ever holds more than one of them whole.

    Where a GPU's products are in bfloat16, blocks travel in it; gradients are summed in float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    policy = MixedPrecisionPolicy()
    if precision is not None and world.device.type == "cuda":  # a CPU's norms take no mix of types
        # What goes in stays as it is: autocast decides what is computed in which type.
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    for block in blocks_of(model) if model.entered == "forward" else ():
        hand_out(block, world.device)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    hand_out(objective, world.device)
    fully_shard(objective, mesh=mesh)


def hand_out(part: nn.Module, device: torch.device) -> None:
    """Every rank gets rank 0's weights and buffers."""

    def handed(tensor: Tensor) -> Tensor:
        value = torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device)
        value = value.detach().contiguous()
        dist.broadcast(value, 0)
        return value

    replace(part, handed)


def replace(part: nn.Module, new: Callable[[Tensor], Tensor]) -> None:
    """Other weights and buffers in place of those that are not cut; what is shared stays so."""
    known: dict[Tensor, Tensor] = {}
    for module in part.modules():
        for kept in (module._parameters, module._buffers):
            for name, tensor in kept.items():
                if tensor is None or isinstance(tensor, Sharded):
                    continue
                if tensor not in known:
                    known[tensor] = value = new(tensor)
                    if isinstance(tensor, nn.Parameter):
                        known[tensor] = nn.Parameter(value, tensor.requires_grad)
                kept[name] = known[tensor]  # type: ignore[assignment]


def fill(empty: nn.Module, model: nn.Module) -> None:
    """Give a model without numbers those of one that is cut, whole; all ranks must ask."""
    values = {name: full(weight).detach() for name, weight in model.named_parameters()}
    values |= dict(model.named_buffers())
    names = {t: n for of in (empty.named_parameters(), empty.named_buffers()) for n, t in of}
    replace(empty, lambda tensor: values[names[tensor]])


def local(tensor: Tensor) -> Tensor:
    """This rank's rows, or the whole where nothing is cut."""
    return tensor.to_local() if isinstance(tensor, Sharded) else tensor


def full(tensor: Tensor) -> Tensor:
    """All rows, on every rank; all ranks must ask."""
    return tensor.full_tensor() if isinstance(tensor, Sharded) else tensor


def whole_on_first(tensors: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Whole tensors on rank 0's host, nothing on the others', one after the other; all ranks must
    ask. Where nothing is cut, they are as they are."""
    kept = {}
    for name, tensor in tensors.items():
        every = full(tensor)
        if not isinstance(tensor, Sharded):
            kept[name] = every
        elif world.leads:
            kept[name] = every.cpu()
    return kept


def as_cut(rows: Tensor, weight: Tensor) -> Tensor:
    """What belongs to a weight, such as a moment, cut as the weight is; `rows` are this rank's."""
    if not isinstance(weight, Sharded) or rows.dim() == 0:
        return rows
    from torch.distributed.tensor import DTensor

    assert isinstance(weight, DTensor)
    return DTensor.from_local(
        rows, weight.device_mesh, weight.placements, shape=weight.shape, stride=weight.stride()
    )


def with_all_rows(work: Callable[[Tensor], Tensor], rows: Tensor, weight: Tensor) -> Tensor:
    """Work on matrices of which each rank has some rows, cut as `weight` is: the ranks exchange
    them, so that each works on some whole ones.  (N, rows, D) -> (N, rows, D)"""
    if not isinstance(weight, Sharded):
        return work(rows)
    from torch.distributed.tensor import DTensor, Shard

    assert isinstance(weight, DTensor)
    mesh, shape = weight.device_mesh, torch.Size((len(rows), weight.shape[0], rows.shape[2]))
    stride = (shape[1] * shape[2], shape[2], 1)
    by_row = DTensor.from_local(rows, mesh, [Shard(1)], shape=shape, stride=stride)
    matrices = work(by_row.redistribute(placements=[Shard(0)]).to_local())
    by_matrix = DTensor.from_local(matrices, mesh, [Shard(0)], shape=shape, stride=stride)
    return by_matrix.redistribute(placements=[Shard(1)]).to_local()


def rows_of(world: World, count: int) -> slice:
    """Which of so many rows a rank holds: equal shares, of which the last ranks may miss some.

    Five rows over four ranks are two, two, one and none.
    """
    share = -(-count // world.size)
    return slice(min(world.rank * share, count), min((world.rank + 1) * share, count))
