"""The loop of all decoding: the stepper scores, the policy writes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..model import AnyBatch, Writes, WritesOn
from .beam import Beam
from .policy import Choosing, Policy
from .settings import Hypothesis, Limits, Settings
from .stepper import Drafted, Prompt, Sliding, Stepper, Together

POLICIES = {"beam": Beam, "greedy": Choosing, "sample": Choosing}


def steps(stepper: Stepper, policy: Policy) -> Iterator[None]:
    """One token more for all that are being written, until nothing is."""
    while not policy.done:
        rows = policy.advance(stepper.step(policy.written))
        yield
        if rows is not None and not policy.done:
            stepper.select(rows)


@torch.inference_mode()
def follow(policy: Policy, stepper: Stepper) -> list[list[Hypothesis]]:
    """A batch written to its end, by any policy."""
    for _ in steps(stepper, policy):
        pass
    return policy.answers


@torch.inference_mode()
def write(
    model: Writes, batch: AnyBatch, limits: Limits, settings: Settings
) -> list[list[Hypothesis]]:
    """The answers for each row, the best first where they are searched for."""
    policy: Policy = POLICIES[settings.kind](limits, settings)
    return follow(policy, Together(model, batch, policy.copies))


@torch.inference_mode()
def stream(
    model: WritesOn,
    prompt: Prompt,
    limits: Limits,
    settings: Settings,
    draft: WritesOn | None = None,
    copy: int = 0,
) -> Iterator[tuple[int, float]]:
    """Tokens of one text as they are written, with their log-probability; `eos` comes last if it
    comes. With a draft, what comes out is what the model alone would have written."""
    policy = Choosing(limits, settings.alone(), copy)
    stepper: Stepper
    if draft is None:
        stepper = Sliding(model, prompt, settings)
    else:
        stepper = Drafted(model, draft, prompt, policy.choose)
    for _ in steps(stepper, policy):
        token = int(policy.chosen[0])
        yield token, float(policy.gain[0])
        if token == limits.eos:
            return
