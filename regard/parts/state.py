"""What generation carries from step to step: keys and values of the tokens so far, and of a memory.

Rows that share one source stand together in groups, made by `repeat`, and read one memory. `select`
with as many rows as there are reorders inside the groups; with fewer, it takes rows or groups out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

GROWTH = 32  # places added at a time: little to copy in `select`, seldom a new tensor


@dataclass
class Cache:
    """Keys and values of every block, preallocated; rows may have different lengths.

    While all rows are equally long, `used` says how long, and plain slices do; where only the
    tensor `lengths` knows (prompts of several lengths, a captured graph), writes and masks go by
    it.
    """

    keys: Tensor  # (L, B, H, S, K)
    values: Tensor  # (L, B, H, S, K)
    lengths: Tensor  # (B,)
    used: int | None = 0
    # Where `select` writes, in turn with keys and values.
    spare: tuple[Tensor, Tensor] | None = None

    @classmethod
    def empty(cls, depth: int, rows: int, heads: int, head_width: int, like: Tensor) -> Cache:
        shape = (depth, rows, heads, GROWTH, head_width)
        lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
        return cls(like.new_zeros(shape), like.new_zeros(shape), lengths)

    def reserve(self, places: int) -> None:
        """Make room for `places` tokens in all."""
        missing = places - self.keys.shape[3]
        if missing > 0:
            shape = (*self.keys.shape[:3], missing, self.keys.shape[4])
            self.keys = torch.cat((self.keys, self.keys.new_zeros(shape)), 3)
            self.values = torch.cat((self.values, self.values.new_zeros(shape)), 3)

    def places(self, count: int) -> Tensor:
        """Where the next `count` tokens will stand.  -> (count,) or (B, count)"""
        steps = torch.arange(count, device=self.lengths.device)
        return steps + self.used if self.used is not None else steps + self.lengths[:, None]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Write new keys and values of one block; all that may be seen, and the mask for it.

        k, v (B, H, T, K) -> (B, H, S, K) twice, and (…, T, S) or None where everything may be seen.
        """
        count = k.shape[2]
        if self.used is not None:
            end = self.used + count
            if end > self.keys.shape[3]:
                self.reserve(max(end, self.keys.shape[3] + GROWTH))
            self.keys[layer, :, :, self.used : end] = k
            self.values[layer, :, :, self.used : end] = v
            mask = None
            if count > 1:
                mask = torch.ones(count, end, dtype=torch.bool, device=k.device).tril(self.used)
            return self.keys[layer, :, :, :end], self.values[layer, :, :, :end], mask
        places = self.places(count)  # (B, T)
        rows = torch.arange(len(k), device=k.device)[:, None]
        self.keys[layer][rows, :, places] = k.transpose(1, 2)
        self.values[layer][rows, :, places] = v.transpose(1, 2)
        seen = torch.arange(self.keys.shape[3], device=k.device) <= places[..., None]  # (B, T, S)
        return self.keys[layer], self.values[layer], seen[:, None]

    def advance(self, count: int) -> None:
        """All blocks have written `count` tokens."""
        self.lengths = self.lengths + count
        if self.used is not None:
            self.used += count

    def select(self, rows: Tensor) -> None:
        """Reorder into the spare tensors and swap: fresh memory at every step would cost more."""
        shape = (self.keys.shape[0], len(rows), *self.keys.shape[2:])
        if self.spare is None or self.spare[0].shape != shape:
            self.spare = self.keys.new_empty(shape), self.values.new_empty(shape)
        keys, values = self.spare
        torch.index_select(self.keys, 1, rows, out=keys)
        torch.index_select(self.values, 1, rows, out=values)
        self.spare = (self.keys, self.values) if self.keys.shape == shape else None
        self.keys, self.values = keys, values
        self.lengths = self.lengths.index_select(0, rows)


@dataclass
class Memory:
    """Keys and values from outside, of M sources that `group` rows each read."""

    keys: list[Tensor]  # L of (M, H, S, K)
    values: list[Tensor]
    mask: Tensor  # (M, 1, 1, S)
    group: int = 1

    def follow(self, rows: Tensor) -> None:
        """Keep what these rows read: once a group while groups are whole, else once a row."""
        sources = rows // self.group
        if self.group > 1 and len(rows) % self.group == 0:
            groups = sources.unflatten(0, (-1, self.group))
            if (groups == groups[:, :1]).all():
                self.select(groups[:, 0])
                return
        self.select(sources)
        self.group = 1

    def select(self, sources: Tensor) -> None:
        self.keys = [k.index_select(0, sources) for k in self.keys]
        self.values = [v.index_select(0, sources) for v in self.values]
        self.mask = self.mask.index_select(0, sources)


@dataclass
class State:
    """A Transformer's state: its own past, and its memory where it has one."""

    cache: Cache
    memory: Memory | None = field(default=None)

    def repeat(self, count: int) -> State:
        """Each row `count` times, side by side; the copies share their memory."""
        rows = torch.arange(len(self.cache.lengths), device=self.cache.lengths.device)
        self.cache.select(rows.repeat_interleave(count))
        if self.memory is not None:
            self.memory.group *= count
        return self

    def select(self, rows: Tensor) -> State:
        """The rows asked for, in that order; as many as there are stay within their groups."""
        if self.memory is not None and (
            self.memory.group == 1 or len(rows) != len(self.cache.lengths)
        ):
            self.memory.follow(rows)
        self.cache.select(rows)
        return self
