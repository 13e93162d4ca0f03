"""Kernels for attention over a pattern's blocks, forward and backward (Triton, Tillet et al. 2019).

A block of queries looks at a list of blocks of keys, with the softmax kept up on the way (Dao et
al. 2022). Lists that are much longer than the others are cut into pieces, which work side by side
and are put together at the end: else all would wait for the few that look at everything.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .pattern import HOST, Layout, Pattern, Size

PIECE = 32  # blocks of a list that are worked through one after another; more are cut
ROWS = 16  # of a block whose pieces are put together at a time
FORWARD = {"num_warps": 4, "num_stages": 3}
BACKWARD = {"num_warps": 4, "num_stages": 2}


class Lists(NamedTuple):
    """For each piece of work: a block, and the blocks on the other side that meet it."""

    row: Tensor  # (W,) which block
    slot: Tensor  # (W,) where its part of a result is put; -1: it is the whole result
    first: Tensor  # (H or 1, W) where its list begins in `other`
    last: Tensor  # (H or 1, W) and ends
    other: Tensor  # (H or 1, E) which blocks are met
    tile: Tensor  # (H or 1, E) which pairs of theirs count, as a tile; -1: all
    split: Tensor  # (R,) which blocks' work was cut
    pieces: int  # into how many

    def to(self, device: torch.device) -> Lists:
        named = self._asdict().items()
        return self._replace(**{name: x.to(device) for name, x in named if name != "pieces"})


class Work(NamedTuple):
    """All that the kernels need to know of a layout, on a device."""

    by_query: Lists
    by_key: Lists
    tiles: Tensor  # (n, block, block) which pairs of two blocks count
    block: int
    blocks: int


@cache
def work_of(pattern: Pattern, size: Size, device: torch.device) -> Work:
    """Kept for good: nothing may be copied to a device while its work is captured, and what was
    captured goes on reading from here."""
    layout = Layout(pattern, size, size.block * size.blocks)
    some, whole = layout.blocks
    drawn, tiles = tiles_of(layout, some & ~whole)
    by_query, by_key = listed(some, drawn), listed(some.mT, drawn.mT)
    return Work(by_query.to(device), by_key.to(device), tiles.to(device), size.block, size.blocks)


def tiles_of(layout: Layout, partly: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of which only some pairs count: most of them look alike, so each look is kept once.

    (H or 1, N, N) -> which look each has, -1 for none, and the looks (n, block, block)
    """
    known: dict[bytes, int] = {}
    looks: list[Tensor] = []
    found = torch.full(partly.shape, -1, dtype=torch.int32)
    inside = torch.arange(layout.size.block, device=HOST)
    for some in partly.nonzero().split(1024):
        head, query, key = (x[:, None, None] for x in some.unbind(-1))
        may = layout.allows(
            head, query * layout.size.block + inside[:, None], key * layout.size.block + inside
        )
        numbers = []
        for look in may:
            number = known.setdefault(look.numpy().tobytes(), len(looks))
            if number == len(looks):
                looks.append(look)
            numbers.append(number)
        found[some.unbind(-1)] = torch.tensor(numbers, dtype=torch.int32)
    side = layout.size.block
    return found, torch.stack(looks).to(torch.int8) if looks else torch.zeros(0, side, side).char()


