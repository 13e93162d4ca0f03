"""Attention that works out only the blocks that a pattern allows.

`gathered` brings the keys of each block of queries together and runs anywhere; `kernel.py` has the
same for a GPU. Both equal the written-out path under the pattern's mask.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .pattern import HOST, Layout, Pattern, Size, laid_out_blocks

AT_ONCE = 2**25  # numbers of gathered keys held at a time: 128 MiB in float32
DENSE = 4  # rows with so many times the usual number of blocks look at all keys at once


class Rows(NamedTuple):
    """Blocks of queries that look at equally many blocks of keys."""

    queries: Tensor  # (R,) which blocks
    keys: Tensor  # (H or 1, R, M) which blocks each looks at; what fills up is not real
    real: Tensor  # (H or 1, R, M)
    whole: bool  # whether all of what they look at may be seen
    filled: bool  # whether something only fills up


class Plan(NamedTuple):
    """What is gathered for which blocks of queries, and which of them look at everything."""

    sparse: Rows
    dense: Tensor  # (D,) blocks of queries
    places: Tensor  # (N,) where each block of queries stands among the first and then the second


def plan(layout: Layout, device: torch.device) -> Plan:
    return planned(layout.pattern, layout.size, device)


@cache
def planned(pattern: Pattern, size: Size, device: torch.device) -> Plan:
    """Kept for good, for what was captured goes on reading from here."""
    blocks = laid_out_blocks(pattern, size)
    some = blocks.some  # (H or 1, N, N)
    counts = some.sum(-1).amax(0)  # (N,)
    dense = counts > DENSE * counts.float().median().clamp_min(1)
    rows = (~dense).nonzero()[:, 0]
    most = int(counts[rows].max()) if len(rows) else 1
    chosen = some[:, rows]  # (H or 1, R, N)
    # Those that are looked at come first, in their order.
    order = torch.argsort((~chosen).to(torch.uint8), dim=-1, stable=True)[..., :most]
    real = chosen.gather(-1, order)
    whole = bool((blocks.all[:, rows] | ~chosen).all())
    filled = not bool(real.all())
    sparse = Rows(rows.to(device), order.to(device), real.to(device), whole, filled)
    # Where each block of queries stands, once sparse and dense ones are put together.
    places = torch.cat((rows, dense.nonzero()[:, 0])).argsort()
    return Plan(sparse, dense.nonzero()[:, 0].to(device), places.to(device))


def gathered(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    layout: Layout,
    mask: Tensor | None,
    bias: Callable[[Tensor], Tensor] | None,
    dropout: float,
) -> Tensor:
    """(B, H, S, K) each, padding mask (B, 1, 1, S) -> (B, H, S, K)"""
    block, count = layout.size.block, layout.size.blocks
    batch, heads, length, _ = q.shape
    if k.shape[1] != heads:  # several query heads share a key head
        k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    missing = count * block - length
    if missing:
        q, k, v = (F.pad(x, (0, 0, 0, missing)) for x in (q, k, v))
    blocks = [x.unflatten(2, (count, block)) for x in (q, k, v)]  # (B, H, N, block, K)
    device = q.device if q.device.type != "meta" else HOST
    known = None  # (B or 1, S) which places are real
    if mask is not None and mask.device.type != "meta":
        known = F.pad(mask[:, 0, 0], (0, missing))
    elif missing:
        known = (torch.arange(count * block, device=device) < length)[None]
    sparse, dense, places = plan(layout, device)
    found = []
    each = batch * heads * sparse.keys.shape[-1] * block * q.shape[-1]
    at_once = max(1, AT_ONCE // max(1, each))
    for first in range(0, len(sparse.queries), at_once):
        part = slice(first, first + at_once)
        some = sparse._replace(
            queries=sparse.queries[part], keys=sparse.keys[:, part], real=sparse.real[:, part]
        )
        found.append(look(blocks, layout, some, known, bias, scale, dropout))
    if len(dense):
        asks = (dense[:, None] * block + torch.arange(block, device=device)).flatten()
        every = torch.arange(count * block, device=device)
        may = layout.seen_from(asks, every)
        may = may if known is None else may & known[:, None, None]
        shown = shifted(may, added_at(bias, (every - asks[:, None])[None])).to(q.device)
        asked = blocks[0][:, :, dense].flatten(2, 3)
        mixed = F.scaled_dot_product_attention(asked, k, v, shown, dropout, scale=scale)
        found.append(mixed.unflatten(2, (-1, block)))
    return torch.cat(found, 2)[:, :, places].flatten(2, 3)[:, :, :length]


def places_of(layout: Layout, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Where blocks of queries stand, and what is gathered for them.

    -> (R, block), (H or 1, R, M · block)
    """
    inside = torch.arange(layout.size.block, device=queries.device)
    asks = queries[:, None] * layout.size.block + inside
    return asks, (keys[..., None] * layout.size.block + inside).flatten(2)


