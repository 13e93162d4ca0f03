"""One process or many: who am I, and what do we agree on."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ..errors import RecipeError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among its peers."""

    rank: int
    size: int
    device: torch.device
    group: dist.ProcessGroup | None = None  # for numbers of the host, where peers are on GPUs

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes."""
        return self.rank == 0

    @property
    def alone(self) -> World:
        """This process by itself."""
        return World(0, 1, self.device)

    def each(self, work: Callable[[], T]) -> T:
        """All ranks work; where one fails, all leave: none waits for a peer that is gone."""
        result, failed = None, None
        try:
            result = work()
        except Exception as error:
            failed = error
        if self.any(failed is not None):
            raise failed or SystemExit(2)
        return result  # type: ignore[return-value]

    def first(self, work: Callable[[], T]) -> T:
        """Rank 0 works while the others wait; then they do it, on what rank 0 left ready."""
        result = self.each(lambda: work() if self.leads else None)
        return result if self.leads else work()  # type: ignore[return-value]

    def any(self, flag: bool) -> bool:
        """Whether it holds for some rank; all ranks get the same answer."""
        if self.size == 1:
            return flag
        tensor = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return bool(tensor.item())

    def told(self, value: float) -> float:
        """What rank 0 says."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, 0)
        return float(tensor)

    def wait(self) -> None:
        """Until all ranks are here."""
        self.any(False)

    def count(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Each summed over the ranks, on the host: no device is waited for."""
        if self.size == 1:
            return tuple(numbers)
        tensor = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(tensor, group=self.group)
        return tuple(tensor.tolist())

    def gather(self, word: bytes) -> list[bytes]:
        """What each rank says, all words being equally long; on the host."""
        rows = torch.zeros(self.size, len(word), dtype=torch.uint8)
        rows[self.rank] = torch.tensor(list(word), dtype=torch.uint8)
        if self.size > 1:
            dist.all_reduce(rows, group=self.group)
        return [bytes(row.tolist()) for row in rows]

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor


# How many devices of each kind there are; `auto` takes the first kind that has any.
DEVICES: dict[str, Callable[[], int]] = {
    "cuda": torch.cuda.device_count,
    "mps": lambda: int(torch.backends.mps.is_available()),
    "cpu": lambda: 1,
}


def pick(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name == "auto":
        return torch.device(next(kind for kind, count in DEVICES.items() if count()))
    known = f"train.device must be auto, cpu, mps, cuda or cuda:N, but is '{name}'."
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RecipeError(known) from error
    if device.type not in DEVICES:
        raise RecipeError(known)
    if device.type != "cpu" and (device.index or 0) >= DEVICES[device.type]():
        raise RecipeError(
            f"train.device is '{name}', but no such GPU can be used here; "
            "leave it at auto, or say cpu."
        )
    return device


@contextmanager
def join(device: str) -> Iterator[World]:
    """The world as torchrun set it up; alone where it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = pick(device)
    if size == 1:
        yield World(0, 1, chosen)
        return
    if chosen.type == "mps":
        raise RecipeError("train.device: several processes train on cuda or on cpu, not on mps.")
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(chosen)
    options: dict[str, Any] = {"device_id": chosen} if chosen.type == "cuda" else {}
    # Peers wait while rank 0 tokenises, which may take hours.
    kind = "nccl" if chosen.type == "cuda" else "gloo"
    dist.init_process_group(kind, timeout=timedelta(hours=24), **options)
    group = dist.new_group(backend="gloo") if kind == "nccl" else None
    world = World(dist.get_rank(), size, chosen, group)
    yield world
    # Nobody leaves while a peer still talks, and what holds on to the group goes before it does.
    world.wait()
    gc.collect()
    dist.destroy_process_group()  # not after a failure: a peer in the middle of a call would hang
