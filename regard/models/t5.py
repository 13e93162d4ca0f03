"""T5: every task is text to text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Batch, Ids, ModelOutput, Sizes, Tensors, Words
from ..model import Looks, Model
from ..parts import mask as masks
from ..parts.attention import Attention, Bias
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.position import NoPosition
from ..parts.relative import Buckets
from ..parts.score import SCORES
from ..parts.state import Cache, Memory, State
from .door import make_door, table_of
from .patterned import PatternSettings


@dataclass(frozen=True)
class T5Settings(PatternSettings):
    """Sizes and choices; the defaults are T5's small model."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 512
    depth: Annotated[int, Gt(0), Le(1000), "blocks on each side"] = 6
    decoder_depth: Annotated[
        int, Ge(0), Le(1000), "blocks of the decoder where it differs; 0: depth"
    ] = 0
    heads: Annotated[int, Gt(0), "attention heads"] = 8
    head_width: Annotated[int, Ge(0), Le(2**16), "width of a head; 0: width / heads"] = 0
    hidden: Annotated[int, Gt(0), Le(2**20), "inner width of the feed-forward"] = 2048
    dropout: Annotated[float, Ge(0), Lt(1), "on embeddings, sub-layers and inside them"] = 0.1
    score: Annotated[str, SCORES, "how a query and a key are compared"] = "dot"
    buckets: Annotated[int, Gt(3), "of distances that a head tells apart"] = 32
    farthest: Annotated[int, Gt(1), "distance from which all are in one bucket"] = 128
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "rms"
    epsilon: Annotated[float, Gt(0), "the norm's guard against division by zero"] = 1e-6
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "pre"
    feedforward: Annotated[str, FEEDFORWARDS, "relu: T5; gated-gelu: T5 v1.1"] = "relu"
    tie: Annotated[bool, "write with the vectors that it reads with (T5, not v1.1)"] = True
    scaled: Annotated[bool, "divide by √width before writing (T5, not v1.1)"] = True


