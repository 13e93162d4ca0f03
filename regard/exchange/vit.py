"""ViT and DeiT: one model of ours under two sets of names; pictures are prepared as they say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from ..batch import Asked, Label
from ..errors import RunError
from ..models.vit import ViTSettings
from .architecture import (
    Architecture,
    Config,
    activation,
    must,
    must_be,
    number,
    shown,
    their_activation,
    wanted,
)
from .rules import Rule, attention, layer


def settings(config: Config, names: set[str]) -> ViTSettings:
    wanted(config, "qkv_bias", True)
    return ViTSettings(
        width=number(config, "hidden_size"),
        depth=number(config, "num_hidden_layers"),
        heads=number(config, "num_attention_heads"),
        hidden=number(config, "intermediate_size"),
        dropout=number(config, "hidden_dropout_prob", 0.0),
        attention_dropout=number(config, "attention_probs_dropout_prob", 0.0),
        epsilon=number(config, "layer_norm_eps", 1e-12),
        feedforward=activation(config, "hidden_act", "gelu"),
        distilled=any(name.endswith("embeddings.distillation_token") for name in names),
    )


def their_config(s: ViTSettings) -> Config:
    must_be(s, score="scaled-dot", position="learned", norm="layer", residual="pre", pool="token")
    return {
        "model_type": "deit" if s.distilled else "vit",
        "hidden_size": s.width,
        "num_hidden_layers": s.depth,
        "num_attention_heads": s.heads,
        "intermediate_size": s.hidden or 4 * s.width,
        "hidden_dropout_prob": s.dropout,
        "attention_probs_dropout_prob": s.attention_dropout,
        "layer_norm_eps": s.epsilon,
        "hidden_act": their_activation(s.feedforward),
        "qkv_bias": True,
    }


def body(s: ViTSettings, prefix: str) -> Iterable[Rule]:
    tokens = ["cls_token", "distillation_token"][: 1 + s.distilled]

    def join(*tensors: Tensor) -> tuple[Tensor]:
        return (torch.cat(tensors, 1)[0],)

    def cut(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(row.view(1, 1, -1) for row in x)

    yield Rule(("tokens",), tuple(f"{prefix}embeddings.{name}" for name in tokens), join, cut)
    yield Rule(
        ("places.weight",),
        (f"{prefix}embeddings.position_embeddings",),
        lambda x: (x[0],),
        lambda x: (x[None],),
    )
    yield from layer("embedding.cut", f"{prefix}embeddings.patch_embeddings.projection")
    for place in range(s.depth):
        ours, theirs = f"blocks.{place}", f"{prefix}encoder.layer.{place}"
        inner = f"{theirs}.attention.attention"
        names = (f"{inner}.query", f"{inner}.key", f"{inner}.value")
        yield from attention(f"{ours}.attention", *names, f"{theirs}.attention.output.dense")
        yield from layer(f"{ours}.attention_residual.norm", f"{theirs}.layernorm_before")
        yield from layer(f"{ours}.feedforward_residual.norm", f"{theirs}.layernorm_after")
        yield from layer(f"{ours}.feedforward.widen", f"{theirs}.intermediate.dense")
        yield from layer(f"{ours}.feedforward.narrow", f"{theirs}.output.dense")
    yield from layer("norm", f"{prefix}layernorm")


def head(s: ViTSettings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    if asked is Label:
        yield from layer("output", "classifier")


def picture(config: Config) -> dict[str, object]:
    """How pictures are made what the model reads, as the folder says."""
    said = config.get("preprocessor") or {}
    size, patch = number(config, "image_size", 224), number(config, "patch_size", 16)
    channels = wanted(config, "num_channels", 3, 1)
    if not isinstance(size, int) or not isinstance(patch, int) or patch < 1 or size % patch:
        raise RunError(
            f"config.json: patch_size must divide image_size, but they are {shown(patch)} and "
            f"{shown(size)}."
        )
    said = said if isinstance(said, dict) else {}
    stated = said.get("size")
    shorter = isinstance(stated, dict) and "shortest_edge" in stated
    cropped = bool(said.get("do_center_crop")) or shorter
    fit = "square" if cropped else "stretch"
    return {"size": size, "patch": patch, "channels": channels, "fit": fit}


def preprocessor(run_picture: object, colours: Iterable[Iterable[float]]) -> Config:
    """What their image processors read."""
    said = vars(run_picture)
    must(said["fit"] != "inside", "picture.fit='inside'")
    must(said["channels"] == 3 or said["fit"] == "stretch", "grey pictures that are cropped")
    must(said["stem"] == "linear", f"picture.stem={said['stem']!r}")
    size, cropped = said["size"], said["fit"] == "square"
    mean, spread = (list(numbers) for numbers in colours)
    found: Config = {
        "do_resize": True,
        "size": {"shortest_edge": size} if cropped else {"height": size, "width": size},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": spread,
        # One that can crop is of another class there.
        "image_processor_type": "CLIPImageProcessor" if cropped else "ViTImageProcessor",
    }
    if cropped:
        found |= {"do_center_crop": True, "crop_size": {"height": size, "width": size}}
        found["do_convert_rgb"] = True
    return found


# How newer versions spell the same; files of both are about.
SPELLED = (
    (r"\blayers\.(\d+)\.attention\.q_proj\b", r"encoder.layer.\1.attention.attention.query"),
    (r"\blayers\.(\d+)\.attention\.k_proj\b", r"encoder.layer.\1.attention.attention.key"),
    (r"\blayers\.(\d+)\.attention\.v_proj\b", r"encoder.layer.\1.attention.attention.value"),
    (r"\blayers\.(\d+)\.attention\.o_proj\b", r"encoder.layer.\1.attention.output.dense"),
    (r"\blayers\.(\d+)\.mlp\.fc1\b", r"encoder.layer.\1.intermediate.dense"),
    (r"\blayers\.(\d+)\.mlp\.fc2\b", r"encoder.layer.\1.output.dense"),
    (r"\blayers\.(\d+)\.(layernorm_\w+)\b", r"encoder.layer.\1.\2"),
)

VIT, DEIT = (
    Architecture(
        "vit", f"{name.lower()}.", settings, their_config, body, head,
        {f"{name}ForImageClassification": "picture"}, ("embeddings.mask_token",),
        lambda config: {"picture": picture(config)}, spelled=SPELLED,
    )
    for name in ("ViT", "DeiT")
)  # fmt: skip
PREPROCESSOR = Path("preprocessor_config.json")
