"""The narrow waist: the kinds of batch that reach a model, what it hands on, and the sizes only
data can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

# Words of the vocabulary; something of each text, of each of its tokens, or a vector for each text.
Asked = Literal["words", "text", "tokens", "vector"]


@dataclass(frozen=True)
class Sizes:
    """What a model cannot know before it has seen the data; the task reports it."""

    source: int  # vocabulary read
    target: int  # vocabulary written
    shared: bool  # whether both are one vocabulary
    asked: Asked = "words"  # what a model is to say
    classes: int = 0  # how many numbers that is, where it is not a word of the vocabulary


class ModelOutput(NamedTuple):
    """What a model hands to its output layer."""

    states: Tensor  # (B, T, D), one for each label
    past: tuple[Tensor, ...] = ()  # (B, …) each: what the next batch of the stream goes on from
    penalty: Tensor | None = None  # what the model wants to be small, beside the loss a token
    follows: Tensor | None = None  # (B, 2) whether the second text follows on the first
    words: Tensor | None = None  # (B, T, D) from which each next word can be told, beside a class


Own = TypeVar("Own", bound="Batch")


class Batch:
    """What all batches can: a dataclass of tensors that have a row for each example."""

    continues: ClassVar[bool] = False  # whether there is a batch before it that it goes on from
    rate_scale: ClassVar[float] = 1.0  # the part of the rate that it is worth

    full: bool = False  # whether no row has padding, which lets a model do without a mask

    def names(self) -> list[str]:
        """Of the fields that are tensors."""
        return [f.name for f in fields(self) if f.name != "full"]  # type: ignore[arg-type]

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self.names())

    def put(self: Own, tensors: Sequence[Tensor]) -> Own:
        """The same with other tensors, in the order of `tensors`."""
        return replace(self, **dict(zip(self.names(), tensors, strict=True)))  # type: ignore[type-var]

    def __len__(self) -> int:
        return len(self.tensors()[0])

    @property
    def tokens(self) -> int:
        """What the loss is a mean over; asked for while still on the CPU."""
        return len(self)

    def to(self: Own, device: torch.device) -> Own:
        return self.put([t.to(device, non_blocking=True) for t in self.tensors()])

    def pin(self: Own) -> Own:
        return self.put([t.pin_memory() for t in self.tensors()])

    def shard(self: Own, part: int, parts: int) -> Own:
        """Every `parts`-th row, from `part` on; may be empty."""
        return self.put([t[part::parts] for t in self.tensors()])

    def repeat(self: Own, count: int) -> Own:
        """The whole batch `count` times, one copy after the other."""
        return self.put([t.repeat(count, *(1,) * (t.dim() - 1)) for t in self.tensors()])


@dataclass(frozen=True)
class Pairs(Batch):
    """Sentences with their translations, padded on the right.

    A target row is `bos y1 … yn eos`: the model reads all but the last and predicts all but the
    first, so with n words both `inputs` and `labels` have n + 1 columns.
    """

    source: Tensor  # (B, S) ids
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T + 1) ids
    target_lengths: Tensor  # (B,) real columns of `labels`

    @property
    def inputs(self) -> Tensor:
        return self.target[:, :-1]  # (B, T)

    @property
    def labels(self) -> Tensor:
        return self.target[:, 1:]  # (B, T)

    @property
    def tokens(self) -> int:
        """Words to predict, `eos` counted, padding not."""
        return int(self.target_lengths.sum())

    def pad_to_multiple(self, multiple: int) -> Pairs:
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


@dataclass(frozen=True)
class Tokens(Batch):
    """Pieces of running text, one more column than is read: the model predicts all but the first.

    `label_range` says which labels count: from the first column on, up to the second. Rows may hold
    several documents, numbered in `documents`, of which none may look into another. With a `past`,
    each row goes on where the same row of the batch before it ended.
    """

    ids: Tensor  # (B, T + 1)
    label_range: Tensor  # (B, 2) columns of `labels`
    documents: Tensor | None = None  # (B, T) of `inputs`
    past: tuple[Tensor, ...] = ()  # (B, …) each
    continues: bool = False  # type: ignore[misc]  # here it differs from batch to batch
    rate_scale: float = 1.0  # type: ignore[misc]  # where batches are not equally long

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
        return (places >= self.label_range[:, :1]) & (places < self.label_range[:, 1:])

    @property
    def tokens(self) -> int:
        """Labels that count."""
        return int((self.label_range[:, 1] - self.label_range[:, 0]).sum())

    def tensors(self) -> tuple[Tensor, ...]:
        documents = () if self.documents is None else (self.documents,)
        return self.ids, self.label_range, *documents, *self.past

    def put(self, tensors: Sequence[Tensor]) -> Tokens:
        ids, label_range, *rest = tensors
        documents = None if self.documents is None else rest.pop(0)
        return replace(
            self, ids=ids, label_range=label_range, documents=documents, past=tuple(rest)
        )

    def pad_to_multiple(self, multiple: int) -> Tokens:
        return self  # all rows are of one length already


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
        return self.ids, self.label_range, self.ranks, self.targets, *self.past

    def put(self, tensors: Sequence[Tensor]) -> Permuted:
        ids, label_range, ranks, targets, *past = tensors
        return replace(
            self, ids=ids, label_range=label_range, ranks=ranks, targets=targets, past=tuple(past)
        )


@dataclass(frozen=True)
class Stories(Batch):
    """Questions, each with the sentences told before it, the oldest first; zeros are padding."""

    sentences: Tensor  # (B, M, W) ids
    counts: Tensor  # (B,) how many sentences are real
    question: Tensor  # (B, W) ids
    answer: Tensor  # (B,) id

    @property
    def labels(self) -> Tensor:
        return self.answer[:, None]  # (B, 1)

    @property
    def real(self) -> Tensor:
        return torch.ones_like(self.labels, dtype=torch.bool)

    def pad_to_multiple(self, multiple: int) -> Stories:
        """Padded on to a multiple, so that there are few shapes."""
        told, words = self.sentences.shape[1:]
        asked = self.question.shape[1]
        wider = nn.functional.pad(self.sentences, (0, -words % multiple, 0, -told % multiple))
        question = nn.functional.pad(self.question, (0, -asked % multiple))
        return Stories(wider, self.counts, question, self.answer)


@dataclass(frozen=True)
class Texts(Batch):
    """Texts to be understood, alone or two in a row, padded on the right."""

    ids: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    segments: Tensor  # (B, T) 0: of the first text, 1: of the second
    full: bool = field(default=False, kw_only=True)

    # Fields as wide as the texts, and what they are padded with.
    wide: ClassVar[dict[str, int]] = {"ids": 0, "segments": 0}

    @property
    def labels(self) -> Tensor:
        return self.ids  # (B, T); what is asked for overrides it

    def pad_to_multiple(self, multiple: int) -> Texts:
        """Padded on to a multiple, so that there are few shapes."""
        added = -self.ids.shape[1] % multiple
        if not added:
            return self
        wider = {
            name: nn.functional.pad(getattr(self, name), (0, added), value=value)
            for name, value in self.wide.items()
        }
        return replace(self, **wider, full=False)


@dataclass(frozen=True)
class Labelled(Texts):
    """Texts that each have a class, several, or a number.

    For a mean over the words of the whole batch, each row knows how many a row of it has.
    """

    label: Tensor  # (B,) class; (B, C) which hold, as 0 and 1; or (B,) number
    weight: Tensor  # (B,) how much each row counts
    worth: Tensor  # (B,) words to predict a row of the whole batch

    @classmethod
    def of(cls, texts: Sequence[Tensor], label: Tensor, weight: Tensor) -> Labelled:
        """A whole batch of ids, lengths and segments."""
        ids, lengths, segments = texts
        words = (lengths - 1).clamp_min(0).float().mean().clamp_min(1e-9)
        return cls(ids, lengths, segments, label, weight, words.expand(len(label)).clone())

    @property
    def labels(self) -> Tensor:
        return self.label.view(len(self.label), -1)  # (B, 1) or (B, C)


@dataclass(frozen=True)
class Tagged(Texts):
    """Texts in which words have classes, each told at its first token."""

    tags: Tensor  # (B, T) class, -1 where none is asked
    weight: Tensor  # (B, T) how much each token counts
    wide: ClassVar[dict[str, int]] = {"ids": 0, "segments": 0, "tags": -1, "weight": 0}

    @property
    def labels(self) -> Tensor:
        return self.tags

    @property
    def real(self) -> Tensor:
        return self.tags >= 0  # (B, T)

    @property
    def tokens(self) -> int:
        """Words."""
        return max(1, int(self.real.sum()))


@dataclass(frozen=True)
class Answered(Texts):
    """A question and a piece of text in which its answer is marked; without one, at the start."""

    span: Tensor  # (B, 2) places of its first and its last token
    allowed: Tensor  # (B, T) 1 where an answer may begin or end
    wide: ClassVar[dict[str, int]] = {"ids": 0, "segments": 0, "allowed": 0}

    @property
    def labels(self) -> Tensor:
        return self.span


@dataclass(frozen=True)
class Masked(Texts):
    """Texts with words hidden, and whether the second follows on the first.

    For a mean over both, a row counts in the second as its batch has hidden words a row.
    """

    places: Tensor  # (B, M) of the hidden words
    words: Tensor  # (B, M) that stood there
    counts: Tensor  # (B,) how many of them are real
    follows: Tensor  # (B,) 1: it does, 0: it does not, -1: not asked
    worth: Tensor  # (B,) hidden words a row of the whole batch

    @property
    def labels(self) -> Tensor:
        return self.words  # (B, M)

    @property
    def real(self) -> Tensor:
        """Which labels are words, not padding.  -> (B, M)"""
        return torch.arange(self.words.shape[1], device=self.words.device) < self.counts[:, None]

    @property
    def tokens(self) -> int:
        """Hidden words."""
        return int(self.counts.sum())


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Lists of ids as a rectangle; zeros are padding.  -> (B, longest)"""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long)
