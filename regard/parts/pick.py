"""What is done with the weights: soft attention mixes by them, hard attention picks one place.

Every pick maps weights (B, H, T, S) to weights of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Soft(nn.Module):
    """The weights as they are: differentiable, and every place counts a little."""

    def forward(self, weights: Tensor) -> Tensor:
        return weights


class Hard(nn.Module):
    """One place: drawn in training, the likeliest afterwards (Xu et al. 2015, section 4.1).

    No gradient passes a draw; who uses it must reward what was drawn, for which `log_chance` is
    there. As draws teach slowly, the mean takes a draw's place so `often` as is said.
    """

    def __init__(self, often: float = 0.0) -> None:
        super().__init__()
        self.often = often

    def forward(self, weights: Tensor) -> Tensor:
        scores = weights.detach().log()
        if not self.training:
            return one_of(scores, weights)
        drawn = one_of(scores + gumbel(scores), weights)
        if not self.often:
            return drawn
        mean = torch.rand_like(weights[..., :1]) < self.often
        return torch.where(mean, weights, drawn)

    @staticmethod
    def log_chance(weights: Tensor, picked: Tensor) -> Tensor:
        """The log-probability of what was drawn; of a mean, nothing.

        (B, H, T, S) twice -> (B, H, T)
        """
        total = weights.sum(-1).clamp_min(1e-9)
        found = ((weights * picked).sum(-1) / total).clamp_min(1e-9).log()
        return found * (picked.detach().amax(-1) == 1)


class Gumbel(nn.Module):
    """One place, drawn by noise on the scores; the gradient is that of the soft choice under the
    same noise, at a temperature (Jang et al. 2017: straight-through)."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, weights: Tensor) -> Tensor:
        if not self.training:
            return one_of(weights, weights)
        scores = weights.clamp_min(1e-9).log()
        noisy = scores + gumbel(scores)
        soft = (noisy / self.temperature).softmax(-1) * (weights > 0)
        hard = one_of(noisy.masked_fill(weights <= 0, float("-inf")), weights)
        return hard + soft - soft.detach()


PICKS: dict[str, Callable[..., nn.Module]] = {"soft": Soft, "hard": Hard, "gumbel": Gumbel}


def gumbel(like: Tensor) -> Tensor:
    """-log(-log u): the largest of scores with this noise is a draw from their softmax."""
    return -torch.empty_like(like).exponential_().log()


def one_of(scores: Tensor, weights: Tensor) -> Tensor:
    """One where the score is highest, zeros elsewhere, and everywhere if nothing may be seen."""
    chosen = torch.zeros_like(weights).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)
    return chosen * (weights.amax(-1, keepdim=True) > 0)
