"""Decision Transformer: what to do next, told from the history and the return wished for."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Asked, Batch, Choices, ModelOutput, Nothing, Sizes, Steps
from ..model import Looks, Model
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.position import POSITIONS
from ..parts.score import SCORES
from .door import make_door


@dataclass(frozen=True)
class DecisionSettings:
    """Sizes and choices; the defaults are those of Chen et al. 2021 with more heads."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 128
    depth: Annotated[int, Gt(0), Le(1000), "blocks"] = 3
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 4
    hidden: Annotated[int, Ge(0), Le(2**20), "inner width of the feed-forward; 0: 4 × width"] = 0
    dropout: Annotated[float, Ge(0), Lt(1), "on what is read and around each sub-layer"] = 0.1
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.0
    position: Annotated[str, POSITIONS, "how steps are told apart"] = "learned"
    positions: Annotated[
        int, Gt(0), Le(2**20), "steps that are told apart; later ones are alike"
    ] = 1024
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "relu"
    bounded: Annotated[bool, "numbers of an action lie between -1 and 1"] = False
    follow: Annotated[
        float, Gt(0), Le(1), "how fast the slow copy follows, where values are learned from it"
    ] = 0.01


class BoundedOutput(Output):
    """Numbers between -1 and 1.  (…, D) -> (…, A)"""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh()


class DecisionModel(Model):
    """Three vectors a step: the return wished for, the observation, the action. Each looks at those
    before it; what is done is told where the observation stands (Chen et al. 2021).

    -> (B, T, A) scores of actions, or their numbers; behind them what is told of values
    """

    Settings = DecisionSettings
    reads = (Steps,)
    answers = (Choices, Nothing)
    doors, stacks = ("embedding",), ("blocks",)
    heads = ("output",)
    looks: ClassVar[Looks] = {"blocks.*.attention": ("inputs", "inputs")}

    def __init__(self, sizes: Sizes, settings: DecisionSettings = DecisionSettings()) -> None:
        super().__init__(sizes, settings)
        s, told = settings, sizes.history
        assert told is not None
        position = POSITIONS[s.position](s.width, s.heads, s.positions)
        assert not position.turns, "model.position must be added to a step, and not turn it"
        self.embedding = make_door(sizes, s.width, position, s.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(s.depth))
        self.norm = NORMS["layer"](s.width)
        layer = BoundedOutput if s.bounded else Output
        self.output = layer(s.width, told.actions + told.values, bias=True)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        # Values are learned from values; those of a copy that follows slowly hold still meanwhile.
        self.slow = nn.ModuleDict()
        if told.values:
            parts = {name: deepcopy(part) for name, part in self.named_children() if name != "slow"}
            self.slow = nn.ModuleDict(parts).requires_grad_(False)

    def states(self, batch: Batch[Steps, Asked]) -> ModelOutput:
        x = self.read(batch.read)
        if not len(self.slow) or not isinstance(batch.asked, Choices):
            return ModelOutput(x)
        self.slow.eval()
        with torch.no_grad():
            slow: Tensor = self.slow["output"](self.read(batch.read, self.slow))
        return ModelOutput(x, slow=slow)

    def read(self, read: Steps, parts: nn.Module | None = None) -> Tensor:
        """By its own parts, or by those of the copy.  -> (B, T, D), at what is observed"""
        own = self if parts is None else parts
        x = own.get_submodule("embedding").enter(read).vectors  # type: ignore[operator]
        for block in own.get_submodule("blocks").children():
            x = block(x, causal=True)
        out: Tensor = own.get_submodule("norm")(x[:, 1::3])
        return out

    def on_progress(self, part: float) -> None:
        if not len(self.slow):
            return
        own = dict(self.named_parameters())
        with torch.no_grad():
            for name, weight in self.slow.named_parameters():
                weight.lerp_(own[name].detach(), self.settings.follow)

    def _block(self) -> Block:
        s = self.settings
        score = SCORES["scaled-dot"](s.width // s.heads, s.heads)
        attention = Attention(s.width, s.heads, score=score, dropout=s.attention_dropout)

        def residual() -> PostNorm:
            return RESIDUALS["pre"](NORMS["layer"](s.width), s.dropout)

        return Block(
            attention, FEEDFORWARDS[s.feedforward](s.width, s.hidden or 4 * s.width), residual
        )
