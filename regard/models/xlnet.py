"""XLNet: a language model of all orders, on the core of Transformer-XL."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..batch import Batch, ModelOutput, Permuted, Running, Sizes, Tensors, Tokens
from ..model import Looks
from ..parts.block import Block
from ..parts.relative import RelativeAttention
from ..parts.state import Cache, State
from .door import TokenDoor, table_of
from .xl import XL, XLSettings


class XLNetSettings(XLSettings):
    """As Transformer-XL's."""


class XLNet(XL):
    """Two streams (Yang et al. 2019, section 2.3): content knows its own token, query does not.

    The query stream starts from one learned vector everywhere, and looks at the content of the
    tokens that come before its own in the order. Permuted text -> logits (B, M, V); running text,
    whose order is its own, -> logits (B, T, V).
    """

    Settings = XLNetSettings
    reads: ClassVar[Collection[type[Tensors]]] = (Running, Permuted)
    packs = False
    looks: ClassVar[Looks] = {
        "blocks.*.attention": [("query", "outputs", "inputs"), ("content", "inputs", "inputs")]
    }

    def __init__(self, sizes: Sizes, settings: XLSettings = XLNetSettings()) -> None:
        super().__init__(sizes, settings)
        assert isinstance(self.embedding, TokenDoor)
        self.embedding.scale = 1.0
        nn.init.normal_(table_of(self.embedding).weight, std=0.02)
        self.unseen = nn.Parameter(torch.randn(settings.width) * 0.02)

    def states(self, batch: Batch[Running | Permuted, Tokens]) -> ModelOutput:
        (past,) = batch.past or self.begin(batch.read.ids.shape[0])
        content, query, places, may_see, may_ask = self.streams(batch.read)
        memory = past.shape[2]
        # What is remembered may be seen by all.
        may_see = nn.functional.pad(may_see, (memory, 0), value=True)
        may_ask = nn.functional.pad(may_ask, (memory, 0), value=True)
        met: list[Tensor] = []
        for layer, block in enumerate(self.blocks):
            met.append(content.detach())
            assert isinstance(block, Block)
            part = block.attention
            assert isinstance(part, RelativeAttention)
            seen = torch.cat((past[:, layer].to(content.dtype), content), 1)
            k, v = part.remember(block.attention_residual.before(seen))
            look = partial(_look, part, k, v, may_see)
            ask = partial(_look_from, part, k, v, may_ask, places + memory)
            query = block.through(query, ask, None)
            content = block.through(content, look, None)
        return ModelOutput(self.dropout(self.norm(query)), self.remember(past, met))

    def streams(self, read: Running | Permuted) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Both streams' first vectors, where the queries stand, and who may see whom.

        -> (B, T, D), (B, M, D), (B, M), (B, 1, T, T), (B, 1, M, T)
        """
        ids = read.ids
        if isinstance(read, Permuted):
            ranks, places = read.ranks, read.targets
            own = ranks.gather(1, places)
        else:  # the text's own order: the query after token i stands at i + 1
            ranks = torch.arange(1, ids.shape[1] + 1, device=ids.device).expand_as(ids)
            places, own = ranks, ranks + 1
        may_see = (ranks[:, None, :] <= ranks[:, :, None])[:, None]
        may_ask = (ranks[:, None, :] < own[:, :, None])[:, None]
        assert isinstance(self.embedding, TokenDoor)
        query = self.embedding.dropout(self.unseen.expand(*places.shape, -1))
        return self.embedding(ids), query, places, may_see, may_ask

    def extend(self, tokens: Tensor, state: State[Cache]) -> tuple[Tensor, State[Cache]]:
        """Scores after each of several tokens.  (B, T) -> logits (B, T, V)"""
        content = self.embedding(tokens)  # (B, T, D)
        query = self.unseen.expand_as(content)
        slots = state.past.open(tokens.shape[1])
        places = slots[0].places.expand(len(tokens), -1)  # (B, T)
        for block, slot in zip(self.blocks, slots, strict=True):
            assert isinstance(block, Block)
            part = block.attention
            assert isinstance(part, RelativeAttention)
            k, v = slot.write(*part.remember(block.attention_residual.before(content)))
            # The query after a token may see what that token sees, itself counted.
            ask = partial(_look_from, part, k, v, slot.mask, places + 1)
            look = partial(_look_from, part, k, v, slot.mask, places)
            query = block.through(query, ask, None)
            content = block.through(content, look, None)
        state.past.advance(tokens.shape[1])
        return self.output(self.norm(query)), state


def _look(part: RelativeAttention, k: Tensor, v: Tensor, mask: Tensor, x: Tensor) -> Tensor:
    return part.look(part.ask(x), k, v, mask)


def _look_from(
    part: RelativeAttention, k: Tensor, v: Tensor, mask: Tensor | None, places: Tensor, x: Tensor
) -> Tensor:
    return part.look_from(part.ask(x), places, k, v, mask)
