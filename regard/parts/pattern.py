"""Who may look at whom in a long text: patterns, in blocks, of which most are never compared.

A pattern says it for any two places (`allows`), and for any two blocks of places: whether some or
all of their pairs are allowed. Attention then works out only those blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HOST = torch.device("cpu")  # where layouts are made and kept, whatever a model is counted on


class Blocks(NamedTuple):
    """Which blocks of queries (rows) may look at which of keys: some of their pairs, or all."""

    some: Tensor  # (H or 1, N, N)
    all: Tensor  # (H or 1, N, N)

    def __or__(self, other: Blocks) -> Blocks:
        return Blocks(self.some | other.some, self.all | other.all)

    def __and__(self, other: Blocks) -> Blocks:
        return Blocks(self.some & other.some, self.all & other.all)


class Size(NamedTuple):
    """What a pattern is laid out on."""

    block: int  # places of a block
    blocks: int  # of a text
    heads: int
    causal: bool  # whether nobody looks ahead


@dataclass(frozen=True)
class Pattern:
    """Everybody looks at everybody."""

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Whether places may look at places, element by element."""
        return (query >= 0) & (key >= 0)

    def blocks(self, size: Size) -> Blocks:
        ones = torch.ones(1, size.blocks, size.blocks, dtype=torch.bool, device=HOST)
        return Blocks(ones, ones)

    def __or__(self, other: Pattern) -> Union:
        return Union((self, other))

    def of_layer(self, layer: int) -> Pattern:
        """The same for one of several layers, where they are to differ."""
        return self

    def remembered(self) -> tuple[int, int] | None:
        """Where nobody looks ahead: how many first places are looked at from everywhere, and how
        many before one's own; None: there is no bound."""
        return None


def apart(size: Size) -> Tensor:
    """How many blocks lie between two, by number.  -> (1, N, N)"""
    every = torch.arange(size.blocks, device=HOST)
    return (every[:, None] - every)[None]


@dataclass(frozen=True)
class Causal(Pattern):
    """Nobody looks ahead."""

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def blocks(self, size: Size) -> Blocks:
        return Blocks(apart(size) >= 0, apart(size) > 0)


@dataclass(frozen=True)
class Window(Pattern):
    """Neighbours: places at most `reach` away (Longformer, Beltagy et al. 2020); where `gap` is
    more than 1, only every gap-th of them, so that as many reach further (dilated)."""

    reach: int
    gap: int = 1

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        far = (query - key).abs()
        near = far <= self.reach * self.gap
        return near if self.gap == 1 else near & (far % self.gap == 0)

    def remembered(self) -> tuple[int, int]:
        return 0, self.reach * self.gap

    def blocks(self, size: Size) -> Blocks:
        far, reach = apart(size).abs(), self.reach * self.gap
        nearest = ((far - 1) * size.block + 1).clamp_min(0)
        farthest = (far + 1) * size.block - 1
        return Blocks(nearest <= reach, (farthest <= reach) & (self.gap == 1))


@dataclass(frozen=True)
class Global(Pattern):
    """The first places look at all and are seen by all."""

    places: int

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query < self.places) | (key < self.places)

    def remembered(self) -> tuple[int, int]:
        return self.places, 0

    def blocks(self, size: Size) -> Blocks:
        some, whole = first_blocks(size, self.places)
        return Blocks(crossed(some), crossed(whole))


@dataclass(frozen=True)
class Sinks(Pattern):
    """The first places are seen by all (attention sinks, Xiao et al. 2024)."""

    places: int

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key < self.places) & (query >= 0)

    def remembered(self) -> tuple[int, int]:
        return self.places, 0

    def blocks(self, size: Size) -> Blocks:
        some, whole = first_blocks(size, self.places)
        shape = (1, size.blocks, size.blocks)
        return Blocks(some.expand(shape), whole.expand(shape))


def first_blocks(size: Size, places: int) -> tuple[Tensor, Tensor]:
    """Which blocks hold some of the first places, and which hold nothing else.  -> (N,) each"""
    first = torch.arange(size.blocks, device=HOST) * size.block
    return first < places, first + size.block <= places


