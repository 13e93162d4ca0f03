"""Drawing what `regard.watch` saw of any model, with the tokens that somebody names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError
from .capture import AttentionReport, Look

CROSSING = re.compile(r"cross|EncDec|encoder_attn|encoder_decoder", re.IGNORECASE)


def draw(
    seen: Mapping[str, Sequence[Tensor]],
    tokens: Sequence[str],
    target: Sequence[str] | None = None,
    row: int = 0,
) -> AttentionReport:
    """All heads that were watched, over tokens; saves itself as a page, a picture or numbers.

    `target` are those of the decoder, where there is one; `row` says which text of the batch.
    """
    if not seen:
        raise InputError(
            "nothing was seen: the model must run while it is watched, and its attention go "
            "through torch's scaled_dot_product_attention, as attn_implementation='sdpa' has it in "
            "transformers."
        )
    looks = []
    for name, calls in seen.items():
        weights = together(calls)[row]  # (H, T, S)
        rows, columns = sides(name, tokens, target)
        if weights.shape[1:] != (len(rows), len(columns)):
            raise InputError(
                f"tokens: {name} looks from {weights.shape[1]} places at {weights.shape[2]}, but "
                f"{len(rows)} and {len(columns)} tokens are named; name each, padding too."
            )
        number = re.search(r"\d+", name)
        kind, layer = re.sub(r"\.\d+", "", name), int(number[0]) if number else 0
        shown = weights.float().cpu().numpy()
        looks.append(Look(name, kind, layer, list(rows), list(columns), shown))
    return AttentionReport(" ".join(tokens), " ".join(target or ()), looks)


def sides(
    name: str, tokens: Sequence[str], target: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Whose tokens look, and at whose, by what the attention is called."""
    if target is None:
        return tokens, tokens
    if CROSSING.search(name):
        return target, tokens
    own = target if "decoder" in name else tokens
    return own, own


def together(calls: Sequence[Tensor]) -> Tensor:
    """One after the other: while a text is written, each call sees more than the one before."""
    most = max(call.shape[-1] for call in calls)
    return torch.cat([F.pad(call, (0, most - call.shape[-1])) for call in calls], -2)
