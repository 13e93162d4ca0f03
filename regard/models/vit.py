"""The Vision Transformer: a picture is a text of patches, and an encoder reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Asked, Batch, Label, ModelOutput, Nothing, Patches, Pixels, Sizes, Tensors
from ..model import Looks, Model
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.place import PLACES, Learned, resized
from ..parts.position import NoPosition
from ..parts.score import SCORES
from .door import PatchDoor, make_door


@dataclass(frozen=True)
class ViTSettings:
    """Sizes and choices; the defaults are small, for pictures of few patches."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 192
    depth: Annotated[int, Gt(0), Le(1000), "blocks"] = 6
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 3
    hidden: Annotated[
        int, Ge(0), Le(2**20), "inner width of the feed-forward; 0: four times the width"
    ] = 0
    dropout: Annotated[float, Ge(0), Lt(1), "on patches and around each sub-layer"] = 0.0
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.0
    drop_path: Annotated[
        float, Ge(0), Lt(1), "how often the last block is left out in training; lower ones less"
    ] = 0.0
    score: Annotated[str, SCORES, "how a query and a key are compared"] = "scaled-dot"
    position: Annotated[str, PLACES, "how places in the picture are told apart"] = "learned"
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "layer"
    epsilon: Annotated[float, Gt(0), Lt(1), "what a norm adds to a variance"] = 1e-6
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "pre"
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "gelu"
    pool: Annotated[
        Literal["token", "mean", "sequence"],
        "what speaks for the picture: a token of its own, the mean, or a weighted mean (CCT)",
    ] = "token"
    distilled: Annotated[bool, "a second token, by which DeiT learned of a teacher"] = False


class ViT(Model):
    """Patches in, a class out (Dosovitskiy et al. 2021), or the pixels of hidden patches (Xie et
    al. 2022).  -> scores (B, 1, C), pixels (B, M, C · p²), or a vector"""

    Settings = ViTSettings
    reads = (Pixels,)
    answers = (Label, Patches, Nothing)
    doors, stacks = ("embedding", "tokens", "places"), ("blocks",)
    heads = ("hidden", "weigh", "output")
    looks: ClassVar[Looks] = {"blocks.*.attention": ("inputs", "inputs")}

    def __init__(self, sizes: Sizes, settings: ViTSettings = ViTSettings()) -> None:
        super().__init__(sizes, settings)
        s, self.asked = settings, sizes.asked
        self.embedding = make_door(sizes, s.width, NoPosition())
        spoken_for = s.pool == "token"
        self.before = ("[class]",) * spoken_for + ("[teacher]",) * s.distilled
        self.tokens = nn.Parameter(torch.zeros(len(self.before), s.width)) if self.before else None
        self.places = PLACES[s.position](s.width, s.heads, sizes.grid, len(self.before))
        self.patch = sizes.item[1:]
        self.dropout = nn.Dropout(s.dropout)
        self.blocks = nn.ModuleList(self._block(layer) for layer in range(s.depth))
        final = RESIDUALS[s.residual].final
        self.norm = NORMS[s.norm](s.width, s.epsilon) if final else nn.Identity()
        weighs = s.pool == "sequence" and self.asked is not Patches
        self.weigh = nn.Linear(s.width, 1) if weighs else None
        self.hidden = nn.Parameter(torch.zeros(s.width)) if self.asked is Patches else None
        if self.asked is Label:
            self.output = Output(s.width, sizes.classes, bias=True)
        if self.asked is Patches:
            self.output = Output(s.width, math.prod(sizes.item), bias=True)
        for name, weight in self.named_parameters():
            if name.startswith("embedding.cut.") and weight.dim() == 4 and sizes.stem != "linear":
                nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu")
            elif weight.dim() > 1:
                nn.init.trunc_normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def fitted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Places of a smaller or larger picture are drawn out or pressed together."""
        name = "places.weight"
        own = self.places.weight if isinstance(self.places, Learned) else None
        if own is None or name not in weights or weights[name].shape == own.shape:
            return weights
        count = len(self.before)
        side = round((len(weights[name]) - count) ** 0.5)
        if side**2 + count != len(weights[name]):
            return weights
        drawn = resized(weights[name], count, (side, side), self.places.grid)
        return {**weights, name: drawn}

    def forward(self, batch: Batch[Tensors, Asked]) -> Tensor:
        return self.states(batch).states if self.asked is Nothing else super().forward(batch)

    def states(self, batch: Batch[Tensors, Asked]) -> ModelOutput:
        asked = batch.asked
        if isinstance(asked, Patches):
            x = self.encode(batch.read, asked.places)[:, len(self.before) :]
            return ModelOutput(asked.of(x))  # (B, M, D)
        x = self.encode(batch.read)  # (B, S, D)
        if self.weigh is not None:
            weights = self.weigh(x).softmax(1)  # (B, S, 1): each patch says how much it matters
            return ModelOutput(weights.transpose(1, 2) @ x)
        spoken = x[:, len(self.before) :].mean(1, keepdim=True)
        return ModelOutput(x[:, :1] if self.settings.pool == "token" else spoken)

    def encode(self, read: Tensors, places: Tensor | None = None) -> Tensor:
        """The tokens, where there are any, and the patches, row after row; at places (B, M) a
        learned vector stands instead.  -> (B, S, D)"""
        assert isinstance(read, Pixels)
        x = self.embedding.enter(read).vectors
        if places is not None and self.hidden is not None:
            masked = torch.zeros_like(x[..., 0], dtype=torch.bool).scatter(1, places, True)
            x = torch.where(masked[..., None], self.hidden.to(x.dtype), x)
        height, width = read.values.shape[2:]
        grid = height // self.patch[0], width // self.patch[1]
        if self.tokens is not None:
            x = torch.cat((self.tokens.expand(x.shape[0], -1, -1), x), 1)
        table, bias = self.places.table(grid), self.places.bias(grid)
        x = self.dropout(x if table is None else x + table.to(x.dtype))
        for block in self.blocks:
            x = block(x, bias=None if bias is None else bias.to(x.dtype))
        out: Tensor = self.norm(x)
        return out

    def pixels(self, read: Pixels) -> Tensor:
        """What is to be predicted of each patch: its pixels, less their mean, over their spread
        (He et al. 2022, section 4).  -> (B, S, C · p²)"""
        assert isinstance(self.embedding, PatchDoor)
        patches = F.unfold(self.embedding.retina(read), self.patch, stride=self.patch)
        variance, mean = torch.var_mean(patches, 1, correction=0, keepdim=True)
        return ((patches - mean) / (variance + 1e-6).sqrt()).transpose(1, 2)

    def _block(self, layer: int) -> Block:
        s = self.settings
        score = SCORES[s.score](s.width // s.heads, s.heads)
        attention = Attention(s.width, s.heads, score=score, dropout=s.attention_dropout)
        leave_out = s.drop_path * layer / max(1, s.depth - 1) if s.drop_path else None

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width, s.epsilon), s.dropout, leave_out)

        feedforward = FEEDFORWARDS[s.feedforward](s.width, s.hidden or 4 * s.width)
        return Block(attention, feedforward, residual)
