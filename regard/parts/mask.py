"""Who may look at whom. A mask is boolean, and True means "may look", everywhere."""

from __future__ import annotations

import torch
from torch import Tensor


def padding(lengths: Tensor, size: int) -> Tensor:
    """Only the first `lengths` of `size` keys are real.  (B,) -> (B, 1, 1, S)"""
    places = torch.arange(size, device=lengths.device)
    return (places < lengths[:, None])[:, None, None, :]


def real(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Only the first `lengths` of each row are real; all, where nobody says.  (B, S, D) ->
    (B, 1, 1, S)"""
    if lengths is None:
        return torch.ones(x.shape[0], 1, 1, x.shape[1], dtype=torch.bool, device=x.device)
    return padding(lengths, x.shape[1])


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """No looking ahead; the last query stands at the last key.  -> (1, 1, T, S)

    causal(2, 3) lets the first query see keys 0 and 1, the second 0, 1 and 2.
    """
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(keys - queries)[None, None]


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """What both masks allow; None allows everything."""
    if a is None or b is None:
        return a if b is None else b
    return a & b


def same(documents: Tensor) -> Tensor:
    """No looking into another document.  (B, T) -> (B, 1, T, T)"""
    return (documents[:, :, None] == documents[:, None, :])[:, None]


def places(documents: Tensor) -> Tensor:
    """Positions that start anew with every document.  (B, T) -> (B, T)

    1 1 1 2 2 stands at 0 1 2 0 1.
    """
    every = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return every - (every * begins).cummax(1).values
