"""Which precision is asked for."""

from __future__ import annotations

import torch
from torch import Tensor


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The type that autocast asks of products with x, for code that casts by itself; None: none."""
    kind = x.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):  # without numbers there is none
        return None
    return torch.get_autocast_dtype(kind)


def widest(device: torch.device) -> torch.dtype:
    """What exact sums are taken in: float64, which Apple's GPUs do not have."""
    return torch.float32 if device.type == "mps" else torch.float64


def at_least_float32(x: Tensor) -> Tensor:
    """What sums are taken of: nothing below float32, and float64 as it is."""
    return x if x.dtype == torch.float64 else x.float()
