"""The Transformer of 2017: an encoder reads the source, a decoder writes the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Batch, Heard, ModelOutput, Sizes, Tensors, Words
from ..model import Looks, Model
from ..parts import mask as masks
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.conformer import ConformerBlock, Convolution
from ..parts.embedding import Embedding
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.position import POSITIONS, NoPosition
from ..parts.score import SCORES
from ..parts.state import Cache, Memory, State
from .door import DOORS, make_door, table_of
from .patterned import PatternSettings


@dataclass(frozen=True)
class TransformerSettings(PatternSettings):
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
    scale_embedding: Annotated[bool, "word vectors times √width, as in 2017"] = True
    source_positions: Annotated[
        int, Ge(0), Le(2**20), "the same of what is read, where it differs; 0: positions"
    ] = 0
    convolution: Annotated[
        int,
        Ge(0),
        Le(1023),
        "places that a convolution in each block of the encoder sees (Conformer); 0: there is none",
    ] = 0
    ctc: Annotated[
        bool, "tell from each place of what is read alone, too, what is written there (CTC)"
    ] = False


class Transformer(Model):
    """Attention is all you need: figure 1 of Vaswani et al. 2017.  -> logits (B, T, V)"""

    Settings = TransformerSettings
    reads = DOORS  # whatever has a door
    answers = (Words,)
    doors, stacks, heads = ("source", "target"), ("encoder", "decoder"), ("ctc",)
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
        room, places = s.source_positions or s.positions, math.prod(sizes.grid)
        assert s.position != "learned" or places <= room, (
            f"what is read may have {places} places, but model.source_positions tells {room} apart"
        )
        self._turns = POSITIONS[s.position].turns
        place = self._position(s.source_positions)
        scale = None if s.scale_embedding else 1.0
        self.source = make_door(sizes, s.width, place, s.dropout, scale)
        self.target = Embedding(sizes.target, s.width, self._position(), s.dropout, scale)
        if s.tie == "all" and sizes.shared:
            self.target.tokens = table_of(self.source)
        tied = None if s.tie == "none" else self.target.tokens
        self.output = Output(s.width, sizes.target, tied, s.output_bias)
        self.encoder = nn.ModuleList(
            self._conformer(layer) if s.convolution else self._block(layer)
            for layer in range(s.depth)
        )
        self.decoder = nn.ModuleList(self._block() for _ in range(s.decoder_depth or s.depth))
        # Post-norm sub-layers leave their output normed; a pre-norm stack needs one norm at its
        # end.
        final = RESIDUALS[s.residual].final
        self.encoder_norm = NORMS[s.norm](s.width) if final else nn.Identity()
        self.decoder_norm = NORMS[s.norm](s.width) if final else nn.Identity()
        # One entry more, the last: nothing is told here.
        self.ctc = Output(s.width, sizes.target + 1, bias=True) if s.ctc else None

    def states(self, batch: Batch[Tensors, Words]) -> ModelOutput:
        memory, memory_mask = self.encode(batch.read)
        x = self.target(batch.asked.inputs)  # (B, T, D)
        positions = torch.arange(x.shape[1], device=x.device)
        for block in self.decoder:
            # Padding stands after the words, where causal queries never look.
            x = block(x, causal=True, positions=positions, memory=memory, memory_mask=memory_mask)
        return ModelOutput(self.decoder_norm(x), heard=self.hear(memory, memory_mask))

    def hear(self, memory: Tensor, mask: Tensor) -> Heard | None:
        """What CTC is told from: each place of the source."""
        if self.ctc is None:
            return None
        return Heard(memory, mask.expand(*memory.shape[:1], 1, 1, memory.shape[1]).sum((1, 2, 3)))

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
        heard = self.hear(memory, mask)
        if heard is not None and self.ctc is not None:
            heard = heard._replace(states=self.ctc(heard.states))
        return State(cache, Memory(keys, values, mask), heard)

    def step(self, last: Tensor, state: State[Cache]) -> tuple[Tensor, State[Cache]]:
        """Scores of the next token after `last`.  (B,) -> logits (B, V)"""
        assert state.memory is not None
        slots, sources = state.past.open(1), state.memory.open()
        x = self.target(last[:, None], slots[0].places)  # (B, 1, D)
        for block, slot, source in zip(self.decoder, slots, sources, strict=True):
            x = block.step(x, slot, source)  # type: ignore[operator]
        state.past.advance(1)
        return self.output(self.decoder_norm(x[:, -1])), state

    def _attention(self, position: NoPosition | None = None, layer: int | None = None) -> Attention:
        s = self.settings
        score = SCORES[s.score](s.width // s.heads, s.heads)
        pattern = {} if layer is None else s.pattern_of(layer)
        return Attention(
            s.width, s.heads, score=score, position=position, dropout=s.attention_dropout, **pattern
        )

    def _looking(self, layer: int | None) -> Attention:
        """Attention to itself, of which a position may turn queries and keys; in the encoder's
        layers, by the pattern."""
        return self._attention(self._position() if self._turns else None, layer)

    def _feedforward(self) -> nn.Module:
        s = self.settings
        return FEEDFORWARDS[s.feedforward](s.width, s.hidden, s.hidden_dropout)

    def _residual(self) -> PostNorm:
        s = self.settings
        return RESIDUALS[s.residual](NORMS[s.norm](s.width), s.dropout)

    def _block(self, layer: int | None = None) -> Block:
        """One of the encoder's layers, or of the decoder's, which also looks at the source."""
        recall = self._attention() if layer is None else None
        looking = self._looking(layer)
        return self._begun(Block(looking, self._feedforward(), self._residual, recall))

    def _conformer(self, layer: int) -> Block:
        s = self.settings
        near = Convolution(s.width, s.convolution)
        block = ConformerBlock(
            self._looking(layer), self._feedforward, self._residual, near, NORMS[s.norm](s.width)
        )
        return self._begun(block)

    def _begun(self, block: Block) -> Block:
        """With the Xavier bounds of the reference implementation."""
        s = self.settings
        for name, weight in block.named_parameters():
            if weight.dim() == 2:
                gain = 2**-0.5 if name.endswith(("query.weight", "memory.weight")) else 1.0
                fan = min(weight.shape) + (s.hidden if "feedforward" in name else s.width)
                bound = gain * (6 / fan) ** 0.5
                nn.init.uniform_(weight, -bound, bound)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        return block

    def _position(self, places: int = 0) -> NoPosition:
        s = self.settings
        return POSITIONS[s.position](s.width, s.heads, places or s.positions)
