"""Blocks against torch's own layers, weights copied across, forward and gradients."""

import pytest
import torch
from torch import nn

from regard.parts import mask as masks
from regard.parts.attention import Attention
from regard.parts.block import Block
from regard.parts.feedforward import FEEDFORWARDS, FeedForward, GatedSilu
from regard.parts.norm import NORMS, RESIDUALS

from .test_attention import copy_attention


def make(residual: str, cross: bool = False, activation: str = "relu") -> Block:
    return Block(
        Attention(16, 4),
        FEEDFORWARDS[activation](16, 32),
        lambda: RESIDUALS[residual](nn.LayerNorm(16), 0.0),
        Attention(16, 4) if cross else None,
    )


def copy_block(ours: Block, theirs: nn.Module) -> None:
    copy_attention(ours.attention, theirs.self_attn)
    ours.feedforward.widen.load_state_dict(theirs.linear1.state_dict())
    ours.feedforward.narrow.load_state_dict(theirs.linear2.state_dict())
    norms = [ours.attention_residual, ours.feedforward_residual]
    if ours.cross is not None:
        copy_attention(ours.cross, theirs.multihead_attn)
        norms.insert(1, ours.cross_residual)
    for number, residual in enumerate(norms, 1):
        residual.norm.load_state_dict(getattr(theirs, f"norm{number}").state_dict())


@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_block_is_torchs(residual, activation):
    torch.manual_seed(0)
    options = {"activation": activation, "batch_first": True, "norm_first": residual == "pre"}
    theirs = nn.TransformerEncoderLayer(16, 4, 32, 0.0, **options)
    ours = make(residual, activation=activation)
    copy_block(ours, theirs)
    mask = masks.padding(torch.tensor([5, 3]), 5)
    results = []
    for run in (
        lambda x: ours(x, mask=mask),
        lambda x: theirs(x, src_key_padding_mask=~mask[:, 0, 0]),
    ):
        x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1)).requires_grad_()
        out = run(x)[mask[:, 0, 0]]
        results.append((out, torch.autograd.grad(out.square().sum(), x)[0]))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("residual", ["post", "pre"])
def test_decoder_block_is_torchs(residual):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(
        16, 4, 32, 0.0, batch_first=True, norm_first=residual == "pre"
    )
    ours = make(residual, cross=True)
    copy_block(ours, theirs)
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 6, 16)
    seen = masks.padding(torch.tensor([6, 2]), 6)
    found = ours(x, causal=True, memory=memory, memory_mask=seen)
    expected = theirs(
        x,
        memory,
        tgt_mask=~masks.causal(4, 4)[0, 0],
        memory_key_padding_mask=~seen[:, 0, 0],
        tgt_is_causal=True,
    )
    torch.testing.assert_close(found, expected)


def test_gated_feedforward_is_llamas():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    torch.manual_seed(0)
    theirs = LlamaMLP(LlamaConfig(hidden_size=8, intermediate_size=12, num_attention_heads=2))
    ours = GatedSilu(8, 12, bias=False)
    for mine, name in (
        (ours.gate, "gate_proj"),
        (ours.widen, "up_proj"),
        (ours.narrow, "down_proj"),
    ):
        mine.load_state_dict(getattr(theirs, name).state_dict())
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(ours(x), theirs(x))


def test_rms_norm_has_no_mean_and_no_bias():
    x = torch.randn(2, 8) + 5
    norm = NORMS["rms"](8)
    torch.testing.assert_close(
        norm(x), x / x.square().mean(-1, keepdim=True).add(torch.finfo(x.dtype).eps).sqrt()
    )
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


@pytest.mark.parametrize("name", FEEDFORWARDS)
def test_every_feedforward_works_token_by_token(name):
    torch.manual_seed(0)
    part = FEEDFORWARDS[name](8, 16)
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(part(x)[:, 1], part(x[:, 1]))
    assert isinstance(part, FeedForward)
