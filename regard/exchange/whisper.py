"""Whisper, from a Hugging Face folder or from CTranslate2's file of named arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..batch import Asked
from ..errors import RunError
from ..models.transformer import TransformerSettings
from .architecture import Architecture, Config, activation, must, number, wanted
from .folder import find
from .named import FLOATS, Array, arrays, read_array
from .rules import Rule, attention, layer, same

GENERATION = "generation_config.json"
SECONDS, RATE = 30.0, 16000  # of a window, and samples a second
MANY = 51865  # entries of a vocabulary from which on it has languages


def settings(config: Config, names: set[str]) -> TransformerSettings:
    wanted(config, "scale_embedding", False)
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
        dropout=number(config, "dropout", 0.0),
        attention_dropout=number(config, "attention_dropout", 0.0),
        hidden_dropout=number(config, "activation_dropout", 0.0),
        position="learned",
        positions=number(config, "max_target_positions", 448),
        source_positions=number(config, "max_source_positions", 1500),
        residual="pre",
        feedforward=activation(config, "activation_function", "gelu"),
        scale_embedding=False,
        tie="target",
    )


def their_config(s: TransformerSettings) -> Config:
    must(False, "sound to read")
    return {}


def sections(config: Config) -> dict[str, dict[str, object]]:
    """Sound as Whisper hears it."""
    places = number(config, "max_source_positions", 1500)
    sound = {
        "rate": RATE, "bands": number(config, "num_mel_bins", 80), "loudness": "whisper",
        "normalise": "none", "stem": "whisper", "longest": places * 0.02, "fill": True,
    }  # fmt: skip
    return {"sound": sound, "text": {}}


def task(config: Config) -> dict[str, object]:
    """What an answer goes on from, and what is never written."""
    said = config.get("generation") or config
    several = number(config, "vocab_size") >= MANY
    prompt = ["<|startoftranscript|>", *(["<|en|>", "<|transcribe|>"] if several else [])]

    def ids(*keys: str) -> list[int]:
        found: object = next((said[key] for key in keys if said.get(key)), [])
        if not isinstance(found, list) or not all(isinstance(i, int) for i in found):
            raise RunError(f"{GENERATION}: {keys[0]} must be a list of numbers, but is not.")
        return [i for i in found if i >= 0]

    return {
        "prompt": prompt,
        "never": ids("suppress_tokens", "suppress_ids"),
        "never_first": ids("begin_suppress_tokens", "suppress_ids_begin"),
    }


def without_key_bias(ours: str, q: str, k: str, v: str, out: str) -> Iterator[Rule]:
    """An attention of theirs whose keys have no bias: of ours it is zero, which changes nothing."""
    rules = attention(ours, q, k, v, out)
    for rule in rules:
        if f"{k}.bias" not in rule.theirs:
            yield rule
            continue

        def join(bias: Tensor) -> tuple[Tensor]:
            return (torch.cat((torch.zeros_like(bias), bias)),)

        yield Rule(rule.ours, (f"{v}.bias",), join, lambda x: (x.chunk(2)[1],))


def body(s: TransformerSettings, prefix: str) -> Iterable[Rule]:
    yield from layer("source.stem.first", f"{prefix}encoder.conv1")
    yield from layer("source.stem.second", f"{prefix}encoder.conv2")
    yield same("source.position.weight", f"{prefix}encoder.embed_positions.weight")
    yield same("target.tokens.weight", f"{prefix}decoder.embed_tokens.weight")
    yield same("target.position.weight", f"{prefix}decoder.embed_positions.weight")
    for side, depth in (("encoder", s.depth), ("decoder", s.decoder_depth or s.depth)):
        parts = {
            "attention": "self_attn",
            **({"cross": "encoder_attn"} if side == "decoder" else {}),
        }
        for n in range(depth):
            ours, theirs = f"{side}.{n}", f"{prefix}{side}.layers.{n}"
            for part, its in parts.items():
                q, k, v, out = (f"{theirs}.{its}.{kind}_proj" for kind in ("q", "k", "v", "out"))
                yield from without_key_bias(f"{ours}.{part}", q, k, v, out)
                yield from layer(f"{ours}.{part}_residual.norm", f"{theirs}.{its}_layer_norm")
            yield from layer(f"{ours}.feedforward.widen", f"{theirs}.fc1")
            yield from layer(f"{ours}.feedforward.narrow", f"{theirs}.fc2")
            yield from layer(f"{ours}.feedforward_residual.norm", f"{theirs}.final_layer_norm")
        yield from layer(f"{side}_norm", f"{prefix}{side}.layer_norm")


def head(s: TransformerSettings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    return ()


WHISPER = Architecture(
    "transformer", "model.", settings, their_config, body, head,
    {"WhisperForConditionalGeneration": "speech"}, ("proj_out.weight",), sections, task,
)  # fmt: skip


# CTranslate2: one file of named arrays, of which the attention's projections are joined.


def config_of(folder: Path) -> Config:
    """What such a folder says only by its arrays; {} where it is none."""
    path = find(folder, "model.bin")
    if path is None:
        return {}
    spec, found = arrays(path)
    if spec != "WhisperSpec":
        raise RunError(f"{path}: only Whisper is read from CTranslate2, but this is {spec}.")
    packed = [name for name, one in found.items() if one.shape and one.dtype not in FLOATS]
    if packed:
        raise RunError(
            f"{path}: '{packed[0]}' is in a compressed form; only float32 and float16 are read."
        )
    try:
        words, width = found["decoder/embeddings/weight"].shape
        heads = int(read_array(path, found["encoder/num_heads"]))
        return {
            "model_type": "whisper-ctranslate2",
            "architectures": ["WhisperForConditionalGeneration"],
            "vocab_size": words,
            "d_model": width,
            "encoder_layers": depth_of(found, "encoder"),
            "decoder_layers": depth_of(found, "decoder"),
            "encoder_attention_heads": heads,
            "decoder_attention_heads": int(read_array(path, found["decoder/num_heads"])),
            "encoder_ffn_dim": found["encoder/layer_0/ffn/linear_0/weight"].shape[0],
            "decoder_ffn_dim": found["decoder/layer_0/ffn/linear_0/weight"].shape[0],
            "max_source_positions": found["encoder/position_encodings/encodings"].shape[0],
            "max_target_positions": found["decoder/position_encodings/encodings"].shape[0],
            "num_mel_bins": found["encoder/conv1/weight"].shape[1],
        }
    except (KeyError, ValueError, IndexError) as error:
        raise RunError(f"{path}: it must hold a whole Whisper, but does not ({error}).") from error


def depth_of(found: Mapping[str, Array], side: str) -> int:
    return len(
        {
            name.split("/")[1]
            for name in found
            if name.startswith(f"{side}/layer_") and name.count("/") > 2
        }
    )


def norm(ours: str, theirs: str) -> Iterator[Rule]:
    yield same(f"{ours}.weight", f"{theirs}/gamma")
    yield same(f"{ours}.bias", f"{theirs}/beta")


def linear(ours: str, theirs: str) -> Iterator[Rule]:
    yield same(f"{ours}.weight", f"{theirs}/weight")
    yield same(f"{ours}.bias", f"{theirs}/bias")


def joined(ours: str, theirs: str) -> Iterator[Rule]:
    """Queries, keys and values in one of theirs."""

    def cut(x: Tensor) -> tuple[Tensor, ...]:
        third = len(x) // 3
        return x[:third], x[third:]

    for kind in ("weight", "bias"):
        both = (f"{ours}.query.{kind}", f"{ours}.memory.{kind}")
        yield Rule(both, (f"{theirs}/{kind}",), cut, lambda a, b: (torch.cat((a, b)),))


def named_body(s: TransformerSettings, prefix: str) -> Iterable[Rule]:
    yield from linear("source.stem.first", "encoder/conv1")
    yield from linear("source.stem.second", "encoder/conv2")
    yield same("source.position.weight", "encoder/position_encodings/encodings")
    yield same("target.tokens.weight", "decoder/embeddings/weight")
    yield same("target.position.weight", "decoder/position_encodings/encodings")
    for side, depth in (("encoder", s.depth), ("decoder", s.decoder_depth or s.depth)):
        for n in range(depth):
            ours, theirs = f"{side}.{n}", f"{side}/layer_{n}"
            yield from joined(f"{ours}.attention", f"{theirs}/self_attention/linear_0")
            yield from linear(f"{ours}.attention.output", f"{theirs}/self_attention/linear_1")
            yield from norm(
                f"{ours}.attention_residual.norm", f"{theirs}/self_attention/layer_norm"
            )
            if side == "decoder":
                for part, number in (("query", 0), ("memory", 1), ("output", 2)):
                    yield from linear(f"{ours}.cross.{part}", f"{theirs}/attention/linear_{number}")
                yield from norm(f"{ours}.cross_residual.norm", f"{theirs}/attention/layer_norm")
            yield from linear(f"{ours}.feedforward.widen", f"{theirs}/ffn/linear_0")
            yield from linear(f"{ours}.feedforward.narrow", f"{theirs}/ffn/linear_1")
            yield from norm(f"{ours}.feedforward_residual.norm", f"{theirs}/ffn/layer_norm")
        yield from norm(f"{side}_norm", f"{side}/layer_norm")


NAMED_WHISPER = WHISPER._replace(prefix="", body=named_body, repeats=())