class T5(Model):
    """An encoder and a decoder whose heads add a number for each distance; no layer has a bias.

    Raffel et al. 2020.  -> logits (B, T, V)
    """

    Settings = T5Settings
    reads = (Ids,)
    answers = (Words,)
    doors, stacks = ("embedding",), ("encoder", "decoder")
    looks: ClassVar[Looks] = {
        "encoder.*.attention": ("source", "source"),
        "decoder.*.attention": ("outputs", "inputs"),
        "decoder.*.cross": ("outputs", "source"),
    }
    longest = None  # any distance has a bucket

    def __init__(self, sizes: Sizes, settings: T5Settings = T5Settings()) -> None:
        super().__init__(sizes, settings)
        assert sizes.shared, "T5 reads and writes one vocabulary; set text.joint=true"
        s = settings
        self.embedding = make_door(sizes, s.width, NoPosition(), s.dropout, scale=1.0)
        self.encoder_bias = Buckets(s.heads, s.buckets, s.farthest)
        self.decoder_bias = Buckets(s.heads, s.buckets, s.farthest, causal=True)
        self.encoder = nn.ModuleList(self._block(layer) for layer in range(s.depth))
        self.decoder = nn.ModuleList(self._block() for _ in range(s.decoder_depth or s.depth))
        final = RESIDUALS[s.residual].final
        self.encoder_norm = NORMS[s.norm](s.width, s.epsilon) if final else nn.Identity()
        self.decoder_norm = NORMS[s.norm](s.width, s.epsilon) if final else nn.Identity()
        self.dropout = nn.Dropout(s.dropout)
        self.output = Output(s.width, sizes.target, table_of(self.embedding) if s.tie else None)
        # Vectors of length √D would make the scores of a tied output as many times too large.
        self.scale = s.width**-0.5 if s.scaled else 1.0
        self._begin()

    def states(self, batch: Batch[Tensors, Words]) -> ModelOutput:
        memory, memory_mask = self.encode(batch.read)
        x = self.embedding(batch.asked.inputs)  # (B, T, D)
        places = torch.arange(x.shape[1], device=x.device)
        bias = self.decoder_bias(places, places)
        for block in self.decoder:
            x = block(x, bias=bias, causal=True, memory=memory, memory_mask=memory_mask)
        return ModelOutput(self._finish(x))

    def encode(self, read: Tensors) -> tuple[Tensor, Tensor]:
        """What the decoder attends to, and which of it is real.  -> (B, S, D), (B, 1, 1, S)"""
        x, lengths, _ = self.embedding.enter(read)  # (B, S, D)
        mask = masks.real(x, lengths)
        bias: Bias = self.encoder_bias.at
        if self.settings.pattern == "full":
            places = torch.arange(x.shape[1], device=x.device)
            bias = self.encoder_bias(places, places)
        for block in self.encoder:
            x = block(x, mask=mask, bias=bias)
        return self.dropout(self.encoder_norm(x)), mask

    def start(self, batch: Batch[Tensors, Words]) -> State[Cache]:
        """Read the source once; each decoder block projects its keys and values once."""
        memory, mask = self.encode(batch.read)
        kept = [block.cross.remember(memory) for block in self.decoder]  # type: ignore[union-attr,operator]
        keys, values = ([kv[i].contiguous() for kv in kept] for i in (0, 1))
        s = self.settings
        head_width = s.head_width or s.width // s.heads
        cache = Cache.empty(len(self.decoder), len(memory), s.heads, head_width, memory)
        return State(cache, Memory(keys, values, mask))

    def step(self, last: Tensor, state: State[Cache]) -> tuple[Tensor, State[Cache]]:
        """Scores of the next token after `last`.  (B,) -> logits (B, V)"""
        assert state.memory is not None
        slots, sources = state.past.open(1), state.memory.open()
        x = self.embedding(last[:, None], slots[0].places)  # (B, 1, D)
        keys = state.past.keys.shape[3] if slots[0].used is None else slots[0].used + 1
        bias = self.decoder_bias(slots[0].places, torch.arange(keys, device=x.device))
        for block, slot, source in zip(self.decoder, slots, sources, strict=True):
            x = block.step(x, slot._replace(bias=bias), source)  # type: ignore[operator]
        state.past.advance(1)
        return self.output(self._finish(x[:, -1])), state

    def _finish(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.decoder_norm(x)) * self.scale
        return out

    def _block(self, layer: int | None = None) -> Block:
        """One of the encoder's layers, or of the decoder's, which also looks at the source."""
        s = self.settings
        head_width = s.head_width or s.width // s.heads

        def attention(**pattern: Any) -> Attention:
            score = SCORES[s.score](head_width, s.heads)
            return Attention(
                s.width, s.heads, score=score, head_width=head_width, dropout=s.dropout, bias=False,
                **pattern,
            )  # fmt: skip

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width, s.epsilon), s.dropout)

        feedforward = FEEDFORWARDS[s.feedforward](s.width, s.hidden, s.dropout, bias=False)
        if layer is None:
            return Block(attention(), feedforward, residual, attention())
        return Block(attention(**s.pattern_of(layer)), feedforward, residual)

    def _begin(self) -> None:
        """Scores are not scaled, so queries begin small; all else begins at one over its inputs."""
        s = self.settings
        head_width = s.head_width or s.width // s.heads
        for name, weight in self.named_parameters():
            if name.startswith("embedding"):
                nn.init.normal_(weight, std=1.0)
            elif name.endswith("_bias.weight"):
                nn.init.normal_(weight, std=s.width**-0.5)
            elif weight.dim() == 2:
                scale = head_width**-0.5 if name.endswith("query.weight") else 1.0
                nn.init.normal_(weight, std=scale * weight.shape[1] ** -0.5)
