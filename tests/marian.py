"""A tiny Marian of `transformers` with random weights, and the same weights in ours."""

import torch
from transformers import MarianConfig, MarianMTModel

from regard.batch import Sizes
from regard.models.transformer import Transformer
from regard.models.transformer import TransformerSettings as Settings


def tiny_marian(vocabulary=60, width=16, depth=2, heads=4, hidden=32, positions=64, seed=0, **more):
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=vocabulary, d_model=width, encoder_layers=depth, decoder_layers=depth,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=hidden,
        decoder_ffn_dim=hidden, max_position_embeddings=positions, activation_function="relu",
        dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, scale_embedding=True,
        pad_token_id=0, eos_token_id=2, decoder_start_token_id=1, bos_token_id=1,
        forced_eos_token_id=None, init_std=more.pop("init_std", 0.3), **more,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        model.final_logits_bias.normal_()
        for weight in (
            model.model.encoder.embed_positions.weight,
            model.model.decoder.embed_positions.weight,
        ):
            assert weight.shape == (positions, width)
    return model


def copy_marian(theirs: MarianMTModel) -> Transformer:
    """Marian keeps sines and cosines in two halves, so its table is loaded as learned positions."""
    c = theirs.config
    settings = Settings(
        width=c.d_model, depth=c.encoder_layers, heads=c.encoder_attention_heads,
        hidden=c.encoder_ffn_dim, dropout=0.0, position="learned",
        positions=c.max_position_embeddings, output_bias=True,
    )  # fmt: skip
    ours = Transformer(Sizes(c.vocab_size, c.vocab_size, True), settings).eval()
    with torch.no_grad():
        ours.source.tokens.weight.copy_(theirs.model.shared.weight)
        ours.output.bias.copy_(theirs.final_logits_bias[0])
        ours.source.position.weight.copy_(theirs.model.encoder.embed_positions.weight)
        ours.target.position.weight.copy_(theirs.model.decoder.embed_positions.weight)
        for mine, other in zip(ours.encoder, theirs.model.encoder.layers, strict=True):
            copy_layer(mine, other)
        for mine, other in zip(ours.decoder, theirs.model.decoder.layers, strict=True):
            copy_layer(mine, other)
            copy_attention(mine.cross, other.encoder_attn)
            mine.cross_residual.norm.load_state_dict(other.encoder_attn_layer_norm.state_dict())
    return ours


def copy_layer(mine, other) -> None:
    copy_attention(mine.attention, other.self_attn)
    mine.attention_residual.norm.load_state_dict(other.self_attn_layer_norm.state_dict())
    mine.feedforward.widen.load_state_dict(other.fc1.state_dict())
    mine.feedforward.narrow.load_state_dict(other.fc2.state_dict())
    mine.feedforward_residual.norm.load_state_dict(other.final_layer_norm.state_dict())


def copy_attention(mine, other) -> None:
    mine.query.load_state_dict(other.q_proj.state_dict())
    mine.output.load_state_dict(other.out_proj.state_dict())
    for kind in ("weight", "bias"):
        both = torch.cat((getattr(other.k_proj, kind), getattr(other.v_proj, kind)))
        getattr(mine.memory, kind).copy_(both)
