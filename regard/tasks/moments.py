"""Moments that a model writes between words: which may come next, and what was said when.

Whisper (Radford et al. 2022) tells pieces of speech as a moment, words, a moment: `<|0.00|> Yes.
<|0.84|>`. Moments are the last entries of its vocabulary, a fiftieth of a second apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

NEVER = float("-inf")
STEP = 0.02  # seconds
FIRST = 50  # the latest moment at which the first piece may begin: one second


class Piece(NamedTuple):
    """Words between two moments, in seconds."""

    start: float
    end: float
    ids: list[int]


class MomentRule:
    """Moments come in pairs, never go back, and come where they are likelier than any word."""

    def __init__(self, first: int, eos: int) -> None:
        """`first`: the entry of the moment 0.00, behind which there are only moments."""
        self.first, self.eos = first, eos

    def __call__(self, scores: Tensor, answer: Tensor) -> Tensor:
        """(R, V), (R, t) -> (R, V)"""
        first = self.first
        scores[:, first - 1] = NEVER  # that there be none
        if not answer.shape[1]:
            scores[:, :first] = NEVER
            scores[:, first + FIRST + 1 :] = NEVER
            return scores
        is_moment = answer >= first
        last = is_moment[:, -1]
        before = is_moment[:, -2] if answer.shape[1] > 1 else torch.ones_like(last)
        places = torch.arange(scores.shape[1], device=scores.device)
        # After two come words, after one a second or the end.
        words = (places >= first) & (last & before)[:, None]
        ends = (places < self.eos) & (last & ~before)[:, None]
        latest = answer.masked_fill(~is_moment, first - 1).amax(1)  # (R,) none yet: before all
        again = (last & ~before).long()  # a second may be the same moment as the first
        gone = (places >= first) & (places < (latest + 1 - again)[:, None])
        scores = scores.masked_fill(words | ends | gone, NEVER)
        logs = scores.log_softmax(-1)
        moments = logs[:, first:].logsumexp(-1)
        likely = moments > logs[:, :first].amax(-1)
        return scores.masked_fill((places < first) & likely[:, None], NEVER)


def pieces(ids: Sequence[int], first: int, most: float) -> tuple[list[Piece], float]:
    """An answer's pieces, and where the next window begins; `most`: seconds of this one.

    Between two moments that follow on each other one piece ends and the next begins. What stands
    behind the last such pair is heard again in the next window, unless the answer ends with one
    moment: then nothing more is said in this one.
    """
    marks = [place for place, token in enumerate(ids) if token >= first]
    doubles = [b for a, b in pairwise(marks) if b == a + 1]
    ends_once = len(ids) >= 2 and ids[-1] >= first and ids[-2] < first
    found = []
    if not doubles:
        said = [ids[place] for place in marks]
        length = (said[-1] - first) * STEP if said and said[-1] != first else most
        found.append(Piece(0.0, length, [i for i in ids if i < first]))
        return found, most
    start = 0
    for end in [*doubles, len(ids)] if ends_once else doubles:
        some = ids[start:end]
        begin, stop = (some[0] - first) * STEP, (some[-1] - first) * STEP
        found.append(Piece(begin, stop, [i for i in some if i < first]))
        start = end
    if ends_once:
        return found, most
    return found, (ids[doubles[-1] - 1] - first) * STEP
