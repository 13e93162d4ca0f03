"""Where scores come from: the model, one step after the other.

A stepper is asked what comes after the texts so far. A batch is stepped together; one text may
slide over what its model can place, a smaller model may guess ahead, and several may be joined.
(`engine` has one more: rows that join and leave, of which each is at a place of its own.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, cat, full_like, stack

from ..model import AnyBatch, AnyState, Writes, WritesOn
from .graph import with_cuda_graphs
from .policy import GUESSES
from .settings import Settings

Prompt = Callable[[Tensor], AnyBatch]  # ids (1, P) -> a batch that `start` takes
Guess = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # as `Choosing.choose`


class Stepper(Protocol):
    """Scores of what comes next."""

    def step(self, written: Tensor) -> Tensor:
        """Texts that are one token longer than when last asked.  (R, t) -> logits (R, V)"""

    def select(self, rows: Tensor) -> None:
        """From now on the texts are those that go on from these rows.  (S,)"""


class Together:
    """A batch: all texts are as long."""

    def __init__(
        self, model: Writes, batch: AnyBatch, copies: int, begun: Tensor | None = None
    ) -> None:
        """`begun` (B, P): what is written already, of a model whose `start` reads none of it."""
        self.model, self.state = model, model.start(batch)
        for token in [] if begun is None else begun[:, :-1].unbind(1):
            _, self.state = model.step(token, self.state)
        if copies > 1:
            self.state = self.state.repeat(copies)

    def step(self, written: Tensor) -> Tensor:
        logits, self.state = self.model.step(written[:, -1], self.state)
        return logits

    def select(self, rows: Tensor) -> None:
        self.state = self.state.select(rows)


class Beside(Together):
    """A model that writes on from a text, asked of others' answers: its own text begins with what
    it has read (`first`, its last token), theirs with what is not its business."""

    def __init__(self, model: Writes, batch: AnyBatch, copies: int, first: int) -> None:
        super().__init__(model, batch, copies)
        self.first: int | None = first

    def step(self, written: Tensor) -> Tensor:
        last, self.first = self.first, None
        return super().step(written if last is None else full_like(written[:, -1:], last))


class Joined:
    """Several that score the same texts: the sum of their log-probabilities, each as much as it
    counts."""

    def __init__(self, parts: Sequence[tuple[float, Stepper]]) -> None:
        self.parts = parts

    def step(self, written: Tensor) -> Tensor:
        weighted = [w * part.step(written).float().log_softmax(-1) for w, part in self.parts]
        return stack(weighted).sum(0)

    def select(self, rows: Tensor) -> None:
        for _, part in self.parts:
            part.select(rows)


class Sliding:
    """One text; a model that can place only so many tokens goes on from the later half of it."""

    def __init__(self, model: WritesOn, prompt: Prompt, settings: Settings) -> None:
        self.plain, self.model, self.prompt = model, with_cuda_graphs(model, settings), prompt
        self.state: AnyState | None = None
        self.seen = 0  # tokens that the state has read

    def step(self, written: Tensor) -> Tensor:
        if self.state is None or self.seen >= room(self.plain):
            text = fitting(written, self.plain.longest)
            self.seen, self.state = text.shape[1] - 1, self.model.start(self.prompt(text))
        logits, self.state = self.model.step(written[:, -1], self.state)
        self.seen += 1
        return logits

    def select(self, rows: Tensor) -> None:
        assert self.state is not None
        self.state = self.state.select(rows)


class Drafted:
    """A draft writes a few tokens and the model scores them all in one pass; while the text turns
    out as guessed, those scores are ready (Leviathan et al. 2023)."""

    def __init__(self, model: WritesOn, draft: WritesOn, prompt: Prompt, guess: Guess) -> None:
        self.model, self.draft, self.prompt, self.guess = model, draft, prompt, guess
        self.state: AnyState | None = None

    def step(self, written: Tensor) -> Tensor:
        if self.state is None:
            self.seen, self.state = self.begin(self.model, written)
            self.known, self.ahead = self.begin(self.draft, written)
        else:
            new = written.shape[1] - self.base
            came_true = new <= self.count and bool(
                self.text[0, self.base + new - 1] == written[0, -1]
            )
            if came_true:
                return self.logits[:, new]
            self.settle(written, new)
        self.look_ahead(written)
        return self.logits[:, 0]

    def look_ahead(self, written: Tensor) -> None:
        """The draft's guesses, and the model's scores of each."""
        # The model slides where it would alone, so that its answers are the same.
        if self.seen >= room(self.model):
            self.seen, self.state = self.begin(self.model, written)
        count = int(min(GUESSES, room(self.model) - self.seen - 1, room(self.draft) // 2 - 1))
        self.base, self.count, self.text = written.shape[1], max(0, count), written
        if self.known + self.count + 1 > room(self.draft):
            self.known, self.ahead = self.begin(self.draft, written, slide=True)
        for _ in range(self.count):
            logits, self.ahead = self.draft.step(self.text[:, -1], self.ahead)
            token, _ = self.guess(logits, self.text)
            self.text = cat((self.text, token[:, None]), 1)
        # The last token, which neither has read before, and the guesses after it.
        self.logits, self.state = self.model.extend(self.text[:, self.base - 1 :], self.state)

    def settle(self, written: Tensor, new: int) -> None:
        """The model has read count + 1 tokens, the draft count; both keep what came true."""
        assert self.state is not None
        self.state.rewind(self.count + 1 - new)
        if new > self.count:
            _, self.ahead = self.draft.step(written[:, -2], self.ahead)
        else:
            self.ahead.rewind(self.count - new)
        self.seen, self.known = self.seen + new, self.known + new

    def select(self, rows: Tensor) -> None:
        raise NotImplementedError("a draft guesses for one text")

    def begin(self, model: WritesOn, written: Tensor, slide: bool = False) -> tuple[int, AnyState]:
        text = fitting(written, model.longest, slide)
        state = model.start(self.prompt(text))
        state.remember(GUESSES + 1)
        return text.shape[1] - 1, state


def room(model: WritesOn) -> float:
    """Tokens that a model can place."""
    return model.longest if model.longest is not None else float("inf")


def fitting(written: Tensor, longest: int | None, slide: bool = False) -> Tensor:
    """The text, or where it is longer than can be placed, its last part, half as long as fits."""
    if longest is None or (written.shape[1] <= longest and not slide):
        return written
    return written[:, -max(1, longest // 2) :]
