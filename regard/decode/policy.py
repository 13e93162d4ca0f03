"""How rows grow: the likeliest token, or one drawn; `beam` keeps the best few.

A policy is handed the model's scores and says what is read next. The same policies answer in the
shell, in Python and over HTTP. Each answer is drawn by dice of its own, so that neighbours change
nothing.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ..parts.precision import widest
from .leave import LOOK, worth_leaving
from .rules import NEVER, Rules, keep_likely
from .settings import Hypothesis, Limits, Settings

GUESSES = 5  # tokens that a draft writes before they are checked


class Policy(Protocol):
    """What to write, given how the model scores what may come next."""

    copies: int  # rows for each input
    answers: list[list[Hypothesis]]  # by input, of those that have left
    done: bool  # everybody has left

    @property
    def written(self) -> Tensor:
        """Prompt and answer of every row so far.  -> (R, t)"""

    def advance(self, logits: Tensor) -> Tensor | None:
        """One token more for every row; those that have ended may leave.  (R, V) -> (S,)

        -> which row each of those that stay goes on from; None: every row from itself
        """


class Choosing:
    """Greedily or drawn, `num_return_sequences` answers for each row of the limits."""

    def __init__(self, limits: Limits, settings: Settings, first_copy: int = 0) -> None:
        self.settings, self.eos = settings, limits.eos
        self.copies = settings.num_return_sequences
        self.obey, self.prompt = Rules(limits, settings), limits.prompt.shape[1]
        self.longest = limits.longest.repeat_interleave(self.copies)  # (R,)
        self.shortest, self.most = (int(x) for x in self.longest.aminmax())
        self.rows = torch.arange(len(self.longest), device=self.longest.device)  # still written
        self.written = limits.prompt.repeat_interleave(self.copies, 0)  # (R, t)
        self.totals = torch.zeros(len(self.rows), device=self.rows.device)
        self.ended = torch.zeros_like(self.longest, dtype=torch.bool)
        self.every = LOOK[self.rows.device.type]
        self.dice: Tensor | None = None  # (R, steps)
        if settings.kind == "sample":
            copies = range(first_copy, first_copy + self.copies)
            thrown = [throws(settings.seed, copy, self.most + GUESSES + 1) for copy in copies]
            whole, device = torch.stack(thrown).repeat(len(limits.longest), 1), self.rows.device
            self.dice = whole.to(widest(device)).to(device)
        self.answers: list[list[Hypothesis]] = [[] for _ in range(len(limits.longest))]
        self.left: dict[int, Hypothesis] = {}  # by row
        self.done = False

    def choose(self, logits: Tensor, written: Tensor) -> tuple[Tensor, Tensor]:
        """What comes after a text and its log-probability: asked twice, drawn with the same dice.

        So a draft and the model that checks it draw alike.  (R, V), (R, t) -> (R,), (R,)
        """
        scores = self.obey(logits.float(), written)
        place = written.shape[1] - self.prompt
        thrown = None if self.dice is None else self.dice[self.rows, place]
        return choose(scores, self.settings, thrown, self.eos)

    def advance(self, logits: Tensor) -> Tensor | None:
        self.chosen, self.gain = self.choose(logits, self.written)
        self.totals = self.totals + self.gain.masked_fill(self.ended, 0.0)
        # What a row writes after its end is cut off when it leaves.
        self.written = torch.cat((self.written, self.chosen[:, None]), 1)
        self.ended = self.ended | (self.chosen == self.eos)
        length = self.written.shape[1] - self.prompt
        if length >= self.shortest:
            self.ended = self.ended | (length >= self.longest)
        if (length % self.every and length < self.most) or not worth_leaving(self.ended):
            return None
        return self.leave()

    def leave(self) -> Tensor:
        """Rows that have ended become answers.  -> those that stay"""
        leaving, stay = self.ended.nonzero()[:, 0], (~self.ended).nonzero()[:, 0]
        new = self.written[leaving, self.prompt :]
        fields = (self.rows[leaving], self.longest[leaving], self.totals[leaving], new)
        for row, limit, total, ids in zip(*(x.tolist() for x in fields), strict=True):
            ids = ids[:limit]
            ended = self.eos in ids
            self.left[row] = Hypothesis(ids[: ids.index(self.eos)] if ended else ids, total, ended)
        self.rows, self.written, self.totals, self.longest, self.ended = (
            x[stay] for x in (self.rows, self.written, self.totals, self.longest, self.ended)
        )
        self.done = not len(stay)
        if self.done:
            for row, answer in sorted(self.left.items()):
                self.answers[row // self.copies].append(answer)
        return stay


def choose(
    scores: Tensor, settings: Settings, thrown: Tensor | None, eos: int
) -> tuple[Tensor, Tensor]:
    """A token for each row and its log-probability; where all is forbidden, the end.

    scores (R, V), what is forbidden at -inf; thrown (R,) where tokens are drawn -> (R,), (R,)
    """
    if settings.kind == "greedy" or thrown is None:
        chosen = scores.argmax(-1)
    else:
        chosen = draw(keep_likely(scores, settings), thrown)
    nothing = scores.amax(-1) == NEVER
    chosen = chosen.masked_fill(nothing, eos)
    gain = scores.gather(-1, chosen[:, None])[:, 0] - scores.logsumexp(-1)
    return chosen, gain.masked_fill(nothing, 0.0)


def throws(seed: int, copy: int, count: int) -> Tensor:
    """Numbers in [0, 1), which seed and copy alone decide."""
    dice = torch.Generator().manual_seed(seed * 1_000_003 + copy)
    return torch.rand(count, generator=dice, dtype=torch.float64)


def draw(scores: Tensor, thrown: Tensor) -> Tensor:
    """The token at which the probabilities, summed up, pass the number thrown.  (R, V), (R,)"""
    sums = scores.to(widest(scores.device)).softmax(-1).cumsum(-1)
    places = torch.searchsorted(sums, (thrown * sums[:, -1])[:, None], right=True)
    return places[:, 0].clamp_max(scores.shape[-1] - 1)
