"""Linear layers with their weights in the CPU library's own order, for answering.

oneDNN multiplies faster by a matrix that was reordered once: by a third for a hundred rows, several
times for a few. Training keeps the plain order, since its weights change at every step.
"""

from __future__ import annotations

import ctypes
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .output import Output

LEAST = 2**18  # entries; below that the call costs more than the order saves


class Packed:
    """Stands in for a layer's `forward`: the packed product where it fits, else the plain one.

    (…, K) -> (…, N). With gradients wanted the plain path is taken, and a weight that has changed
    is packed anew.
    """

    def __init__(self, layer: nn.Linear | Output) -> None:
        self.layer, self.version, self.weight = layer, -1, layer.weight

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self.layer.weight, self.layer.bias
        if torch.is_grad_enabled() or x.dtype != torch.float32 or weight.device.type != "cpu":
            return F.linear(x, weight, bias)
        if weight._version != self.version:
            self.version = weight._version
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.contiguous(), self.weight, bias, "none", [], ""
        )
        return out


def pack(model: nn.Module) -> None:
    """Let large linear layers multiply by packed weights wherever no gradient is wanted."""
    keep_freed_memory()
    if not (
        torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        return
    for part in model.modules():
        if isinstance(part, nn.Linear | Output) and part.weight.numel() >= LEAST:
            part.forward = Packed(part)  # type: ignore[method-assign]


def keep_freed_memory() -> None:
    """Ask the C library to keep what is freed for the next use, where it can be asked.

    Every step makes a tensor of scores and frees it. Handed back to the system each time, its pages
    must be cleared anew, which takes about a tenth of the time of an answer.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            most, trim, large = 2**31 - 1, -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            library.mallopt(trim, most)
            library.mallopt(large, 2**30)
