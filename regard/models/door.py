"""Doors: from what is read to vectors. A model asks for one, and never for a vocabulary."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from torch import Tensor

from ..batch import Ids, Permuted, Running, Sizes, Tensors
from ..parts.embedding import Embedding
from ..parts.position import NoPosition


class Door(Protocol):
    """What is read as vectors, one for each thing that can be looked at."""

    def __init__(
        self,
        sizes: Sizes,
        width: int,
        position: NoPosition,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> None: ...

    def enter(self, read: Tensors, positions: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """-> vectors (B, S, D), and how many of each row are real (B,); None: all are"""


class TokenDoor(Embedding):
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

    def enter(self, read: Tensors, positions: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        assert isinstance(read, Ids | Running | Permuted)
        lengths = read.lengths if isinstance(read, Ids) and not read.full else None
        return self(read.ids, positions), lengths


AnyDoor: TypeAlias = TokenDoor
DOORS: dict[type[Tensors], type[AnyDoor]] = {
    Ids: TokenDoor,
    Running: TokenDoor,
    Permuted: TokenDoor,
}


def make_door(
    sizes: Sizes,
    width: int,
    position: NoPosition,
    dropout: float = 0.0,
    scale: float | None = None,
) -> AnyDoor:
    """The door for what is read."""
    return DOORS[sizes.read](sizes, width, position, dropout, scale)
