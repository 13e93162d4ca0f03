"""The narrow waist: what a model reads, what is asked of it, and what it hands on.

A batch is the two side by side, so that a class can be asked of a text, a picture or a graph. A
new kind of thing is one dataclass of tensors here; moving, cutting, repeating and padding it follow
from what its fields declare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Generic, NamedTuple, TypeVar, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor

Own = TypeVar("Own", bound="Tensors")


class Wide(NamedTuple):
    """Marks a field that is as wide as the longest row along `axes`; what is added is `fill`."""

    fill: int = 0
    axes: tuple[int, ...] = (1,)
    beyond: int = 0  # columns kept beside those that are counted


def wide_fields(kind: type) -> dict[str, Wide]:
    """The fields of a kind of tensors that are padded, and how."""
    hints = get_type_hints(kind, include_extras=True)
    told = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: mark for name, marks in told.items() for mark in marks if isinstance(mark, Wide)}


@dataclass(frozen=True)
class Tensors:
    """Tensors with a row for each example. What is no tensor belongs to all rows."""

    def named(self) -> dict[str, Tensor]:
        """Its tensors by name; what is not there is left out."""
        own = ((f.name, vars(self)[f.name]) for f in fields(self))
        return {name: value for name, value in own if isinstance(value, Tensor)}

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.named().values())

    def fixed(self) -> tuple[object, ...]:
        """What it has beside tensors, and which it has not: another means other computations."""
        return tuple(None if isinstance(v, Tensor) else (k, v) for k, v in vars(self).items())

    def put(self: Own, tensors: Sequence[Tensor]) -> Own:
        """The same with other tensors, in the order of `tensors`."""
        return replace(self, **dict(zip(self.named(), tensors, strict=True)))

    def __len__(self) -> int:
        return len(self.tensors()[0])

    @property
    def width(self) -> int:
        """Things that the longest row has."""
        return self.tensors()[0].shape[1]

    def pad_to_multiple(self: Own, multiple: int) -> Own:
        """Padded on, so that there are few shapes."""
        wider, marks = dict[str, Tensor](), wide_fields(type(self))
        for name, tensor in self.named().items():
            if name not in marks:
                continue
            fill, axes, beyond = marks[name]
            added = [0] * tensor.dim()
            for axis in axes:
                added[axis] = (beyond - tensor.shape[axis]) % multiple
            if any(added):
                ends = [n for more in reversed(added) for n in (0, more)]
                wider[name] = F.pad(tensor, ends, value=fill)
        return self.widened(wider) if wider else self

    def widened(self: Own, wider: dict[str, Tensor]) -> Own:
        """The same with some of its tensors padded."""
        return replace(self, **wider)


# What is read.


@dataclass(frozen=True)
class Ids(Tensors):
    """Texts, alone or two in a row, each by itself; padding stands on the right."""

    ids: Annotated[Tensor, Wide()]  # (B, S)
    lengths: Tensor  # (B,)
    segments: Annotated[Tensor | None, Wide()] = None  # (B, S) 0, and 1 in a second text
    full: bool = False  # whether no row has padding, which lets a model do without a mask

    def widened(self, wider: dict[str, Tensor]) -> Ids:
        return replace(self, **wider, full=False)


@dataclass(frozen=True)
class Running(Tensors):
    """Pieces of running text, all of one length.

    Rows may hold several documents, numbered in `documents`, of which none may look into another.
    """

    ids: Tensor  # (B, T)
    documents: Tensor | None = None  # (B, T)


@dataclass(frozen=True)
class Permuted(Tensors):
    """Text to be predicted in an order of its own: a token sees those of a lower rank."""

    ids: Tensor  # (B, T)
    ranks: Tensor  # (B, T) 0: given, seen by all; 1, 2, …: predicted in turn
    targets: Tensor  # (B, M) places of the tokens predicted


@dataclass(frozen=True)
class Story(Tensors):
    """Questions, each with the sentences told before it, the oldest first; zeros are padding."""

    sentences: Annotated[Tensor, Wide(axes=(1, 2))]  # (B, M, W) ids
    counts: Tensor  # (B,) how many sentences are real
    question: Annotated[Tensor, Wide()]  # (B, W) ids


@dataclass(frozen=True)
class Pixels(Tensors):
    """Pictures of one size; bytes, or numbers around zero."""

    values: Tensor  # (B, C, H, W)
    changes: Tensor | None = None  # (B, columns of parts/augment.py) what is done to each
    others: Tensor | None = None  # (B, C, H, W) what each is mixed with
    coloured: bool = False  # whether changes say anything of RandAugment


@dataclass(frozen=True)
class Frames(Tensors):
    """Sounds, each a row of frames, some hundred a second; zeros are padding."""

    values: Annotated[Tensor, Wide()]  # (B, S, F) how loud each band of frequencies is
    lengths: Tensor  # (B,) frames


@dataclass(frozen=True)
class Graphs(Tensors):
    """Graphs, each a set of nodes with edges between them; padding stands behind."""

    tags: Annotated[Tensor, Wide(axes=(1, 2))]  # (B, N, W) what each node is, as ids; 0: nothing
    lengths: Tensor  # (B,) nodes
    edges: Annotated[Tensor, Wide(fill=-1)]  # (B, E, 2) from, to; -1 in padding
    edge_tags: Annotated[Tensor | None, Wide(axes=(1, 2))] = None  # (B, E, W)
    numbers: Annotated[Tensor | None, Wide()] = None  # (B, N, F)
    edge_numbers: Annotated[Tensor | None, Wide()] = None  # (B, E, F)
    places: Annotated[Tensor | None, Wide()] = None  # (B, N, K) where each node stands
    distances: Annotated[Tensor | None, Wide(fill=-1, axes=(1, 2))] = None  # (B, N, N) steps
    paths: Annotated[Tensor | None, Wide(fill=-1, axes=(1, 2))] = None  # (B, N, N, L) edges


@dataclass(frozen=True)
class Steps(Tensors):
    """Histories, a row each: at every step what was observed, what was done, and what return is
    wished for from there on; padding stands behind."""

    numbers: Annotated[Tensor, Wide()]  # (B, T, F) around zero, and 0 where not recorded
    known: Annotated[Tensor, Wide()]  # (B, T, F) 1 where recorded
    words: Annotated[Tensor, Wide()]  # (B, T, W) ids, one of each column; 0: not recorded
    states: Annotated[Tensor, Wide()]  # (B, T) which words came together, as one id; 0: unheard of
    actions: Annotated[Tensor, Wide()]  # (B, T) ids; or (B, T, A) numbers
    returns: Annotated[Tensor, Wide()]  # (B, T) NaN: nothing is wished
    times: Annotated[Tensor, Wide()]  # (B, T) steps since the history began
    lengths: Tensor  # (B,) steps


# What is asked.


@dataclass(frozen=True)
class Asked(Tensors):
    """Something to be told of each example."""

    @property
    def labels(self) -> Tensor:
        """What is right."""
        raise NotImplementedError

    @property
    def real(self) -> Tensor:
        """Which labels count, as wide as they are."""
        return torch.ones_like(self.labels, dtype=torch.bool)

    def counts(self, read: Tensors) -> tuple[int, ...]:
        """What each part of the loss is a mean over; asked for while still on the CPU."""
        return (len(self),)


@dataclass(frozen=True)
class Words(Asked):
    """A text to be written.

    A row is `bos y1 … yn eos`: the model reads all but the last and predicts all but the first, so
    with n words both `inputs` and `labels` have n + 1 columns.
    """

    ids: Annotated[Tensor, Wide(beyond=1)]  # (B, T + 1)
    lengths: Tensor  # (B,) real columns of `labels`

    @property
    def inputs(self) -> Tensor:
        return self.ids[:, :-1]  # (B, T)

    @property
    def labels(self) -> Tensor:
        return self.ids[:, 1:]  # (B, T)

    @property
    def real(self) -> Tensor:
        places = torch.arange(self.labels.shape[1], device=self.ids.device)
        return places < self.lengths[:, None]  # (B, T)

    def counts(self, read: Tensors) -> tuple[int, ...]:
        return (int(self.lengths.sum()),)


@dataclass(frozen=True)
class Tokens(Asked):
    """Words of the vocabulary, each to be told where the model stands: the next ones, say.

    `label_range` says which labels count: from the first column on, up to the second.
    """

    ids: Tensor  # (B, T)
    label_range: Tensor  # (B, 2)

    @property
    def labels(self) -> Tensor:
        return self.ids

    @property
    def real(self) -> Tensor:
        places = torch.arange(self.labels.shape[1], device=self.labels.device)
        return (places >= self.label_range[:, :1]) & (places < self.label_range[:, 1:])

    def counts(self, read: Tensors) -> tuple[int, ...]:
        return (int((self.label_range[:, 1] - self.label_range[:, 0]).sum()),)


@dataclass(frozen=True)
class Hidden(Asked):
    """Words that were hidden, and whether the second text follows on the first."""

    places: Tensor  # (B, M) of the hidden words
    words: Tensor  # (B, M) that stood there
    known: Tensor  # (B,) how many of them are real
    follows: Tensor  # (B,) 1: it does, 0: it does not, -1: not asked

    @property
    def labels(self) -> Tensor:
        return self.words

    @property
    def real(self) -> Tensor:
        places = torch.arange(self.words.shape[1], device=self.words.device)
        return places < self.known[:, None]  # (B, M)

    def counts(self, read: Tensors) -> tuple[int, ...]:
        """Hidden words, and pairs."""
        return int(self.known.sum()), len(self)


@dataclass(frozen=True)
class Patches(Asked):
    """Pixels of patches that were hidden."""

    places: Tensor  # (B, M) of the hidden patches, which are counted row after row

    @property
    def labels(self) -> Tensor:
        return self.places

    def of(self, patches: Tensor) -> Tensor:
        """(B, S, D) of all patches -> (B, M, D) of those that were hidden"""
        return patches.gather(1, self.places[..., None].expand(-1, -1, patches.shape[2]))

    def counts(self, read: Tensors) -> tuple[int, ...]:
        return (self.places.numel(),)


@dataclass(frozen=True)
class Label(Asked):
    """A class, several, or a number for each example."""

    label: Tensor  # (B,) class; (B, C) which hold, as 0 and 1; or (B,) number
    weight: Tensor  # (B,) how much each example counts
    other: Tensor | None = None  # (B,) the class of what it is mixed with
    share: Tensor | None = None  # (B,) how much of it is its own

    @property
    def labels(self) -> Tensor:
        return self.label.view(len(self.label), -1)  # (B, 1) or (B, C)

    def counts(self, read: Tensors) -> tuple[int, ...]:
        """Examples; and of texts, the words after the first."""
        if isinstance(read, Ids):
            return len(self), int((read.lengths - 1).clamp_min(0).sum())
        return (len(self),)


@dataclass(frozen=True)
class Tags(Asked):
    """Classes of words, each told at its first token."""

    tags: Annotated[Tensor, Wide(fill=-1)]  # (B, S) class, -1 where none is asked
    weight: Annotated[Tensor, Wide()]  # (B, S) how much each token counts

    @property
    def labels(self) -> Tensor:
        return self.tags

    @property
    def real(self) -> Tensor:
        return self.tags >= 0

    def counts(self, read: Tensors) -> tuple[int, ...]:
        return (int(self.real.sum()),)


@dataclass(frozen=True)
class Span(Asked):
    """Where an answer is marked in a text; without one, at the start."""

    span: Tensor  # (B, 2) places of its first and its last token
    allowed: Annotated[Tensor, Wide()]  # (B, S) 1 where an answer may begin or end

    @property
    def labels(self) -> Tensor:
        return self.span


class Learning(NamedTuple):
    """How what came of actions is made values of them."""

    discount: float = 1.0  # how much less the next reward counts
    support: float = 0.0  # actions less likely than this, beside the likeliest, are not considered
    least: int = 1  # nor are those that were recorded less often, where they are counted
    prior: float = 0.0  # made-up times that each led to what is usual, where they are counted
    conservatism: float = 0.1  # how far what was not done is pressed down
    expectile: float = 0.7  # of recorded actions' values: 0.5 is their mean, 1 the best


AS_RECORDED = Learning()


@dataclass(frozen=True)
class Choices(Asked):
    """What was done at each step of a history, and what came of it."""

    actions: Annotated[Tensor, Wide()]  # (B, T) ids; or numbers (B, T, A)
    first: Tensor  # (B,) steps before it are read and not asked
    lengths: Tensor  # (B,)
    rewards: Annotated[Tensor, Wide()]  # (B, T) after the step
    returns: Annotated[Tensor, Wide()]  # (B, T) what came from there on
    ends: Annotated[Tensor, Wide()]  # (B, T) 1 where the history ended after the step
    how: Learning = AS_RECORDED
    parts: int = 1  # of the loss

    @property
    def labels(self) -> Tensor:
        return self.actions

    @property
    def real(self) -> Tensor:
        places = torch.arange(self.actions.shape[1], device=self.actions.device)
        return (places >= self.first[:, None]) & (places < self.lengths[:, None])  # (B, T)

    def counts(self, read: Tensors) -> tuple[int, ...]:
        """Steps, for each part."""
        return (int((self.lengths - self.first).sum()),) * self.parts


@dataclass(frozen=True)
class Nothing(Asked):
    """Nothing that could be right or wrong: what a model makes of the example."""

    def counts(self, read: Tensors) -> tuple[int, ...]:
        return (len(read),)


Read = TypeVar("Read", bound=Tensors, covariant=True)
Asks = TypeVar("Asks", bound=Asked, covariant=True)


@dataclass(frozen=True)
class Batch(Generic[Read, Asks]):
    """What is read and what is asked of it; with a `past`, each row goes on where the same row of
    the batch before it ended."""

    read: Read
    asked: Asks
    past: tuple[Tensor, ...] = ()  # (B, …) each
    continues: bool = False  # whether there is a batch before it that it goes on from
    rate_scale: float = 1.0  # the part of the rate that it is worth, where lengths differ

    def __len__(self) -> int:
        return len(self.read)

    @property
    def counts(self) -> tuple[int, ...]:
        """What each part of the loss is a mean over."""
        return self.asked.counts(self.read)

    @property
    def tokens(self) -> int:
        """What the loss itself is a mean over."""
        return self.counts[0]

    def tensors(self) -> tuple[Tensor, ...]:
        return *self.read.tensors(), *self.asked.tensors(), *self.past

    def put(self, tensors: Sequence[Tensor]) -> Batch[Read, Asks]:
        """The same with other tensors, in the order of `tensors`."""
        first = len(self.read.tensors())
        second = first + len(self.asked.tensors())
        read, asked = self.read.put(tensors[:first]), self.asked.put(tensors[first:second])
        return replace(self, read=read, asked=asked, past=tuple(tensors[second:]))

    def to(self, device: torch.device) -> Batch[Read, Asks]:
        # From pinned memory alone may a copy be left to itself; elsewhere it must be waited for.
        pinned = device.type == "cuda"
        return self.put([t.to(device, non_blocking=pinned) for t in self.tensors()])

    def pin(self) -> Batch[Read, Asks]:
        return self.put([t.pin_memory() for t in self.tensors()])

    def shard(self, part: int, parts: int) -> Batch[Read, Asks]:
        """Every `parts`-th row, from `part` on; may be empty."""
        return self.put([t[part::parts] for t in self.tensors()])

    def repeat(self, count: int) -> Batch[Read, Asks]:
        """The whole batch `count` times, one copy after the other."""
        return self.put([t.repeat(count, *(1,) * (t.dim() - 1)) for t in self.tensors()])

    def pad_to_multiple(self, multiple: int) -> Batch[Read, Asks]:
        """Padded on, so that there are few shapes."""
        read, asked = self.read.pad_to_multiple(multiple), self.asked.pad_to_multiple(multiple)
        return replace(self, read=read, asked=asked)


class GraphSizes(NamedTuple):
    """What the nodes and edges of graphs have."""

    edge_tags: int = 0  # vocabulary of what edges are
    numbers: int = 0  # of a node
    edge_numbers: int = 0  # of an edge
    places: int = 0  # numbers that say where a node stands
    farthest: int = 0  # distance that is told apart; 0: none is
    longest: int = 0  # edges of a way that are looked at; 0: none


class HistorySizes(NamedTuple):
    """What the steps of histories have."""

    numbers: int  # of an observation
    columns: int  # words of an observation
    words: int  # vocabulary of all of them
    states: int  # which come together; 0: they are not counted
    actions: int  # that can be chosen from; or numbers of one
    degrees: bool = False  # whether an action is numbers
    values: int = 0  # numbers to be told of each step beside the action
    wished: bool = False  # whether it matters what return is wished for


@dataclass(frozen=True)
class Sizes:
    """What a model cannot know before it has seen the data; the task reports it."""

    source: int  # vocabulary read; 0: what is read has none
    target: int  # vocabulary written
    shared: bool  # whether both are one vocabulary
    classes: int = 0  # how many numbers are asked, where it is not a word of the vocabulary
    read: type[Tensors] = Ids  # what is read
    asked: type[Asked] = Words  # what is asked of it
    item: tuple[int, ...] = ()  # the shape of what becomes one vector, where it is no id: a patch
    grid: tuple[int, ...] = ()  # how many of them lie beside and below each other
    stem: str = "linear"  # how a patch, or some frames, become a vector
    colours: tuple[tuple[float, ...], ...] = ()  # mean and spread of each channel's numbers
    graph: GraphSizes | None = None  # what nodes and edges have, where graphs are read
    history: HistorySizes | None = None  # what steps have, where histories are read


class Heard(NamedTuple):
    """What stands at each place of what is read in order, and how many of them are real."""

    states: Tensor  # (B, S, D), or scores of words (B, S, V)
    lengths: Tensor  # (B,)


class ModelOutput(NamedTuple):
    """What a model hands to its output layer."""

    states: Tensor  # (B, T, D), one for each label
    past: tuple[Tensor, ...] = ()  # (B, …) each: what the next batch of the stream goes on from
    penalty: Tensor | None = None  # what the model wants to be small, beside the loss a token
    follows: Tensor | None = None  # (B, 2) whether the second text follows on the first
    words: Tensor | None = None  # (B, T, D) from which each next word can be told, beside a class
    heard: Heard | None = None  # of what is read in order: from which it can be told place by place
    slow: Tensor | None = None  # (B, T, C) what a copy of the model says that follows it slowly


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Lists of ids as a rectangle; zeros are padding.  -> (B, longest)"""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long)
