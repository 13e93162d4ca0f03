"""Requests that are being answered: their rows, and how rows that choose alike choose together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ..model import AnyBatch
from ..parts.precision import widest
from .beam import Beam
from .policy import choose, throws
from .rules import NEVER, Rules
from .settings import DRAWING, Hypothesis, Limits, Settings


@dataclass
class Token:
    """One token of an answer, as it comes."""

    copy: int  # of several answers, which
    id: int
    score: float  # log-probability
    others: list[tuple[int, float]] = field(default_factory=list)  # the likeliest


@dataclass
class Done:
    """A request has ended: its answers, or why there are none."""

    answers: list[Hypothesis]
    error: BaseException | None = None


class Told(Protocol):
    """Who asked is told what happens, from the engine's thread; it must not wait."""

    def __call__(self, event: Token | Done) -> None: ...


@dataclass(eq=False)
class Request:
    """What somebody wants written."""

    limits: Limits  # of one row
    settings: Settings
    tell: Told
    source: AnyBatch | None = None  # of one row, for an encoder; None: the prompt is all there is
    others: int = 0  # likeliest tokens to tell with each
    cancelled: bool = False

    def cancel(self) -> None:
        """It leaves before the next step."""
        self.cancelled = True

    @property
    def rows(self) -> int:
        return self.settings.rows

    @cached_property
    def tokens(self) -> int:
        """The most that a row of it can hold, what is read from outside counted."""
        read = 0 if self.source is None else self.source.read.width
        return read + self.limits.prompt.shape[1] + int(self.limits.longest[0])


class OngoingRequest:
    """A request in the batch: its rows, and what each has written."""

    def __init__(self, request: Request, places: list[int]) -> None:
        self.request, self.places = request, places
        self.limits, self.settings = request.limits, request.settings
        self.prompt: list[int] = self.limits.prompt[0].tolist()
        self.most, self.length = int(self.limits.longest[0]), 0
        self.beam: Beam | None = None
        if self.settings.kind == "beam":
            self.beam = Beam(self.limits, self.settings, every=1)  # it leaves as soon as it can
        copies = len(places)
        self.copies = list(range(copies))  # which copy each of `places` is
        self.written: list[list[int]] = [[] for _ in range(copies)]  # by copy
        self.totals = [0.0] * copies
        self.answers: dict[int, Hypothesis] = {}  # by copy
        self.thrown: list[list[float]] = []
        if self.settings.kind == "sample":
            seed = self.settings.seed
            self.thrown = [throws(seed, copy, self.most).tolist() for copy in range(copies)]

    @property
    def kind(self) -> Hashable:
        """Requests of one kind choose by the same rules; those that look back choose alone."""
        s = self.settings
        if s.repetition_penalty != 1 or s.no_repeat_ngram_size:
            return id(self)
        drawn = tuple(getattr(s, name) for name in DRAWING)
        return s.kind, drawn, s.min_new_tokens, self.limits.banned, self.limits.eos

    def text(self, copy: int) -> list[int]:
        """Prompt and answer so far."""
        return [*self.prompt, *self.written[copy]]

    def add(self, copy: int, token: int, score: float) -> bool:
        """One token more; whether the answer has ended with it."""
        self.totals[copy] += score
        properly = token == self.limits.eos
        if not properly:
            self.written[copy].append(token)
        if not properly and self.length < self.most:
            return False
        self.answers[copy] = Hypothesis(self.written[copy], self.totals[copy], properly)
        return True


class Group:
    """Rows of requests that choose by the same rules: one choice for all, one look at the device.

    Only what is told leaves the device, in one piece.
    """

    def __init__(self, members: Sequence[OngoingRequest], device: torch.device) -> None:
        self.members, self.device = members, device
        self.rows = [(running, copy) for running in members for copy in running.copies]
        self.places = [place for running in members for place in running.places]
        self.index = torch.tensor(self.places, device=device)
        self.others = max(running.request.others for running in members)
        limits, self.settings = members[0].limits, members[0].settings
        self.eos = limits.eos
        self.banned = torch.tensor(limits.banned, dtype=torch.long, device=device)
        looks_back = self.settings.repetition_penalty != 1 or self.settings.no_repeat_ngram_size
        self.alone = Rules(limits, self.settings) if looks_back else None

    def choose(self, logits: Tensor) -> tuple[Tensor, list[Token]]:
        """A token for each of its rows, on the device and told.  all rows' (R, V) -> (G,)"""
        scores = self.obey(logits[self.index])
        dice = None
        if self.settings.kind == "sample":
            thrown = [running.thrown[copy][running.length] for running, copy in self.rows]
            dice = torch.tensor(thrown, dtype=widest(self.device), device=self.device)
        chosen, gain = choose(scores, self.settings, dice, self.eos)
        columns = [chosen[:, None], gain[:, None]]
        count = min(self.others, scores.shape[1])
        if count:
            likeliest = scores.topk(count, -1)
            columns += [likeliest.indices, likeliest.values - scores.logsumexp(-1, keepdim=True)]
        told = torch.cat([column.to(widest(self.device)) for column in columns], 1).nan_to_num(
            neginf=NEVER
        )
        return chosen, [
            Token(copy, int(row[0]), row[1], self.likely(row[2:], running.request.others))
            for (running, copy), row in zip(self.rows, told.tolist(), strict=True)
        ]

    def obey(self, scores: Tensor) -> Tensor:
        """What is forbidden at -inf; the scores are this group's own to change."""
        if self.alone is not None:
            texts = torch.tensor([r.text(copy) for r, copy in self.rows], device=self.device)
            return self.alone(scores, texts)
        if len(self.banned):
            scores.index_fill_(1, self.banned, NEVER)
        least = self.settings.min_new_tokens
        early = [i for i, (running, _) in enumerate(self.rows) if running.length < least]
        if early:
            scores[early, self.eos] = NEVER
        return scores

    def likely(self, row: list[float], count: int) -> list[tuple[int, float]]:
        """The first so many of ids and log-probabilities; what is forbidden is not likely."""
        half = len(row) // 2
        pairs = list(zip(map(int, row[:half]), row[half:], strict=True))[:count]
        return [(token, score) for token, score in pairs if score > NEVER]
