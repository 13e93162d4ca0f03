"""What CTC says of a text: how likely it is to begin so, and what is heard without any search.

At each place of what is read a word is told, or nothing (`blank`); a text is all ways to lay its
words along the places in order (Graves et al. 2006).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .settings import Hypothesis

NEVER = -1e30  # as good as -inf, but differences of two of them are numbers


class CtcStepper:
    """log p(next word | text so far), of all texts that begin so (Watanabe et al. 2017, eq. 17).

    For each row it keeps, at every place, the log-probability of having told the text so far and
    stood last on its last word or on nothing. Both are sums along the places, so a step is a
    handful of calls however long the sound is.
    """

    def __init__(self, scores: Tensor, lengths: Tensor, copies: int, blank: int, eos: int) -> None:
        """scores (B, S, V), lengths (B,); each row is written `copies` times."""
        self.blank, self.eos = blank, eos
        logs = scores.double().log_softmax(-1)
        beyond = torch.arange(logs.shape[1], device=logs.device) >= lengths[:, None]  # (B, S)
        # Behind the end there is nothing for certain, so that the last place tells of the whole.
        logs = logs.masked_fill(beyond[..., None], NEVER / logs.shape[1])
        logs[..., blank] = logs[..., blank].masked_fill(beyond, 0.0)
        self.logs, self.chances = logs, logs.exp()
        rows = torch.arange(len(logs), device=logs.device)
        self.sources = rows.repeat_interleave(copies)  # (R,)
        self.silence = logs[..., blank].cumsum(1)  # (B, S)
        # Before the first word: nothing so far.
        self.on_word = torch.full_like(self.silence, NEVER)[self.sources]  # (R, S)
        self.on_blank = self.silence[self.sources]
        self.total = torch.zeros_like(self.on_blank[:, 0])  # (R,) of all texts that begin so
        self.length = 0

    def step(self, written: Tensor) -> Tensor:
        """(R, t) -> log-probabilities of what comes next (R, V)"""
        last = written[:, -1]
        if self.length:
            self.extend(written[:, -2], last)
        self.length += 1
        logs = self.logs[self.sources]
        chances = self.chances[self.sources]  # (R, S, V)
        begun = self.before(last if self.length > 1 else None)  # (R, S) to go on from, by others
        peak = begun.amax(1, keepdim=True)
        found = ((begun - peak).exp()[:, None] @ chances)[:, 0]  # (R, V)
        scores = found.clamp_min(1e-300).log() + peak
        if self.length > 1:  # the same word again must be told apart by a blank
            own = logs.gather(2, last[:, None, None].expand(-1, logs.shape[1], 1))[..., 0]
            again = (shifted(self.on_blank) + own).logsumexp(1)
            scores.scatter_(1, last[:, None], again[:, None])
        scores[:, self.eos] = torch.logaddexp(self.on_word[:, -1], self.on_blank[:, -1])
        scores[:, self.blank] = NEVER
        self.scores = scores
        return (scores - self.total[:, None]).float()

    def before(self, last: Tensor | None) -> Tensor:
        """The text so far told by the place before: where another word can begin.  -> (R, S)"""
        both = torch.logaddexp(self.on_word, self.on_blank)
        return shifted(both, 0.0 if last is None else NEVER)

    def extend(self, before: Tensor, word: Tensor) -> None:
        """The text is one word longer.  (R,), (R,)"""
        first = self.length == 1
        own = self.logs[self.sources].gather(
            2, word[:, None, None].expand(-1, self.logs.shape[1], 1)
        )[..., 0]  # (R, S)
        ready = self.before(None if first else before)
        same = (word == before)[:, None] & (not first)
        ready = torch.where(same, shifted(self.on_blank), ready)
        # r_t = (r_{t-1} + ready_t) p_t, of which the sum of logarithms is taken out.
        along = own.cumsum(1)
        self.on_word = along + (ready - shifted(along, 0.0)).logcumsumexp(1)
        quiet = self.silence[self.sources]
        began = shifted(self.on_word) - shifted(quiet, 0.0)
        self.on_blank = quiet + began.logcumsumexp(1)
        self.total = self.scores.gather(1, word[:, None])[:, 0]

    def select(self, rows: Tensor) -> None:
        self.sources, self.on_word, self.on_blank, self.total, self.scores = (
            x[rows] for x in (self.sources, self.on_word, self.on_blank, self.total, self.scores)
        )


def shifted(x: Tensor, first: float = NEVER) -> Tensor:
    """At each place what was at the one before it.  (R, S) -> (R, S)"""
    return torch.cat((torch.full_like(x[:, :1], first), x[:, :-1]), 1)


def best_path(scores: Tensor, lengths: Tensor, blank: int) -> list[Hypothesis]:
    """The likeliest at every place, repeats taken together, without the blanks.  (B, S, V), (B,)

    What it is worth is the likelihood of that one way to tell it.
    """
    logs, tokens = scores.float().log_softmax(-1).max(-1)  # (B, S)
    found = []
    for row, gains, length in zip(tokens.tolist(), logs.tolist(), lengths.tolist(), strict=True):
        row = row[:length]
        ids = [
            token
            for place, token in enumerate(row)
            if token != blank and (place == 0 or token != row[place - 1])
        ]
        found.append(Hypothesis(ids, sum(gains[:length]), True))
    return found
