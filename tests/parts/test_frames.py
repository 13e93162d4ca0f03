"""Stems of sound, the Conformer's block, and a pyramid of recurrent nets."""

import pytest
import torch
from torch import nn
from transformers import Wav2Vec2ConformerConfig
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
    Wav2Vec2ConformerEncoderLayer,
)

from regard.parts import mask as masks
from regard.parts.attention import Attention
from regard.parts.conformer import ConformerBlock, Convolution
from regard.parts.feedforward import FEEDFORWARDS
from regard.parts.frames import FRAME_STEMS
from regard.parts.norm import PreNorm
from regard.parts.recurrent import Pyramid


@pytest.mark.parametrize("name", FRAME_STEMS)
@pytest.mark.parametrize("length", [1, 2, 5, 8, 13])
def test_padding_changes_nothing(name, length):
    torch.manual_seed(0)
    stem = FRAME_STEMS[name](10, 6)
    x = torch.randn(2, 13, 10)
    x[0, length:] = 0
    both, lengths = stem(x, torch.tensor([length, 13]))
    alone, one = stem(x[:1, :length], torch.tensor([length]))
    assert int(lengths[0]) == int(one[0]) == -(-length // stem.stride) == alone.shape[1]
    torch.testing.assert_close(both[:1, : alone.shape[1]], alone)


def test_whispers_stem_is_theirs():
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    torch.manual_seed(0)
    config = WhisperConfig(d_model=8, encoder_layers=1, encoder_attention_heads=2, num_mel_bins=10)
    theirs, ours = WhisperEncoder(config), FRAME_STEMS["whisper"](10, 8)
    ours.first.load_state_dict(theirs.conv1.state_dict())
    ours.second.load_state_dict(theirs.conv2.state_dict())
    x = torch.randn(1, 20, 10)
    wanted = nn.functional.gelu(theirs.conv2(nn.functional.gelu(theirs.conv1(x.mT)))).mT
    torch.testing.assert_close(ours(x, torch.tensor([20]))[0], wanted)


class Across(nn.LayerNorm):
    """A layer norm where theirs has the batch's: over channels, which come first there."""

    def forward(self, x):
        return super().forward(x.mT).mT


def test_a_block_is_the_conformers_of_transformers():
    torch.manual_seed(0)
    config = Wav2Vec2ConformerConfig(
        hidden_size=16, num_attention_heads=4, intermediate_size=24, hidden_act="swish",
        position_embeddings_type=None, conv_depthwise_kernel_size=5, hidden_dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, conformer_conv_dropout=0.0,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = Wav2Vec2ConformerEncoderLayer(config).eval()
    theirs.conv_module.batch_norm = Across(16)
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.3)
    ours = ConformerBlock(
        Attention(16, 4), lambda: FEEDFORWARDS["silu"](16, 24),
        lambda: PreNorm(nn.LayerNorm(16), 0.0), Convolution(16, 5), nn.LayerNorm(16),
    ).eval()  # fmt: skip
    w = theirs.state_dict()

    def put(part, name):
        part.weight.data.copy_(w[f"{name}.weight"].view_as(part.weight))
        if part.bias is not None:
            bias = w.get(f"{name}.bias", torch.zeros_like(part.bias))
            part.bias.data.copy_(bias)

    halves = (
        (ours.feedforward_first, ours.first_residual),
        (ours.feedforward, ours.feedforward_residual),
    )
    for name, (feed, norm) in zip(("ffn1", "ffn2"), halves, strict=True):
        put(feed.widen, f"{name}.intermediate_dense")
        put(feed.narrow, f"{name}.output_dense")
        put(norm.norm, f"{name}_layer_norm")
    put(ours.attention.query, "self_attn.linear_q")
    for kind in ("weight", "bias"):
        both = torch.cat([w[f"self_attn.linear_{part}.{kind}"] for part in "kv"])
        getattr(ours.attention.memory, kind).data.copy_(both)
    put(ours.attention.output, "self_attn.linear_out")
    put(ours.attention_residual.norm, "self_attn_layer_norm")
    put(ours.convolution_residual.norm, "conv_module.layer_norm")
    put(ours.convolution.into, "conv_module.pointwise_conv1")
    put(ours.convolution.over_time, "conv_module.depthwise_conv")
    put(ours.convolution.norm, "conv_module.batch_norm")
    put(ours.convolution.out, "conv_module.pointwise_conv2")
    put(ours.norm, "final_layer_norm")
    x = torch.randn(2, 9, 16, requires_grad=True)
    wanted, found = theirs(x), ours(x)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    (slope,) = torch.autograd.grad(wanted.square().sum(), x)
    (own,) = torch.autograd.grad(found.square().sum(), x)
    torch.testing.assert_close(own, slope, atol=1e-4, rtol=1e-3)


def test_a_blocks_padding_is_silent():
    torch.manual_seed(0)
    block = ConformerBlock(
        Attention(16, 4), lambda: FEEDFORWARDS["silu"](16, 24),
        lambda: PreNorm(nn.LayerNorm(16), 0.0), Convolution(16, 5), nn.LayerNorm(16),
    ).eval()  # fmt: skip
    x = torch.randn(1, 9, 16)
    found = block(x, mask=masks.padding(torch.tensor([6]), 9))
    torch.testing.assert_close(found[:, :6], block(x[:, :6]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_a_pyramid_halves_and_never_reads_padding(length):
    torch.manual_seed(0)
    net = Pyramid("lstm", 6, 8, 3)
    x = torch.randn(2, 9, 6)
    both, lasts, lengths = net(x, torch.tensor([length, 9]))
    alone, own, one = net(x[:1, :length], torch.tensor([length]))
    assert int(lengths[0]) == int(one[0]) == -(-length // 4) and lengths[1] == 3
    torch.testing.assert_close(both[:1, : alone.shape[1]], alone)
    for layer, last in zip(lasts, own, strict=True):
        torch.testing.assert_close(layer[:1], last)
