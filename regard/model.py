"""What a model is: the contract between models and all who train, decode, look into or serve them.

A model reads one half of a batch and is asked the other. Those that write token by token have
`start` and `step` too; those that write on from a text, `extend`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from .batch import Asked, Batch, ModelOutput, Sizes, Tensors
from .parts.state import State

# Which tokens look (rows) at which (columns), by part name; a query is named by what it writes. An
# attention that is used several times in a pass says what each use is called.
Looks = Mapping[str, tuple[str, str] | list[tuple[str, str, str]]]
AnyBatch = Batch[Any, Any]


class Model(nn.Module):
    """A batch in, a vector for each label out, and an output layer from there to scores."""

    Settings: ClassVar[type]
    settings: Any
    reads: ClassVar[Collection[type[Tensors]]]
    answers: ClassVar[tuple[type[Asked], ...]]
    # Its parts from the bottom to the top: what comes first, what is stacked, and what differs with
    # what is asked. Freezing, layer-wise rates and adapters follow this order.
    doors: ClassVar[tuple[str, ...]] = ()
    stacks: ClassVar[tuple[str, ...]] = ()
    entered: ClassVar[str] = "forward"  # what a pass in training calls of each block
    heads: ClassVar[tuple[str, ...]] = ()
    earlier: ClassVar[Mapping[str, str]] = {}  # names that weights had in older runs: old, new
    # What its encoder is called in models that only read: their name, its own.
    encoder_names: ClassVar[Mapping[str, str]] = {}
    looks: ClassVar[Looks] = {}  # none: there is no attention to look into
    before: tuple[str, ...] = ()  # names of vectors that it puts before what is read
    longest: int | None = None  # tokens that can be placed; None: any number
    kept: int | None = None  # tokens that a state holds at most; None: all
    carries: bool = False  # whether a batch of a stream goes on from the one before
    packs: bool = False  # whether documents side by side stay apart
    output: nn.Module

    def __init__(self, sizes: Sizes, settings: object) -> None:
        super().__init__()
        self.settings = settings

    def states(self, batch: AnyBatch) -> ModelOutput:
        """All but the output layer, for a loss that need not hold all scores."""
        raise NotImplementedError

    def forward(self, batch: AnyBatch) -> Tensor:
        """-> scores, (B, T, V) of words or (B, T, C) of classes"""
        scores: Tensor = self.output(self.states(batch).states)
        return scores

    def on_progress(self, part: float) -> None:
        """Told before every step how much of the training is done."""

    def fitted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Another run's weights as this model can begin with them."""
        return weights

    def level(self, name: str) -> int:
        """How far up a weight stands: 0 in a door, from 1 on in a stack; -1 in what speaks."""
        part, _, rest = name.partition(".")
        if part in self.stacks:
            return 1 + int(rest.partition(".")[0])
        return 0 if part in self.doors else -1


@runtime_checkable
class Solves(Protocol):
    """A model that is worked out at once: there is nothing that steps would lead to."""

    def solve(self, batches: Iterable[AnyBatch], loss: str) -> None:
        """From all that there is to learn from; `loss` is what steps would make small."""


@runtime_checkable
class Encodes(Protocol):
    """A model that has a vector for each token of what it reads."""

    def encode(self, read: Any) -> tuple[Tensor, Tensor]:
        """-> (B, T, D), and how many of each row are real (B,)"""


AnyState = State[Any]


@runtime_checkable
class Writes(Protocol):
    """What writes token by token: a model, or its steps captured."""

    def start(self, batch: AnyBatch) -> AnyState:
        """A state that has read all but the prompt's last token."""

    def step(self, last: Tensor, state: Any) -> tuple[Tensor, AnyState]:
        """Scores of the next token after `last`.  (B,) -> logits (B, V)"""


@runtime_checkable
class WritingModel(Writes, Protocol):
    """A model that writes."""

    longest: int | None
    kept: int | None

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...
    def modules(self) -> Iterator[nn.Module]: ...


@runtime_checkable
class WritesOn(WritingModel, Protocol):
    """A model that writes on from a text, of which it can read several tokens at once."""

    def extend(self, tokens: Tensor, state: Any) -> tuple[Tensor, AnyState]:
        """Scores after each of several tokens.  (B, T) -> logits (B, T, V)"""


@torch.inference_mode()
def answers_of(model: Model, batch: AnyBatch) -> list[Tensor]:
    """What a model says of each row, on the host."""
    device = next(model.parameters()).device
    scores: Tensor = model(batch.to(device))
    return list(scores.float().cpu())
