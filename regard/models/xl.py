"""Transformer-XL: a language model that remembers the segments before."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Batch, ModelOutput, Running, Sizes, Tensors, Tokens
from ..model import Looks
from ..parts import mask as masks
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.position import NoPosition
from ..parts.relative import RelativeAttention
from .door import make_door, table_of
from .stack import Stack


@dataclass(frozen=True)
class XLSettings:
    """Sizes and choices; the defaults are small."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 400
    depth: Annotated[int, Gt(0), Le(1000), "blocks"] = 8
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 8
    hidden: Annotated[int, Ge(0), Le(2**20), "inner width of the feed-forward; 0: 4 × width"] = 0
    memory: Annotated[int, Ge(0), "tokens before the segment that are remembered in training"] = 64
    evaluation_memory: Annotated[
        int, Ge(0), "tokens that are remembered when scoring; 0: memory"
    ] = 0
    dropout: Annotated[float, Ge(0), Lt(1), "on embeddings and around each sub-layer"] = 0.1
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.0
    hidden_dropout: Annotated[float, Ge(0), Lt(1), "inside the feed-forward"] = 0.0
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "layer"
    epsilon: Annotated[float, Gt(0), "the norm's guard against division by zero"] = 1e-5
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "post"
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "relu"
    tie: Annotated[bool, "write with the vectors that it reads with"] = True


class XL(Stack):
    """Queries look at their segment and at a memory of the one before (Dai et al. 2019).

    -> logits (B, T, V). The memory is every block's input at the last tokens, without
    gradient: (B, L, M, D).
    """

    Settings = XLSettings
    reads: ClassVar[Collection[type[Tensors]]] = (Running,)
    answers = (Tokens,)
    doors, stacks, entered = ("embedding",), ("blocks",), "through"
    looks: ClassVar[Looks] = {"blocks.*.attention": ("inputs", "inputs")}
    carries = True
    packs = True
    longest = None  # distances, unlike positions, have no end

    def __init__(self, sizes: Sizes, settings: XLSettings = XLSettings()) -> None:
        super().__init__(sizes, settings)
        s = settings
        self.embedding = make_door(sizes, s.width, NoPosition(), s.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(s.depth))
        final = RESIDUALS[s.residual].final
        self.norm = NORMS[s.norm](s.width, s.epsilon) if final else nn.Identity()
        self.dropout = nn.Dropout(s.dropout)
        self.output = Output(
            s.width, sizes.target, table_of(self.embedding) if s.tie else None, bias=True
        )
        for name, weight in self.blocks.named_parameters():
            if weight.dim() > 1:  # the matrices, u and v
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    @property
    def memory(self) -> int:
        """Tokens that are remembered now: scoring may look further back than training did."""
        s: XLSettings = self.settings
        return s.memory if self.training else s.evaluation_memory or s.memory

    def states(self, batch: Batch[Running, Tokens]) -> ModelOutput:
        read = batch.read
        (past,) = batch.past or self.begin(read.ids.shape[0])
        x = self.embedding(read.ids)  # (B, T, D)
        mask = masks.same(read.documents) if read.documents is not None else None
        met: list[Tensor] = []
        for layer, block in enumerate(self.blocks):
            met.append(x.detach())
            assert isinstance(block, Block)
            known = block.attention_residual.before(past[:, layer])
            look = partial(block.attention, past=known, mask=mask, causal=True)
            x = block.through(x, look, None)
        return ModelOutput(self.dropout(self.norm(x)), self.remember(past, met))

    def remember(self, past: Tensor, met: list[Tensor]) -> tuple[Tensor, ...]:
        """The last inputs of every block, of what was remembered and met.  -> (B, L, M, D)"""
        seen = torch.cat((past, torch.stack(met, 1).to(past.dtype)), 2)  # (B, L, M + T, D)
        return (seen[:, :, max(0, seen.shape[2] - self.memory) :],)

    def begin(self, rows: int) -> tuple[Tensor, ...]:
        """Nothing remembered: (B, L, 0, D)."""
        s = self.settings
        return (table_of(self.embedding).weight.new_zeros(rows, s.depth, 0, s.width),)

    def _block(self) -> Block:
        s = self.settings

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width, s.epsilon), s.dropout)

        return Block(
            RelativeAttention(s.width, s.heads, s.attention_dropout),
            FEEDFORWARDS[s.feedforward](s.width, s.hidden or 4 * s.width, s.hidden_dropout),
            residual,
        )
