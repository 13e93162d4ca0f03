"""A batch written to its end, one token after the other: greedily or drawn."""

from __future__ import annotations

import torch
from torch import Tensor

from ..model import AnyBatch, Writes
from .leave import LOOK, worth_leaving
from .policy import choose, throws
from .rules import Rules
from .settings import Hypothesis, Limits, Settings


@torch.inference_mode()
def walk(
    model: Writes, batch: AnyBatch, limits: Limits, settings: Settings
) -> list[list[Hypothesis]]:
    """`num_return_sequences` answers for each row; rows that have ended leave the work."""
    copies = settings.num_return_sequences
    obey = Rules(limits, settings)
    state = model.start(batch)
    if copies > 1:
        state = state.repeat(copies)
    longest = limits.longest.repeat_interleave(copies)  # (R,)
    rows = torch.arange(len(longest), device=longest.device)  # answers still being written
    written = limits.prompt.repeat_interleave(copies, 0)  # (R, t)
    totals = torch.zeros(len(longest), device=longest.device)
    done = torch.zeros_like(longest, dtype=torch.bool)
    answers: dict[int, Hypothesis] = {}
    every = LOOK[longest.device.type]
    shortest, most = (int(x) for x in longest.aminmax())
    dice = dice_of(limits, settings, most)  # (R, steps)
    for length in range(1, most + 1):
        logits, state = model.step(written[:, -1], state)
        scores = obey(logits.float(), written)
        thrown = None if dice is None else dice[rows, length - 1]
        chosen, gain = choose(scores, settings, thrown, limits.eos)
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
    every_answer = [answers[row] for row in range(len(answers))]
    return [every_answer[i : i + copies] for i in range(0, len(every_answer), copies)]


def dice_of(limits: Limits, settings: Settings, most: int) -> Tensor | None:
    """What is thrown at each step: the same for every row, another for each of its copies."""
    if settings.kind != "sample":
        return None
    copies = range(settings.num_return_sequences)
    thrown = torch.stack([throws(settings.seed, copy, most) for copy in copies])
    return thrown.repeat(len(limits.longest), 1).to(limits.longest.device)
