"""GPT: the decoder alone, as a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Asked, Batch, Ids, Label, ModelOutput, Running, Sizes, Tokens
from ..model import Looks
from ..parts import mask as masks
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.pool import last
from ..parts.position import POSITIONS, STRETCHES, NoPosition, Rotary
from ..parts.score import SCORES
from ..parts.state import Rolling
from .door import make_door, table_of
from .patterned import PatternSettings, with_more_places
from .stack import Stack


@dataclass(frozen=True)
class GPTSettings(PatternSettings):
    """Sizes and choices; the defaults are GPT-2's smallest."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 768
    depth: Annotated[int, Gt(0), Le(1000), "blocks"] = 12
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 12
    key_heads: Annotated[
        int, Ge(0), "heads of keys and values, each shared by several queries; 0: heads"
    ] = 0
    hidden: Annotated[int, Ge(0), Le(2**20), "inner width of the feed-forward; 0: 4 × width"] = 0
    dropout: Annotated[float, Ge(0), Lt(1), "on embeddings and around each sub-layer"] = 0.1
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.0
    score: Annotated[str, SCORES, "how a query and a key are compared"] = "scaled-dot"
    position: Annotated[str, POSITIONS, "how places are told apart"] = "learned"
    positions: Annotated[int, Gt(0), Le(2**20), "longest text, in tokens"] = 1024
    rotary_base: Annotated[float, Gt(0), "of rotary positions: how slowly the slowest turns"] = (
        10000.0
    )
    rotary_stretch: Annotated[
        str, STRETCHES, "of rotary positions, for longer texts than were learned: which pairs turn "
        "more slowly",
    ] = "none"  # fmt: skip
    rotary_factor: Annotated[
        float, Ge(1), "by rotary_stretch: how many times as many positions as were learned"
    ] = 1.0
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "layer"
    epsilon: Annotated[float, Gt(0), "the norm's guard against division by zero"] = 1e-5
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "pre"
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "gelu-tanh"
    bias: Annotated[bool, "biases in the linear layers"] = True
    tie: Annotated[bool, "write with the vectors that it reads with"] = True


class GPT(Stack):
    """Each token looks at itself and those before it (Radford et al. 2018, 2019).

    -> logits (B, T, V). With rotary positions, RMS norm, a gated feed-forward, no biases and
    fewer key heads it is Llama's architecture.
    """

    Settings = GPTSettings
    reads = (Running, Ids)
    answers = (Tokens, Label)
    doors, stacks = ("embedding",), ("blocks",)
    looks: ClassVar[Looks] = {"blocks.*.attention": ("inputs", "inputs")}
    heads = ("output",)
    packs = True

    def __init__(self, sizes: Sizes, settings: GPTSettings = GPTSettings()) -> None:
        super().__init__(sizes, settings)
        s = settings
        pattern = s.pattern_of(0)["pattern"]
        bound = pattern.remembered() if pattern is not None else None
        self.rolling = None if bound is None else Rolling(*bound)
        self.kept = None if self.rolling is None else self.rolling.room
        # What forgets goes on for ever, where every place can be told from those near to it.
        goes_on = self.rolling is not None and s.position in ("rotary", "none")
        self.longest = None if goes_on else s.positions
        self.embedding = make_door(sizes, s.width, self._position(), s.dropout, scale=1.0)
        self.blocks = nn.ModuleList(self._block(layer) for layer in range(s.depth))
        final = RESIDUALS[s.residual].final
        self.norm = NORMS[s.norm](s.width, s.epsilon) if final else nn.Identity()
        words = Output(s.width, sizes.target, table_of(self.embedding) if s.tie else None)
        if sizes.asked is Label:  # the words are told too, for their loss beside the class's
            self.words, self.output = words, Output(s.width, sizes.classes)
        else:
            self.output = words
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                # Every block adds twice to the residual path; together they keep its variance.
                adds = name.endswith(("attention.output.weight", "feedforward.narrow.weight"))
                nn.init.normal_(weight, std=0.02 * ((2 * s.depth) ** -0.5 if adds else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def states(self, batch: Batch[Running | Ids, Asked]) -> ModelOutput:
        read, x = batch.read, self.read(batch.read)
        if isinstance(read, Ids):  # the last token has seen the whole text
            return ModelOutput(last(x, read.lengths)[:, None], words=x)
        return ModelOutput(x)

    def read(self, read: Running | Ids) -> Tensor:
        """-> (B, T, D)"""
        positions, mask = torch.arange(read.ids.shape[1], device=read.ids.device), None
        if isinstance(read, Running) and read.documents is not None:
            positions, mask = masks.places(read.documents), masks.same(read.documents)
        x = self.embedding.enter(read, positions).vectors
        for block in self.blocks:
            x = block(x, mask=mask, causal=True, positions=positions)
        out: Tensor = self.norm(x)
        return out

    def fitted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return with_more_places(weights, dict(self.named_parameters()))

    def _block(self, layer: int) -> Block:
        s = self.settings
        attention = Attention(
            s.width,
            s.heads,
            score=SCORES[s.score](s.width // s.heads, s.heads),
            position=self._position() if POSITIONS[s.position].turns else None,
            key_heads=s.key_heads or s.heads,
            dropout=s.attention_dropout,
            **s.pattern_of(layer),
            bias=s.bias,
        )

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width, s.epsilon), s.dropout)

        feedforward = FEEDFORWARDS[s.feedforward](s.width, s.hidden or 4 * s.width, bias=s.bias)
        return Block(attention, feedforward, residual)

    def _position(self) -> NoPosition:
        s = self.settings
        if s.position == "rotary":
            turns = s.rotary_base, s.rotary_stretch, s.rotary_factor
            return Rotary(s.width, s.heads, s.positions, *turns)
        return POSITIONS[s.position](s.width, s.heads, s.positions)
