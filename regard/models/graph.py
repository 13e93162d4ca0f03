"""Graph Transformers: nodes look at their neighbours, or at all with the structure as a bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Asked, Batch, Graphs, Label, ModelOutput, Nothing, Sizes, Tags, Tensors
from ..model import Looks, Model
from ..parts import mask as masks
from ..parts.attention import Attention
from ..parts.block import Block
from ..parts.feedforward import FEEDFORWARDS
from ..parts.graph import (
    BIASES,
    EDGE_SCORES,
    EdgeAttend,
    EdgeAttention,
    Edges,
    EdgeScore,
    Structure,
    edges_of,
    with_loops,
)
from ..parts.norm import NORMS, RESIDUALS, PostNorm
from ..parts.output import Output
from ..parts.pool import POOLS
from ..parts.position import NoPosition
from ..parts.score import SCORES
from .door import GraphDoor, bag, make_door

MOST_DEGREE = 64  # neighbours that are told apart
DENSE = 2**13  # nodes of a graph in which all may look at all


@dataclass(frozen=True)
class GraphSettings:
    """Sizes and choices; the defaults look along edges."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector between parts"] = 64
    depth: Annotated[int, Gt(0), Le(1000), "layers"] = 3
    heads: Annotated[int, Gt(0), "attention heads; they share the width"] = 4
    hidden: Annotated[
        int, Ge(0), Le(2**20), "inner width of the feed-forward; 0: twice the width"
    ] = 0
    layer: Annotated[
        Literal["gat", "neighbours", "all", "both"],
        "gat: neighbours, and nothing beside; neighbours, all: a Transformer's block that looks "
        "along edges, or everywhere (Graphormer); both: side by side (GPS)",
    ] = "neighbours"
    score: Annotated[
        str, EDGE_SCORES, "how nodes are compared along an edge: scaled-dot, gat or gatv2"
    ] = "scaled-dot"
    bias: Annotated[
        list[str],
        "what of the structure is added where all look at all: distance, paths (graph.farthest and "
        "graph.longest say how far)",
    ] = field(default_factory=list)
    degree: Annotated[bool, "tell each node how many edges reach it"] = False
    dropout: Annotated[float, Ge(0), Lt(1), "on what is read and around each sub-layer"] = 0.0
    attention_dropout: Annotated[float, Ge(0), Lt(1), "on attention weights"] = 0.0
    norm: Annotated[str, NORMS, "layer norm, RMS norm or none"] = "layer"
    residual: Annotated[
        str, RESIDUALS, "norm after (post) or before (pre) a sub-layer; none: no way around it"
    ] = "pre"
    feedforward: Annotated[str, FEEDFORWARDS, "what stands between attentions"] = "gelu"
    pool: Annotated[
        Literal["mean", "sum", "scaled-sum", "max", "attention"],
        "what speaks for a graph: the mean of its nodes, their sum, that over the root of their "
        "number, the largest of each number, or a mean weighted by themselves",
    ] = "mean"


class GATLayer(nn.Module):
    """Look along the edges, bend, drop out (Veličković et al. 2018).  (B, N, D) -> (B, N, D)

    What the paper projects each node with before the first layer is the door, and in the last the
    output layer, so neither has a matrix of its own.
    """

    def __init__(self, attention: EdgeAttention | ByClass, dropout: float, last: bool) -> None:
        super().__init__()
        self.attention, self.dropout, self.last = attention, nn.Dropout(dropout), last

    def forward(self, x: Tensor, edges: Edges, classes: Tensor | None) -> Tensor:
        """`classes` (C, D): what a vector is told by to be of each class."""
        if self.last:
            more = (classes,) if isinstance(self.attention, ByClass) else ()
            out: Tensor = self.attention(x, edges, *more)
            return out
        bent: Tensor = self.dropout(F.elu(self.attention(x, edges)))
        return bent


