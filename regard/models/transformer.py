"""The Transformer of 2017: an encoder reads the source, a decoder writes the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Batch, ModelOutput, Sizes, Tensors, Words
from ..model import Looks, Model
from ..parts import mask as masks
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.embedding import Embedding
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.position import POSITIONS, NoPosition
from ..parts.score import SCORES
from ..parts.state import Cache, Memory, State
from .door import DOORS, make_door, table_of


@dataclass(frozen=True)
class TransformerSettings:
    """Sizes and choices; the defaults are the paper's base model."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 512
    depth: Annotated[int, Gt(0), Le(1000), "blocks on each side"] = 6
    decoder_depth: Annotated[
        int, Ge(0), Le(1000), "blocks of the decoder where it differs; 0: depth"
    ] = 0
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 8
    hidden: Annotated[int, Gt(0), Le(2**20), "inner width of the feed-forward"] = 2048
    dropout: Annotated[float, Ge(0), Lt(1), "on embeddings and around each sub-layer"] = 0.1
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.0
    hidden_dropout: Annotated[float, Ge(0), Lt(1), "inside the feed-forward"] = 0.0
    score: Annotated[str, SCORES, "how a query and a key are compared"] = "scaled-dot"
    position: Annotated[str, POSITIONS, "how places are told apart"] = "sinusoid"
    positions: Annotated[
        int, Gt(0), Le(2**20), "longest sequence that learned positions can place"
    ] = 1024
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "layer"
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "post"
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "relu"
    tie: Annotated[
        Literal["all", "target", "none"], "which of source, target and output embeddings are one"
    ] = "all"
    output_bias: Annotated[bool, "a bias on the vocabulary scores"] = False


class Transformer(Model):
    """Attention is all you need: figure 1 of Vaswani et al. 2017.  -> logits (B, T, V)"""

    Settings = TransformerSettings
    reads = DOORS  # whatever has a door
    answers = (Words,)
    doors, stacks = ("source", "target"), ("encoder", "decoder")
    encoder_names: ClassVar[Mapping[str, str]] = {
        "embedding": "source",
        "blocks": "encoder",
        "norm": "encoder_norm",
    }
    looks: ClassVar[Looks] = {
        "encoder.*.attention": ("source", "source"),
        "decoder.*.attention": ("outputs", "inputs"),
        "decoder.*.cross": ("outputs", "source"),
    }

    def __init__(self, sizes: Sizes, settings: TransformerSettings = TransformerSettings()) -> None:
        super().__init__(sizes, settings)
        s = settings
        # The longest sequence that can be placed; None: any.
        self.longest = s.positions if s.position == "learned" else None
        self.source = make_door(sizes, s.width, self._position(), s.dropout)
        self.target = Embedding(sizes.target, s.width, self._position(), s.dropout)
        if s.tie == "all" and sizes.shared:
            self.target.tokens = table_of(self.source)
        tied = None if s.tie == "none" else self.target.tokens
        self.output = Output(s.width, sizes.target, tied, s.output_bias)
        self.encoder = nn.ModuleList(self._block(cross=False) for _ in range(s.depth))
        self.decoder = nn.ModuleList(
            self._block(cross=True) for _ in range(s.decoder_depth or s.depth)
        )
        # Post-norm sub-layers leave their output normed; a pre-norm stack needs one norm at its
        # end.
        final = RESIDUALS[s.residual].final
        self.encoder_norm = NORMS[s.norm](s.width) if final else nn.Identity()
        self.decoder_norm = NORMS[s.norm](s.width) if final else nn.Identity()

    def states(self, batch: Batch[Tensors, Words]) -> ModelOutput:
        memory, memory_mask = self.encode(batch.read)
        x = self.target(batch.asked.inputs)  # (B, T, D)
        positions = torch.arange(x.shape[1], device=x.device)
        for block in self.decoder:
            # Padding stands after the words, where causal queries never look.
            x = block(x, causal=True, positions=positions, memory=memory, memory_mask=memory_mask)
        return ModelOutput(self.decoder_norm(x))

    def encode(self, read: Tensors) -> tuple[Tensor, Tensor]:
        """What the decoder attends to, and which of it is real.  -> (B, S, D), (B, 1, 1, S)"""
        x, lengths, bias = self.source.enter(read)  # (B, S, D)
        mask = masks.real(x, lengths)
        positions = torch.arange(x.shape[1], device=x.device)
        for block in self.encoder:
            x = block(x, mask=mask, bias=bias, positions=positions)
        return self.encoder_norm(x), mask

    def start(self, batch: Batch[Tensors, Words]) -> State[Cache]:
        """Read the source once; each decoder block projects its keys and values once."""
        memory, mask = self.encode(batch.read)
        kept = [block.cross.remember(memory) for block in self.decoder]  # type: ignore[union-attr,operator]
        keys, values = ([kv[i].contiguous() for kv in kept] for i in (0, 1))
        s = self.settings
        cache = Cache.empty(len(self.decoder), len(memory), s.heads, s.width // s.heads, memory)
        return State(cache, Memory(keys, values, mask))

    def step(self, last: Tensor, state: State[Cache]) -> tuple[Tensor, State[Cache]]:
        """Scores of the next token after `last`.  (B,) -> logits (B, V)"""
        assert state.memory is not None
        slots, sources = state.past.open(1), state.memory.open()
        x = self.target(last[:, None], slots[0].places)  # (B, 1, D)
        for block, slot, source in zip(self.decoder, slots, sources, strict=True):
            x = block.step(x, slot, source)  # type: ignore[operator]
        state.past.advance(1)
        return self.output(self.decoder_norm(x[:, -1])), state

    def _block(self, cross: bool) -> Block:
        s = self.settings

        def attention(position: NoPosition | None = None) -> Attention:
            score = SCORES[s.score](s.width // s.heads, s.heads)
            return Attention(
                s.width, s.heads, score=score, position=position, dropout=s.attention_dropout
            )

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width), s.dropout)

        turning = self._position() if POSITIONS[s.position].turns else None
        block = Block(
            attention(turning),
            FEEDFORWARDS[s.feedforward](s.width, s.hidden, s.hidden_dropout),
            residual,
            attention() if cross else None,
        )
        for name, weight in block.named_parameters():
            if weight.dim() == 2:  # the Xavier bounds of the reference implementation
                gain = 2**-0.5 if name.endswith(("query.weight", "memory.weight")) else 1.0
                fan = min(weight.shape) + (s.hidden if "feedforward" in name else s.width)
                bound = gain * (6 / fan) ** 0.5
                nn.init.uniform_(weight, -bound, bound)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        return block

    def _position(self) -> NoPosition:
        s = self.settings
        return POSITIONS[s.position](s.width, s.heads, s.positions)
