"""Makes the graphs beside this file, of which half have a cycle of length four.

python generate.py [FOLDER] writes a file for each part; the same seed gives the same bytes.
Of as many nodes and edges there are as many with as without, and all nodes have the same tag, so
that nothing but the structure tells.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from itertools import combinations
from pathlib import Path

SIZES = {"train": 3000, "valid": 300, "test": 600}
NODES = range(8, 15)


def has_square(edges: list[tuple[int, int]], nodes: int) -> bool:
    """Whether two nodes have two neighbours in common."""
    near: list[set[int]] = [set() for _ in range(nodes)]
    for one, other in edges:
        near[one].add(other)
        near[other].add(one)
    return any(len(near[a] & near[b]) > 1 for a, b in combinations(range(nodes), 2))


def draw(rng: random.Random, nodes: int, count: int) -> list[tuple[int, int]]:
    """A connected graph: a tree drawn first, then further edges."""
    edges = {(rng.randrange(node), node) for node in range(1, nodes)}
    free = [pair for pair in combinations(range(nodes), 2) if pair not in edges]
    edges.update(rng.sample(free, count - len(edges)))
    names = rng.sample(range(nodes), nodes)
    return sorted((min(names[a], names[b]), max(names[a], names[b])) for a, b in edges)


def main(folder: Path) -> None:
    rng = random.Random(0)
    for part, count in SIZES.items():
        lines: list[str] = []
        while len(lines) < count:
            nodes = rng.choice(NODES)
            size = nodes + rng.randrange(0, 4)
            pair: dict[bool, list[tuple[int, int]]] = {}
            while len(pair) < 2:
                edges = draw(rng, nodes, size)
                pair.setdefault(has_square(edges, nodes), edges)
            for square, edges in pair.items():
                label = "square" if square else "none"
                lines.append(json.dumps({"nodes": ["o"] * nodes, "edges": edges, "label": label}))
        rng.shuffle(lines)
        text = "".join(f"{line}\n" for line in lines).encode()
        (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