class ByClass(nn.Module):
    """One head that compares nodes by the classes that they would be told to be of by themselves:
    the paper's last layer, whose scores are mixed.  (B, N, D) -> (B, N, D)"""

    def __init__(self, score: EdgeScore, dropout: float) -> None:
        super().__init__()
        self.attend = EdgeAttend(score, dropout)

    def forward(self, x: Tensor, edges: Edges, classes: Tensor) -> Tensor:
        flat = x.flatten(0, 1)[:, None]  # (M, 1, D)
        told = F.linear(flat, classes)  # (M, 1, C)
        # A sum of scores is the score of the sum, so vectors are mixed and told of afterwards.
        mixed: Tensor = self.attend(told, told, flat, edges, None)
        return mixed.view_as(x)


class EdgeBlock(Block):
    """A Transformer's block whose attention goes along edges."""

    def forward(self, x: Tensor, edges: Edges) -> Tensor:  # type: ignore[override]
        return self.through(x, partial(self.attention, edges=edges), None)


class BothBlock(Block):
    """Neighbours and all, side by side, then a feed-forward (Rampášek et al. 2022, GPS)."""

    def __init__(
        self,
        attention: Attention,
        feedforward: nn.Module,
        residual: Callable[[], PostNorm],
        local: EdgeAttention,
    ) -> None:
        super().__init__(attention, feedforward, residual)
        self.local, self.local_residual = local, residual()

    def forward(  # type: ignore[override]
        self, x: Tensor, edges: Edges, mask: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        near = self.local_residual(x, partial(self.local, edges=edges))
        far = self.attention_residual(x, partial(self.attention, mask=mask, bias=bias))
        # Both have the way around; before a norm it must not count twice.
        x = near + far - x if self.local_residual.final else near + far
        out: Tensor = self.feedforward_residual(x, self.feedforward)
        return out


class GraphModel(Model):
    """Attention over the nodes of a graph.  -> scores of graphs (B, 1, C) or of nodes (B, N, C)"""

    Settings = GraphSettings
    reads = (Graphs,)
    answers = (Label, Tags, Nothing)
    doors = ("embedding", "edge_tags", "edge_numbers", "degrees")
    stacks, heads = ("blocks",), ("weigh", "output")

    def __init__(self, sizes: Sizes, settings: GraphSettings = GraphSettings()) -> None:
        super().__init__(sizes, settings)
        s, self.asked = settings, sizes.asked
        assert sizes.graph is not None
        told = sizes.graph
        # Where nothing norms a vector, those of rare tags must not drown the others.
        small = 0.04 if s.layer == "gat" else None
        self.embedding = make_door(sizes, s.width, NoPosition(), s.dropout, small)
        if s.layer == "gat" and isinstance(self.embedding, GraphDoor):
            self.embedding.power = 1.0  # the paper reads the mean
        asks = s.layer != "all" or "paths" in s.bias  # what edges are
        tags, numbers = (n if asks else 0 for n in (told.edge_tags, told.edge_numbers))
        self.edge_tags = nn.Embedding(tags, s.width) if tags else None
        self.edge_numbers = nn.Linear(numbers, s.width) if numbers else None
        self.has_edges, self.classes = bool(tags or numbers), sizes.classes
        self.degrees = nn.Embedding(MOST_DEGREE + 1, s.width) if s.degree else None
        self.longest = None if s.layer in ("gat", "neighbours") else DENSE
        for name in s.bias:
            assert name in BIASES, f"model.bias must be of {', '.join(BIASES)}, but has {name}"
            assert s.layer in ("all", "both"), "model.bias is added where all nodes look at all"
            wanted = {"distances": told.farthest, "paths": told.longest}[BIASES[name].needs]
            assert wanted, f"model.bias has {name}; set graph.farthest and graph.longest too"
        if "paths" in s.bias:
            assert self.has_edges, "model.bias has paths, but edges say nothing"
        sides = (s.heads, told.farthest, told.longest, s.width)
        self.biases = nn.ModuleList(BIASES[name](*sides) for name in s.bias)
        self.blocks = nn.ModuleList(self._block(at) for at in range(s.depth))
        final = RESIDUALS[s.residual].final and s.layer != "gat"
        self.norm = NORMS[s.norm](s.width) if final else nn.Identity()
        self.dropout = nn.Dropout(s.dropout)
        self.weigh = nn.Linear(s.width, 1, bias=False) if s.pool == "attention" else None
        if self.asked is not Nothing:
            self.output = Output(s.width, sizes.classes, bias=True)
        looks: Looks = {"blocks.*.attention": ("inputs", "inputs")}
        if s.layer == "both":
            looks = {**looks, "blocks.*.local": ("inputs", "inputs")}
        self.looks = looks  # type: ignore[misc]

    def forward(self, batch: Batch[Tensors, Asked]) -> Tensor:
        return self.states(batch).states if self.asked is Nothing else super().forward(batch)

    def states(self, batch: Batch[Tensors, Asked]) -> ModelOutput:
        assert isinstance(batch.read, Graphs)
        x = self.encode(batch.read)  # (B, N, D)
        if self.settings.layer != "gat":  # where what comes last are the scores themselves
            x = self.dropout(x)
        if self.asked is Tags:
            return ModelOutput(x)
        lengths = batch.read.lengths
        if self.weigh is None:
            return ModelOutput(POOLS[self.settings.pool](x, lengths)[:, None])
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        scores = self.weigh(x)[..., 0].masked_fill(~real, float("-inf"))
        return ModelOutput(scores.softmax(-1)[:, None] @ x)

    def encode(self, read: Graphs) -> Tensor:
        """-> (B, N, D)"""
        assert isinstance(self.embedding, GraphDoor)
        x = self.embedding.enter(read).vectors
        nodes = x.shape[1]
        told = self.edge_vectors(read, x.dtype)  # (B, E, D)
        edges = edges_of(read.edges, nodes, told)
        if self.degrees is not None:
            count = torch.zeros(x.shape[0] * nodes + 1, dtype=torch.long, device=x.device)
            count = count.index_add(0, edges.target, torch.ones_like(edges.target))[:-1]
            x = x + self.degrees(count.clamp_max(MOST_DEGREE)).view_as(x)
        edges = with_loops(edges, x.shape[0] * nodes)
        more: dict[str, object] = {}
        if self.settings.layer in ("all", "both"):
            more["mask"] = masks.padding(read.lengths, nodes)
            structure = Structure(read.distances, read.paths, told)
            biases = [bias(structure) for bias in self.biases]
            more["bias"] = sum(biases[1:], biases[0]).to(x.dtype) if biases else None
        if self.settings.layer != "all":
            more["edges"] = edges
        if self.settings.layer == "gat":
            more["classes"] = None if self.asked is Nothing else self.output.weight
        for block in self.blocks:
            x = block(x, **more)
        out: Tensor = self.norm(x)
        return out

    def edge_vectors(self, read: Graphs, dtype: torch.dtype) -> Tensor | None:
        found = None
        if self.edge_tags is not None and read.edge_tags is not None:
            found = bag(read.edge_tags, self.edge_tags.weight)
        if self.edge_numbers is not None and read.edge_numbers is not None:
            numbers = self.edge_numbers(read.edge_numbers)
            found = numbers if found is None else found + numbers
        return None if found is None else found.to(dtype)

    def _block(self, at: int) -> nn.Module:
        s = self.settings
        if s.layer == "gat":
            last = at == s.depth - 1
            if last and self.asked is Tags and not self.has_edges:
                by_class = ByClass(EDGE_SCORES[s.score](self.classes, 1), s.attention_dropout)
                return GATLayer(by_class, s.dropout, last)
            along = self._along(output=False, project=not (last or at == 0))
            return GATLayer(along, s.dropout, last)

        def residual() -> PostNorm:
            return RESIDUALS[s.residual](NORMS[s.norm](s.width), s.dropout)

        feedforward = FEEDFORWARDS[s.feedforward](s.width, s.hidden or 2 * s.width)
        if s.layer == "neighbours":
            return EdgeBlock(self._along(), feedforward, residual)  # type: ignore[arg-type]
        score = SCORES["scaled-dot"](s.width // s.heads, s.heads)
        attention = Attention(s.width, s.heads, score=score, dropout=s.attention_dropout)
        if s.layer == "all":
            return Block(attention, feedforward, residual)
        return BothBlock(attention, feedforward, residual, self._along())

    def _along(self, output: bool = True, project: bool = True) -> EdgeAttention:
        s = self.settings
        score = EDGE_SCORES[s.score](s.width // s.heads, s.heads)
        width = s.width if self.has_edges else 0
        return EdgeAttention(s.width, s.heads, score, width, s.attention_dropout, output, project)
