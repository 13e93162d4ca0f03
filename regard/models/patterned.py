"""What models whose texts look at themselves may choose: who looks at whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypedDict

from annotated_types import Ge, Gt, Le
from torch import Tensor

from ..parts.pattern import PATTERNS, Pattern


class Chosen(TypedDict):
    """As an attention takes it."""

    pattern: Pattern | None
    block: int


@dataclass(frozen=True, kw_only=True)
class PatternSettings:
    """Which places of a text look at which; all do, unless it is long."""

    pattern: Annotated[
        str, PATTERNS,
        "who looks at whom: full; window: neighbours; dilated: further ones, with gaps; "
        "longformer: neighbours and first places; bigbird: neighbouring, first and random blocks",
    ] = "full"  # fmt: skip
    block: Annotated[int, Gt(0), Le(4096), "places of a block, which patterns are made of"] = 64
    reach: Annotated[int, Gt(0), Le(2**20), "window: places to each side that are looked at"] = 256
    first_places: Annotated[
        int, Ge(0), Le(2**16),
        "window: first places that all look at; longformer: that look at all, too",
    ] = 4  # fmt: skip
    random_blocks: Annotated[int, Ge(0), Le(4096), "bigbird: drawn blocks that each looks at"] = 3

    def pattern_of(self, layer: int) -> Chosen:
        """The pattern of one layer; random blocks differ from layer to layer."""
        if self.pattern == "full":
            return {"pattern": None, "block": self.block}
        sizes = self.block, self.reach, self.first_places, self.random_blocks
        return {"pattern": PATTERNS[self.pattern](*sizes).of_layer(layer), "block": self.block}


def with_more_places(weights: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Another run's weights, its learned places again and again where there are more of them here:
    near by, all looks as it did where it was learned (Beltagy et al. 2020, section 5)."""
    name = "embedding.position.weight"
    if name not in weights or name not in own or len(weights[name]) >= len(own[name]):
        return weights
    times = -(-len(own[name]) // len(weights[name]))
    return {**weights, name: weights[name].repeat(times, 1)[: len(own[name])]}
