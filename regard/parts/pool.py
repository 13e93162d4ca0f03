"""A text's vectors as one: its first, their mean, or the largest of each number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def first(x: Tensor, lengths: Tensor) -> Tensor:
    """The vector of the token that stands for the whole text.  (B, T, D), (B,) -> (B, D)"""
    return x[:, 0]


def last(x: Tensor, lengths: Tensor) -> Tensor:
    """The vector of the last token, which has seen all before it."""
    # Not len(x), which would fix the number of rows in a graph that is written out.
    return x[torch.arange(x.shape[0], device=x.device), lengths - 1]


def mean(x: Tensor, lengths: Tensor) -> Tensor:
    return x.masked_fill(~_real(x, lengths), 0.0).sum(1) / lengths[:, None].to(x.dtype)


def total(x: Tensor, lengths: Tensor) -> Tensor:
    return x.masked_fill(~_real(x, lengths), 0.0).sum(1)


def scaled(x: Tensor, lengths: Tensor) -> Tensor:
    """The sum over the root of their number: it tells how many there are, and stays moderate."""
    return total(x, lengths) / lengths[:, None].to(x.dtype).sqrt()


def largest(x: Tensor, lengths: Tensor) -> Tensor:
    return x.masked_fill(~_real(x, lengths), float("-inf")).amax(1)


def _real(x: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]


POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": first,
    "last": last,
    "mean": mean,
    "sum": total,
    "scaled-sum": scaled,
    "max": largest,
}
