"""Attention of modules that are not built of our parts, seen where torch computes it.

Every model whose attention goes through `scaled_dot_product_attention` passes one place, whoever
wrote it. There the very queries and keys of the fused kernel are seen, and the weights computed
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Seen = dict[str, list[Tensor]]


class Listening(TorchFunctionMode):
    """Hands every call of the kernel on, and tells who made it with what."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__()
        self.tell = tell

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is F.scaled_dot_product_attention:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self.tell(*args, **(kwargs or {}))
        return result


def weights_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What the kernel weighs values by, dropout aside; its arguments are torch's.

    (B, H, T, K), (B, H or fewer, S, K) -> (B, H, T, S), zeros where nothing may be seen
    """
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query.float() @ key.float().mT
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    nothing = scores.amax(-1, keepdim=True) == float("-inf")
    return scores.softmax(-1).masked_fill(nothing, 0.0)


@contextmanager
def calls_of(
    model: nn.Module, heads: Sequence[int] | None = None, rows: Sequence[int] | None = None
) -> Iterator[Seen]:
    """Collect weights by the name of the module that asks for them; a tensor for each call."""
    seen: Seen = {}
    inside: list[str] = []  # the modules that are running, the innermost last

    def tell(*args: Any, **options: Any) -> None:
        if not inside:
            return  # it is another model's
        weights = weights_of(*args, **options)
        weights = weights if heads is None else weights[:, list(heads)]
        weights = weights if rows is None else weights[:, :, list(rows)]
        seen.setdefault(inside[-1], []).append(weights)

    with ExitStack() as hooks:
        for name, part in model.named_modules():
            enter = part.register_forward_pre_hook(lambda *_, name=name: inside.append(name))
            leave = part.register_forward_hook(_leaver(inside), always_call=True)
            hooks.callback(enter.remove)
            hooks.callback(leave.remove)
        hooks.enter_context(Listening(tell))
        yield seen


def _leaver(inside: list[str]) -> Callable[..., None]:
    def leave(*_: object) -> None:
        inside.pop()

    return leave
