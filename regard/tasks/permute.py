"""Permutation language modelling: a text is predicted in an order drawn for each batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Gt

from ..batch import Batch, Permuted, Running, Tokens
from ..data.cut import Cut, Packs
from ..data.store import Store
from ..errors import RecipeError
from .language import Language, LanguageSettings
from .task import Rng, Sections


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
    asks = Permuted
    draws = True

    def batch(self, store: Store, rows: Cut | Packs, rng: Rng | None = None) -> Batch[Any, Tokens]:
        plain = super().batch(store, rows, rng)
        # Scoring goes from left to right.
        return plain if rng is None else permuted(plain, self.settings.predicted, rng)

    @staticmethod
    def sample_batch(
        settings: LanguageSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Any, Tokens]:
        assert isinstance(settings, PermuteSettings)
        plain = Language.sample_batch(settings, budget)
        rng = [np.random.default_rng(row) for row in range(len(plain))]
        return permuted(plain, settings.predicted, rng)


def permuted(plain: Batch[Running, Tokens], predicted: int, rng: Rng) -> Batch[Permuted, Tokens]:
    """A batch in an order of its own."""
    ids = plain.read.ids
    count = max(1, ids.shape[1] // predicted)
    orders = [draw.permutation(ids.shape[1])[-count:] for draw in rng]  # the order's last
    targets = torch.from_numpy(np.stack(orders)) if orders else ids[:, :count]
    turns = torch.arange(1, count + 1).expand_as(targets)
    ranks = torch.zeros_like(ids).scatter(1, targets, turns)
    label_range = torch.tensor([[0, count]] * len(ids)).view(len(ids), 2)
    asked = Tokens(ids.gather(1, targets), label_range)
    read = Permuted(ids, ranks, targets)
    return Batch(read, asked, plain.past, plain.continues, plain.rate_scale)
