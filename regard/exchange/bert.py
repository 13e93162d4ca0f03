"""BERT, RoBERTa and DistilBERT: one model of ours under three sets of names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..batch import Asked, Hidden, Label, Nothing, Span, Tags
from ..models.bert import BERTSettings
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
from .rules import Rule, attention, layer, same, shifted


def classes(name: str, pretraining: str) -> dict[str, str]:
    """Which of their classes is which task."""
    return {
        f"{name}{pretraining}": "masked",
        f"{name}ForMaskedLM": "masked",
        f"{name}Model": "embed",
        f"{name}ForSequenceClassification": "classify",
        f"{name}ForTokenClassification": "tag",
        f"{name}ForQuestionAnswering": "answer",
    }


# BERT.


def bert_settings(config: Config, names: set[str]) -> BERTSettings:
    wanted(config, "position_embedding_type", "absolute")
    wanted(config, "is_decoder", False)
    pooled = any(name.endswith("pooler.dense.weight") for name in names)
    return BERTSettings(
        width=number(config, "hidden_size"),
        depth=number(config, "num_hidden_layers"),
        heads=number(config, "num_attention_heads"),
        hidden=number(config, "intermediate_size"),
        dropout=number(config, "hidden_dropout_prob", 0.1),
        attention_dropout=number(config, "attention_probs_dropout_prob", 0.1),
        positions=number(config, "max_position_embeddings"),
        segments=number(config, "type_vocab_size", 2),
        epsilon=number(config, "layer_norm_eps", 1e-12),
        feedforward=activation(config, "hidden_act", "gelu"),
        pooler="tanh" if pooled else "none",
    )


def bert_config(s: BERTSettings) -> Config:
    must_be(s, position="learned", residual="post", norm="layer", score="scaled-dot")
    must(s.segments > 0, "model.segments=0")
    return {
        "model_type": "bert",
        "hidden_size": s.width,
        "num_hidden_layers": s.depth,
        "num_attention_heads": s.heads,
        "intermediate_size": s.hidden or 4 * s.width,
        "hidden_dropout_prob": s.dropout,
        "attention_probs_dropout_prob": s.attention_dropout,
        "max_position_embeddings": s.positions,
        "type_vocab_size": s.segments,
        "layer_norm_eps": s.epsilon,
        "hidden_act": their_activation(s.feedforward),
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    }


def bert_body(s: BERTSettings, prefix: str, offset: int = 0) -> Iterable[Rule]:
    table = f"{prefix}embeddings"
    yield same("embedding.tokens.weight", f"{table}.word_embeddings.weight")
    yield shifted("embedding.position.weight", f"{table}.position_embeddings.weight", offset)
    yield same("segments.weight", f"{table}.token_type_embeddings.weight")
    yield from layer("embedding_norm", f"{table}.LayerNorm")
    for n in range(s.depth):
        ours, theirs = f"blocks.{n}", f"{prefix}encoder.layer.{n}"
        q, k, v = (f"{theirs}.attention.self.{part}" for part in ("query", "key", "value"))
        yield from attention(f"{ours}.attention", q, k, v, f"{theirs}.attention.output.dense")
        yield from layer(f"{ours}.attention_residual.norm", f"{theirs}.attention.output.LayerNorm")
        yield from layer(f"{ours}.feedforward.widen", f"{theirs}.intermediate.dense")
        yield from layer(f"{ours}.feedforward.narrow", f"{theirs}.output.dense")
        yield from layer(f"{ours}.feedforward_residual.norm", f"{theirs}.output.LayerNorm")


def first_by_tanh(s: BERTSettings) -> None:
    """Their classifiers hear the first vector alone, bent by tanh."""
    must_be(s, pool="first")
    must(s.pooler != "relu", "model.pooler='relu'")


def bert_head(s: BERTSettings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    if asked is Label:
        first_by_tanh(s)
    if s.pooler != "none" or asked is Label:
        yield from layer("pooler.0", f"{prefix}pooler.dense")
    if asked is Hidden:
        yield from layer("transform.0", "cls.predictions.transform.dense")
        yield from layer("transform.2", "cls.predictions.transform.LayerNorm")
        yield same("output.bias", "cls.predictions.bias")
        if s.pooler != "none":
            yield from layer("next", "cls.seq_relationship")
    yield from _output(asked, "classifier")


def _output(asked: type[Asked], classifier: str) -> Iterable[Rule]:
    if asked in (Label, Tags):
        yield from layer("output", classifier)
    elif asked is Span:
        yield from layer("output", "qa_outputs")


BERT = Architecture(
    "bert", "bert.", bert_settings, bert_config, bert_body, bert_head,
    classes("Bert", "ForPreTraining"),
    ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "embeddings.position_ids"),
)  # fmt: skip


# RoBERTa: its places begin after the padding's, at 2, and it has one segment.


def roberta_settings(config: Config, names: set[str]) -> BERTSettings:
    wanted(config, "pad_token_id", 1)
    found = bert_settings(config, names)
    tops = "classifier.dense.weight" in names  # then the pooler is called so
    return replace(found, positions=found.positions - 2, pooler="tanh" if tops else found.pooler)


def roberta_config(s: BERTSettings) -> Config:
    places = {"max_position_embeddings": s.positions + 2, "pad_token_id": 1}
    return {**bert_config(s), **places, "model_type": "roberta"}


def roberta_body(s: BERTSettings, prefix: str) -> Iterable[Rule]:
    return bert_body(s, prefix, offset=2)


def roberta_head(s: BERTSettings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    if asked is Label:
        first_by_tanh(s)
        yield from layer("pooler.0", "classifier.dense")
    elif s.pooler != "none":
        must(asked is Nothing, "a pooler and this task")
        yield from layer("pooler.0", f"{prefix}pooler.dense")
    if asked is Hidden:
        yield from layer("transform.0", "lm_head.dense")
        yield from layer("transform.2", "lm_head.layer_norm")
        yield same("output.bias", "lm_head.bias")
    yield from _output(asked, "classifier.out_proj" if asked is Label else "classifier")


ROBERTA = Architecture(
    "bert", "roberta.", roberta_settings, roberta_config, roberta_body, roberta_head,
    classes("Roberta", "ForMaskedLM"),
    ("lm_head.decoder.weight", "lm_head.decoder.bias", "embeddings.position_ids"),
)  # fmt: skip


# DistilBERT: no segments, no pooler, and a bent layer before its classes.


def distilbert_settings(config: Config, names: set[str]) -> BERTSettings:
    return BERTSettings(
        width=number(config, "dim"),
        depth=number(config, "n_layers"),
        heads=number(config, "n_heads"),
        hidden=number(config, "hidden_dim"),
        dropout=number(config, "dropout", 0.1),
        attention_dropout=number(config, "attention_dropout", 0.1),
        positions=number(config, "max_position_embeddings"),
        segments=0,
        feedforward=activation(config, "activation", "gelu"),
        pooler="relu" if "pre_classifier.weight" in names else "none",
    )


def distilbert_config(s: BERTSettings) -> Config:
    must_be(s, position="learned", residual="post", norm="layer", score="scaled-dot")
    must_be(s, segments=0, epsilon=1e-12)
    return {
        "model_type": "distilbert",
        "dim": s.width,
        "n_layers": s.depth,
        "n_heads": s.heads,
        "hidden_dim": s.hidden or 4 * s.width,
        "dropout": s.dropout,
        "attention_dropout": s.attention_dropout,
        "max_position_embeddings": s.positions,
        "activation": their_activation(s.feedforward),
        "sinusoidal_pos_embds": False,
        "pad_token_id": 0,
    }


def distilbert_body(s: BERTSettings, prefix: str) -> Iterable[Rule]:
    table = f"{prefix}embeddings"
    yield same("embedding.tokens.weight", f"{table}.word_embeddings.weight")
    yield same("embedding.position.weight", f"{table}.position_embeddings.weight")
    yield from layer("embedding_norm", f"{table}.LayerNorm")
    for n in range(s.depth):
        ours, theirs = f"blocks.{n}", f"{prefix}transformer.layer.{n}"
        q, k, v, out = (f"{theirs}.attention.{part}_lin" for part in ("q", "k", "v", "out"))
        yield from attention(f"{ours}.attention", q, k, v, out)
        yield from layer(f"{ours}.attention_residual.norm", f"{theirs}.sa_layer_norm")
        yield from layer(f"{ours}.feedforward.widen", f"{theirs}.ffn.lin1")
        yield from layer(f"{ours}.feedforward.narrow", f"{theirs}.ffn.lin2")
        yield from layer(f"{ours}.feedforward_residual.norm", f"{theirs}.output_layer_norm")


def distilbert_head(s: BERTSettings, asked: type[Asked], prefix: str) -> Iterable[Rule]:
    if asked is Label:
        must_be(s, pool="first", pooler="relu")
        yield from layer("pooler.0", "pre_classifier")
    elif asked is Hidden:
        yield from layer("transform.0", "vocab_transform")
        yield from layer("transform.2", "vocab_layer_norm")
        yield same("output.bias", "vocab_projector.bias")
    yield from _output(asked, "classifier")


DISTILBERT = Architecture(
    "bert", "distilbert.", distilbert_settings, distilbert_config, distilbert_body,
    distilbert_head, classes("DistilBert", "ForMaskedLM"), ("vocab_projector.weight",),
)  # fmt: skip
