"""GPT-2 and Llama: one model of ours under two sets of names."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..batch import Asked, Label
from ..errors import RunError
from ..models.gpt import GPTSettings
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
from .rules import Rule, attention, flipped, layer, same


def head(s: GPTSettings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    if asked is Label:
        yield same("output.weight", "score.weight")
    elif not s.tie:
        yield same("output.weight", "lm_head.weight")


def tied(config: Config, names: set[str], usual: bool) -> bool:
    """A classifier of theirs has no words to write with; ours may, and reads them where it can."""
    return bool(wanted(config, "tie_word_embeddings", usual, not usual)) or "score.weight" in names


def gpt2_settings(config: Config, names: set[str]) -> GPTSettings:
    wanted(config, "scale_attn_weights", True)
    wanted(config, "scale_attn_by_inverse_layer_idx", False)
    wanted(config, "add_cross_attention", False)
    width = number(config, "n_embd")
    return GPTSettings(
        width=width,
        depth=number(config, "n_layer"),
        heads=number(config, "n_head"),
        hidden=config.get("n_inner") or 4 * width,
        dropout=number(config, "resid_pdrop", 0.1),
        attention_dropout=number(config, "attn_pdrop", 0.1),
        positions=number(config, "n_positions", 1024),
        epsilon=number(config, "layer_norm_epsilon", 1e-5),
        feedforward=activation(config, "activation_function", "gelu_new"),
        tie=tied(config, names, True),
    )


def gpt2_config(s: GPTSettings) -> Config:
    must_be(s, position="learned", bias=True, residual="pre", norm="layer", score="scaled-dot")
    must_be(s, key_heads=0)
    return {
        "model_type": "gpt2",
        "n_embd": s.width,
        "n_layer": s.depth,
        "n_head": s.heads,
        "n_inner": s.hidden or 4 * s.width,
        "resid_pdrop": s.dropout,
        "embd_pdrop": s.dropout,
        "attn_pdrop": s.attention_dropout,
        "n_positions": s.positions,
        "layer_norm_epsilon": s.epsilon,
        "activation_function": their_activation(s.feedforward),
        "tie_word_embeddings": s.tie,
    }


def gpt2_body(s: GPTSettings, prefix: str) -> Iterable[Rule]:
    yield same("embedding.tokens.weight", f"{prefix}wte.weight")
    yield same("embedding.position.weight", f"{prefix}wpe.weight")
    for n in range(s.depth):
        ours, theirs = f"blocks.{n}", f"{prefix}h.{n}"
        yield from layer(f"{ours}.attention_residual.norm", f"{theirs}.ln_1")
        for kind in ("weight", "bias"):
            both = (f"{ours}.attention.query.{kind}", f"{ours}.attention.memory.{kind}")
            yield Rule(both, (f"{theirs}.attn.c_attn.{kind}",), cut_in_three, join_three)
        yield from flipped(f"{ours}.attention.output", f"{theirs}.attn.c_proj")
        yield from layer(f"{ours}.feedforward_residual.norm", f"{theirs}.ln_2")
        yield from flipped(f"{ours}.feedforward.widen", f"{theirs}.mlp.c_fc")
        yield from flipped(f"{ours}.feedforward.narrow", f"{theirs}.mlp.c_proj")
    yield from layer("norm", f"{prefix}ln_f")


def cut_in_three(x: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values side by side -> queries; keys with values.  (D, 3D) or (3D,)"""
    own = x.shape[-1] // 3
    return tuple(part.mT if x.dim() == 2 else part for part in x.split((own, 2 * own), -1))


def join_three(query: Tensor, memory: Tensor) -> tuple[Tensor]:
    joined = torch.cat((query, memory))
    return (joined.mT if joined.dim() == 2 else joined,)


GPT2 = Architecture(
    "gpt", "transformer.", gpt2_settings, gpt2_config, gpt2_body, head,
    {
        "GPT2LMHeadModel": "language", "GPT2Model": "language",
        "GPT2ForSequenceClassification": "classify",
    },
    (".attn.bias", ".attn.masked_bias"),
)  # fmt: skip