def listed(some: Tensor, drawn: Tensor) -> Lists:
    """Which blocks meet which, (H or 1, N, N), as lists; the longest pieces of work come first."""
    counts = some.sum(-1)  # (H or 1, N)
    most = counts.amax(0)
    piece = max(PIECE, 2 * int(most.float().median()))
    pieces = -(-int(most.max()) // piece)
    split = (most > piece).nonzero()[:, 0]
    whole = (most <= piece).nonzero()[:, 0]
    whole = whole[most[whole].argsort(descending=True, stable=True)]
    row = torch.cat((split.repeat_interleave(pieces), whole))
    slot = torch.full_like(row, -1)
    slot[: len(split) * pieces] = torch.arange(len(split) * pieces)
    number = slot.clamp_min(0) % max(1, pieces)  # of the piece
    starts = counts.cumsum(-1) - counts
    ends = (starts + counts)[:, row]
    first = torch.minimum(starts[:, row] + number * piece, ends)
    last = torch.where(slot < 0, ends, torch.minimum(first + piece, ends))
    edges = int(counts.sum(-1).max())
    other = torch.zeros(len(some), edges, dtype=torch.int32)
    tile = torch.full((len(some), edges), -1, dtype=torch.int32)
    for head, chosen in enumerate(some):
        met = chosen.nonzero()
        other[head, : len(met)] = met[:, 1].int()
        tile[head, : len(met)] = drawn[head][chosen]
    return Lists(row.int(), slot.int(), first.int(), last.int(), other, tile, split, pieces)


@triton.jit
def begin(START, at, BLOCK: tl.constexpr, step):
    """Where a block begins: far into a long text, beyond what 32 bits count."""
    return START + at.to(tl.int64) * BLOCK * step


@triton.jit
def block_of(START, at, step, length, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """A block of a text, zeros beyond its end.  -> (BLOCK, WIDTH)"""
    inside, wide = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    there = (at * BLOCK + inside) < length
    return tl.load(
        begin(START, at, BLOCK, step) + inside[:, None] * step + wide[None, :],
        mask=there[:, None],
        other=0.0,
    )


@triton.jit
def known_of(KNOWN, at, length, BLOCK: tl.constexpr, PADDED: tl.constexpr):
    """Which places of a block are real.  -> (BLOCK,)"""
    places = at * BLOCK + tl.arange(0, BLOCK)
    there = places < length
    if PADDED:
        there = there & (tl.load(KNOWN + places, mask=there, other=0) != 0)
    return there


@triton.jit
def forward_kernel(
    Q, K, V, KNOWN, OUT, LSE, PART, PART_LSE, ROW, SLOT, FIRST, LAST, OTHER, TILE, TILES,
    qb, qh, qs, kb, kh, ks, vb, vh, vs, ob, oh, os,
    scale, heads, length, whole, work, edges, slots, own_lists,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, DRAWN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A piece of work of one head: its queries look at the keys of its list."""
    item, pair = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = pair // heads, pair % heads
    lists = head * own_lists
    row, slot = tl.load(ROW + item), tl.load(SLOT + item)
    inside, wide = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    q = block_of(Q + batch * qb + head * qh, row, qs, length, BLOCK, WIDTH)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, WIDTH), tl.float32)
    first, last = tl.load(FIRST + lists * work + item), tl.load(LAST + lists * work + item)
    for at in range(first, last):
        other = tl.load(OTHER + lists * edges + at)
        k = block_of(K + batch * kb + head * kh, other, ks, length, BLOCK, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        may = known_of(KNOWN + batch * length, other, length, BLOCK, PADDED)
        scores = tl.where(may[None, :], scores, float("-inf"))
        if DRAWN:
            tile = tl.load(TILE + lists * edges + at)
            if tile >= 0:
                look = TILES + tile * BLOCK * BLOCK + inside[:, None] * BLOCK + inside[None, :]
                scores = tl.where(tl.load(look) != 0, scores, float("-inf"))
        now = tl.maximum(top, tl.max(scores, 1))
        level = tl.where(now == float("-inf"), 0.0, now)
        weights = tl.exp2(scores - level[:, None])
        shrink = tl.exp2(top - level)
        v = block_of(V + batch * vb + head * vh, other, vs, length, BLOCK, WIDTH)
        total = total * shrink + tl.sum(weights, 1)
        mixed = mixed * shrink[:, None]
        mixed += tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        top = now
    seen = total > 0
    mixed = mixed / tl.where(seen, total, 1.0)[:, None]
    lse = tl.where(seen, top + tl.log2(total), float("-inf"))
    if slot < 0:
        out = begin(OUT + batch * ob + head * oh, row, BLOCK, os)
        tl.store(out + inside[:, None] * os + wide[None, :], mixed.to(OUT.dtype.element_ty))
        # Backward, whoever saw nothing is told by what no score can reach.
        lse = tl.where(seen, lse, float("inf"))
        tl.store(LSE + pair * whole + row * BLOCK + inside, lse)
    else:
        put = (pair * slots + slot) * BLOCK
        tl.store(PART + (put + inside[:, None]) * WIDTH + wide[None, :], mixed)
        tl.store(PART_LSE + put + inside, lse)


@triton.jit
def query_kernel(
    Q, K, V, KNOWN, OUT, DOUT, LSE, DELTA, DQ, PART, ROW, SLOT, FIRST, LAST, OTHER, TILE, TILES,
    qb, qh, qs, kb, kh, ks, vb, vh, vs, rb, rh, rs, ob, oh, os, gb, gh, gs,
    scale, natural, heads, length, whole, work, edges, slots, own_lists,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, DRAWN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of queries: over the keys that each looks at. Leaves behind what the gradients of
    keys need too: how far each result goes along with its gradient."""
    item, pair = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = pair // heads, pair % heads
    lists = head * own_lists
    row, slot = tl.load(ROW + item), tl.load(SLOT + item)
    inside, wide = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    q = block_of(Q + batch * qb + head * qh, row, qs, length, BLOCK, WIDTH)
    dout = block_of(DOUT + batch * ob + head * oh, row, os, length, BLOCK, WIDTH)
    lse = tl.load(LSE + pair * whole + row * BLOCK + inside)
    out = block_of(OUT + batch * rb + head * rh, row, rs, length, BLOCK, WIDTH)
    delta = tl.sum(out.to(tl.float32) * dout.to(tl.float32), 1)
    tl.store(DELTA + pair * whole + row * BLOCK + inside, delta)  # pieces of a row store the same
    dq = tl.zeros((BLOCK, WIDTH), tl.float32)
    first, last = tl.load(FIRST + lists * work + item), tl.load(LAST + lists * work + item)
    for at in range(first, last):
        other = tl.load(OTHER + lists * edges + at)
        k = block_of(K + batch * kb + head * kh, other, ks, length, BLOCK, WIDTH)
        v = block_of(V + batch * vb + head * vh, other, vs, length, BLOCK, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        may = known_of(KNOWN + batch * length, other, length, BLOCK, PADDED)
        weights = tl.where(may[None, :], tl.exp2(scores - lse[:, None]), 0.0)
        if DRAWN:
            tile = tl.load(TILE + lists * edges + at)
            if tile >= 0:
                look = TILES + tile * BLOCK * BLOCK + inside[:, None] * BLOCK + inside[None, :]
                weights = tl.where(tl.load(look) != 0, weights, 0.0)
        dweights = tl.dot(dout, tl.trans(v), input_precision=PRECISION)
        dscores = weights * (dweights - delta[:, None])
        dq += tl.dot(dscores.to(k.dtype), k, input_precision=PRECISION)
    dq = dq * natural
    if slot < 0:
        found = begin(DQ + batch * gb + head * gh, row, BLOCK, gs)
        tl.store(found + inside[:, None] * gs + wide[None, :], dq.to(DQ.dtype.element_ty))
    else:
        put = (pair * slots + slot) * BLOCK
        tl.store(PART + (put + inside[:, None]) * WIDTH + wide[None, :], dq)


@triton.jit
def key_kernel(
    Q, K, V, KNOWN, DOUT, LSE, DELTA, DK, DV, PART, ROW, SLOT, FIRST, LAST, OTHER, TILE, TILES,
    qb, qh, qs, kb, kh, ks, vb, vh, vs, ob, oh, os, gb, gh, gs,
    scale, natural, heads, length, whole, work, edges, slots, own_lists,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, DRAWN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of keys and values: over the queries that look at them."""
    item, pair = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = pair // heads, pair % heads
    lists = head * own_lists
    row, slot = tl.load(ROW + item), tl.load(SLOT + item)
    inside, wide = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    k = block_of(K + batch * kb + head * kh, row, ks, length, BLOCK, WIDTH)
    v = block_of(V + batch * vb + head * vh, row, vs, length, BLOCK, WIDTH)
    may = known_of(KNOWN + batch * length, row, length, BLOCK, PADDED)
    dk = tl.zeros((BLOCK, WIDTH), tl.float32)
    dv = tl.zeros((BLOCK, WIDTH), tl.float32)
    first, last = tl.load(FIRST + lists * work + item), tl.load(LAST + lists * work + item)
    for at in range(first, last):
        other = tl.load(OTHER + lists * edges + at)
        q = block_of(Q + batch * qb + head * qh, other, qs, length, BLOCK, WIDTH)
        dout = block_of(DOUT + batch * ob + head * oh, other, os, length, BLOCK, WIDTH)
        lse = tl.load(LSE + pair * whole + other * BLOCK + inside)
        delta = tl.load(DELTA + pair * whole + other * BLOCK + inside)
        scores = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale  # keys by queries
        weights = tl.where(may[:, None], tl.exp2(scores - lse[None, :]), 0.0)
        if DRAWN:
            tile = tl.load(TILE + lists * edges + at)
            if tile >= 0:
                look = TILES + tile * BLOCK * BLOCK + inside[None, :] * BLOCK + inside[:, None]
                weights = tl.where(tl.load(look) != 0, weights, 0.0)
        dv += tl.dot(weights.to(dout.dtype), dout, input_precision=PRECISION)
        dweights = tl.dot(v, tl.trans(dout), input_precision=PRECISION)
        dscores = weights * (dweights - delta[None, :])
        dk += tl.dot(dscores.to(q.dtype), q, input_precision=PRECISION)
    dk = dk * natural
    if slot < 0:
        inner = inside[:, None] * gs + wide[None, :]
        keys = begin(DK + batch * gb + head * gh, row, BLOCK, gs)
        values = begin(DV + batch * gb + head * gh, row, BLOCK, gs)
        tl.store(keys + inner, dk.to(DK.dtype.element_ty))
        tl.store(values + inner, dv.to(DV.dtype.element_ty))
    else:  # both beside each other
        put = (pair * slots + slot) * 2 * BLOCK
        tl.store(PART + (put + inside[:, None]) * WIDTH + wide[None, :], dk)
        tl.store(PART + (put + BLOCK + inside[:, None]) * WIDTH + wide[None, :], dv)


@triton.jit
def join_kernel(
    OUT, LSE, PART, PART_LSE, SPLIT, ob, oh, os, heads, whole, slots, pieces,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Pieces of a row put together: each counts as much as its scores were high."""
    item, pair = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch, head = pair // heads, pair % heads
    split, rows = item // (BLOCK // ROWS), item % (BLOCK // ROWS) * ROWS
    inside, wide = rows + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for piece in range(pieces):
        put = (pair * slots + split * pieces + piece) * BLOCK
        found = tl.load(PART_LSE + put + inside)
        now = tl.maximum(top, found)
        level = tl.where(now == float("-inf"), 0.0, now)
        share, shrink = tl.exp2(found - level), tl.exp2(top - level)
        part = tl.load(PART + (put + inside[:, None]) * WIDTH + wide[None, :])
        mixed = mixed * shrink[:, None] + part * share[:, None]
        total = total * shrink + share
        top = now
    seen = total > 0
    mixed = mixed / tl.where(seen, total, 1.0)[:, None]
    row = tl.load(SPLIT + split)
    out = begin(OUT + batch * ob + head * oh, row, BLOCK, os)
    tl.store(out + inside[:, None] * os + wide[None, :], mixed.to(OUT.dtype.element_ty))
    lse = tl.where(seen, top + tl.log2(total), float("inf"))
    tl.store(LSE + pair * whole + row * BLOCK + inside, lse)


@triton.jit
def add_kernel(
    FIRST, SECOND, PART, SPLIT, gb, gh, gs, heads, slots, pieces,
    COUNT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradients of a row's pieces added up: of one tensor, or of two beside each other."""
    item, pair = tl.program_id(0), tl.program_id(1).to(tl.int64)
    number = tl.program_id(2)
    batch, head = pair // heads, pair % heads
    split, rows = item // (BLOCK // ROWS), item % (BLOCK // ROWS) * ROWS
    inside, wide = rows + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for piece in range(pieces):
        put = ((pair * slots + split * pieces + piece) * COUNT + number) * BLOCK
        total += tl.load(PART + (put + inside[:, None]) * WIDTH + wide[None, :])
    row = tl.load(SPLIT + split)
    place = batch * gb + head * gh + (row.to(tl.int64) * BLOCK + inside[:, None]) * gs
    found = total.to(FIRST.dtype.element_ty)
    if number == 0:
        tl.store(FIRST + place + wide[None, :], found)
    else:
        tl.store(SECOND + place + wide[None, :], found)


def like_heads(x: Tensor, length: int) -> Tensor:
    """Room for a result, laid out so that heads can be joined without a copy.

    (B, H, S, K) -> (B, H, length, K)
    """
    room = x.new_empty(x.shape[0], length, x.shape[1], x.shape[3])
    return room.transpose(1, 2)


def strides(*parts: Tensor) -> list[int]:
    return [step for part in parts for step in part.stride()[:3]]


class InBlocks(torch.autograd.Function):
    """(B, H, S, K) each -> (B, H, S, K)"""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, known: Tensor | None, work: Work, scale: float
    ) -> Tensor:
        (batch, heads, length, width), block, lists = q.shape, work.block, work.by_query
        whole, slots = work.blocks * block, len(lists.split) * lists.pieces
        out = like_heads(q, whole)
        lse = q.new_empty(batch, heads, whole, dtype=torch.float32)
        part = q.new_empty(batch, heads, slots, block, width, dtype=torch.float32)
        part_lse = q.new_empty(batch, heads, slots, block, dtype=torch.float32)
        shared = shared_of(q, known, work, lists, scale, slots)
        forward_kernel[(len(lists.row), batch * heads)](
            q, k, v, *shared.known, out, lse, part, part_lse, *lists[:6], work.tiles,
            *strides(q, k, v, out), *shared.numbers, **shared.kinds, **FORWARD,
        )  # fmt: skip
        if slots:
            join_kernel[(len(lists.split) * (block // ROWS), batch * heads)](
                out, lse, part, part_lse, lists.split, *strides(out), heads, whole, slots,
                lists.pieces, BLOCK=block, WIDTH=width, ROWS=ROWS,
            )  # fmt: skip
        ctx.save_for_backward(q, k, v, known, out, lse)
        ctx.work, ctx.scale = work, scale
        return out[:, :, :length]

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, known, out, lse = ctx.saved_tensors
        work: Work = ctx.work
        batch, heads, length, width = q.shape
        whole, block = work.blocks * work.block, work.block
        dout = dout if dout.stride(-1) == 1 else dout.contiguous()
        delta = torch.empty_like(lse)
        dq, dk, dv = (like_heads(q, whole) for _ in range(3))
        for lists, kernel, begun, found in (
            (work.by_query, query_kernel, [out], [dq]),
            (work.by_key, key_kernel, [], [dk, dv]),
        ):
            slots = len(lists.split) * lists.pieces
            part = q.new_empty(batch, heads, slots, len(found), block, width, dtype=torch.float32)
            shared = shared_of(q, known, work, lists, ctx.scale, slots)
            kernel[(len(lists.row), batch * heads)](
                q, k, v, *shared.known, *begun, dout, lse, delta, *found, part, *lists[:6],
                work.tiles, *strides(q, k, v, *begun, dout, found[0]), shared.numbers[0],
                ctx.scale, *shared.numbers[1:], **shared.kinds, **BACKWARD,
            )  # fmt: skip
            if slots:
                add_kernel[(len(lists.split) * (block // ROWS), batch * heads, len(found))](
                    found[0], found[-1], part, lists.split, *strides(found[0]), heads, slots,
                    lists.pieces, COUNT=len(found), BLOCK=block, WIDTH=width, ROWS=ROWS,
                )  # fmt: skip
        dq, dk, dv = (x[:, :, :length] for x in (dq, dk, dv))
        return dq, dk, dv, None, None, None


class Shared(NamedTuple):
    """What all kernels are told alike."""

    known: list[Tensor]
    numbers: list[Any]
    kinds: dict[str, Any]


def shared_of(
    q: Tensor, known: Tensor | None, work: Work, lists: Lists, scale: float, slots: int
) -> Shared:
    heads, length, width = q.shape[1:]
    own_lists = int(len(lists.first) > 1)
    # Powers of two are quicker than powers of e.
    numbers = [scale * 1.4426950408889634, heads, length, work.blocks * work.block]
    numbers += [len(lists.row), lists.other.shape[1], slots, own_lists]
    exact = q.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    kinds = {
        "BLOCK": work.block, "WIDTH": width, "PADDED": known is not None,
        "DRAWN": len(work.tiles) > 0, "PRECISION": "ieee" if exact else "tf32",
    }  # fmt: skip
    return Shared([q if known is None else known], numbers, kinds)


def by_kernel(
    q: Tensor, k: Tensor, v: Tensor, scale: float, layout: Layout, mask: Tensor | None
) -> Tensor:
    """(B, H, S, K) each, padding mask (B, 1, 1, S) -> (B, H, S, K)"""
    if q.is_cuda and torch.is_autocast_enabled("cuda"):
        q, k, v = (x.to(torch.get_autocast_dtype("cuda")) for x in (q, k, v))
    if k.shape[1] != q.shape[1]:  # several query heads share a key head
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    known = None if mask is None else mask[:, 0, 0].expand(len(q), -1).contiguous()
    work = work_of(layout.pattern, layout.size, q.device)
    found: Tensor = InBlocks.apply(q, k, v, known, work, scale)
    return found
