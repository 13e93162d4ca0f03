"""Marian; and Pegasus, which is the same with its norms before the sub-layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from ..batch import Asked
from ..models.transformer import TransformerSettings
from .architecture import (
    Architecture,
    Config,
    activation,
    must,
    must_be,
    number,
    their_activation,
    wanted,
)
from .rules import Rule, Weights, attention, layer, same


def settings(config: Config, names: set[str]) -> TransformerSettings:
    wanted(config, "scale_embedding", True)
    wanted(config, "share_encoder_decoder_embeddings", True)
    wanted(config, "normalize_embedding", False)
    wanted(config, "tie_word_embeddings", True)
    heads, hidden = number(config, "encoder_attention_heads"), number(config, "encoder_ffn_dim")
    wanted(config, "decoder_attention_heads", heads)
    wanted(config, "decoder_ffn_dim", hidden)
    depth, after = number(config, "encoder_layers"), number(config, "decoder_layers")
    return TransformerSettings(
        width=number(config, "d_model"),
        depth=depth,
        decoder_depth=0 if after == depth else after,
        heads=heads,
        hidden=hidden,
        dropout=number(config, "dropout", 0.1),
        attention_dropout=number(config, "attention_dropout", 0.0),
        hidden_dropout=number(config, "activation_dropout", 0.0),
        position="halves",
        positions=number(config, "max_position_embeddings"),
        feedforward=activation(config, "activation_function", "swish"),
        output_bias=True,
    )


def pegasus_settings(config: Config, names: set[str]) -> TransformerSettings:
    return replace(settings(config, names), residual="pre")


def config(s: TransformerSettings) -> Config:
    must(s.position in ("halves", "sinusoid"), f"model.position={s.position!r}")
    must(s.residual in ("pre", "post"), f"model.residual={s.residual!r}")
    must_be(s, norm="layer", score="scaled-dot", tie="all", scale_embedding=True)
    both = {"layers": s.depth, "attention_heads": s.heads, "ffn_dim": s.hidden}
    return {
        "model_type": "marian" if s.residual == "post" else "pegasus",
        "d_model": s.width,
        **{f"encoder_{key}": value for key, value in both.items()},
        **{f"decoder_{key}": value for key, value in both.items()},
        "decoder_layers": s.decoder_depth or s.depth,
        "num_hidden_layers": s.depth,
        "dropout": s.dropout,
        "attention_dropout": s.attention_dropout,
        "activation_dropout": s.hidden_dropout,
        "max_position_embeddings": s.positions,
        "activation_function": their_activation(s.feedforward),
        "scale_embedding": True,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "normalize_embedding": False,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "forced_eos_token_id": None,
    }


def body(s: TransformerSettings, prefix: str) -> Iterable[Rule]:
    yield same("source.tokens.weight", f"{prefix}shared.weight")
    for side, depth in (("encoder", s.depth), ("decoder", s.decoder_depth or s.depth)):
        parts = {"attention": "self_attn"}
        if side == "decoder":
            parts["cross"] = "encoder_attn"
        for n in range(depth):
            ours, theirs = f"{side}.{n}", f"{prefix}{side}.layers.{n}"
            for part, its in parts.items():
                q, k, v, out = (f"{theirs}.{its}.{kind}_proj" for kind in ("q", "k", "v", "out"))
                yield from attention(f"{ours}.{part}", q, k, v, out)
                yield from layer(f"{ours}.{part}_residual.norm", f"{theirs}.{its}_layer_norm")
            yield from layer(f"{ours}.feedforward.widen", f"{theirs}.fc1")
            yield from layer(f"{ours}.feedforward.narrow", f"{theirs}.fc2")
            yield from layer(f"{ours}.feedforward_residual.norm", f"{theirs}.final_layer_norm")
        if s.residual == "pre":
            yield from layer(f"{side}_norm", f"{prefix}{side}.layer_norm")


def head(s: TransformerSettings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    if s.output_bias:
        yield Rule(("output.bias",), ("final_logits_bias",), lambda x: x, lambda x: (x[None],))


def in_halves(weights: Weights) -> Weights:
    """Weights that read sines beside cosines, for a table that has the sines first.

    The numbers of a vector between parts have no order of their own: what writes them and what
    reads them is reordered alike, and nothing else changes.
    """
    width = weights["source.tokens.weight"].shape[1]
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    reads = (".query.weight", ".memory.weight", ".widen.weight", ".gate.weight", "tokens.weight")
    writes = ("attention.output", "cross.output", "feedforward.narrow")

    def reorder(name: str, weight: Tensor) -> Tensor:
        if name.endswith(reads):
            return weight[:, order]
        if "norm." in name or name.rpartition(".")[0].endswith(writes):
            return weight[order]
        return weight

    return {name: reorder(name, weight) for name, weight in weights.items()}


REPEATS = tuple(
    f"{side}.{table}.weight" for side in ("encoder", "decoder")
    for table in ("embed_tokens", "embed_positions")
)  # fmt: skip
MARIAN = Architecture(
    "transformer", "model.", settings, config, body, head, {"MarianMTModel": "translate"}, REPEATS
)
PEGASUS = Architecture(
    "transformer", "model.", pegasus_settings, config, body, head,
    {"PegasusForConditionalGeneration": "translate"}, REPEATS,
)  # fmt: skip
