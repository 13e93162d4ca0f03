"""T5, of both kinds."""

from __future__ import annotations

from collections.abc import Iterable

from ..batch import Asked
from ..models.t5 import T5Settings
from .architecture import Architecture, Config, must_be, number, wanted
from .rules import Rule, attention, layer, same

FEEDFORWARDS = ("relu", "gated-gelu")  # called the same on both sides


def settings(config: Config, names: set[str]) -> T5Settings:
    width, heads = number(config, "d_model"), number(config, "num_heads")
    kept, depth = number(config, "d_kv", width // heads), number(config, "num_layers")
    after = config.get("num_decoder_layers") or depth
    return T5Settings(
        width=width,
        depth=depth,
        decoder_depth=0 if after == depth else after,
        heads=heads,
        head_width=0 if kept * heads == width else kept,
        hidden=number(config, "d_ff"),
        dropout=number(config, "dropout_rate", 0.1),
        buckets=number(config, "relative_attention_num_buckets", 32),
        farthest=number(config, "relative_attention_max_distance", 128),
        epsilon=number(config, "layer_norm_epsilon", 1e-6),
        feedforward=wanted(config, "feed_forward_proj", *FEEDFORWARDS),
        # Newer folders say by a key of its own what older ones say by tying.
        scaled=bool(config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))),
        tie="lm_head.weight" not in names,
    )


def config(s: T5Settings) -> Config:
    must_be(s, residual="pre", norm="rms", score="dot")
    if s.feedforward not in FEEDFORWARDS:
        must_be(s, feedforward=FEEDFORWARDS[0])
    return {
        "model_type": "t5",
        "d_model": s.width,
        "num_layers": s.depth,
        "num_decoder_layers": s.decoder_depth or s.depth,
        "num_heads": s.heads,
        "d_kv": s.head_width or s.width // s.heads,
        "d_ff": s.hidden,
        "dropout_rate": s.dropout,
        "relative_attention_num_buckets": s.buckets,
        "relative_attention_max_distance": s.farthest,
        "layer_norm_epsilon": s.epsilon,
        "feed_forward_proj": s.feedforward,
        "tie_word_embeddings": s.tie,
        "scale_decoder_outputs": s.scaled,
        "is_encoder_decoder": True,
    }


def body(s: T5Settings, prefix: str) -> Iterable[Rule]:
    yield same("embedding.tokens.weight", "shared.weight")
    for side, depth in (("encoder", s.depth), ("decoder", s.decoder_depth or s.depth)):
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield same(f"{side}_bias.weight", table)
        for n in range(depth):
            ours, theirs = f"{side}.{n}", f"{side}.block.{n}.layer"
            parts = {"attention": "SelfAttention"}
            if side == "decoder":
                parts["cross"] = "EncDecAttention"
            for place, (part, its) in enumerate(parts.items()):
                q, k, v, out = (f"{theirs}.{place}.{its}.{kind}" for kind in "qkvo")
                yield from attention(f"{ours}.{part}", q, k, v, out, bias=False)
                norm = f"{theirs}.{place}.layer_norm"
                yield from layer(f"{ours}.{part}_residual.norm", norm, False)
            last = f"{theirs}.{len(parts)}"
            gated = s.feedforward.startswith("gated")
            inner = {"gate": "wi_0", "widen": "wi_1"} if gated else {"widen": "wi"}
            for part, its in {**inner, "narrow": "wo"}.items():
                yield from layer(
                    f"{ours}.feedforward.{part}", f"{last}.DenseReluDense.{its}", False
                )
            yield from layer(f"{ours}.feedforward_residual.norm", f"{last}.layer_norm", False)
        yield from layer(f"{side}_norm", f"{side}.final_layer_norm", False)


def head(s: T5Settings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    if not s.tie:
        yield same("output.weight", "lm_head.weight")


T5 = Architecture(
    "t5", "", settings, config, body, head, {"T5ForConditionalGeneration": "text-to-text"},
    ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
     # Old files carry a table for an attention that never had one.
     "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
)  # fmt: skip
