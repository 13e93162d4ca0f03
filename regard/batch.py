"""The narrow waist: the kinds of batch that reach a model, what it hands on, and the sizes only
data can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """What a model cannot know before it has seen the data; the task reports it."""

    source: int  # vocabulary read
    target: int  # vocabulary written
    shared: bool  # whether both are one vocabulary


class Passed(NamedTuple):
    """What a model hands to its output layer."""

    states: Tensor  # (B, T, D), one for each label
    past: tuple[Tensor, ...] = ()  # (B, …) each: what the next batch of the stream goes on from
    penalty: Tensor | None = None  # what the model wants to be small, beside the loss a token


@dataclass(frozen=True)
class Pairs:
    """Sentences with their translations, padded on the right.

    A target row is `bos y1 … yn eos`: the model reads all but the last and predicts all but the
    first, so with n words both `inputs` and `labels` have n + 1 columns.
    """

    source: Tensor  # (B, S) ids
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T + 1) ids
    target_lengths: Tensor  # (B,) real columns of `labels`
    goes_on: ClassVar[bool] = False  # each pair stands for itself
    pace: ClassVar[float] = 1.0

    @property
    def inputs(self) -> Tensor:
        return self.target[:, :-1]  # (B, T)

    @property
    def labels(self) -> Tensor:
        return self.target[:, 1:]  # (B, T)

    def to(self, device: torch.device) -> Pairs:
        return Pairs(*(t.to(device, non_blocking=True) for t in self.tensors()))

    def pin(self) -> Pairs:
        return Pairs(*(t.pin_memory() for t in self.tensors()))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def tokens(self) -> int:
        """Words to predict, `eos` counted, padding not; asked for while still on the CPU."""
        return int(self.target_lengths.sum())

    def tensors(self) -> tuple[Tensor, ...]:
        return self.source, self.source_lengths, self.target, self.target_lengths

    def put(self, tensors: tuple[Tensor, ...]) -> Pairs:
        """The same with other tensors, in the order of `tensors`."""
        return Pairs(*tensors)

    def widen(self, multiple: int) -> Pairs:
        """Padded on to a multiple, so that there are few shapes; `inputs` counts, not `target`."""
        source, target = (-self.source.shape[1]) % multiple, (1 - self.target.shape[1]) % multiple
        return Pairs(
            nn.functional.pad(self.source, (0, source)),
            self.source_lengths,
            nn.functional.pad(self.target, (0, target)),
            self.target_lengths,
        )

    @property
    def real(self) -> Tensor:
        """Which labels are words, not padding.  -> (B, T)"""
        places = torch.arange(self.labels.shape[1], device=self.labels.device)
        return places < self.target_lengths[:, None]

    def share(self, part: int, parts: int) -> Pairs:
        """Every `parts`-th row, from `part` on; may be empty."""
        return Pairs(*(t[part::parts] for t in self.tensors()))

    def repeat(self, count: int) -> Pairs:
        """The whole batch `count` times, one copy after the other."""
        return Pairs(*(t.repeat(count, *(1,) * (t.dim() - 1)) for t in self.tensors()))


@dataclass(frozen=True)
class Tokens:
    """Pieces of running text, one more column than is read: the model predicts all but the first.

    `counted` says which labels count: from the first column on, up to the second. Rows may hold
    several documents, numbered in `documents`, of which none may look into another. With a `past`,
    each row goes on where the same row of the batch before it ended.
    """

    ids: Tensor  # (B, T + 1)
    counted: Tensor  # (B, 2) columns of `labels`
    documents: Tensor | None = None  # (B, T) of `inputs`
    past: tuple[Tensor, ...] = ()  # (B, …) each
    goes_on: bool = False  # whether there is a batch before it that it goes on from
    pace: float = 1.0  # the part of the rate that it is worth, where batches are not equally long

    @property
    def inputs(self) -> Tensor:
        return self.ids[:, :-1]  # (B, T)

    @property
    def labels(self) -> Tensor:
        return self.ids[:, 1:]  # (B, T)

    @property
    def real(self) -> Tensor:
        """Which labels count.  -> (B, T)"""
        places = torch.arange(self.labels.shape[1], device=self.ids.device)
        return (places >= self.counted[:, :1]) & (places < self.counted[:, 1:])

    @property
    def tokens(self) -> int:
        """Labels that count; asked for while still on the CPU."""
        return int((self.counted[:, 1] - self.counted[:, 0]).sum())

    def __len__(self) -> int:
        return len(self.ids)

    def tensors(self) -> tuple[Tensor, ...]:
        documents = () if self.documents is None else (self.documents,)
        return self.ids, self.counted, *documents, *self.past

    def put(self, tensors: tuple[Tensor, ...]) -> Tokens:
        """The same with other tensors, in the order of `tensors`."""
        ids, counted, *rest = tensors
        documents = None if self.documents is None else rest.pop(0)
        return replace(self, ids=ids, counted=counted, documents=documents, past=tuple(rest))

    def to(self, device: torch.device) -> Tokens:
        return self.put(tuple(t.to(device, non_blocking=True) for t in self.tensors()))

    def pin(self) -> Tokens:
        return self.put(tuple(t.pin_memory() for t in self.tensors()))

    def widen(self, multiple: int) -> Tokens:
        return self  # all rows are of one length already

    def share(self, part: int, parts: int) -> Tokens:
        """Every `parts`-th row, from `part` on; may be empty."""
        return self.put(tuple(t[part::parts] for t in self.tensors()))

    def repeat(self, count: int) -> Tokens:
        """The whole batch `count` times, one copy after the other."""
        return self.put(tuple(t.repeat(count, *(1,) * (t.dim() - 1)) for t in self.tensors()))


@dataclass(frozen=True)
class Permuted(Tokens):
    """Text to be predicted in an order of its own: a token sees those of a lower rank.

    The labels are the tokens at `targets`, not the next ones; `ids` has no column more.
    """

    # (B, T) 0: given, seen by all; 1, 2, …: predicted in turn
    ranks: Tensor = field(default_factory=lambda: torch.empty(0))
    # (B, M) places of the tokens predicted
    targets: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def inputs(self) -> Tensor:
        return self.ids  # (B, T)

    @property
    def labels(self) -> Tensor:
        return self.ids.gather(1, self.targets)  # (B, M)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.ids, self.counted, self.ranks, self.targets, *self.past

    def put(self, tensors: tuple[Tensor, ...]) -> Permuted:
        ids, counted, ranks, targets, *past = tensors
        return replace(
            self, ids=ids, counted=counted, ranks=ranks, targets=targets, past=tuple(past)
        )


@dataclass(frozen=True)
class Stories:
    """Questions, each with the sentences told before it, the oldest first; zeros are padding."""

    sentences: Tensor  # (B, M, W) ids
    counts: Tensor  # (B,) how many sentences are real
    question: Tensor  # (B, W) ids
    answer: Tensor  # (B,) id
    goes_on: ClassVar[bool] = False
    pace: ClassVar[float] = 1.0

    @property
    def labels(self) -> Tensor:
        return self.answer[:, None]  # (B, 1)

    @property
    def real(self) -> Tensor:
        return torch.ones_like(self.labels, dtype=torch.bool)

    @property
    def tokens(self) -> int:
        """Answers to give."""
        return len(self)

    def __len__(self) -> int:
        return len(self.answer)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.sentences, self.counts, self.question, self.answer

    def put(self, tensors: tuple[Tensor, ...]) -> Stories:
        """The same with other tensors, in the order of `tensors`."""
        return Stories(*tensors)

    def to(self, device: torch.device) -> Stories:
        return Stories(*(t.to(device, non_blocking=True) for t in self.tensors()))

    def pin(self) -> Stories:
        return Stories(*(t.pin_memory() for t in self.tensors()))

    def widen(self, multiple: int) -> Stories:
        """Padded on to a multiple, so that there are few shapes."""
        told, words = self.sentences.shape[1:]
        asked = self.question.shape[1]
        wider = nn.functional.pad(self.sentences, (0, -words % multiple, 0, -told % multiple))
        question = nn.functional.pad(self.question, (0, -asked % multiple))
        return Stories(wider, self.counts, question, self.answer)

    def share(self, part: int, parts: int) -> Stories:
        """Every `parts`-th row, from `part` on; may be empty."""
        return Stories(*(t[part::parts] for t in self.tensors()))

    def repeat(self, count: int) -> Stories:
        """The whole batch `count` times, one copy after the other."""
        return Stories(*(t.repeat(count, *(1,) * (t.dim() - 1)) for t in self.tensors()))


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Lists of ids as a rectangle; zeros are padding.  -> (B, longest)"""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long)
