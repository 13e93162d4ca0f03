"""What may not come next: small changes to the scores before a choice is made."""

from __future__ import annotations

import torch
from torch import Tensor

from .settings import Limits, Settings

NEVER = float("-inf")


class Rules:
    """Scores with what is forbidden at -inf; made once for a batch."""

    def __init__(self, limits: Limits, settings: Settings) -> None:
        self.eos, self.settings = limits.eos, settings
        self.prompt = limits.prompt.shape[1]
        device = limits.longest.device
        self.banned = torch.tensor(limits.banned, dtype=torch.long, device=device)
        self.not_first = torch.tensor(limits.not_first, dtype=torch.long, device=device)
        self.rule = limits.rule

    def __call__(self, scores: Tensor, written: Tensor) -> Tensor:
        """(R, V), (R, t) -> (R, V), changed in place; `written` begins with the prompt."""
        if self.settings.repetition_penalty != 1:
            scores = penalise_repeats(scores, written, self.settings.repetition_penalty)
        if len(self.banned):
            scores.index_fill_(1, self.banned, NEVER)
        if written.shape[1] - self.prompt < self.settings.min_new_tokens:
            scores[:, self.eos] = NEVER
        if self.settings.no_repeat_ngram_size:
            ban_repeats(scores, written, self.settings.no_repeat_ngram_size)
        if len(self.not_first) and written.shape[1] == self.prompt:
            scores.index_fill_(1, self.not_first, NEVER)
        if self.rule is not None:
            scores = self.rule(scores, written[:, self.prompt :])
        return scores


def penalise_repeats(scores: Tensor, written: Tensor, penalty: float) -> Tensor:
    """What is written already has its score divided, or multiplied where that is below zero.

    Keskar et al. 2019, section 4.1.  (R, V), (R, t) -> (R, V)
    """
    found = scores.gather(1, written)
    return scores.scatter(1, written, torch.where(found < 0, found * penalty, found / penalty))


def ban_repeats(scores: Tensor, written: Tensor, size: int) -> None:
    """Forbid what would complete an n-gram a second time.  (R, V), (R, t)

    With size 2 and a b c a written, b is forbidden.
    """
    length = written.shape[1]
    if length < size:
        return
    grams = written.unfold(1, size, 1)  # (R, t - n + 1, n)
    last = written[:, length - size + 1 :]  # (R, n - 1)
    again = (grams[:, :, :-1] == last[:, None]).all(-1)  # (R, t - n + 1)
    rows, places = again.nonzero(as_tuple=True)
    scores[rows, grams[rows, places, -1]] = NEVER


def keep_likely(scores: Tensor, settings: Settings) -> Tensor:
    """Temperature, then top-k, top-p, min-p and typical, in that order.  (R, V) -> (R, V)"""
    scores = scores / settings.temperature
    if 0 < settings.top_k < scores.shape[-1]:
        least = scores.topk(settings.top_k, -1).values[:, -1:]
        scores = scores.masked_fill(scores < least, NEVER)
    if settings.top_p < 1:
        ordered, places = scores.sort(-1, descending=True)
        probabilities = ordered.softmax(-1)
        # A token stays while those before it have not reached p: the likeliest always stays.
        beyond = probabilities.cumsum(-1) - probabilities >= settings.top_p
        beyond[:, 0] = False
        scores = scores.masked_fill(torch.zeros_like(beyond).scatter(-1, places, beyond), NEVER)
    if settings.min_p > 0:
        probabilities = scores.softmax(-1)
        least = settings.min_p * probabilities.amax(-1, keepdim=True)
        scores = scores.masked_fill(probabilities < least, NEVER)
    if settings.typical_p < 1:
        scores = keep_typical(scores, settings.typical_p)
    return scores


def keep_typical(scores: Tensor, mass: float) -> Tensor:
    """Tokens whose surprise is nearest to the expected one, until they sum to `mass`.

    Meister et al. 2023, "Locally typical sampling".  (R, V) -> (R, V)
    """
    logs = scores.log_softmax(-1)
    expected = -(logs.exp() * logs).nansum(-1, keepdim=True)
    _, places = (-logs - expected).abs().sort(-1)
    probabilities = logs.gather(-1, places).exp()
    beyond = probabilities.cumsum(-1) - probabilities >= mass
    beyond[:, 0] = False  # the most typical always stays
    return scores.masked_fill(torch.zeros_like(beyond).scatter(-1, places, beyond), NEVER)
