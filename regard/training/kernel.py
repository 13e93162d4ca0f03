"""The loss of a chunk of scores as one GPU kernel: each row is read twice and written once."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

BLOCK, WARPS = 4096, 32  # scores of a row that are worked on together, and by how many


def fits(x: Tensor) -> bool:
    """Whether the kernel can be used: Triton comes with torch's builds for GPUs."""
    return x.is_cuda and importlib.util.find_spec("triton") is not None


def score_chunk(
    scores: Tensor, labels: Tensor, real: Tensor, smoothing: float, wanted: bool
) -> tuple[Tensor, Tensor]:
    """As `loss.score_chunk`, which it is tested against."""
    total, nll = torch.empty((2, len(scores)), device=scores.device)
    _kernel()[(len(scores),)](
        scores, scores.stride(0), labels, real, total, nll, scores.shape[1], smoothing,
        WANTED=wanted, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return total.sum(), nll.sum()


@cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def one_row(  # type: ignore[no-untyped-def]
        scores, stride, labels, real, total, nll, size, smoothing,
        WANTED: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        here = scores + row * stride
        label, counts = tl.load(labels + row), tl.load(real + row)
        # Read before any score is overwritten; the reductions below keep the two apart.
        right = tl.load(here + label).to(tl.float32)
        # Each lane has a maximum and sums of its own; they meet once, at the end of the row.
        top = tl.full((BLOCK,), -1e30, tl.float32)
        mass, sums = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        for start in range(0, size, BLOCK):
            places = start + tl.arange(0, BLOCK)
            x = tl.load(here + places, places < size, -1e30).to(tl.float32)
            higher = tl.maximum(top, x)
            mass = mass * tl.exp(top - higher) + tl.where(places < size, tl.exp(x - higher), 0.0)
            sums += tl.where(places < size, x, 0.0)
            top = higher
        highest = tl.max(top, 0)
        norm = highest + tl.log(tl.sum(mass * tl.exp(top - highest), 0))
        smooth = (1 - smoothing) * (norm - right) + smoothing * (norm - tl.sum(sums, 0) / size)
        tl.store(nll + row, tl.where(counts, norm - right, 0.0))
        tl.store(total + row, tl.where(counts, smooth, 0.0))
        if WANTED:
            for start in range(0, size, BLOCK):
                places = start + tl.arange(0, BLOCK)
                x = tl.load(here + places, places < size, float("-inf")).to(tl.float32)
                gradient = tl.exp(x - norm) - smoothing / size
                gradient -= tl.where(places == label, 1 - smoothing, 0.0)
                gradient = tl.where(counts, gradient, 0.0)
                tl.store(here + places, gradient.to(scores.dtype.element_ty), places < size)

    return one_row