def crossed(chosen: Tensor) -> Tensor:
    """Rows and columns of the chosen blocks.  (N,) -> (1, N, N)"""
    return (chosen[:, None] | chosen)[None]


@dataclass(frozen=True)
class BlockWindow(Pattern):
    """Neighbouring blocks, so many on each side (BigBird, Zaheer et al. 2020)."""

    reach: int

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query // size.block - key // size.block).abs() <= self.reach

    def blocks(self, size: Size) -> Blocks:
        near = apart(size).abs() <= self.reach
        return Blocks(near, near)


@dataclass(frozen=True)
class GlobalBlocks(Pattern):
    """The first blocks, and some of the last, look at all and are seen by all. Where nobody looks
    ahead, the last are not yet known and are as the others."""

    first: int
    last: int = 0

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.chosen(size, query // size.block) | self.chosen(size, key // size.block)

    def chosen(self, size: Size, block: Tensor) -> Tensor:
        end = size.blocks if size.causal else size.blocks - self.last
        return (block < self.first) | (block >= end)

    def blocks(self, size: Size) -> Blocks:
        found = crossed(self.chosen(size, torch.arange(size.blocks, device=HOST)))
        return Blocks(found, found)


@dataclass(frozen=True)
class RandomBlocks(Pattern):
    """Some blocks of keys drawn for each block of queries and each head, none within `beside` of
    it, and about as many ahead of it as behind. They do not depend on how long the text is, so
    that padding and neighbours change nothing; what lies beyond its end is not there."""

    count: int
    beside: int = 1
    first: int = 0  # blocks at the start that are not drawn: all look at them anyway
    seed: int = 0

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        table = drawn_on(self, size, query.device)
        return table[head, query // size.block, key // size.block]

    def blocks(self, size: Size) -> Blocks:
        found = drawn_blocks(self, size)
        return Blocks(found, found)

    def of_layer(self, layer: int) -> Pattern:
        return replace(self, seed=self.seed + 1000 * layer)


@dataclass(frozen=True, eq=False)
class Drawn(Pattern):
    """Blocks that are known one by one."""

    table: Tensor  # (H, N, N)

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.table[head, query // size.block, key // size.block]

    def blocks(self, size: Size) -> Blocks:
        return Blocks(self.table, self.table)

    # Each is its own: what a pattern is made of says nothing of its table.
    __hash__, __eq__ = object.__hash__, object.__eq__


@cache
def drawn_on(pattern: RandomBlocks, size: Size, device: torch.device) -> Tensor:
    """Kept for good, for what was captured goes on reading from here.  -> (H, N, N)"""
    return drawn_blocks(pattern, size).to(device)


@lru_cache(maxsize=64)
def drawn_blocks(pattern: RandomBlocks, size: Size) -> Tensor:
    """By a number for each pair, of which each row takes the largest."""
    count, every = size.blocks, np.arange(size.blocks)
    keys = np.arange(count if size.causal else AHEAD + 2 * count)
    away = every[:, None] - keys
    open_to = (np.abs(away) > pattern.beside) & (keys >= pattern.first)
    open_to &= (away > 0) if size.causal else (keys < AHEAD + 2 * every[:, None])
    found = torch.zeros(size.heads, count, len(keys), dtype=torch.bool, device=HOST)
    for head in range(size.heads):
        lots = np.where(open_to, mixed(pattern.seed, head, every, keys), -1.0)
        best = np.argsort(-lots, 1, kind="stable")[:, : pattern.count]
        taken = np.take_along_axis(lots, best, 1) >= 0
        found[head].scatter_(1, torch.from_numpy(best), torch.from_numpy(taken))
    return found[:, :, :count].contiguous()


AHEAD = 8  # blocks that the first may draw from


def mixed(
    seed: int, head: int, queries: NDArray[np.int64], keys: NDArray[np.int64]
) -> NDArray[np.float64]:
    """A number between 0 and 1 for each pair of blocks, of nothing but seed, head and pair
    (SplitMix64, Steele et al. 2014).  (N,), (M,) -> (N, M)"""
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        start = (np.uint64(seed) * golden + np.uint64(head + 1)) * np.uint64(0xD1342543DE82EF95)
        x = start + queries.astype(np.uint64)[:, None] * np.uint64(2**32)
        x = (x + keys.astype(np.uint64) + np.uint64(1)) * golden
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Union(Pattern):
    """What any of several patterns allows."""

    parts: tuple[Pattern, ...]

    def allows(self, size: Size, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = self.parts[0].allows(size, head, query, key)
        for part in self.parts[1:]:
            found = found | part.allows(size, head, query, key)
        return found

    def blocks(self, size: Size) -> Blocks:
        found = self.parts[0].blocks(size)
        for part in self.parts[1:]:
            found = found | part.blocks(size)
        return found

    def of_layer(self, layer: int) -> Pattern:
        return Union(tuple(part.of_layer(layer) for part in self.parts))

    def remembered(self) -> tuple[int, int] | None:
        each = [part.remembered() for part in self.parts]
        known = [one for one in each if one is not None]
        if len(known) < len(each):
            return None
        return max(first for first, _ in known), max(last for _, last in known)


@dataclass(frozen=True)
class Layout:
    """A pattern on a text of some length: which blocks there are to work out."""

    pattern: Pattern
    size: Size
    length: int  # places; the last block may not be full

    def allows(self, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        found = self.pattern.allows(self.size, head, query, key) & (head >= 0)
        return found & (key <= query) if self.size.causal else found

    def mask(self, device: torch.device = HOST) -> Tensor:
        """Which places may look at which.  -> (1, H or 1, T, S)"""
        every = torch.arange(self.length, device=device)
        return self.seen_from(every, every)

    def seen_from(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Which keys may be seen from some places, (T,) or (B, T).  -> (B or 1, H or 1, T, S)"""
        heads = torch.arange(len(self.blocks.some), device=queries.device)
        asks = queries.view(-1, 1, queries.shape[-1], 1)
        return self.allows(heads[:, None, None], asks, keys)

    @property
    def blocks(self) -> Blocks:
        return laid_out_blocks(self.pattern, self.size)

    @property
    def share(self) -> float:
        """Of all pairs of blocks, how many are worked out."""
        return share_of(self.pattern, self.size)


@lru_cache(maxsize=256)
def laid_out_blocks(pattern: Pattern, size: Size) -> Blocks:
    found = pattern.blocks(size)
    return found & Causal().blocks(size) if size.causal else found


@lru_cache(maxsize=256)
def share_of(pattern: Pattern, size: Size) -> float:
    return float(laid_out_blocks(pattern, size).some.float().mean())


def laid_out(pattern: Pattern, block: int, length: int, heads: int, causal: bool) -> Layout:
    return Layout(pattern, Size(block, -(-length // block), heads, causal), length)


def bigbird(block: int, reach: int, places: int, random: int) -> Pattern:
    """Neighbouring blocks, the first two, and random ones (Zaheer et al. 2020, who have the first
    and the last: where that is, padding would tell)."""
    drawn = [RandomBlocks(random, 1, 2)] if random else []
    return Union((BlockWindow(1), GlobalBlocks(2), *drawn))


def longformer(block: int, reach: int, places: int, random: int) -> Pattern:
    """Neighbours, and first places that look at all and are seen by all (Beltagy et al. 2020)."""
    return Window(reach) | Global(places) if places else Window(reach)


def sliding(block: int, reach: int, places: int, random: int) -> Pattern:
    """Neighbours, and first places that are seen by all, so that those who find nothing near have
    somewhere to look (Xiao et al. 2024)."""
    return Window(reach) | Sinks(places) if places else Window(reach)


def dilated(block: int, reach: int, places: int, random: int) -> Pattern:
    """Every second place as far as twice the reach, and all that are very near."""
    far = Window(reach, 2) | Window(max(1, block // 2))
    return far | Sinks(places) if places else far


# Each of: places in a block, reach to each side, places that all see, random blocks of a row.
PATTERNS: dict[str, Callable[[int, int, int, int], Pattern]] = {
    "full": lambda block, reach, places, random: Pattern(),
    "window": sliding,
    "dilated": dilated,
    "longformer": longformer,
    "bigbird": bigbird,
}
