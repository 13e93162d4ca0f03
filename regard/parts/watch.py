"""Seeing what attends to what, without changing it.

The model runs as it always does. A hook on each `Attend` gets the very queries and keys that the
fused kernel got, and computes the asked-for weights beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .attention import Attend
from .live import calls_of


def attentions(model: nn.Module) -> dict[str, Attend]:
    """Every attention of a model by its part's name, such as `decoder.0.cross`."""
    return {
        name.removesuffix(".attend"): part
        for name, part in model.named_modules()
        if isinstance(part, Attend)
    }


def choose(names: Sequence[str], layers: Sequence[int] | None) -> list[str]:
    """The names at the asked-for depths of their own stack; -1 is the last block of each.

    Names that differ only in a number are one stack: encoder.0.attention, encoder.1.attention, …
    """
    stacks: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stacks[re.sub(r"\d+", "*", name)].append(name)
    if layers is None:
        return list(names)
    chosen = {
        stack[layer]
        for stack in stacks.values()
        for layer in layers
        if -len(stack) <= layer < len(stack)
    }
    return [name for name in names if name in chosen]


@contextmanager
def silence(model: nn.Module, name: str, heads: Sequence[int]) -> Iterator[None]:
    """Let some heads of one attention say nothing: what they mixed is zero."""

    part = attentions(model)[name]
    hook = part.register_forward_hook(
        lambda _, inputs, result: part.zero_heads(result, list(heads))
    )
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def record_inputs(
    model: nn.Module, names: Sequence[str]
) -> Iterator[dict[str, tuple[object, ...]]]:
    """What went into attentions that are asked once a pass: queries, keys, values, mask, bias."""
    heard: dict[str, tuple[object, ...]] = {}
    parts = attentions(model)

    def listener(name: str) -> Callable[..., None]:
        def listen(part: nn.Module, inputs: tuple[object, ...]) -> None:
            heard[name] = inputs

        return listen

    plain = [name for name in names if type(parts[name]) is Attend]
    hooks = [parts[name].register_forward_pre_hook(listener(name)) for name in plain]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def watch(
    model: nn.Module,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[dict[str, list[Tensor]]]:
    """Collect weights by part name while the model runs; one tensor (B, H, T, S) for each call.

    `layers` or `names`, `heads` and `rows` (queries) choose; what is not asked for is not computed.
    While a text is written token by token, each step is a call of one query: (B, H, 1, S), S
    growing. A model that is not built of our parts, one of `transformers` say, is watched where it
    calls torch's kernel; what its layers are called is known then, so they are chosen at the end.
    """
    seen: dict[str, list[Tensor]] = {}
    parts = attentions(model)
    if not parts:
        with calls_of(model, heads, rows) as seen:
            yield seen
        wanted = choose(list(seen), layers) if names is None else names
        for name in set(seen) - set(wanted):
            del seen[name]
        return

    def listener(name: str) -> Callable[..., None]:
        @torch.no_grad()
        def listen(part: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
            assert isinstance(part, Attend)
            chosen = list(heads) if heads is not None else list(range(inputs[0].shape[1]))
            seen.setdefault(name, []).append(part.seen(inputs, result, chosen, rows))

        return listen

    chosen = choose(list(parts), layers) if names is None else names
    hooks = [parts[name].register_forward_hook(listener(name)) for name in chosen]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
