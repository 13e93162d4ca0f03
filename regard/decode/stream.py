"""One text written token by token, each given out as it comes; a smaller model may guess ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..model import AnyBatch, AnyState, WritesOn
from .graph import with_cuda_graphs
from .policy import choose, throws
from .rules import Rules
from .settings import Limits, Settings

GUESSES = 5  # tokens that a draft writes before they are checked


class Pick:
    """Chooses a token by its place: asked twice for the same place, it draws with the same dice.

    So a draft and the model that checks it draw alike, and what comes out is what the model alone
    would have written, drawn or not.
    """

    def __init__(self, settings: Settings, eos: int, most: int, copy: int = 0) -> None:
        self.settings, self.eos = settings, eos
        self.thrown = throws(settings.seed, copy, most + GUESSES + 1)

    def __call__(self, scores: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """A token and its log-probability.  (1, V) -> (1,), (1,)"""
        thrown = self.thrown[place : place + 1].to(scores.device)
        return choose(scores, self.settings, thrown, self.eos)


Prompt = Callable[[Tensor], AnyBatch]  # ids (1, P) -> a batch that `start` takes


@torch.inference_mode()
def stream(
    model: WritesOn,
    prompt: Prompt,
    limits: Limits,
    settings: Settings,
    draft: WritesOn | None = None,
    copy: int = 0,
) -> Iterator[tuple[int, float]]:
    """Tokens as they are written, with their log-probability; `eos` comes last if it comes.

    A model that can place only so many tokens goes on from the later half of what is written.
    """
    write = Alone(model, prompt, settings) if draft is None else Ahead(model, draft, prompt)
    obey, most = Rules(limits, settings), int(limits.longest[0])
    written, pick = limits.prompt, Pick(settings, limits.eos, most, copy)
    tokens = write(written, lambda logits, text: obey(logits.float(), text), pick)
    for count, (token, gain) in enumerate(tokens, 1):
        yield token, gain
        if token == limits.eos or count >= most:
            return


Obey = Callable[[Tensor, Tensor], Tensor]


class Alone:
    """One model, one token a step."""

    def __init__(self, model: WritesOn, prompt: Prompt, settings: Settings) -> None:
        self.plain, self.model, self.prompt = model, with_cuda_graphs(model, settings), prompt

    def __call__(self, written: Tensor, obey: Obey, pick: Pick) -> Iterator[tuple[int, float]]:
        first = written.shape[1]
        seen, state = self.begin(written)
        while True:
            if seen >= room(self.plain):
                seen, state = self.begin(written)
            logits, state = self.model.step(written[:, -1], state)
            seen += 1
            scores = obey(logits, written)
            token, gain = pick(scores, written.shape[1] - first)
            written = torch.cat((written, token[:, None]), 1)
            yield int(token), float(gain)

    def begin(self, written: Tensor) -> tuple[int, AnyState]:
        """A state that has read the text but its last token, or the later half of what fits."""
        text = fitting(written, self.plain.longest)
        return text.shape[1] - 1, self.model.start(self.prompt(text))


class Ahead:
    """A draft writes a few tokens, the model checks them in one pass and keeps those it would have
    written itself, and the first that it would not (Leviathan et al. 2023)."""

    def __init__(self, model: WritesOn, draft: WritesOn, prompt: Prompt) -> None:
        self.model, self.draft, self.prompt = model, draft, prompt

    def __call__(self, written: Tensor, obey: Obey, pick: Pick) -> Iterator[tuple[int, float]]:
        first = written.shape[1]
        seen, state = self.begin(self.model, written)
        known, guess = self.begin(self.draft, written)
        while True:
            # The model slides where it would alone, so that its answers are the same.
            if seen >= room(self.model):
                seen, state = self.begin(self.model, written)
            count = int(min(GUESSES, room(self.model) - seen - 1, room(self.draft) // 2 - 1))
            count = max(0, count)
            if known + count + 1 > room(self.draft):
                known, guess = self.begin(self.draft, written, slide=True)
            text = written
            for _ in range(count):
                logits, guess = self.draft.step(text[:, -1], guess)
                token, _ = pick(obey(logits, text), text.shape[1] - first)
                text = torch.cat((text, token[:, None]), 1)
            # The last token, which neither has read before, and the guesses after it.
            logits, state = self.model.extend(text[:, written.shape[1] - 1 :], state)
            kept = 0
            for place in range(count + 1):
                scores = obey(logits[:, place], written)
                token, gain = pick(scores, written.shape[1] - first)
                written = torch.cat((written, token[:, None]), 1)
                kept += 1
                yield int(token), float(gain)
                if place == count or int(token) != int(text[0, written.shape[1] - 1]):
                    break
            # The model has read count + 1 tokens, the draft count; both keep what came true.
            state.rewind(count + 1 - kept)
            if kept > count:
                _, guess = self.draft.step(written[:, -2], guess)
            else:
                guess.rewind(count - kept)
            seen, known = seen + kept, known + kept

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
