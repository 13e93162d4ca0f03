"""Beam search: the best few beginnings are kept and grown together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .leave import LOOK, worth_leaving
from .rules import Rules
from .settings import Hypothesis, Limits, Settings

NEVER = float("-inf")


@dataclass
class Search:
    """B searches side by side, N beams each; t tokens are written, the prompt counted.

    `select` takes some of the searches on; everything that a search owns is in here.
    """

    sentences: Tensor  # (B,) which input each search is for
    longest: Tensor  # (B,)
    written: Tensor  # (B, N, t)
    scores: Tensor  # (B, N) log-probability of what is written
    ended: Tensor  # (B, N, t) ended answers, best first, `eos` last
    ended_scores: Tensor  # (B, N) their scores by length penalty; -inf: none yet
    ended_lengths: Tensor  # (B, N) new tokens, `eos` counted
    ended_properly: Tensor  # (B, N) by `eos`, not by a limit

    @classmethod
    def begin(cls, limits: Limits, beams: int) -> Search:
        rows = torch.arange(len(limits.longest), device=limits.longest.device)
        written = limits.prompt[:, None].repeat(1, beams, 1)  # (B, N, P)
        scores = torch.full((len(rows), beams), NEVER, device=rows.device)
        empty = torch.zeros((len(rows), beams), dtype=torch.long, device=rows.device)
        first = scores.clone()
        first[:, 0] = 0.0  # all beams begin alike, so only one may count
        return cls(rows, limits.longest, written, first, written, scores, empty, empty.bool())

    def select(self, searches: Tensor) -> Search:
        return Search(*(vars(self)[name][searches] for name in self.__dataclass_fields__))

    def cut(self, length: int, penalty: float) -> Tensor:
        """At its limit a search ends with what it has written, `eos` or not.  -> (B,) which did"""
        at_limit = length >= self.longest
        scores = (self.scores / length**penalty).masked_fill(~at_limit[:, None], NEVER)
        self.keep(self.written, scores, length, torch.zeros_like(scores, dtype=torch.bool))
        return at_limit

    def keep(self, offered: Tensor, scores: Tensor, length: int, properly: Tensor) -> None:
        """Take new ended answers among the best N.  offered (B, M, t), scores (B, M)"""
        beams = self.ended.shape[1]
        pad = offered.shape[2] - self.ended.shape[2]
        answers = torch.cat((torch.nn.functional.pad(self.ended, (0, pad)), offered), 1)
        lengths = torch.cat(
            (self.ended_lengths, torch.full_like(scores, length, dtype=torch.long)), 1
        )
        proper = torch.cat((self.ended_properly, properly), 1)
        self.ended_scores, best = torch.cat((self.ended_scores, scores), 1).topk(beams, 1)
        self.ended = answers.gather(1, best[..., None].expand(-1, -1, answers.shape[2]))
        self.ended_lengths, self.ended_properly = lengths.gather(1, best), proper.gather(1, best)


class Beam:
    """The best answers of each row, best first.

    At each step the 2N best continuations are looked at: those that end leave for the ended
    answers if they are among the best N, the best N others go on. Scores are sums of log-
    probability divided by (length ** length_penalty), `eos` counted in the length.
    """

    def __init__(
        self,
        limits: Limits,
        settings: Settings,
        record: Callable[..., None] | None = None,
        every: int | None = None,
        sums: bool = False,
    ) -> None:
        """`record` is told what was looked at and kept; `every`: steps between looks at who is
        done; `sums`: scores are sums of several logarithms, which no norm is taken off."""
        self.settings, self.eos, self.copies = settings, limits.eos, settings.num_beams
        self.obey, self.prompt = Rules(limits, settings), limits.prompt.shape[1]
        self.search, self.record, self.sums = Search.begin(limits, self.copies), record, sums
        self.every = every or LOOK[limits.longest.device.type]
        self.shortest, self.most = (int(x) for x in limits.longest.aminmax())
        self.answers: list[list[Hypothesis]] = [[] for _ in self.search.sentences]
        self.done = False

    @property
    def written(self) -> Tensor:
        return self.search.written.flatten(0, 1)  # (B·N, t)

    def advance(self, logits: Tensor) -> Tensor:
        scores = self.obey(logits.float(), self.written)
        length = self.search.written.shape[2] + 1 - self.prompt
        parents, done = self.grow(scores, length)  # (B, N), (B,)
        rows = torch.arange(len(parents), device=parents.device)[:, None] * self.copies + parents
        if (length % self.every == 0 or length == self.most) and worth_leaving(done):
            self.harvest(done)
            stay = (~done).nonzero()[:, 0]
            self.search, rows = self.search.select(stay), rows[stay]
            self.done = not len(stay)
        return rows.flatten()

    def grow(self, scores: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """One token more a beam.  (B·N, V) -> whom each goes on from (B, N), who is done (B,)"""
        search, beams, penalty = self.search, self.copies, self.settings.length_penalty
        best = best_continuations(scores, search.scores, self.sums)
        totals, parents, tokens = best  # (B, 2N) each
        ends = tokens == self.eos
        written = search.written
        grown = written.gather(1, parents[..., None].expand(-1, -1, written.shape[2]))
        grown = torch.cat((grown, tokens[..., None]), 2)  # (B, 2N, t + 1)
        ended = totals[:, :beams].masked_fill(~ends[:, :beams], NEVER) / length**penalty
        search.keep(grown[:, :beams], ended, length, ends[:, :beams])

        search.scores, going = totals.masked_fill(ends, NEVER).topk(beams, 1)  # (B, N)
        search.written = grown.gather(1, going[..., None].expand(-1, -1, grown.shape[2]))
        if self.record is not None:  # for those who want to see what was dropped
            self.record(totals, parents, tokens, going)
        done = finished(search, length, self.settings)
        if length >= self.shortest:
            done |= search.cut(length, penalty)
        # A search that is done writes nothing more, so a GPU need not be asked at every step.
        search.scores.masked_fill_(done[:, None], NEVER)
        return parents.gather(1, going), done

    def harvest(self, done: Tensor) -> None:
        """The best ended answers of the searches that are done, to their place."""
        picked = self.search.select(done.nonzero()[:, 0])
        fields = (picked.ended, picked.ended_scores, picked.ended_lengths, picked.ended_properly)
        for sentence, *ended in zip(
            picked.sentences.tolist(), *(x.tolist() for x in fields), strict=True
        ):
            best = list(zip(*ended, strict=True))[: self.settings.num_return_sequences]
            for row, score, length, properly in best:
                if score > NEVER:
                    ids = row[self.prompt : self.prompt + length - properly]
                    self.answers[sentence].append(Hypothesis(ids, score, properly))


def best_continuations(
    scores: Tensor, totals: Tensor, sums: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The 2N best of all beams' next tokens.  (B·N, V), (B, N) -> totals, parents, tokens (B, 2N)

    Each beam's own 2N best suffice, so only they are ranked against each other.
    """
    count = min(2 * totals.shape[1], scores.shape[-1])
    top, tokens = largest(scores, count)  # (B·N, 2N)
    norms = torch.zeros_like(top[:, :1])
    if not sums:
        # In place, for the scores are not needed any more: fresh memory of their size costs more.
        norms = scores.sub_(top[:, :1]).exp_().sum(-1, keepdim=True).log() + top[:, :1]
    # A beam whose every continuation is forbidden has no chances to speak of.
    chances = (top - norms).nan_to_num(nan=NEVER, neginf=NEVER)
    top = chances.view(*totals.shape, count) + totals[..., None]
    best, places = top.flatten(1).topk(min(2 * totals.shape[1], top[0].numel()), 1)
    return best, places // count, tokens.view(len(totals), -1).gather(1, places)


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `topk`, by way of the largest of each stretch, which is several times quicker.

    The k largest of all are in the k stretches with the largest maxima.  (R, V) -> (R, k) twice
    """
    stretch = int((scores.shape[-1] / count) ** 0.5)  # so that both sorts are about as long
    if stretch < 16:
        top, places = scores.topk(count, -1)
        return top, places
    whole = scores.shape[-1] // stretch * stretch
    stretches = scores[:, :whole].unflatten(-1, (-1, stretch))  # (R, V / s, s)
    picked = stretches.amax(-1).topk(count, -1).indices  # (R, k)
    places = picked[..., None] * stretch + torch.arange(stretch, device=scores.device)
    over = torch.arange(whole, scores.shape[-1], device=scores.device).expand(len(scores), -1)
    places = torch.cat((places.flatten(1), over), 1)  # (R, k · s and what is left over)
    top, found = scores.gather(1, places).topk(count, -1)
    return top, places.gather(1, found)


def finished(search: Search, length: int, settings: Settings) -> Tensor:
    """Whether a search has N answers and will find none better.  -> (B,)"""
    full = search.ended_scores[:, -1] > NEVER
    if settings.early_stopping is True:
        return full
    reach: Tensor | int = length
    if settings.early_stopping == "never" and settings.length_penalty > 0:
        reach = search.longest  # a longer answer is divided by more
    hope = search.scores[:, 0] / reach**settings.length_penalty
    return full & (hope <= search.ended_scores[:, -1])
