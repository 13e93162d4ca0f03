"""How one set of names and layouts becomes another, told once and read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import RunError

Weights = dict[str, Tensor]


class Rule(NamedTuple):
    """Some of our tensors, and those of theirs that hold the same numbers."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    to_ours: Callable[..., Iterable[Tensor]] = lambda *tensors: tensors
    to_theirs: Callable[..., Iterable[Tensor]] = lambda *tensors: tensors


def same(ours: str, theirs: str) -> Rule:
    return Rule((ours,), (theirs,))


def layer(ours: str, theirs: str, bias: bool = True) -> list[Rule]:
    """A linear layer or a norm: its weight and, where it has one, its bias."""
    return [same(f"{ours}.{kind}", f"{theirs}.{kind}") for kind in ("weight", "bias")[: 1 + bias]]


def flipped(ours: str, theirs: str) -> list[Rule]:
    """A layer whose matrix they keep as (in, out)."""

    def flip(x: Tensor) -> tuple[Tensor]:
        return (x.T,)

    weight = Rule((f"{ours}.weight",), (f"{theirs}.weight",), flip, flip)
    return [weight, same(f"{ours}.bias", f"{theirs}.bias")]


def stacked(ours: str, *theirs: str, bias: bool = True) -> list[Rule]:
    """A layer of ours that is several of theirs, one after the other."""

    def join(*x: Tensor) -> tuple[Tensor]:
        return (torch.cat(x),)

    def cut(x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(len(theirs))

    return [
        Rule((f"{ours}.{kind}",), tuple(f"{name}.{kind}" for name in theirs), join, cut)
        for kind in ("weight", "bias")[: 1 + bias]
    ]


def attention(ours: str, q: str, k: str, v: str, out: str, bias: bool = True) -> list[Rule]:
    """Queries; keys and values, which are one layer of ours; and what joins the heads."""
    return [
        *layer(f"{ours}.query", q, bias),
        *stacked(f"{ours}.memory", k, v, bias=bias),
        *layer(f"{ours}.output", out, bias),
    ]


def shifted(ours: str, theirs: str, rows: int) -> Rule:
    """A table of theirs that has rows before the first which are never used."""

    def cut(x: Tensor) -> tuple[Tensor]:
        return (x[rows:],)

    def add(x: Tensor) -> tuple[Tensor]:
        return (torch.cat((x.new_zeros(rows, x.shape[1]), x)),)

    return Rule((ours,), (theirs,), cut, add)


def to_ours(rules: Iterable[Rule], theirs: Mapping[str, Tensor], where: object) -> Weights:
    """Their tensors by our names; one too many or too few is named."""
    left, found = dict(theirs), Weights()
    for rule in rules:
        missing = [name for name in rule.theirs if name not in left]
        if missing:
            raise RunError(
                f"{where}: there must be a tensor '{missing[0]}', as config.json asks, but there "
                "is none of that name."
            )
        given = [left.pop(name) for name in rule.theirs]
        found |= zip(rule.ours, rule.to_ours(*given), strict=True)
    if left:
        raise RunError(
            f"{where}: there is a tensor '{min(left)}' that this architecture does not know; it "
            "would be lost, so nothing is imported."
        )
    return found


def to_theirs(rules: Iterable[Rule], ours: Mapping[str, Tensor]) -> Weights:
    """Our tensors by their names."""
    left, found = dict(ours), Weights()
    for rule in rules:
        given = [left.pop(name) for name in rule.ours]
        found |= zip(rule.theirs, rule.to_theirs(*given), strict=True)
    if left:
        raise RunError(
            f"a model with weights of its own called '{min(left)}' has no counterpart there, so it "
            "cannot be exported; --to onnx takes it as it is."
        )
    return {name: tensor.contiguous() for name, tensor in found.items()}
