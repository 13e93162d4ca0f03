"""The one operation: scores, mask, softmax, weighted sum; and the module that gives it heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import mask as masks
from .pattern import Layout, Pattern, laid_out
from .position import NoPosition
from .score import SCORES, Dot, ScaledDot
from .sparse import gathered, has_kernel
from .state import Slot, Source

# What is added to the scores: a table (B or 1, H or 1, T, S), or a function of how far a key stands
# after its query, (…) -> (…, H), which need not be worked out for all pairs.
Bias = Tensor | Callable[[Tensor], Tensor]


def weigh(
    q: Tensor,
    k: Tensor,
    score: Callable[[Tensor, Tensor], Tensor],
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """softmax(score(q, k) + bias) over the keys that may be seen.  -> weights (B, H, T, S)

    A query that may see nothing gets zeros, not NaN.
    """
    if k.shape[1] != q.shape[1]:  # several query heads share a key head
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = score(q, k)
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = masks.both(mask, masks.causal(q.shape[-2], k.shape[-2], q.device))
    if mask is None:
        return scores.softmax(-1)
    scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).masked_fill(~mask.any(-1, keepdim=True), 0.0)


class Attend(nn.Module):
    """Queries look at keys and mix values: (B, H, T, K), (B, H, S, K), (B, H, S, K) -> (B, H, T,
    K).

    A dot score takes the fused kernel; every other score, and `plain`, the written-out path, which
    is also the reference the fused one is tested against. Where a sequence looks at itself, a
    layout says which blocks of it may look at which. `watch` listens here.
    """

    def __init__(self, score: nn.Module, dropout: float = 0.0, plain: bool = False) -> None:
        super().__init__()
        self.score = score
        self.dropout = dropout
        self.plain = plain

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        bias: Bias | None = None,
        causal: bool = False,
        layout: Layout | None = None,
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if layout is not None:
            # Layouts are made once and kept, which a compiler does not see.
            plainly = torch.compiler.disable(self.by_layout)
            found: Tensor = plainly(q, k, v, mask, bias, layout, dropout)
            return found
        bias = as_table(bias, torch.arange(q.shape[2], device=q.device), k.shape[2])
        if isinstance(self.score, Dot) and not self.plain and not asks_little(q):
            return fused(q, k, v, self.score.scale, mask, bias, causal, dropout)
        weights = F.dropout(weigh(q, k, self.score, mask, bias, causal), dropout)
        if v.shape[1] != q.shape[1]:
            v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        return weights @ v

    def by_layout(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        bias: Bias | None,
        layout: Layout,
        dropout: float,
    ) -> Tensor:
        """In blocks where that leaves most of them out, else all of it under a mask."""
        padding = mask is None or mask.shape[-2] == 1
        quick = padding and not self.plain and layout.share < MOST_SHARE
        if quick and isinstance(self.score, Dot) and not isinstance(bias, Tensor):
            return in_blocks(q, k, v, self.score.scale, layout, mask, bias, dropout)
        return self.forward(q, k, v, masks.both(mask, layout.mask(q.device)), bias)

    def zero_heads(self, result: Any, heads: list[int]) -> Any:
        """The same result with nothing from some heads."""
        return result.index_fill(1, torch.tensor(heads, device=result.device), 0.0)

    def seen(
        self,
        inputs: tuple[Any, ...],
        result: Any,
        heads: list[int],
        rows: Sequence[int] | None = None,
    ) -> Tensor:
        """The weights behind a call, for those who watch: made beside it, of the same queries and
        keys, some rows at a time.  -> (B, H, T, S), of the heads and rows asked for"""
        given = dict(zip(INPUTS, inputs, strict=False))
        q, k, mask, bias = given["q"], given["k"], given.get("mask"), given.get("bias")
        queries, keys, layout = q.shape[2], k.shape[2], given.get("layout")
        # A score with weights of its own has them for every head, so all are made, then chosen.
        whole = any(True for _ in self.score.parameters())
        if not whole:
            share = q.shape[1] // k.shape[1]
            q, k = q[:, heads], k[:, [head // share for head in heads]]
            if isinstance(bias, Tensor) and bias.shape[1] > 1:
                bias = bias[:, heads]
        wanted = torch.arange(queries, device=q.device)
        if rows is not None:
            wanted = wanted[list(rows)]
        out: Tensor = q.new_empty(len(q), len(heads), len(wanted), keys)
        for start in range(0, len(wanted), at_once := max(1, SEEN // (q.shape[1] * keys))):
            some = wanted[start : start + at_once]
            own = part_of(mask, some)
            if layout is not None:
                may = layout.seen_from(some, torch.arange(keys, device=q.device))
                own = masks.both(own, may if whole or may.shape[1] == 1 else may[:, heads])
            elif given.get("causal"):
                ahead = torch.arange(keys, device=q.device) <= (keys - queries + some)[:, None]
                own = masks.both(own, ahead[None, None])
            added = part_of(bias, some) if isinstance(bias, Tensor) else as_table(bias, some, keys)
            if added is not None and added.shape[1] > q.shape[1]:
                added = added[:, heads]
            found = weigh(q[:, :, some], k, self.score, own, added)
            out[:, :, start : start + at_once] = found[:, heads] if whole else found
        return out


INPUTS = ("q", "k", "v", "mask", "bias", "causal", "layout")
MOST_SHARE = 0.5  # of all blocks: with more, one kernel for all of them is quicker
SEEN = 2**21  # weights made at a time for those who watch: 8 MiB in float32


def as_table(bias: Bias | None, queries: Tensor, keys: int) -> Tensor | None:
    """What is added to the scores of some queries, where it is said by distance.  (1, H, T, S)"""
    if bias is None or isinstance(bias, Tensor):
        return bias
    return bias(torch.arange(keys, device=queries.device) - queries[:, None]).movedim(-1, 0)[None]


def part_of(table: Tensor | None, rows: Tensor) -> Tensor | None:
    """The rows of a mask or a bias, where it has one for each query.  (…, T or 1, S)"""
    return table if table is None or table.shape[-2] == 1 else table[..., rows, :]


def in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    layout: Layout,
    mask: Tensor | None,
    bias: Callable[[Tensor], Tensor] | None,
    dropout: float,
) -> Tensor:
    """Only the blocks that a pattern allows: by kernels on a GPU, else by gathering."""
    if bias is None and not dropout and has_kernel(layout, q):
        from .kernel import by_kernel

        return by_kernel(q, k, v, scale, layout, mask)
    return gathered(q, k, v, scale, layout, mask, bias, dropout)


def asks_little(q: Tensor) -> bool:
    """Whether many rows ask a thing or two each, as where a CPU writes several answers: products
    and a softmax are then up to four times quicker than the fused kernel."""
    if q.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return q.shape[0] >= MANY_ROWS and q.shape[2] <= FEW_QUERIES


MANY_ROWS, FEW_QUERIES = 8, 8


def fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    mask: Tensor | None,
    bias: Tensor | None,
    causal: bool,
    dropout: float,
) -> Tensor:
    """The same by torch's kernel, which never holds the weights."""
    if causal and (mask is not None or bias is not None or q.shape[-2] != k.shape[-2]):
        # The kernel's own flag knows neither a second mask nor a cache behind the queries.
        mask = masks.both(mask, masks.causal(q.shape[-2], k.shape[-2], q.device))
        causal = False
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
    grouped = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, mask, dropout, causal, scale=scale, enable_gqa=grouped
    )


