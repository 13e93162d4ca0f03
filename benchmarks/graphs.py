"""A training step over one large graph, against `torch_geometric` on the same edges.

    python benchmarks/graphs.py [--nodes 2708] [--edges 10556] [--repeats 9]

The numbers of nodes and edges are Cora's, the graph is drawn at random. Both have two layers of
eight heads over vectors of 64, dropout aside; the peer is GATConv as its users write it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from measure import compare, race, tell, versions
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from regard.parts.graph import EDGE_SCORES, EdgeAttention, edges_of, with_loops

WIDTH, HEADS, CLASSES = 64, 8, 7


class Ours(nn.Module):
    def __init__(self, score: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EdgeAttention(WIDTH, HEADS, EDGE_SCORES[score](WIDTH // HEADS, HEADS), output=False)
            for _ in range(2)
        )
        self.output = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        edges = with_loops(edges_of(pairs.T[None], len(x)), len(x))
        x = F.elu(self.layers[0](x[None], edges))
        out: Tensor = self.output(self.layers[1](x, edges))[0]
        return out


class Peer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GATConv(WIDTH, WIDTH // HEADS, HEADS) for _ in range(2))
        self.output = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        out: Tensor = self.output(self.layers[1](F.elu(self.layers[0](x, pairs)), pairs))
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2708)
    parser.add_argument("--edges", type=int, default=10556)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    x = torch.randn(given.nodes, WIDTH, device=device)
    pairs = torch.randint(given.nodes, (2, given.edges), device=device)
    label = torch.randint(CLASSES, (given.nodes,), device=device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    sides = {}
    for name, model in (("ours", Ours("gat")), ("peer", Peer())):
        model = model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

        def step(model: nn.Module = model, optimizer: torch.optim.AdamW = optimizer) -> None:
            for _ in range(5):
                F.cross_entropy(model(x, pairs), label).backward()
                optimizer.step()
                optimizer.zero_grad()

        sides[name] = step
    seconds = race(sides, given.repeats, wait)
    tell(
        {
            "what": f"training over {given.nodes:,} nodes, {given.edges:,} edges, {device.type}",
            "peer_name": "torch_geometric GATConv",
            "unit": "nodes/s",
            **compare(seconds["ours"], seconds["peer"], 5 * given.nodes),
            "versions": versions(),
        }
    )


if __name__ == "__main__":
    main()
