"""What generation carries from step to step: keys and values of the tokens so far, and of a memory.

Rows that share one source stand together in groups, made by `repeat`, and read one memory. `select`
with as many rows as there are reorders inside the groups; with fewer, it takes rows or groups out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

GROWTH = 32  # places added at a time: little to copy in `select`, seldom a new tensor


class Slot(NamedTuple):
    """One block's part of a cache, where the newest tokens are to be written."""

    keys: Tensor  # (B, H, S, K)
    values: Tensor
    places: Tensor  # (T,) or (B, T)
    used: int | None  # the same for the host, where it knows
    mask: Tensor | None  # (…, T, S) which keys each token may see; None: all that are written
    bias: Tensor | None = None  # (…, H, T, S) added to the scores
    where: Tensor | None = None  # (T,) or (B, T) where they are written, if not at their places
    kept: Tensor | None = None  # (S,) or (B, 1, 1, S) whose keys then stand there

    def held(self, k: Tensor) -> Tensor:
        """The places of the keys that are there.  -> (S,) or (B, 1, 1, S)"""
        return torch.arange(k.shape[2], device=k.device) if self.kept is None else self.kept

    def write(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put new keys and values in place.  (B, H, T, K) -> all there are, (B, H, S, K)"""
        if self.used is not None:
            end = self.used + k.shape[2]
            self.keys[:, :, self.used : end] = k
            self.values[:, :, self.used : end] = v
            return self.keys[:, :, :end], self.values[:, :, :end]
        k, v = k.to(self.keys), v.to(self.values)  # under autocast they are of another type
        where = self.places if self.where is None else self.where
        if where.dim() == 1:
            self.keys.index_copy_(2, where, k)
            self.values.index_copy_(2, where, v)
        else:
            rows = torch.arange(len(k), device=k.device)[:, None]
            self.keys[rows, :, where] = k.transpose(1, 2)
            self.values[rows, :, where] = v.transpose(1, 2)
        return self.keys, self.values


class Rolling(NamedTuple):
    """What a cache keeps of a text that goes on and on: its first places, and its last.

    Place p stands at p while there is room, and later where the place that is `turn` before it
    stood. With first 2 and turn 3, places 0 1 2 3 4 5 6 stand at 0 1 2 3 4 2 3.
    """

    first: int
    last: int  # places before the newest that it looks back at

    @property
    def turn(self) -> int:
        """Some more than are looked at, so that several can be written at once or taken back."""
        return self.last + 1 + PIECE

    @property
    def room(self) -> int:
        return self.first + self.turn

    def at(self, places: Tensor) -> Tensor:
        """Where places stand."""
        later = (places - self.first).clamp_min(0)
        return torch.where(places < self.first, places, self.first + later % self.turn)

    def kept(self, newest: Tensor, count: int) -> Tensor:
        """Which place stands at each of so many, -1: none.  (…) -> (…, S)"""
        at, newest = torch.arange(count, device=newest.device), newest[..., None]
        turns = torch.div(newest - at, self.turn, rounding_mode="floor").clamp_min(0)
        places = torch.where(at < self.first, at, at + self.turn * turns)
        return torch.where((places <= newest) & (at < self.room), places, -1)


PIECE = 128  # tokens that a rolling cache takes at once


@dataclass
class Cache:
    """Keys and values of every block, preallocated; rows may have different lengths.

    While all rows are equally long and the host knows it, `used` says how long, and plain slices
    do; where only the tensor `lengths` knows (prompts of several lengths, a captured graph), writes
    and masks go by it. Rows of one length (`even`) are still written with one call.
    """

    keys: Tensor  # (L, B, H, S, K)
    values: Tensor  # (L, B, H, S, K)
    lengths: Tensor  # (B,)
    used: int | None = 0
    even: bool = True
    most: int = 0  # no row was longer when the host last knew
    # Where `select` writes, in turn with keys and values.
    spare: tuple[Tensor, Tensor] | None = None
    rolling: Rolling | None = None  # what is kept of long texts; None: everything

    @classmethod
    def empty(
        cls,
        depth: int,
        rows: int,
        heads: int,
        head_width: int,
        like: Tensor,
        rolling: Rolling | None = None,
    ) -> Cache:
        shape = (depth, rows, heads, GROWTH, head_width)
        lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
        return cls(like.new_zeros(shape), like.new_zeros(shape), lengths, rolling=rolling)

    def held(self, tokens: int) -> int:
        """How many of so many tokens are kept."""
        return tokens if self.rolling is None else min(tokens, self.rolling.room)

    def pieces(self, count: int) -> list[int]:
        """How many of so many new tokens can be taken at once, one after the other."""
        if self.rolling is None:
            return [count]
        first = min(count, self.rolling.room - self.used) if self.used is not None else 0
        whole, rest = divmod(count - first, PIECE)
        return [size for size in (first, *[PIECE] * whole, rest) if size]

    def reserve(self, places: int) -> None:
        """Make room for `places` tokens in all."""
        missing = self.held(places) - self.keys.shape[3]
        if missing > 0:
            shape = (*self.keys.shape[:3], missing, self.keys.shape[4])
            self.keys = torch.cat((self.keys, self.keys.new_zeros(shape)), 3)
            self.values = torch.cat((self.values, self.values.new_zeros(shape)), 3)

    def fix(self, places: int) -> None:
        """From now on nothing moves: room for so many tokens, and only tensors tell how many."""
        self.reserve(places)
        self.used, self.spare = None, None

    def open(self, count: int) -> list[Slot]:
        """Room for the next `count` tokens, a slot a block; `advance` when all have written."""
        steps = torch.arange(count, device=self.lengths.device)
        if self.used is not None and self.held(self.used + count) < self.used + count:
            self.fix(self.used + count)  # from here on places are used again
        where, kept = None, None
        if self.used is not None:
            places, end, mask = steps + self.used, self.used + count, None
            if end > self.keys.shape[3]:
                self.reserve(max(end, self.keys.shape[3] + GROWTH))
            if count > 1:
                ones = torch.ones(count, end, dtype=torch.bool, device=steps.device)
                mask = ones.tril(self.used)  # (T, S)
        else:
            places = steps + (self.lengths[:1] if self.even else self.lengths[:, None])
            every = torch.arange(self.keys.shape[3], device=steps.device)
            if self.rolling is not None:
                newest = places[..., -1]  # () or (B,)
                where, every = self.rolling.at(places), self.rolling.kept(newest, len(every))
                every = every if self.even else every[:, None]
                kept = every if self.even else every[:, None]
            mask = (every >= 0) & (every <= places[..., None])  # (T, S) or (B, T, S)
            mask = mask if self.even else mask[:, None]
        return [
            Slot(self.keys[layer], self.values[layer], places, self.used, mask, None, where, kept)
            for layer in range(len(self.keys))
        ]

    def advance(self, count: int) -> None:
        """All blocks have written `count` tokens; below zero, the last are taken back."""
        self.lengths = self.lengths + count
        if self.used is not None:
            self.used += count
            self.most = max(self.most, self.used)
        elif self.rolling is not None:
            self.most += count

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens."""
        assert self.rolling is None or count <= PIECE, f"{count} tokens are no longer to be had"
        self.advance(-count)

    def remember(self, count: int) -> None:
        """Nothing is lost before `rewind`: a cache keeps it all, or enough of it."""

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def length(self) -> int:
        """Tokens of the longest row, when the host last knew."""
        return self.most

    def tensors(self) -> list[Tensor]:
        return [self.keys, self.values, self.lengths]

    def put(self, tensors: list[Tensor]) -> None:
        self.keys, self.values, self.lengths = tensors

    def select(self, rows: Tensor) -> None:
        """Reorder into the spare tensors and swap: fresh memory at every step would cost more."""
        if self.used is None and len(rows) == len(self.lengths):  # nothing may move
            for tensor, dim in ((self.keys, 1), (self.values, 1), (self.lengths, 0)):
                tensor.copy_(tensor.index_select(dim, rows))
            return
        shape = (self.keys.shape[0], len(rows), *self.keys.shape[2:])
        if self.spare is None or self.spare[0].shape != shape:
            # Zeros, not whatever memory holds: a place that is never written is masked later, but
            # nothing times a number that is none is still none.
            self.spare = self.keys.new_zeros(shape), self.values.new_zeros(shape)
        keys, values = self.spare
        for old, new in ((self.keys, keys), (self.values, values)):
            # Only what is written need be moved.
            torch.index_select(old[..., : self.used, :], 1, rows, out=new[..., : self.used, :])
        self.spare = (self.keys, self.values) if self.keys.shape == shape else None
        self.keys, self.values = keys, values
        self.lengths = self.lengths.index_select(0, rows)


class Source(NamedTuple):
    """One block's part of a memory."""

    keys: Tensor  # (M, H, S, K)
    values: Tensor
    mask: Tensor  # (M, 1, 1, S)
    group: int


@dataclass
class Memory:
    """Keys and values from outside, of M sources that `group` rows each read."""

    keys: list[Tensor]  # L of (M, H, S, K)
    values: list[Tensor]
    mask: Tensor  # (M, 1, 1, S)
    group: int = 1

    def open(self) -> list[Source]:
        """A part for each block."""
        pairs = zip(self.keys, self.values, strict=True)
        return [Source(keys, values, self.mask, self.group) for keys, values in pairs]

    def tensors(self) -> list[Tensor]:
        return [*self.keys, *self.values, self.mask]

    def put(self, tensors: list[Tensor]) -> None:
        depth = len(self.keys)
        self.keys, self.values, self.mask = tensors[:depth], tensors[depth : 2 * depth], tensors[-1]

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
class Carried:
    """A recurrent net's state: its hidden vectors, and those before the last few tokens."""

    vectors: list[Tensor]  # (B, …) each
    before: list[list[Tensor]] = field(default_factory=list)
    length: int = 0
    remembered: int = 0  # how many states before this one are kept, for `rewind`
    fixed: bool = False  # whether its tensors must stay where they are

    @property
    def rows(self) -> int:
        return len(self.vectors[0])

    def advance(self, vectors: list[Tensor]) -> None:
        """One token more."""
        self.before = [*self.before, self.vectors][-self.remembered :] if self.remembered else []
        self.vectors, self.length = vectors, self.length + 1

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens, of which at most `remembered` can be."""
        if count:
            self.vectors = self.before[-count]
            self.before, self.length = self.before[:-count], self.length - count

    def remember(self, count: int) -> None:
        """Keep what `rewind` needs for so many tokens."""
        self.remembered = count

    def fix(self, places: int) -> None:
        """A recurrent state does not grow, but it must not move either."""
        self.fixed = True

    def tensors(self) -> list[Tensor]:
        return self.vectors

    def put(self, tensors: list[Tensor]) -> None:
        self.vectors = tensors

    def select(self, rows: Tensor) -> None:
        if self.fixed and len(rows) == len(self.vectors[0]):
            for vector in self.vectors:
                vector.copy_(vector.index_select(0, rows))
            return
        self.vectors = [vector.index_select(0, rows) for vector in self.vectors]
        self.before = [[v.index_select(0, rows) for v in vectors] for vectors in self.before]


Past = TypeVar("Past", Cache, Carried)


@dataclass
class State(Generic[Past]):
    """A decoder's state: its own past, and its memory where it has one."""

    past: Past
    memory: Memory | None = field(default=None)
    heard: tuple[Tensor, Tensor] | None = None  # (B, S, V) and (B,): CTC's scores of the source

    def repeat(self, count: int) -> State[Past]:
        """Each row `count` times, side by side; the copies share their memory."""
        rows = torch.arange(self.past.rows, device=self.past.tensors()[0].device)
        self.past.select(rows.repeat_interleave(count))
        if self.memory is not None:
            self.memory.group *= count
        return self

    @property
    def length(self) -> int:
        return self.past.length

    def fix(self, places: int) -> None:
        """Make room for `places` tokens, after which steps move no tensor."""
        self.past.fix(places)

    def remember(self, count: int) -> None:
        """Keep what `rewind` needs for so many tokens."""
        self.past.remember(count)

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens."""
        self.past.rewind(count)

    def tensors(self) -> list[Tensor]:
        """Everything that a step reads or writes."""
        return [*self.past.tensors(), *(self.memory.tensors() if self.memory is not None else [])]

    def put(self, tensors: list[Tensor]) -> None:
        """Use these in place of its own, in the order of `tensors`."""
        own = len(self.past.tensors())
        self.past.put(tensors[:own])
        if self.memory is not None:
            self.memory.put(tensors[own:])

    def select(self, rows: Tensor) -> State[Past]:
        """The rows asked for, in that order; as many as there are stay within their groups."""
        if self.memory is not None and (self.memory.group == 1 or len(rows) != self.past.rows):
            self.memory.follow(rows)
        self.past.select(rows)
        return self