def llama_settings(config: Config, names: set[str]) -> GPTSettings:
    wanted(config, "attention_bias", False)
    wanted(config, "mlp_bias", False)
    wanted(config, "hidden_act", "silu")
    turning = config.get("rope_parameters") or config.get("rope_scaling") or {}
    stretch, factor = stretched(config, turning)
    width, heads = number(config, "hidden_size"), number(config, "num_attention_heads")
    wanted(config, "head_dim", width // heads, None)
    shared = number(config, "num_key_value_heads", heads)
    return GPTSettings(
        width=width,
        depth=number(config, "num_hidden_layers"),
        heads=heads,
        key_heads=0 if shared == heads else shared,
        hidden=number(config, "intermediate_size"),
        dropout=0.0,
        attention_dropout=number(config, "attention_dropout", 0.0),
        position="rotary",
        positions=number(config, "max_position_embeddings"),
        rotary_base=float(turning.get("rope_theta") or config.get("rope_theta") or 10000.0),
        rotary_stretch=stretch,
        rotary_factor=factor,
        norm="rms",
        epsilon=number(config, "rms_norm_eps", 1e-6),
        feedforward="gated-silu",
        bias=False,
        tie=tied(config, names, False),
    )


STRETCHED = ("linear", "yarn")  # which both have; YaRN with its own constants


def stretched(config: Config, turning: Config) -> tuple[str, float]:
    """How rotary positions are stretched, and how far."""
    kind = turning.get("rope_type", turning.get("type", "default"))
    if kind == "default":
        return "none", 1.0
    usual = {"beta_fast": 32, "beta_slow": 1, "truncate": True}
    own = {name for name, value in usual.items() if turning.get(name, value) != value}
    own |= {name for name in ("attention_factor", "mscale", "mscale_all_dim") if turning.get(name)}
    places, factor = number(config, "max_position_embeddings"), turning.get("factor")
    learned = turning.get("original_max_position_embeddings")
    whole = kind != "yarn" or (factor and learned and places == round(float(factor) * learned))
    if kind not in STRETCHED or own or not factor or not whole:
        raise RunError(
            f"config.json: rotary positions may be stretched by {' or '.join(STRETCHED)}, with the "
            f"usual constants and factor times as many as were learned, but are ({turning})."
        )
    return str(kind), float(factor)


def stretch_config(s: GPTSettings) -> Config:
    if s.rotary_stretch == "none":
        return {}
    must(s.rotary_stretch in STRETCHED, f"model.rotary_stretch={s.rotary_stretch!r}")
    told: Config = {"rope_type": s.rotary_stretch, "factor": s.rotary_factor}
    if s.rotary_stretch == "yarn":
        told["original_max_position_embeddings"] = round(s.positions / s.rotary_factor)
    return {"rope_parameters": {**told, "rope_theta": s.rotary_base}}


def llama_config(s: GPTSettings) -> Config:
    must_be(s, position="rotary", bias=False, residual="pre", norm="rms", score="scaled-dot")
    must_be(s, feedforward="gated-silu")
    return {
        "model_type": "llama",
        "hidden_size": s.width,
        "num_hidden_layers": s.depth,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.key_heads or s.heads,
        "intermediate_size": s.hidden or 4 * s.width,
        "attention_dropout": s.attention_dropout,
        "max_position_embeddings": s.positions,
        "rope_theta": s.rotary_base,
        **stretch_config(s),
        "rms_norm_eps": s.epsilon,
        "hidden_act": "silu",
        "tie_word_embeddings": s.tie,
    }


def llama_body(s: GPTSettings, prefix: str) -> Iterable[Rule]:
    yield same("embedding.tokens.weight", f"{prefix}embed_tokens.weight")
    for n in range(s.depth):
        ours, theirs = f"blocks.{n}", f"{prefix}layers.{n}"
        q, k, v, out = (f"{theirs}.self_attn.{part}_proj" for part in ("q", "k", "v", "o"))
        yield from attention(f"{ours}.attention", q, k, v, out, bias=False)
        yield from layer(f"{ours}.attention_residual.norm", f"{theirs}.input_layernorm", False)
        after = f"{theirs}.post_attention_layernorm"
        yield from layer(f"{ours}.feedforward_residual.norm", after, False)
        for part, its in (("gate", "gate"), ("widen", "up"), ("narrow", "down")):
            yield from layer(f"{ours}.feedforward.{part}", f"{theirs}.mlp.{its}_proj", False)
    yield from layer("norm", f"{prefix}norm", False)


LLAMA = Architecture(
    "gpt", "model.", llama_settings, llama_config, llama_body, head,
    {"LlamaForCausalLM": "language", "LlamaForSequenceClassification": "classify"},
    (".rotary_emb.inv_freq",),
)  # fmt: skip
