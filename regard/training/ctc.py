"""CTC: how likely a text is, over all ways to lay it along what is heard (Graves et al. 2006).

torch has it too, but asks the host for the lengths, so that a step with it cannot be captured as a
CUDA graph; here nothing leaves the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LOW = -1e30  # the logarithm of what cannot be; two of them can be added


def ctc_loss(logs: Tensor, labels: Tensor, lengths: Tensor, label_lengths: Tensor) -> Tensor:
    """-log p of each text; 0, and nothing to learn, where it does not fit into its places.

    logs (B, S, V) log-probabilities, of which the last says that nothing is told here; labels
    (B, L); how many are real of each, (B,) -> (B,)
    """
    found: Tensor = CTC.apply(logs, labels, lengths, label_lengths)  # type: ignore[no-untyped-call]
    return found


class CTC(torch.autograd.Function):
    """Forwards and backwards at once: backwards is forwards over what is turned around."""

    @staticmethod
    def forward(
        ctx: Any, logs: Tensor, labels: Tensor, lengths: Tensor, label_lengths: Tensor
    ) -> Tensor:
        blank = logs.shape[2] - 1
        # A text with nothing before, between and behind its labels: Z = 2 L + 1 stages.
        stages = labels.new_full((len(labels), 2 * labels.shape[1] + 1), blank)
        stages[:, 1::2] = labels
        ends = 2 * label_lengths  # (B,) the last stage
        real = place(stages) <= ends[:, None]
        stages = torch.where(real, stages, blank)
        told = logs.gather(2, stages[:, None].expand(-1, logs.shape[1], -1))  # (B, S, Z)
        told = torch.where(real[:, None], told, LOW)
        in_time = turned(lengths - 1, place(told[:, :, 0]))[..., None].expand_as(told)
        by_stage = turned(ends, place(stages))  # (B, Z)
        back = by_stage[:, None].expand_as(told)
        both = torch.cat((told, told.gather(1, in_time).gather(2, back)))
        sums = passed(both, torch.cat((stages, stages.gather(1, by_stage))), blank)  # (2B, S, Z)
        before, after = sums.chunk(2)
        after = after.gather(1, in_time).gather(2, back)
        # A text ends in its last label, or with nothing behind it.
        last = before[torch.arange(len(logs), device=logs.device), lengths - 1]  # (B, Z)
        final = torch.stack((ends, (ends - 1).clamp_min(0)), 1)
        final = last.gather(1, final)
        final[:, 1] = torch.where(ends > 0, final[:, 1], LOW)
        total = final.logsumexp(1)  # (B,) log p
        fits = total > LOW / 2
        chance = (before + after - told - total[:, None, None]).exp()
        heard = (place(told[:, :, 0]) < lengths[:, None]) & fits[:, None]
        chance = torch.where(heard[..., None] & real[:, None], chance, 0.0)
        wanted = torch.zeros_like(logs).scatter_add(
            2, stages[:, None].expand_as(chance), chance
        )  # how often each entry is told at each place, of all ways
        ctx.save_for_backward(wanted)
        return torch.where(fits, -total, 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (wanted,) = ctx.saved_tensors
        return -wanted * gradient[:, None, None], None, None, None


def passed(told: Tensor, stages: Tensor, blank: int) -> Tensor:
    """log p of being at each stage at each place, with all that was told up to there.

    From one place to the next a stage stays, comes from the one before it, or passes over a blank
    between two labels that differ.  (B, S, Z), (B, Z) -> (B, S, Z)
    """
    rows, steps, width = told.shape
    sums = told.new_full((rows, steps, width + 2), LOW)  # two more on the left: nothing comes in
    sums[:, 0, 2:4] = told[:, 0, :2]
    barred = told.new_zeros(rows, width, 3)
    barred[:, :, 0] = LOW
    skips = (stages[:, 2:] != blank) & (stages[:, 2:] != stages[:, :-2])
    barred[:, 2:, 0] = torch.where(skips, 0.0, LOW)
    for step in range(1, steps):
        ways = sums[:, step - 1].unfold(1, 3, 1) + barred  # (B, Z, 3)
        sums[:, step, 2:] = ways.logsumexp(2) + told[:, step]
    return sums[:, :, 2:]


def place(like: Tensor) -> Tensor:
    """0, 1, 2 … along its second axis."""
    return torch.arange(like.shape[1], device=like.device)


def turned(last: Tensor, places: Tensor) -> Tensor:
    """Places up to the last one in turned order, those behind it as they are.

    (B,), (N,) -> (B, N)
    """
    return torch.where(places <= last[:, None], last[:, None] - places, places)