def allowed(layout: Layout, rows: Rows, known: Tensor | None) -> Tensor | None:
    """Which gathered keys each query may see; None: all.

    -> (B or 1, H or 1, R, block or 1, M · block)
    """
    asks, seen = places_of(layout, rows.queries, rows.keys)
    may = rows.real.repeat_interleave(layout.size.block, -1)[None, :, :, None]
    if not rows.whole:
        heads = torch.arange(len(seen), device=seen.device)[:, None, None, None]
        may = may & layout.allows(heads, asks[None, :, :, None], seen[:, :, None])
    if known is not None:
        may = may & known[:, seen][:, :, :, None]
    return may if known is not None or rows.filled or not rows.whole else None


def added_at(bias: Callable[[Tensor], Tensor] | None, apart: Tensor) -> Tensor | None:
    """What each head adds for distances that all heads, or each its own, ask about.

    (H or 1, …) -> (H, …)
    """
    if bias is None:
        return None
    told = bias(apart)  # (H or 1, …, H)
    if len(apart) == 1:
        return told[0].movedim(-1, 0)
    return torch.stack([told[head, ..., head] for head in range(len(apart))])


def shifted(may: Tensor, added: Tensor | None) -> Tensor:
    """What is added to the scores; where nothing is, whether they count."""
    return may if added is None else torch.where(may.to(added.device), added, float("-inf"))


def look(
    blocks: list[Tensor],
    layout: Layout,
    rows: Rows,
    known: Tensor | None,
    bias: Callable[[Tensor], Tensor] | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Some blocks of queries at what is gathered for them.  -> (B, H, R, block, K)"""
    q, k, v = blocks
    batch, heads = q.shape[:2]
    if len(rows.keys) == 1:
        near = [x[:, :, rows.keys[0]].flatten(3, 4) for x in (k, v)]  # (B, H, R, M · block, K)
    else:
        own = torch.arange(heads, device=rows.keys.device)[:, None, None]
        near = [x[:, own, rows.keys].flatten(3, 4) for x in (k, v)]
    may, shown = allowed(layout, rows, known), None
    if bias is not None:
        asks, seen = places_of(layout, rows.queries, rows.keys)
        shown = added_at(bias, seen[:, :, None] - asks[None, :, :, None])
    if may is not None:
        shown = shifted(may, shown)
    if shown is not None:
        shown = shown.expand(batch, heads, *shown.shape[-3:]).flatten(0, 1).to(q.device)
    # The kernel knows two leading dimensions: here rows stand where heads do.
    asked = q[:, :, rows.queries].flatten(0, 1)  # (B · H, R, block, K)
    found: Tensor = F.scaled_dot_product_attention(
        asked, near[0].flatten(0, 1), near[1].flatten(0, 1), shown, dropout, scale=scale
    ).unflatten(0, (batch, heads))
    if may is not None:  # where nothing is real, the kernel's own answer does not count
        found = found.masked_fill(~may.any(-1, keepdim=True).to(q.device), 0.0)
    return found


MOST_BYTES = 2**15  # of one block of one head, of which a GPU holds several at hand


def has_kernel(layout: Layout, q: Tensor) -> bool:
    """Whether there are kernels: for a GPU whose torch brings Triton, and blocks and heads whose
    sizes are powers of two and fit into what a GPU has at hand."""
    block, width = layout.size.block, q.shape[-1]
    powers = all(16 <= size <= 128 and size & (size - 1) == 0 for size in (block, width))
    fits = block * width * q.element_size() <= MOST_BYTES
    return powers and fits and q.is_cuda and importlib.util.find_spec("triton") is not None
