"""BERT: the encoder alone, which reads a text from both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import (
    Asked,
    Batch,
    Hidden,
    Ids,
    Label,
    ModelOutput,
    Nothing,
    Sizes,
    Span,
    Tags,
    Tensors,
)
from ..model import Looks, Model
from ..parts import mask as masks
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.pool import POOLS
from ..parts.position import POSITIONS, NoPosition
from ..parts.score import SCORES
from .door import DOORS, make_door, table_of
from .patterned import PatternSettings, with_more_places


@dataclass(frozen=True)
class BERTSettings(PatternSettings):
    """Sizes and choices; the defaults are BERT's base model."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 768
    depth: Annotated[int, Gt(0), Le(1000), "blocks"] = 12
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 12
    hidden: Annotated[int, Ge(0), Le(2**20), "inner width of the feed-forward; 0: 4 × width"] = 0
    dropout: Annotated[float, Ge(0), Lt(1), "on embeddings and around each sub-layer"] = 0.1
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.1
    score: Annotated[str, SCORES, "how a query and a key are compared"] = "scaled-dot"
    position: Annotated[str, POSITIONS, "how places are told apart"] = "learned"
    positions: Annotated[int, Gt(0), Le(2**20), "longest text, in tokens"] = 512
    segments: Annotated[int, Ge(0), Le(16), "texts of a row that are told apart; 0: none are"] = 2
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "layer"
    epsilon: Annotated[float, Gt(0), "the norm's guard against division by zero"] = 1e-12
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "post"
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "gelu"
    pool: Annotated[str, POOLS, "which of a text's vectors speak for it"] = "first"
    pooler: Annotated[
        Literal["tanh", "relu", "none"],
        "a layer over that vector; with one, a model of words also says what follows on what",
    ] = "tanh"


class BERT(Model):
    """Each token looks at all of its text (Devlin et al. 2019).

    -> scores: of hidden words (B, M, V), of a text (B, 1, C), of its tokens (B, T, C), or a
    vector (B, 1, D), as asked.
    """

    Settings = BERTSettings
    reads = DOORS  # whatever has a door
    answers = (Hidden, Label, Tags, Span, Nothing)
    doors, stacks = ("embedding", "segments", "embedding_norm"), ("blocks",)
    heads = ("pooler", "transform", "next", "output")
    looks: ClassVar[Looks] = {"blocks.*.attention": ("inputs", "inputs")}

    def __init__(self, sizes: Sizes, settings: BERTSettings = BERTSettings()) -> None:
        super().__init__(sizes, settings)
        s, self.asked = settings, sizes.asked
        self.longest = s.positions if s.position == "learned" else None
        self.embedding = make_door(sizes, s.width, self._position(), scale=1.0)
        self.segments = nn.Embedding(s.segments, s.width) if s.segments else None
        self.embedding_norm = NORMS[s.norm](s.width, s.epsilon)
        self.dropout = nn.Dropout(s.dropout)
        self.blocks = nn.ModuleList(self._block(layer) for layer in range(s.depth))
        self.norm = (
            NORMS[s.norm](s.width, s.epsilon) if RESIDUALS[s.residual].final else nn.Identity()
        )
        if s.pooler != "none" or self.asked is Label:
            bend = nn.ReLU() if s.pooler == "relu" else nn.Tanh()
            self.pooler = nn.Sequential(nn.Linear(s.width, s.width), bend)
        if self.asked not in (Label, Tags, Span, Nothing):
            self.transform = nn.Sequential(
                nn.Linear(s.width, s.width), nn.GELU(), NORMS[s.norm](s.width, s.epsilon)
            )
            self.next = nn.Linear(s.width, 2) if s.pooler != "none" else None
            self.output = Output(s.width, sizes.source, table_of(self.embedding), bias=True)
        elif self.asked is not Nothing:
            self.output = Output(s.width, sizes.classes, bias=True)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def fitted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return with_more_places(weights, dict(self.named_parameters()))

    def forward(self, batch: Batch[Tensors, Asked]) -> Tensor:
        return self.states(batch).states if self.asked is Nothing else super().forward(batch)

    def states(self, batch: Batch[Tensors, Asked]) -> ModelOutput:
        x, lengths = self.encode(batch.read)
        if self.asked in (Tags, Span):
            return ModelOutput(self.dropout(x))
        if self.asked not in (Label, Nothing):
            return self.words(x, batch.asked)
        pooled = POOLS[self.settings.pool](x, lengths)
        if self.asked is Label:
            pooled = self.dropout(self.pooler(pooled))
        return ModelOutput(pooled[:, None])

    def words(self, x: Tensor, asked: Asked) -> ModelOutput:
        """What tells the hidden words, or all where nobody says which are hidden."""
        if not isinstance(asked, Hidden):
            return ModelOutput(self.transform(x))
        hidden = x.gather(1, asked.places[..., None].expand(-1, -1, x.shape[2]))  # (B, M, D)
        follows = self.next(self.pooler(x[:, 0])) if self.next is not None else None
        return ModelOutput(self.transform(hidden), follows=follows)

    def encode(self, read: Tensors) -> tuple[Tensor, Tensor]:
        """-> (B, T, D), and how many of each row are real (B,)"""
        x, lengths, bias = self.embedding.enter(read)
        positions = torch.arange(x.shape[1], device=x.device)
        mask = None if lengths is None else masks.padding(lengths, x.shape[1])
        if self.segments is not None and isinstance(read, Ids) and read.segments is not None:
            x = x + self.segments(read.segments.clamp_max(self.settings.segments - 1))
        x = self.dropout(self.embedding_norm(x))
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias, positions=positions)
        if lengths is None:
            lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
        return self.norm(x), lengths

    def _block(self, layer: int) -> Block:
        s = self.settings
        attention = Attention(
            s.width,
            s.heads,
            score=SCORES[s.score](s.width // s.heads, s.heads),
            position=self._position() if POSITIONS[s.position].turns else None,
            dropout=s.attention_dropout,
            **s.pattern_of(layer),
        )

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width, s.epsilon), s.dropout)

        feedforward = FEEDFORWARDS[s.feedforward](s.width, s.hidden or 4 * s.width)
        return Block(attention, feedforward, residual)

    def _position(self) -> NoPosition:
        s = self.settings
        return POSITIONS[s.position](s.width, s.heads, s.positions)
