"""Linear layers with their weights in the CPU library's own order and precision, for answering.

oneDNN multiplies faster by a matrix that was reordered once: by a third for a hundred rows, several
times for a few. Training keeps the plain order, since its weights change at every step.
"""

from __future__ import annotations

import ctypes
import platform
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import Attention
from .output import Output

OFFSET = torch.tensor(128.5)  # makes numbers of ±127 ones without a sign, and cutting rounding
LEAST = 2**18  # entries; below that the call costs more than the order saves


class Packed:
    """Stands in for a layer's `forward`: the packed product where it fits, else the plain one.

    (…, K) -> (…, N). Layers that read the same vectors can share one product, their results side by
    side. With gradients wanted the plain path is taken, and a weight that has changed is packed
    anew.
    """

    def __init__(self, *layers: nn.Linear | Output) -> None:
        self.layers = layers
        self.versions: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        weights: list[Tensor] = [layer.weight for layer in self.layers]
        biases: list[Tensor] = [layer.bias for layer in self.layers if layer.bias is not None]
        if torch.is_grad_enabled() or x.dtype != torch.float32 or weights[0].device.type != "cpu":
            return torch.cat([F.linear(x, layer.weight, layer.bias) for layer in self.layers], -1)
        versions = [tensor._version for tensor in (*weights, *biases)]
        if versions != self.versions:
            self.versions = versions
            bias = torch.cat(biases) if biases else None
            self.reorder(torch.cat(weights), bias)
        return self.product(x.contiguous())

    def reorder(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self.bias = bias

    def product(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out


class Bfloat16(Packed):
    """The same product of bfloat16 numbers, with sums in float32."""

    def reorder(self, weight: Tensor, bias: Tensor | None) -> None:
        super().reorder(weight.bfloat16(), None if bias is None else bias.bfloat16())

    def product(self, x: Tensor) -> Tensor:
        return super().product(x.bfloat16()).float()


class Int8(Packed):
    """The same product of whole numbers: a weight's rows are scaled once to ±127, and so is each
    token's vector when it comes, so that no answer depends on its neighbours.

    Sums of whole numbers are exact. The library's quick path takes vectors without a sign, hence
    the 128 that is added to them and told to the library.
    """

    def reorder(self, weight: Tensor, bias: Tensor | None) -> None:
        self.bias = bias
        self.scales = (weight.abs().amax(1) / 127).clamp_min(1e-12)  # (N)
        rounded = (weight / self.scales[:, None]).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.long)

    def product(self, x: Tensor) -> Tensor:
        vectors = x.flatten(0, -2)
        scales = vectors.abs().amax(1, keepdim=True).div_(127).clamp_min_(1e-12)  # (M, 1)
        whole = torch.addcdiv(OFFSET, vectors, scales).to(torch.uint8)
        sums: Tensor = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, 128, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        out = sums.mul_(scales) if self.bias is None else torch.addcmul(self.bias, sums, scales)
        return out.view(*x.shape[:-1], len(self.scales))


PRODUCTS: dict[str, type[Packed]] = {"float32": Packed, "bfloat16": Bfloat16, "int8": Int8}


def pack(model: nn.Module, precision: str = "float32") -> str:
    """Let large linear layers multiply by packed weights wherever no gradient is wanted.

    -> why another precision than the one asked for is used; "" where it is not
    """
    keep_freed_memory()
    if not (
        torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        return "" if precision == "float32" else "torch comes without oneDNN here"
    lacking = "" if precision == "float32" else missing(precision)
    product = PRODUCTS["float32" if lacking else precision]
    for part in model.modules():
        if isinstance(part, nn.Linear | Output) and part.weight.numel() >= LEAST:
            part.forward = product(part)  # type: ignore[method-assign]
        if isinstance(part, Attention) and reads_itself(part):
            part.joined = product(part.query, part.memory)
    return lacking


def reads_itself(part: Attention) -> bool:
    """Whether queries, keys and values may be of the same vectors, and are worth a product."""
    return part.query.in_features == part.memory.in_features and part.memory.weight.numel() >= LEAST


def missing(precision: str) -> str:
    """What this processor lacks to be quicker in a precision; "" where it has it."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        if precision == "bfloat16" and not torch.cpu._is_avx512_bf16_supported():
            return "this processor has no instructions for bfloat16 (AVX512-BF16)"
        if precision == "int8" and not torch.cpu._is_vnni_supported():
            return "this processor has no instructions for int8 (VNNI)"
        return ""
    if precision == "bfloat16" and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return ""
    return (
        f"{precision} was never seen to be quicker on a processor like this ({platform.machine()})"
    )


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
