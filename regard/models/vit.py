"""The Vision Transformer: a picture's patches are read as a text's words are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Asked, Batch, Label, ModelOutput, Nothing, Pixels, Sizes, Tensors
from ..model import Looks, Model
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.position import POSITIONS, NoPosition
from ..parts.score import SCORES
from .door import make_door


@dataclass(frozen=True)
class ViTSettings:
    """Sizes and choices; the defaults are small, for small pictures."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 192
    depth: Annotated[int, Gt(0), Le(1000), "blocks"] = 6
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 6
    hidden: Annotated[int, Ge(0), Le(2**20), "inner width of the feed-forward; 0: 4 × width"] = 0
    dropout: Annotated[float, Ge(0), Lt(1), "on embeddings and around each sub-layer"] = 0.1
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.0
    score: Annotated[str, SCORES, "how a query and a key are compared"] = "scaled-dot"
    position: Annotated[str, POSITIONS, "how places are told apart"] = "learned"
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "layer"
    epsilon: Annotated[float, Gt(0), "the norm's guard against division by zero"] = 1e-12
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "pre"
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "gelu"
    pool: Annotated[
        Literal["token", "mean"], "what speaks for the picture: a token of its own, or the mean"
    ] = "token"


class ViT(Model):
    """Patches in, a class out (Dosovitskiy et al. 2021).  -> scores (B, 1, C), or a vector"""

    Settings = ViTSettings
    reads = (Pixels,)
    answers = (Label, Nothing)
    doors, stacks, heads = ("embedding", "token", "places"), ("blocks",), ("output",)
    looks: ClassVar[Looks] = {"blocks.*.attention": ("inputs", "inputs")}

    def __init__(self, sizes: Sizes, settings: ViTSettings = ViTSettings()) -> None:
        super().__init__(sizes, settings)
        s, self.asked = settings, sizes.asked
        self.embedding = make_door(sizes, s.width, NoPosition())
        self.before = ("[class]",) if s.pool == "token" else ()
        self.token = nn.Parameter(torch.zeros(1, 1, s.width)) if s.pool == "token" else None
        rows, columns = sizes.grid
        self.places = self._position(rows * columns + (s.pool == "token"))
        self.dropout = nn.Dropout(s.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(s.depth))
        final = RESIDUALS[s.residual].final
        self.norm = NORMS[s.norm](s.width, s.epsilon) if final else nn.Identity()
        if self.asked is Label:
            self.output = Output(s.width, sizes.classes, bias=True)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                nn.init.trunc_normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, batch: Batch[Tensors, Asked]) -> Tensor:
        return self.states(batch).states if self.asked is Nothing else super().forward(batch)

    def states(self, batch: Batch[Tensors, Asked]) -> ModelOutput:
        x = self.encode(batch.read)  # (B, S, D)
        spoken = x[:, :1] if self.token is not None else x.mean(1, keepdim=True)
        return ModelOutput(spoken)

    def encode(self, read: Tensors) -> Tensor:
        """The token, where there is one, and the patches, row after row.  -> (B, S, D)"""
        x = self.embedding.enter(read).vectors
        if self.token is not None:
            x = torch.cat((self.token.expand(len(x), -1, -1), x), 1)
        positions = torch.arange(x.shape[1], device=x.device)
        x = self.dropout(self.places.add(x, positions))
        for block in self.blocks:
            x = block(x, positions=positions)
        out: Tensor = self.norm(x)
        return out

    def _block(self) -> Block:
        s = self.settings
        turns = POSITIONS[s.position].turns
        attention = Attention(
            s.width,
            s.heads,
            score=SCORES[s.score](s.width // s.heads, s.heads),
            position=self._position(1) if turns else None,
            dropout=s.attention_dropout,
        )

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width, s.epsilon), s.dropout)

        feedforward = FEEDFORWARDS[s.feedforward](s.width, s.hidden or 4 * s.width)
        return Block(attention, feedforward, residual)

    def _position(self, places: int) -> NoPosition:
        s = self.settings
        return POSITIONS[s.position](s.width, s.heads, places)
