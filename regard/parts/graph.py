"""Attention in graphs: along edges alone, or between all nodes with the structure as a bias.

Along edges nothing of N × N is made: there is a score for each edge, and a softmax over those that
reach the same node. The same with a mask between all nodes is what it is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attend
from .precision import at_least_float32


class Edges(NamedTuple):
    """The edges of a batch, its nodes counted through; edges that are padding join the last + 1."""

    source: Tensor  # (E,) who is looked at
    target: Tensor  # (E,) who looks
    vectors: Tensor | None = None  # (E, D) what each edge is


def edges_of(pairs: Tensor, nodes: int, vectors: Tensor | None = None) -> Edges:
    """(B, E, 2) from, to, -1 in padding; (B, E, D) -> edges among B · nodes nodes"""
    first = torch.arange(pairs.shape[0], device=pairs.device)[:, None] * nodes
    away = pairs.shape[0] * nodes
    source, target = (
        torch.where(side < 0, away, side + first).flatten() for side in pairs.unbind(-1)
    )
    return Edges(source, target, None if vectors is None else vectors.flatten(0, 1))


def with_loops(edges: Edges, nodes: int) -> Edges:
    """Each node also looks at itself, once; of what such an edge is, nothing is said."""
    own = torch.arange(nodes, device=edges.source.device)
    loops = edges.source == edges.target  # those there are become padding
    edges = edges._replace(
        source=torch.where(loops, nodes, edges.source),
        target=torch.where(loops, nodes, edges.target),
    )
    vectors = edges.vectors
    if vectors is not None:
        vectors = torch.cat((vectors, vectors.new_zeros(nodes, vectors.shape[1])))
    return Edges(torch.cat((edges.source, own)), torch.cat((edges.target, own)), vectors)


class EdgeScore(nn.Module):
    """Scores of edges: what looks, what is looked at, and the edge.  (E, H, K) each -> (E, H)"""

    mixes_edges = False  # whether what an edge is counts in what is mixed too
    projections = 3  # of queries, keys and values; 2: what is looked at is mixed; 1: all are one

    def __init__(self, head_width: int, heads: int) -> None:
        super().__init__()

    def forward(self, q: Tensor, k: Tensor, edge: Tensor | None) -> Tensor:
        raise NotImplementedError

    def along(self, q: Tensor, k: Tensor, edges: Edges, vectors: Tensor | None) -> Tensor:
        """The same of nodes and the edges between them.  (M, H, K) each -> (E, H)"""
        scores: Tensor = self(
            q.index_select(0, edges.target), k.index_select(0, edges.source), vectors
        )
        return scores


class EdgeDot(EdgeScore):
    """q·(k + e) / √K, and v + e is mixed (Shi et al. 2021)."""

    mixes_edges = True

    def forward(self, q: Tensor, k: Tensor, edge: Tensor | None) -> Tensor:
        k = k if edge is None else k + edge
        scores: Tensor = (q * k).sum(-1) * q.shape[-1] ** -0.5
        return scores


class GAT(EdgeScore):
    """LeakyReLU(a·q + b·k + c·e) (Veličković et al. 2018, eq. 3)."""

    projections = 1

    def __init__(self, head_width: int, heads: int) -> None:
        super().__init__(head_width, heads)
        self.looking, self.looked_at, self.between = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, head_width))) for _ in range(3)
        )

    def forward(self, q: Tensor, k: Tensor, edge: Tensor | None) -> Tensor:
        scores = (q * self.looking + k * self.looked_at).sum(-1)
        if edge is not None:
            scores = scores + (edge * self.between).sum(-1)
        return F.leaky_relu(scores, 0.2)

    def along(self, q: Tensor, k: Tensor, edges: Edges, vectors: Tensor | None) -> Tensor:
        """A sum of parts, each worked out once for a node instead of once for an edge."""
        looking, looked_at = (q * self.looking).sum(-1), (k * self.looked_at).sum(-1)  # (M, H)
        scores = looking.index_select(0, edges.target) + looked_at.index_select(0, edges.source)
        if vectors is not None:
            scores = scores + (vectors * self.between).sum(-1)
        return F.leaky_relu(scores, 0.2)


class GATv2(EdgeScore):
    """a·LeakyReLU(q + k + e): who is looked at most depends on who looks (Brody et al. 2022)."""

    projections = 2

    def __init__(self, head_width: int, heads: int) -> None:
        super().__init__(head_width, heads)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, head_width)))

    def forward(self, q: Tensor, k: Tensor, edge: Tensor | None) -> Tensor:
        both = q + k if edge is None else q + k + edge
        return (F.leaky_relu(both, 0.2) * self.weight).sum(-1)


EDGE_SCORES: dict[str, type[EdgeScore]] = {"scaled-dot": EdgeDot, "gat": GAT, "gatv2": GATv2}


def and_padding(x: Tensor) -> Tensor:
    """One row more, which edges that are padding join."""
    return F.pad(x, (0, 0, 0, 0, 0, 1))


class EdgeAttend(Attend):
    """Each node looks along the edges that reach it.  (M, H, K) each, edges -> (M, H, K)"""

    def forward(  # type: ignore[override]
        self, q: Tensor, k: Tensor, v: Tensor, edges: Edges, vectors: Tensor | None
    ) -> Tensor:
        weights = F.dropout(self.weigh(q, k, edges, vectors), self.dropout, self.training)
        values = and_padding(v)
        found = values.index_select(0, edges.source)
        if vectors is not None and self.score.mixes_edges:
            found = found + vectors
        said = weights[..., None].to(v.dtype) * found
        return torch.zeros_like(values).index_add(0, edges.target, said)[:-1]

    def weigh(self, q: Tensor, k: Tensor, edges: Edges, vectors: Tensor | None) -> Tensor:
        """A softmax over the edges that reach each node.  -> (E, H)"""
        q, k = and_padding(q), and_padding(k)
        assert isinstance(self.score, EdgeScore)
        scores = at_least_float32(self.score.along(q, k, edges, vectors))
        index = edges.target[:, None].expand_as(scores)
        none = scores.new_full((q.shape[0], scores.shape[1]), float("-inf"))
        most = none.scatter_reduce(0, index, scores.detach(), "amax")
        chances = (scores - most.index_select(0, edges.target)).exp()
        total = torch.zeros_like(none).index_add(0, edges.target, chances)
        weights: Tensor = chances / total.index_select(0, edges.target)
        return weights

    def seen(
        self,
        inputs: tuple[Any, ...],
        result: Any,
        heads: list[int],
        rows: Sequence[int] | None = None,
    ) -> Tensor:
        q, k, _, edges, vectors = inputs
        weights = self.weigh(q, k, edges, vectors)[:, heads]  # (E, H)
        whole = weights.new_zeros(len(heads), len(q) + 1, len(q) + 1)
        places = edges.target * (len(q) + 1) + edges.source
        whole.view(len(heads), -1).index_add_(1, places, weights.T)
        found = whole[None, :, : len(q), : len(q)]
        return found if rows is None else found[:, :, list(rows)]


class EdgeAttention(nn.Module):
    """Heads around `EdgeAttend`: project, look along the edges, join.  (B, N, D) -> (B, N, D)"""

    def __init__(
        self,
        width: int,
        heads: int,
        score: EdgeScore,
        edge_width: int = 0,
        dropout: float = 0.0,
        output: bool = True,
        project: bool = True,
    ) -> None:
        super().__init__()
        assert width % heads == 0, f"{heads} heads cannot share a width of {width}"
        self.heads = heads
        self.value = nn.Linear(width, width) if project else nn.Identity()
        self.key = nn.Linear(width, width) if score.projections > 2 else None
        self.query = nn.Linear(width, width) if score.projections > 1 else None
        self.edge = nn.Linear(edge_width, width, bias=False) if edge_width else None
        self.attend = EdgeAttend(score, dropout)
        self.output = nn.Linear(width, width) if output else None

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        flat = x.flatten(0, 1)  # (M, D)
        v = self._split(self.value(flat))
        k = v if self.key is None else self._split(self.key(flat))
        q = k if self.query is None else self._split(self.query(flat))
        vectors = None
        if self.edge is not None and edges.vectors is not None:
            vectors = self._split(self.edge(edges.vectors))
        mixed: Tensor = self.attend(q, k, v, edges, vectors).flatten(1).view_as(x)
        out: Tensor = mixed if self.output is None else self.output(mixed)
        return out

    def _split(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(-1, (self.heads, -1))
        return heads


class Structure(NamedTuple):
    """What a bias may know of a batch of graphs."""

    distances: Tensor | None  # (B, N, N) steps from one to the other; -1: there is no way
    paths: Tensor | None  # (B, N, N, L) the edges on the way, -1 where it is shorter
    edges: Tensor | None  # (B, E, D) what each edge is


class StructureBias(nn.Module):
    """What is added to the scores of who looks at whom."""

    needs = "distances"  # of the structure

    def __init__(self, heads: int, farthest: int, longest: int, width: int) -> None:
        super().__init__()

    def forward(self, structure: Structure) -> Tensor:
        """-> (B, H, N, N)"""
        raise NotImplementedError


class DistanceBias(StructureBias):
    """A number for each distance, one for "further" and one for "no way" (Ying et al. 2021, 6)."""

    def __init__(self, heads: int, farthest: int, longest: int, width: int) -> None:
        super().__init__(heads, farthest, longest, width)
        self.farthest = farthest
        self.table = nn.Embedding(farthest + 3, heads)
        nn.init.zeros_(self.table.weight)

    def forward(self, structure: Structure) -> Tensor:
        assert structure.distances is not None
        known = structure.distances.long().clamp_max(self.farthest + 1)
        out: Tensor = self.table(torch.where(known < 0, self.farthest + 2, known))
        return out.permute(0, 3, 1, 2)


class PathBias(StructureBias):
    """The mean over the edges on the way, each against a vector of its place there (eq. 7)."""

    needs = "paths"

    def __init__(self, heads: int, farthest: int, longest: int, width: int) -> None:
        super().__init__(heads, farthest, longest, width)
        self.longest, self.heads = longest, heads
        self.weight = nn.Linear(width, longest * heads, bias=False)
        nn.init.zeros_(self.weight.weight)

    def forward(self, structure: Structure) -> Tensor:
        paths, edges = structure.paths, structure.edges
        assert paths is not None and edges is not None
        said = self.weight(edges).unflatten(-1, (self.longest, self.heads))  # (B, E, L, H)
        rows = torch.arange(paths.shape[0], device=paths.device)[:, None, None, None]
        places = torch.arange(self.longest, device=paths.device)
        there = (paths >= 0)[..., None]
        found = said[rows, paths.clamp_min(0).long(), places] * there  # (B, N, N, L, H)
        out: Tensor = found.sum(3) / there.sum(3).clamp_min(1)
        return out.permute(0, 3, 1, 2)


BIASES: dict[str, type[StructureBias]] = {"distance": DistanceBias, "paths": PathBias}
