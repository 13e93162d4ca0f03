"""A stack of blocks that writes on, token by token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..model import AnyBatch, Model
from ..parts.block import Block
from ..parts.output import Output
from ..parts.state import Cache, Rolling, State
from .door import Door


class Stack(Model):
    """Door, blocks, norm and output; what later tokens need of earlier ones is in a cache."""

    embedding: Door
    blocks: nn.ModuleList
    norm: nn.Module
    output: Output
    rolling: Rolling | None = None  # what is kept of a long text; None: all of it

    def start(self, batch: AnyBatch) -> State[Cache]:
        """Read a prompt, all but its last token, which the first step reads."""
        first = self.blocks[0]
        assert isinstance(first, Block)
        part, weight = first.attention, self.output.weight
        head_width = part.query.out_features // part.heads
        cache = Cache.empty(
            len(self.blocks), len(batch), part.key_heads, head_width, weight, self.rolling
        )
        state = State(cache)
        if batch.read.ids.shape[1]:
            self.read_on(batch.read.ids, state)
        return state

    def extend(self, tokens: Tensor, state: State[Cache]) -> tuple[Tensor, State[Cache]]:
        """Scores after each of several tokens.  (B, T) -> logits (B, T, V)"""
        return self.output(self.norm(self.read_on(tokens, state))), state

    def step(self, last: Tensor, state: State[Cache]) -> tuple[Tensor, State[Cache]]:
        """Scores of the next token after `last`.  (B,) -> logits (B, V)"""
        logits, state = self.extend(last[:, None], state)
        return logits[:, -1], state

    def read_on(self, tokens: Tensor, state: State[Cache]) -> Tensor:
        """The newest tokens through all blocks.  (B, T) -> (B, T, D)"""
        read = []
        for some in tokens.split(state.past.pieces(tokens.shape[1]), 1):
            slots = state.past.open(some.shape[1])
            x: Tensor = self.embedding(some, slots[0].places)
            for block, slot in zip(self.blocks, slots, strict=True):
                x = block.step(x, slot)  # type: ignore[operator]
            state.past.advance(some.shape[1])
            read.append(x)
        return torch.cat(read, 1) if len(read) > 1 else read[0]
