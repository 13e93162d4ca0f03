"""Permutation language modelling: a text is predicted in an order drawn for each batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt

from ..batch import Permuted, Tokens
from ..data.store import Store
from ..errors import RecipeError
from .language import Language, LanguageSettings


@dataclass(frozen=True)
class PermuteSettings(LanguageSettings):
    """As for language, and how much is predicted."""

    predicted: Annotated[
        int, Gt(0), "one in so many tokens is predicted, the last of the order"
    ] = 6

    def __post_init__(self) -> None:
        if self.cut == "documents":
            raise RecipeError("task.cut: permuted text is cut into windows or a stream only.")


class Permute(Language):
    """XLNet's training (Yang et al. 2019, section 2.2); it scores and answers as a language model.

    The last part of the order is predicted, each token from those before it in the order; the rest
    is given.
    """

    Settings = PermuteSettings
    settings: PermuteSettings

    def batch(self, store: Store, cut: Any, rng: np.random.Generator | None = None) -> Tokens:
        plain = super().batch(store, cut, rng)
        # Scoring goes from left to right.
        return plain if rng is None else permuted(plain, self.settings.predicted, rng)

    @staticmethod
    def sample_batch(settings: LanguageSettings, budget: int) -> Tokens:
        assert isinstance(settings, PermuteSettings)
        plain = Language.sample_batch(settings, budget)
        return permuted(plain, settings.predicted, np.random.default_rng(0))


def permuted(plain: Tokens, predicted: int, rng: np.random.Generator) -> Permuted:
    """A batch in an order of its own."""
    ids = plain.inputs
    count = max(1, ids.shape[1] // predicted)
    rows = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    targets = torch.from_numpy(rng.permuted(rows, axis=1))[:, -count:]  # the order's last
    turns = torch.arange(1, count + 1).expand_as(targets)
    ranks = torch.zeros_like(ids).scatter(1, targets, turns)
    label_range = torch.tensor([[0, count]] * len(ids))
    return Permuted(
        ids,
        label_range,
        continues=plain.continues,
        rate_scale=plain.rate_scale,
        ranks=ranks,
        targets=targets,
    )
