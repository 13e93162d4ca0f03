"""What CTC says of a text: how likely it is to begin so, and what is heard without any search.

At each place of what is read a word is told, or nothing (`blank`); a text is all ways to lay its
words along the places in order (Graves et al. 2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from ..parts.precision import widest
from .settings import Hypothesis

NEVER = -1e30  # as good as -inf, but differences of two of them are numbers


class CtcStepper:
    """log p(next word | text so far), of all texts that begin so (Watanabe et al. 2017, eq. 17).

    For each row it keeps, at every place, the log-probability of having told the text so far and
    stood last on its last word or on nothing. Both are sums along the places, so a step is a
    handful of calls however long the sound is.
    """

    def __init__(self, scores: Tensor, lengths: Tensor, copies: int, eos: int) -> None:
        """scores (B, S, V + 1), of which the last is of nothing; lengths (B,); each row is written
        `copies` times, side by side."""
        self.copies, self.eos = copies, eos
        logs = scores.to(widest(scores.device)).log_softmax(-1)
        beyond = torch.arange(logs.shape[1], device=logs.device) >= lengths[:, None]  # (B, S)
        # Behind the end there is nothing for certain, so that the last place tells of the whole.
        logs = logs.masked_fill(beyond[..., None], NEVER / logs.shape[1])
        logs[..., -1] = logs[..., -1].masked_fill(beyond, 0.0)
        self.silence = logs[..., -1].cumsum(1)  # (B, S)
        self.logs, self.chances = logs[..., :-1], logs[..., :-1].exp()  # (B, S, V)
        # Before the first word: nothing so far.
        self.on_blank = self.silence.repeat_interleave(copies, 0)  # (R, S)
        self.on_word = torch.full_like(self.on_blank, NEVER)
        self.total = torch.zeros_like(self.on_blank[:, 0])  # (R,) of all texts that begin so
        self.length = 0

    def step(self, written: Tensor) -> Tensor:
        """(R, t) -> log-probabilities of what comes next (R, V)"""
        last = written[:, -1]
        if self.length:
            self.extend(written[:, -2], last)
        self.length += 1
        begun = self.before(last if self.length > 1 else None)  # (R, S) to go on from, by others
        peak = begun.amax(1, keepdim=True)
        groups = (begun - peak).exp().unflatten(0, (-1, self.copies))  # (B, copies, S)
        scores = (groups @ self.chances).flatten(0, 1).clamp_min(1e-300).log() + peak  # (R, V)
        if self.length > 1:  # the same word again must be told apart by a blank
            again = (shifted(self.on_blank) + self.along(last)).logsumexp(1)
            scores.scatter_(1, last[:, None], again[:, None])
        scores[:, self.eos] = torch.logaddexp(self.on_word[:, -1], self.on_blank[:, -1])
        self.scores = scores
        told: Tensor = (scores - self.total[:, None]).float()
        return told

    def along(self, words: Tensor) -> Tensor:
        """How likely a word of each row is at every place.  (R,) -> (R, S)"""
        sources = torch.arange(len(words), device=words.device) // self.copies
        places = torch.arange(self.logs.shape[1], device=words.device)
        found: Tensor = self.logs[sources[:, None], places, words[:, None]]
        return found

    def before(self, last: Tensor | None) -> Tensor:
        """The text so far told by the place before: where another word can begin.  -> (R, S)"""
        both = torch.logaddexp(self.on_word, self.on_blank)
        return shifted(both, 0.0 if last is None else NEVER)

    def extend(self, before: Tensor, word: Tensor) -> None:
        """The text is one word longer.  (R,), (R,)"""
        first = self.length == 1
        ready = self.before(None if first else before)
        same = (word == before)[:, None] & (not first)
        ready = torch.where(same, shifted(self.on_blank), ready)
        # r_t = (r_{t-1} + ready_t) p_t, of which the sum of logarithms is taken out.
        along = self.along(word).cumsum(1)
        self.on_word = along + (ready - shifted(along, 0.0)).logcumsumexp(1)
        quiet = self.silence.repeat_interleave(self.copies, 0)
        began = shifted(self.on_word) - shifted(quiet, 0.0)
        self.on_blank = quiet + began.logcumsumexp(1)
        self.total = self.scores.gather(1, word[:, None])[:, 0]

    def select(self, rows: Tensor) -> None:
        """Rows go on from others of their sound; sounds whose rows are all gone are put away."""
        if len(rows) != len(self.total):
            sounds = rows[:: self.copies] // self.copies
            self.silence, self.logs, self.chances = (
                x[sounds] for x in (self.silence, self.logs, self.chances)
            )
        self.on_word, self.on_blank, self.total, self.scores = (
            x[rows] for x in (self.on_word, self.on_blank, self.total, self.scores)
        )


def shifted(x: Tensor, first: float = NEVER) -> Tensor:
    """At each place what was at the one before it.  (R, S) -> (R, S)"""
    return torch.cat((torch.full_like(x[:, :1], first), x[:, :-1]), 1)


def best_path(
    scores: Tensor, lengths: Tensor, never: Sequence[int], longest: Tensor
) -> list[Hypothesis]:
    """The likeliest at every place, repeats taken together, without the blanks, which are the last
    entry.  (B, S, V + 1), (B,), entries that are not written, (B,) tokens at most

    What it is worth is the likelihood of that one way to tell it.
    """
    blank = scores.shape[-1] - 1
    logs = scores.float().log_softmax(-1)
    logs[..., list(never)] = float("-inf")
    gains, tokens = logs.max(-1)  # (B, S)
    found = []
    fields = (tokens, gains, lengths, longest)
    for row, each, length, most in zip(*(x.tolist() for x in fields), strict=True):
        ids = [token for token, _ in groupby(row[:length]) if token != blank]
        found.append(Hypothesis(ids[:most], sum(each[:length]), len(ids) <= most))
    return found
