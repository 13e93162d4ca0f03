"""One token after the other; greedy takes the likeliest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .rules import Rules
from .settings import Generator, Hypothesis, Limits, Settings

# (scores (R, V), rows of the batch (R,)) -> one token a row (R,)
Choice = Callable[[Tensor, Tensor], Tensor]


def greedy(
    model: Generator, batch: Any, limits: Limits, settings: Settings
) -> list[list[Hypothesis]]:
    """The likeliest token at every step; one answer a row."""
    return [
        [best] for best in walk(model, batch, limits, settings, lambda scores, _: scores.argmax(-1))
    ]


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
    rows = torch.arange(
        len(longest), device=longest.device
    )  # which answers are still being written
    written = torch.full_like(longest, limits.bos)[:, None]  # (R, t)
    totals = torch.zeros(len(longest), device=longest.device)
    answers: list[Hypothesis | None] = [None] * len(longest)
    while len(rows):
        logits, state = model.step(written[:, -1], state)
        scores = obey(logits.float(), written)
        chosen = choose(scores, rows)
        totals = totals + scores.log_softmax(-1).gather(-1, chosen[:, None])[:, 0]
        written = torch.cat((written, chosen[:, None]), 1)
        ended = chosen == limits.eos
        leaving = ended | (written.shape[1] - 1 >= longest)
        if leaving.any():
            for i in leaving.nonzero()[:, 0].tolist():
                ids = written[i, 1:].tolist()
                done = bool(ended[i])
                answers[int(rows[i])] = Hypothesis(
                    ids[:-1] if done else ids, float(totals[i]), done
                )
            stay = (~leaving).nonzero()[:, 0]
            rows, written, totals, longest = (x[stay] for x in (rows, written, totals, longest))
            if len(rows):
                state = state.select(stay)
    return [answer for answer in answers if answer is not None]
