"""The states of all rows that are being written, in tensors that stay where they are.

Rows join and leave: one that leaves is overwritten by the last, so that the first `count` are
always in use. A row that nobody uses stays a valid one (no length, one place to look at), for a
step may still go through it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..parts.state import Cache, Carried, Memory, State

STEP = 64  # on a GPU, places come in whole steps, so that few shapes come up
# Places that a cache begins with; on a GPU more, since every move means new graphs.
GROWTH = defaultdict(lambda: 32, cuda=512)


def round_up(count: int, step: int) -> int:
    return -(-count // step) * step


def power_of_two(count: int) -> int:
    """The first that is not less."""
    return 1 << max(0, count - 1).bit_length()


def wider(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The same with zeros added at the end of each axis, up to a shape."""
    added = [max(0, want - have) for have, want in zip(tensor.shape, shape, strict=True)]
    return F.pad(tensor, [n for more in reversed(added) for n in (0, more)])


def resized(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The same cut or filled with zeros to a shape."""
    return wider(tensor[tuple(slice(size) for size in shape)], shape)


class CacheRows:
    """Keys and values of rows of different lengths."""

    def __init__(self, like: Cache, step: int) -> None:
        layers, _, heads, _, width = like.keys.shape
        self.step, self.held = step, list[int]()  # tokens of each row, for the host
        self.least = GROWTH[like.keys.device.type]
        self.cache = Cache.empty(layers, 0, heads, width, like.keys, like.rolling)
        self.cache.used, self.cache.even = None, False

    def reserve(self, rows: int, places: int) -> None:
        """Room for so many rows of so many tokens.

        What must move is made as large as is needed now, and no larger in either direction: many
        short rows and one long one, at different times, must not become many long ones.
        """
        cache = self.cache
        if rows <= len(cache.lengths) and places <= cache.keys.shape[3]:
            return
        grown = places if places <= cache.keys.shape[3] else max(places, self.least)
        shape = (cache.keys.shape[0], rows, cache.keys.shape[2], grown, cache.keys.shape[4])
        cache.keys, cache.values = resized(cache.keys, shape), resized(cache.values, shape)
        cache.lengths = resized(cache.lengths, (rows,))
        self.held = [*self.held[:rows], *[0] * (rows - len(self.held))]

    def put(self, past: Cache, places: slice, room: int) -> None:
        """Rows take over a state of one row; there is to be room for so many in all."""
        length, cache = int(past.lengths[0]) if past.used is None else past.used, self.cache
        longest, kept = max([length, *self.held[: places.start]]), cache.held(length)
        self.reserve(room, round_up(cache.held(longest + 1), self.step))
        cache.keys[:, places, :, :kept] = past.keys[:, :1, :, :kept]
        cache.values[:, places, :, :kept] = past.values[:, :1, :, :kept]
        cache.lengths[places] = length
        self.held[places] = [length] * (places.stop - places.start)

    def view(self, rows: int) -> Cache:
        """The first rows, as far as the longest of them goes."""
        places = round_up(self.cache.held(max(self.held[:rows]) + 1), self.step)
        if places > self.cache.keys.shape[3]:
            self.reserve(rows, round_up(self.cache.held(places * 5 // 4), self.step))
        keys, values = (x[:, :rows, :, :places] for x in (self.cache.keys, self.cache.values))
        return replace(self.cache, keys=keys, values=values, lengths=self.cache.lengths[:rows])

    def advance(self, rows: int, past: Cache) -> None:
        """A step has written a token of each; keys and values are in place already."""
        self.cache.lengths[:rows] += 1
        self.held[:rows] = [length + 1 for length in self.held[:rows]]

    def copy(self, sources: list[int], targets: list[int]) -> None:
        longest = self.cache.held(max(self.held[source] for source in sources))
        for tensor in (self.cache.keys, self.cache.values):
            tensor[:, targets, :, :longest] = tensor[:, sources, :, :longest]
        self.cache.lengths[targets] = self.cache.lengths[sources]
        for target, length in zip(targets, [self.held[s] for s in sources], strict=True):
            self.held[target] = length

    def forget(self, row: int) -> None:
        self.cache.lengths[row] = self.held[row] = 0


class CarriedRows:
    """Hidden vectors of recurrent nets; some are as long as the source, and grow with it."""

    def __init__(self, like: Carried, step: int) -> None:
        self.vectors = [vector.new_zeros(0, *vector.shape[1:]) for vector in like.vectors]
        self.held = list[int]()

    def put(self, past: Carried, places: slice, room: int) -> None:
        for number, (mine, other) in enumerate(zip(self.vectors, past.vectors, strict=True)):
            shape = [max(pair) for pair in zip(mine.shape, other.shape, strict=True)]
            mine = self.vectors[number] = wider(mine, (room, *shape[1:]))
            mine[places] = wider(other[:1], (1, *shape[1:]))
        self.held += [0] * (len(self.vectors[0]) - len(self.held))
        self.held[places] = [past.length] * (places.stop - places.start)

    def view(self, rows: int) -> Carried:
        return Carried([vector[:rows] for vector in self.vectors])

    def advance(self, rows: int, past: Carried) -> None:
        for mine, new in zip(self.vectors, past.vectors, strict=True):
            mine[:rows] = new
        self.held[:rows] = [length + 1 for length in self.held[:rows]]

    def copy(self, sources: list[int], targets: list[int]) -> None:
        for vector in self.vectors:
            vector[targets] = vector[sources]

    def forget(self, row: int) -> None:
        self.held[row] = 0


class MemoryRows:
    """What each row looks at outside of itself, in the width of the widest."""

    def __init__(self, like: Memory, step: int) -> None:
        self.step, self.widths = step, list[int]()
        self.keys = [k.new_zeros(0, k.shape[1], 0, k.shape[3]) for k in like.keys]
        self.values = [v.new_zeros(0, v.shape[1], 0, v.shape[3]) for v in like.values]
        self.mask = like.mask.new_zeros(0, 1, 1, 0)

    def put(self, memory: Memory, places: slice, room: int) -> None:
        width, before = memory.mask.shape[-1], len(self.mask)
        most = max(self.mask.shape[-1], round_up(width, self.step))
        for mine in (self.keys, self.values):
            mine[:] = [wider(x, (room, x.shape[1], most, x.shape[3])) for x in mine]
        self.mask = wider(self.mask, (room, 1, 1, most))
        self.widths += [0] * (room - before)
        for row in range(before, room):
            self.forget(row)
        for mine, others in ((self.keys, memory.keys), (self.values, memory.values)):
            for kept, other in zip(mine, others, strict=True):
                kept[places, :, :width] = other[:1]
        self.mask[places] = False
        self.mask[places, ..., :width] = memory.mask[:1]
        self.widths[places] = [width] * (places.stop - places.start)

    def view(self, rows: int, whole: bool) -> Memory:
        """`whole`: not cut to the widest in use, for what is as wide in a row's own state."""
        width = self.mask.shape[-1]
        if not whole:
            width = min(width, round_up(max(1, *self.widths[:rows]), self.step))
        keys, values = ([x[:rows, :, :width] for x in side] for side in (self.keys, self.values))
        return Memory(keys, values, self.mask[:rows, ..., :width])

    def move(self, source: int, target: int) -> None:
        for tensor in (*self.keys, *self.values, self.mask):
            tensor[target] = tensor[source]
        self.widths[target] = self.widths[source]

    def forget(self, row: int) -> None:
        # With nothing to look at, a row's weights would be no numbers.
        self.mask[row] = False
        self.mask[row, ..., 0] = True
        self.widths[row] = 0


class EngineRows:
    """All rows of an engine: their last token, their past, and their memory where they have one."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.count = device, 0
        self.step = STEP if device.type == "cuda" else 1
        self.last = torch.zeros(0, dtype=torch.long, device=device)
        self.past: CacheRows | CarriedRows | None = None
        self.memory: MemoryRows | None = None

    def add(self, state: State[Any], token: int, copies: int) -> list[int]:
        """Copies of a state of one row, before it reads a token; where they are now."""
        places = slice(self.count, self.count + copies)
        self.put(state, token, places)
        self.count += copies
        return list(range(places.start, places.stop))

    def put(self, state: State[Any], token: int, places: slice) -> None:
        """The rows at some places become that state."""
        if self.past is None:
            kind = CacheRows if isinstance(state.past, Cache) else CarriedRows
            self.past = kind(state.past, self.step)
            if state.memory is not None:
                # A recurrent state may be as wide as its source, and no wider.
                step = self.step if isinstance(state.past, Cache) else 1
                self.memory = MemoryRows(state.memory, step)
        room = max(len(self.last), power_of_two(places.stop))
        self.past.put(state.past, places, room)
        if self.memory is not None and state.memory is not None:
            self.memory.put(state.memory, places, room)
        self.last = wider(self.last, (room,))
        self.last[places] = token

    def view(self, rows: int | None = None) -> State[Any]:
        """The rows in use as a state, or more of them; steps write through it."""
        assert self.past is not None
        rows = self.count if rows is None else rows
        whole = isinstance(self.past, CarriedRows)
        memory = self.memory.view(rows, whole) if self.memory is not None else None
        past: object = self.past.view(rows)
        return State(past, memory)

    def advance(self, state: State[Any]) -> None:
        """A step has been made with a view."""
        assert self.past is not None
        self.past.advance(self.count, state.past)

    def held(self, place: int) -> int:
        """Tokens that a row has read."""
        assert self.past is not None
        return self.past.held[place]

    def copy(self, sources: list[int], targets: list[int]) -> None:
        """Rows take over what others of the same memory have: beams that go on from another."""
        pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s != t]
        if pairs and self.past is not None:
            self.past.copy([s for s, _ in pairs], [t for _, t in pairs])

    def remove(self, place: int) -> int:
        """Free a row; the place of the row that took it over, which may be itself."""
        assert self.past is not None
        last = self.count - 1
        if place != last:
            self.copy([last], [place])
            self.last[place] = self.last[last]
            if self.memory is not None:
                self.memory.move(last, place)
        self.past.forget(last)
        if self.memory is not None:
            self.memory.forget(last)
        self.count = last
        return last
