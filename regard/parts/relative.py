"""Attention by content and by distance, with a memory of what came before (Transformer-XL)."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .score import Dot
from .state import Slot


class Buckets(nn.Module):
    """What each head adds for a distance: near ones singly, far ones in buckets that widen.

    Half of the buckets are for one distance each; the others grow evenly in the logarithm up to
    `farthest`, and the last holds all beyond. Both ways, half of all are for keys after the query
    (Raffel et al. 2020, section 2.1).  (T,) or (B, T) and (S,) places -> bias (1 or B, H, T, S)
    """

    def __init__(
        self, heads: int, buckets: int = 32, farthest: int = 128, causal: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(buckets, heads))
        self.farthest, self.causal = farthest, causal
        single = buckets // (2 if causal else 4)
        assert 0 < single < farthest, (
            f"of {buckets} buckets, {single} are for single distances, and the farthest "
            f"({farthest}) must be beyond them"
        )

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        apart = keys - queries.view(-1, queries.shape[-1], 1)  # (1 or B, T, S)
        return self.at(apart).movedim(-1, 1)

    def at(self, distance: Tensor) -> Tensor:
        """What each head adds for a key so far after its query.  (…) -> (…, H)"""
        return F.embedding(self.of(distance), self.weight)

    def of(self, distance: Tensor) -> Tensor:
        """The bucket of a key so far after its query."""
        count, first = len(self.weight), torch.zeros_like(distance)
        if self.causal:
            distance = -distance.clamp_max(0)
        else:
            count //= 2
            first, distance = count * (distance > 0), distance.abs()
        single = count // 2
        growth = (distance.clamp_min(1).float() / single).log() / math.log(self.farthest / single)
        widening = single + (growth * (count - single)).long()
        return first + torch.where(distance < single, distance, widening.clamp_max(count - 1))


def distances(first: int, last: int, rates: Tensor) -> Tensor:
    """Sinusoids of the distances first, first - 1, …, last.  -> (first - last + 1, D)

    The sines stand before the cosines (Dai et al. 2019), not beside them.
    """
    steps = torch.arange(first, last - 1, -1, device=rates.device)
    angles = steps[:, None].float() * rates.float()
    return torch.cat((angles.sin(), angles.cos()), -1)


def shift(scores: Tensor, keys: int) -> Tensor:
    """Scores by distance as scores by key.  (…, T, S + T - 1) -> (…, T, S)

    Column c of row i stands for the distance S - 1 - c. Row i is a query at place S - T + i, so
    its key j is at column T - 1 - i + j. With T = 2 and S = 2, columns 1 0 -1: row 0 takes 0 -1,
    row 1 takes 1 0.
    """
    queries, width = scores.shape[-2:]
    flat = F.pad(scores, (0, 1)).flatten(-2)  # rows are one longer, so each start moves by one
    flat = flat[..., queries - 1 : queries - 1 + queries * width]
    shifted: Tensor = flat.unflatten(-1, (queries, width))[..., :keys]
    return shifted


class RelativeAttention(Attention):
    """(q + u)·k by content and (q + v)·r by distance, r = W sinusoid(distance).

    Dai et al. 2019, section 3.3. query (B, T, D), past (B, M, D) -> (B, T, D); keys are the past
    and the queries themselves, S = M + T.
    """

    rates: Tensor

    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = False) -> None:
        super().__init__(width, heads, dropout=dropout, bias=bias)
        assert width % 2 == 0, f"an odd width ({width}) cannot hold pairs of sine and cosine"
        self.distance = nn.Linear(width, width, bias=False)
        self.by_content = nn.Parameter(torch.zeros(heads, 1, width // heads))  # u
        self.by_distance = nn.Parameter(torch.zeros(heads, 1, width // heads))  # v
        rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        self.register_buffer("rates", rates.float(), persistent=False)

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        past: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        seen = query if past is None else torch.cat((past, query), 1)  # (B, S, D)
        k, v = self.remember(seen)
        return self.look(self.ask(query), k, v, mask, causal)

    def look(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Queries that stand at the last places of the keys.  q (B, H, T, K), k, v (B, H, S, K)"""
        bias = shift(self.apart(q, k.shape[2] - 1, 1 - q.shape[2]), k.shape[2])
        return self.join(self.attend(q + self.by_content, k, v, mask, bias, causal))

    def look_from(
        self, q: Tensor, places: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Queries that stand anywhere among the keys, or right after them.  places (B, T)"""
        keys = k.shape[2]
        by_distance = self.apart(q, keys, 1 - keys)  # (B, H, T, 2S)
        columns = keys - places[:, :, None] + torch.arange(keys, device=q.device)  # (B, T, S)
        bias = by_distance.gather(3, columns[:, None].expand(-1, q.shape[1], -1, -1))
        return self.join(self.attend(q + self.by_content, k, v, mask, bias))

    def apart(self, q: Tensor, first: int, last: int) -> Tensor:
        """(q + v)·r, scaled, for the distances from first down to last."""
        r = self.distance(distances(first, last, self.rates).to(q.dtype))  # (…, D)
        r = r.unflatten(-1, (self.heads, -1)).permute(1, 2, 0)  # (H, K, distances)
        scale = cast(Dot, self.attend.score).scale
        scores: Tensor = (q + self.by_distance) @ r.to(q.dtype) * scale
        return scores

    def step(self, query: Tensor, slot: Slot) -> Tensor:
        """The newest tokens look at themselves and all before them.  (B, T, D) -> (B, T, D)"""
        q = self.ask(query)
        k, v = slot.write(*self.remember(query))
        if slot.used is not None:
            return self.look(q, k, v, slot.mask)
        return self.look_from(q, slot.places.expand(len(query), -1), k, v, slot.mask)
