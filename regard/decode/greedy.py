"""One token after the other; greedy takes the likeliest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .leave import LOOK, worth_leaving
from .rules import NEVER, Rules
from .settings import Generator, Hypothesis, Limits, Settings

# (scores (R, V), rows of the batch (R,)) -> one token a row (R,)
Choice = Callable[[Tensor, Tensor], Tensor]


def greedy(
    model: Generator, batch: Any, limits: Limits, settings: Settings
) -> list[list[Hypothesis]]:
    """The likeliest token at every step; one answer a row."""
    return [[best] for best in walk(model, batch, limits, settings, likeliest)]


def likeliest(scores: Tensor, rows: Tensor) -> Tensor:
    return scores.argmax(-1)


@torch.inference_mode()
def walk(
    model: Generator,
    batch: Any,
    limits: Limits,
    settings: Settings,
    choose: Choice,
    copies: int = 1,
) -> list[Hypothesis]:
    """Write until every row has ended; rows that have ended leave the work."""
    obey = Rules(limits, settings)
    state = model.start(batch)
    if copies > 1:
        state = state.repeat(copies)
    longest = limits.longest.repeat_interleave(copies)  # (R,)
    rows = torch.arange(len(longest), device=longest.device)  # answers still being written
    written = limits.prompt.repeat_interleave(copies, 0)  # (R, t)
    totals = torch.zeros(len(longest), device=longest.device)
    done = torch.zeros_like(longest, dtype=torch.bool)
    answers: list[Hypothesis | None] = [None] * len(longest)
    every = LOOK[longest.device.type]
    shortest, most = (int(x) for x in longest.aminmax())
    for length in range(1, most + 1):
        logits, state = model.step(written[:, -1], state)
        scores = obey(logits.float(), written)
        chosen = choose(scores, rows)
        nothing = scores.amax(-1) == NEVER  # all is forbidden: the answer ends
        chosen = chosen.masked_fill(nothing, limits.eos)
        gain = scores.gather(-1, chosen[:, None])[:, 0] - scores.logsumexp(-1)
        gain = gain.masked_fill(nothing, 0.0)
        totals = totals + gain.masked_fill(done, 0.0)
        # What a row writes after its end is cut off when it leaves.
        written = torch.cat((written, chosen[:, None]), 1)
        done = done | (chosen == limits.eos)
        if length >= shortest:
            done = done | (length >= longest)
        if (length % every and length < most) or not worth_leaving(done):
            continue
        leaving = done.nonzero()[:, 0]
        new = written[leaving, limits.prompt.shape[1] :].tolist()
        fields = (rows[leaving].tolist(), longest[leaving].tolist(), totals[leaving].tolist(), new)
        for row, limit, total, ids in zip(*fields, strict=True):
            ids = ids[:limit]
            ended = limits.eos in ids
            answers[row] = Hypothesis(ids[: ids.index(limits.eos)] if ended else ids, total, ended)
        stay = (~done).nonzero()[:, 0]
        if not len(stay):
            break
        rows, written, totals, longest, done = (
            x[stay] for x in (rows, written, totals, longest, done)
        )
        state = state.select(stay)
    return [answer for answer in answers if answer is not None]
