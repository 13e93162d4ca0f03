"""How an answer came about: what else could have been written, and what a beam dropped."""

from __future__ import annotations

import torch
from torch import Tensor

from ..decode import Settings as Decode
from ..decode import follow, with_cuda_graphs
from ..decode.beam import Beam
from ..decode.stepper import Together
from ..model import AnyBatch, Model
from ..tasks.task import WritesText
from ..text import Text

LIKELY = 5  # candidates shown for each token


def steps(
    task: WritesText, logits: Tensor, batch: AnyBatch, names: list[str]
) -> list[dict[str, object]]:
    """Each written token with its probability and the likeliest at its place.  logits (1, T, V)"""
    text, labels = task.written, batch.asked.labels[0].tolist()
    chances = logits[0].float().softmax(-1)
    found = []
    for place, (label, name) in enumerate(zip(labels, names, strict=False)):
        top = chances[place].topk(min(LIKELY, chances.shape[1]))
        pairs = zip(text.tokens(top.indices.tolist()), top.values.tolist(), strict=True)
        found.append(
            {
                "token": name,
                "probability": round(float(chances[place, label]), 5),
                "candidates": [[token, round(chance, 5)] for token, chance in pairs],
            }
        )
    return found


class Tree:
    """The nodes of a beam search: each continuation that was looked at, kept or dropped."""

    def __init__(self, text: Text, beams: int) -> None:
        self.text = text
        self.nodes: list[dict[str, object]] = [
            {"id": 0, "parent": None, "token": "", "score": 0.0, "kept": True, "final": False}
        ]
        self.rows = [0] * beams  # the node that each beam stands at

    def __call__(self, totals: Tensor, parents: Tensor, tokens: Tensor, going: Tensor) -> None:
        stays = {place: rank for rank, place in enumerate(going[0].tolist())}
        rows = dict[int, int]()
        columns = (totals[0].tolist(), parents[0].tolist(), tokens[0].tolist())
        for place, (score, parent, token) in enumerate(zip(*columns, strict=True)):
            if score == float("-inf"):
                continue
            ends = token == self.text.eos
            node = {
                "id": len(self.nodes),
                "parent": self.rows[parent],
                "token": self.text.tokens([token])[0],
                "score": round(score, 4),
                "kept": place in stays or (ends and place < len(self.rows)),
                "final": ends,
            }
            self.nodes.append(node)
            if place in stays:
                rows[stays[place]] = node["id"]
        self.rows = [rows.get(rank, self.rows[rank]) for rank in range(len(self.rows))]


def search(
    model: Model, task: WritesText, given: object, decode: Decode
) -> dict[str, object] | None:
    """The beam of one source as a tree; None where no beam was asked for."""
    if decode.kind != "beam" or decode.num_beams < 2 or task.writes_on:
        return None
    batch, limits = task.begin(model, [task.read_ids(given)], decode)
    tree = Tree(task.written, decode.num_beams)
    beam = Beam(limits, decode, tree)
    with torch.inference_mode():
        follow(beam, Together(with_cuda_graphs(model, decode), batch, beam.copies))
    return {"nodes": tree.nodes}
