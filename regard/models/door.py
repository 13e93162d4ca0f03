"""Doors: from what is read to vectors. A model asks for one, and never for a vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..batch import Frames, Graphs, Ids, Permuted, Pixels, Running, Sizes, Steps, Tensors
from ..parts.augment import augment
from ..parts.embedding import Embedding
from ..parts.frames import FRAME_STEMS
from ..parts.position import NoPosition
from ..parts.stem import STEMS


class Entered(NamedTuple):
    """What is read, as a model meets it."""

    vectors: Tensor  # (B, S, D)
    lengths: Tensor | None = None  # (B,) how many of each row are real; None: all are
    bias: Tensor | None = None  # (B or 1, H or 1, S, S) added to the scores of who looks at whom


class Door(nn.Module):
    """What is read as vectors, one for each thing that can be looked at.

    A door is made of the sizes, a width, a position, a dropout and a scale, in that order.
    """

    def enter(self, read: Tensors, positions: Tensor | None = None) -> Entered:
        raise NotImplementedError


class TokenDoor(Embedding, Door):
    """Ids, each as the vector of its entry in the vocabulary."""

    def __init__(
        self,
        sizes: Sizes,
        width: int,
        position: NoPosition,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(sizes.source, width, position, dropout, scale)

    def enter(self, read: Tensors, positions: Tensor | None = None) -> Entered:
        assert isinstance(read, Ids | Running | Permuted)
        lengths = read.lengths if isinstance(read, Ids) and not read.full else None
        return Entered(self(read.ids, positions), lengths)


class Retina(nn.Module):
    """Pictures as numbers around zero; in training, changed as was drawn.  -> (B, C, H, W)"""

    mean: Tensor
    spread: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        colours = sizes.colours or ([0.0] * sizes.item[0], [1.0] * sizes.item[0])
        for name, numbers in zip(("mean", "spread"), colours, strict=True):
            self.register_buffer(name, torch.tensor(numbers)[:, None, None], persistent=False)

    def forward(self, read: Pixels) -> Tensor:
        if read.values.dtype != torch.uint8:  # whoever sends numbers has made them so
            return read.values
        x = read.values.to(self.mean.dtype) / 255
        if read.changes is not None:
            others = None if read.others is None else read.others.to(x.dtype) / 255
            x = augment(x, read.changes, others, read.coloured)
        return (x - self.mean) / self.spread


class PatchDoor(Door):
    """A picture cut into patches, each a vector by the stem."""

    def __init__(
        self,
        sizes: Sizes,
        width: int,
        position: NoPosition,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        channels, patch, _ = sizes.item
        self.retina, self.cut = Retina(sizes), STEMS[sizes.stem](channels, width, patch)
        self.position, self.dropout = position, nn.Dropout(dropout)

    def enter(self, read: Tensors, positions: Tensor | None = None) -> Entered:
        assert isinstance(read, Pixels)
        x = self.cut(self.retina(read)).flatten(2).transpose(1, 2)  # (B, S, D), row after row
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)
        return Entered(self.dropout(self.position.add(x, positions)))


class FrameDoor(Door):
    """A sound, of which the stem makes a vector for every few frames."""

    def __init__(
        self,
        sizes: Sizes,
        width: int,
        position: NoPosition,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.stem = FRAME_STEMS[sizes.stem](sizes.item[0], width)
        self.position, self.dropout = position, nn.Dropout(dropout)

    def enter(self, read: Tensors, positions: Tensor | None = None) -> Entered:
        assert isinstance(read, Frames)
        x, lengths = self.stem(read.values, read.lengths)  # (B, S, D)
        if positions is None:
            positions = torch.arange(x.shape[1], device=x.device)
        return Entered(self.dropout(self.position.add(x, positions)), lengths)


def bag(ids: Tensor, table: Tensor, weights: Tensor | None = None, power: float = 0.5) -> Tensor:
    """Vectors of several tags as one: their sum over the root of their number, or over another
    power of it; 0 is no tag.

    (…, W), (V, D), (…, W) -> (…, D)
    """
    real = (ids > 0).to(table.dtype)
    weights = real if weights is None else weights * real
    weights = weights / real.sum(-1, keepdim=True).clamp_min(1).pow(power)
    return (weights[..., None, :] @ F.embedding(ids, table))[..., 0, :]


class GraphDoor(Door):
    """Nodes, each by its tags, its numbers and where it stands in the graph.

    In training a tag or a number is left out as often as `dropout` says.
    """

    power = 0.5  # of the number of tags, which their sum is divided by

    def __init__(
        self,
        sizes: Sizes,
        width: int,
        position: NoPosition,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        assert sizes.graph is not None
        told = sizes.graph
        self.tags = nn.Embedding(max(sizes.source, 1), width)
        nn.init.normal_(self.tags.weight, std=0.5 if scale is None else scale)
        self.numbers = nn.Linear(told.numbers, width) if told.numbers else None
        self.places = nn.Linear(told.places, width, bias=False) if told.places else None
        if self.places is not None:
            nn.init.normal_(self.places.weight)  # as loud as the tags, though its numbers are small
        self.dropout = nn.Dropout(dropout)

    def enter(self, read: Tensors, positions: Tensor | None = None) -> Entered:
        assert isinstance(read, Graphs)
        weights = self.dropout(torch.ones_like(read.tags, dtype=self.tags.weight.dtype))
        x = bag(read.tags, self.tags.weight, weights, self.power)
        if self.numbers is not None and read.numbers is not None:
            x = x + self.numbers(self.dropout(read.numbers))
        if self.places is not None and read.places is not None:
            x = x + self.places(read.places)
        return Entered(x, read.lengths)


class StepDoor(Door):
    """Histories: of each step the return that is wished for, what is observed, and what is done.

    Whether a number was recorded is an input like the number itself. A decision stands at what is
    observed, so the step's own action comes after it.
    """

    def __init__(
        self,
        sizes: Sizes,
        width: int,
        position: NoPosition,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        assert sizes.history is not None
        told = sizes.history
        self.numbers = nn.Linear(2 * told.numbers, width) if told.numbers else None
        self.words = nn.Embedding(told.words, width) if told.columns else None
        self.actions: nn.Linear | nn.Embedding = (
            nn.Linear(told.actions, width) if told.degrees else nn.Embedding(told.actions, width)
        )
        self.returns = nn.Linear(1, width)
        self.unwished = nn.Parameter(torch.zeros(width))
        self.position, self.norm = position, nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def enter(self, read: Tensors, positions: Tensor | None = None) -> Entered:
        """-> (B, 3 T, D): a return, an observation and an action a step"""
        assert isinstance(read, Steps)
        wished = self.returns(read.returns.nan_to_num()[..., None])  # (B, T, D)
        wished = torch.where(read.returns.isnan()[..., None], self.unwished.to(wished), wished)
        seen = torch.zeros_like(wished)
        if self.numbers is not None:
            seen = seen + self.numbers(torch.cat((read.numbers, read.known), -1))
        if self.words is not None:
            seen = seen + self.words(read.words).sum(-2)
        done = self.actions(read.actions)
        three = [self.position.add(x, read.times) for x in (wished, seen, done)]
        x = torch.stack(three, 2).flatten(1, 2)
        return Entered(self.dropout(self.norm(x)), 3 * read.lengths)


DOORS: dict[type[Tensors], type[Door]] = {
    Ids: TokenDoor,
    Running: TokenDoor,
    Permuted: TokenDoor,
    Pixels: PatchDoor,
    Frames: FrameDoor,
    Graphs: GraphDoor,
    Steps: StepDoor,
}


def make_door(
    sizes: Sizes,
    width: int,
    position: NoPosition,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Door:
    """The door for what is read."""
    return DOORS[sizes.read](sizes, width, position, dropout, scale)


def table_of(door: Door) -> nn.Embedding:
    """The vectors of a vocabulary, for those that write with what they read with."""
    assert isinstance(door, TokenDoor), "what is read has no vocabulary to be tied to"
    return door.tokens