class Attention(nn.Module):
    """Heads around `Attend`: project, split, attend, join, project (Vaswani et al. 2017, section
    3.2.2).

    query (B, T, D), memory (B, S, D) -> (B, T, D). Without a memory it looks at itself.
    """

    joined: Callable[[Tensor], Tensor] | None = None  # both products in one, for answering

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        score: nn.Module | None = None,
        position: NoPosition | None = None,
        key_heads: int | None = None,
        memory_width: int | None = None,
        head_width: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        pattern: Pattern | None = None,
        block: int = 64,
    ) -> None:
        super().__init__()
        assert head_width or width % heads == 0, f"{heads} heads cannot share a width of {width}"
        self.heads, self.key_heads = heads, key_heads or heads
        assert heads % self.key_heads == 0, f"{heads} heads cannot share {self.key_heads} keys"
        head_width = head_width or width // heads
        self.query = nn.Linear(width, heads * head_width, bias)
        self.memory = nn.Linear(memory_width or width, 2 * self.key_heads * head_width, bias)
        self.attend = Attend(score or ScaledDot(head_width), dropout)
        self.pattern, self.block = pattern, block
        self.output = nn.Linear(heads * head_width, width, bias)
        self.position = position or NoPosition()

    def ask(self, query: Tensor) -> Tensor:
        """(B, T, D) -> q (B, H, T, K)"""
        q: Tensor = self.query(query).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return q

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) -> k and v (B, H, S, K)"""
        kv: Tensor = self.memory(memory)
        k, v = kv.unflatten(-1, (2, self.key_heads, -1)).transpose(1, 3).unbind(2)
        return k, v

    def ask_and_remember(self, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Both of one sequence: while it learns by one product, which is faster than two, and where
        it answers too, if there is one that was made ready."""
        if torch.is_grad_enabled():
            parts = self.query, self.memory
            bias = None if self.query.bias is None else torch.cat([part.bias for part in parts])
            joined = F.linear(query, torch.cat([part.weight for part in parts]), bias)
        elif self.joined is not None:
            joined = self.joined(query)
        else:
            return self.ask(query), *self.remember(query)
        heads = joined.unflatten(-1, (self.heads + 2 * self.key_heads, -1)).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.key_heads, self.key_heads), 1)
        return q, k, v

    def forward(
        self,
        query: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Bias | None = None,
        causal: bool = False,
        positions: Tensor | None = None,
    ) -> Tensor:
        if memory is None:
            q, k, v = self.ask_and_remember(query)
        else:
            q, (k, v) = self.ask(query), self.remember(memory)
        if positions is not None:
            q, k = self.position.turn(q, positions), self.position.turn(k, positions)
        if memory is not None or self.pattern is None:
            return self.join(self.attend(q, k, v, mask, bias, causal))
        layout = laid_out(self.pattern, self.block, q.shape[2], self.heads, causal)
        if positions is not None and positions.dim() == 2:  # several texts, each by itself
            own = layout.seen_from(positions, positions[:, None, None])
            return self.join(self.attend(q, k, v, masks.both(mask, own), bias))
        return self.join(self.attend(q, k, v, mask, bias, False, layout))

    def step(self, query: Tensor, slot: Slot) -> Tensor:
        """The newest tokens look at themselves and all before them.  (B, T, D) -> (B, T, D)"""
        q, k, v = self.ask_and_remember(query)
        k, v = slot.write(self.position.turn(k, slot.places), v)
        q = self.position.turn(q, slot.places)
        if self.pattern is None:
            return self.join(self.attend(q, k, v, slot.mask, slot.bias))
        layout = laid_out(self.pattern, self.block, k.shape[2], self.heads, causal=True)
        if slot.used == 0 and q.shape[2] == k.shape[2]:  # the first that are read
            return self.join(self.attend(q, k, v, None, slot.bias, False, layout))
        mask = masks.both(slot.mask, layout.seen_from(slot.places, slot.held(k)))
        return self.join(self.attend(q, k, v, mask, slot.bias))

    def recall(self, query: Tensor, source: Source) -> Tensor:
        """The newest tokens look at a memory projected once.  (B, 1, D) -> (B, 1, D)

        Rows that share a source (the beams of one sentence) become its queries, so that its keys
        and values are stored and read once, not once a beam.
        """
        q = self.ask(query)  # (M·G, H, 1, K)
        q = q.squeeze(2).unflatten(0, (-1, source.group)).transpose(1, 2)  # (M, H, G, K)
        mixed = self.attend(q, source.keys, source.values, source.mask)
        return self.join(mixed.transpose(1, 2).flatten(0, 1).unsqueeze(2))

    def join(self, mixed: Tensor) -> Tensor:
        """(B, H, T, K) -> (B, T, D)"""
        out: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
        return out


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: str | nn.Module = "scaled-dot",
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention as a function: what was mixed, and the weights it was mixed by.

    (…, T, K), (…, S, K), (…, S, K) -> (…, T, K) and (…, T, S); the mask broadcasts to the weights.
    """
    if isinstance(score, str):
        if score not in SCORES:
            raise ValueError(f"score must be one of {', '.join(SCORES)}, but is '{score}'")
        score = SCORES[score](query.shape[-1]).to(query)
    lead = query.shape[:-2]
    q, k, v = (x.reshape(-1, 1, *x.shape[-2:]) for x in (query, key, value))
    if mask is not None:
        mask = mask.expand(*lead, query.shape[-2], key.shape[-2]).reshape(
            -1, 1, q.shape[-2], k.shape[-2]
        )
    weights = weigh(q, k, score, mask)
    mixed = weights @ v
    return mixed.reshape(*lead, *mixed.shape[-2:]), weights.reshape(*lead, *weights.shape[-2:])
