"""BERTScore: how alike the tokens of two texts are to an encoder (Zhang et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .interval import hundredths
from .texts import Mean


class Read(NamedTuple):
    """A text as an encoder reads it."""

    vectors: Tensor  # (T, D)
    counts: Tensor  # (T,) which tokens are the text's own, and not its frame


def similarity(output: Read, reference: Read) -> dict[str, float]:
    """Each token with the likest of the other text: precision of what was written, recall of what
    should have been, without weights by rarity and without a baseline (equations 1 to 3)."""
    if not output.counts.any() or not reference.counts.any():
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    one, two = (torch.nn.functional.normalize(each.vectors, dim=-1) for each in (output, reference))
    alike = one @ two.T  # (T, S)
    precision = float(alike.amax(1)[output.counts].mean())
    recall = float(alike.amax(0)[reference.counts].mean())
    both = precision + recall
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / (both or 1.0)}


def bertscore(outputs: Sequence[Read], references: Sequence[Read]) -> dict[str, object]:
    """The means over a corpus, in hundredths, with their intervals."""
    judged = Mean()
    for output, reference in zip(outputs, references, strict=True):
        judged.add(similarity(output, reference))
    found: dict[str, object] = {}
    for name, value in judged.means().items():
        found[f"bertscore_{name}"] = round(100 * value, 4)
        found[f"bertscore_{name}_interval"] = hundredths(judged.interval(name))
    return found
