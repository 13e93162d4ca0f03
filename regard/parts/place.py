"""Where a patch lies in a picture: a vector for each place, two sines, or a bias by distance.

Tokens that lie nowhere (a class token) come before the patches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Grid = tuple[int, ...]  # rows and columns of patches


class Places(nn.Module):
    """A picture as a bag of patches."""

    def __init__(self, width: int, heads: int, grid: Grid, tokens: int) -> None:
        super().__init__()
        self.grid, self.tokens = grid, tokens

    def table(self, grid: Grid) -> Tensor | None:
        """A vector for each token and each patch, row after row.  -> (tokens + S, D)"""
        return None

    def bias(self, grid: Grid) -> Tensor | None:
        """What is added to the scores of who looks at whom.  -> (1, H, tokens + S, tokens + S)"""
        return None


class Learned(Places):
    """One trained vector a place; for another grid, drawn out or pressed together (ViT, 3.2)."""

    def __init__(self, width: int, heads: int, grid: Grid, tokens: int) -> None:
        super().__init__(width, heads, grid, tokens)
        self.weight = nn.Parameter(torch.randn(tokens + grid[0] * grid[1], width) * 0.02)

    def table(self, grid: Grid) -> Tensor:
        return resized(self.weight, self.tokens, self.grid, grid)


def resized(weight: Tensor, tokens: int, old: Grid, new: Grid) -> Tensor:
    """Vectors of places as those of another grid; tokens keep theirs."""
    if old == new:
        return weight
    picture = weight[tokens:].unflatten(0, old).permute(2, 0, 1)[None].float()
    picture = F.interpolate(picture, new, mode="bicubic", align_corners=False)
    drawn = picture[0].permute(1, 2, 0).flatten(0, 1).to(weight.dtype)
    return torch.cat((weight[:tokens], drawn))


class Sinusoid2D(Places):
    """Half of the vector tells the row, half the column, by sines and cosines as of words."""

    rates: Tensor

    def __init__(self, width: int, heads: int, grid: Grid, tokens: int) -> None:
        super().__init__(width, heads, grid, tokens)
        assert width % 4 == 0, f"a width of {width} cannot hold sine and cosine of two axes"
        quarter = torch.arange(width // 4, dtype=torch.float64) / (width // 4)
        self.register_buffer("rates", (10000.0**-quarter).float(), persistent=False)

    def table(self, grid: Grid) -> Tensor:
        rates = self.rates.float()
        sides = [torch.arange(side, device=rates.device)[:, None] * rates for side in grid]
        row, column = (torch.cat((angle.sin(), angle.cos()), -1) for angle in sides)
        tall, wide = grid
        both = torch.cat((row[:, None].expand(-1, wide, -1), column.expand(tall, -1, -1)), -1)
        return torch.cat((both.new_zeros(self.tokens, both.shape[2]), both.flatten(0, 1)))


class Relative(Places):
    """A learned bias for each head and each distance, down and across; tokens have none."""

    def __init__(self, width: int, heads: int, grid: Grid, tokens: int) -> None:
        super().__init__(width, heads, grid, tokens)
        tall, wide = grid
        self.weight = nn.Parameter(torch.zeros(heads, 2 * tall - 1, 2 * wide - 1))

    def bias(self, grid: Grid) -> Tensor:
        tall, wide = grid
        table: Tensor = self.weight
        if grid != self.grid:
            size = (2 * tall - 1, 2 * wide - 1)
            table = F.interpolate(table[None], size, mode="bicubic", align_corners=False)[0]
        rows = torch.arange(tall * wide, device=table.device) // wide
        columns = torch.arange(tall * wide, device=table.device) % wide
        down = rows[:, None] - rows + tall - 1
        across = columns[:, None] - columns + wide - 1
        found = table[:, down, across]  # (H, S, S)
        return F.pad(found, (self.tokens, 0, self.tokens, 0))[None]


PLACES: dict[str, type[Places]] = {
    "learned": Learned,
    "sinusoid": Sinusoid2D,
    "relative": Relative,
    "none": Places,
}
