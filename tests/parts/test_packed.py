"""Packed products are the plain ones, follow their weights, and let gradients through."""

import pytest
import torch
from torch import nn

from regard.parts import packed
from regard.parts.attention import Attention
from regard.parts.output import Output
from regard.parts.packed import PRODUCTS, Packed, missing, pack


@pytest.fixture(params=["linear", "output"])
def layer(request):
    torch.manual_seed(0)
    return nn.Linear(512, 600) if request.param == "linear" else Output(512, 600)


@pytest.mark.parametrize("shape", [(1, 512), (7, 512), (3, 5, 512), (0, 512)])
def test_packed_equals_plain(layer, shape):
    x = torch.randn(shape)
    plain = layer(x)
    pack(layer)
    assert isinstance(layer.forward, Packed)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), plain.detach(), atol=1e-4, rtol=1e-4)
        strided = x.transpose(0, -1).contiguous().transpose(0, -1)
        torch.testing.assert_close(layer(strided), plain.detach(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", PRODUCTS)
@pytest.mark.parametrize("shape", [(1, 512), (7, 512), (3, 5, 512), (0, 512)])
def test_every_precision_comes_near_the_plain_product(layer, shape, precision):
    """Or float32 stands in for one that this processor has no instructions for."""
    x = torch.randn(shape)
    with torch.no_grad():
        plain = layer(x)
        lacking = pack(layer, precision)
        assert type(layer.forward) is (Packed if lacking else PRODUCTS[precision])
        assert bool(lacking) == (precision != "float32" and bool(missing(precision)))
        off = (layer(x) - plain).norm()
    assert layer(x.requires_grad_()).requires_grad  # the plain path, where one learns
    assert off <= 0.03 * plain.norm()
    assert x.numel() == 0 or lacking or precision == "float32" or off > 1e-4 * plain.norm()


def test_int8_is_sums_of_whole_numbers(layer):
    """Its formula in exact arithmetic; tokens are rounded each by itself, so none feels another."""
    if pack(layer, "int8"):
        return  # another test holds what stands in for it
    x = torch.randn(9, 512) * torch.logspace(-3, 3, 9)[:, None]
    with torch.no_grad():
        answer = layer(x)
        alone = torch.cat([layer(row[None]) for row in x])
        weight, vectors = layer.weight.double(), x.double()
        by_row, by_token = (t.abs().amax(1, keepdim=True) / 127 for t in (weight, vectors))
        # Entries that stand exactly between two whole numbers may go either way.
        whole = (vectors / by_token).round() @ (weight / by_row).round().T * by_token * by_row.T
        bias = 0 if layer.bias is None else layer.bias.double()
    assert torch.equal(answer, alone)
    off = ((answer - bias).double() - whole).norm(dim=1) / whole.norm(dim=1)
    assert off.max() < 1e-3


def test_a_processor_without_the_instructions_answers_in_float32(layer, monkeypatch):
    monkeypatch.setattr(packed.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    for precision in ("int8", "bfloat16"):
        assert precision in pack(layer, precision)
        assert type(layer.forward) is Packed


def test_a_changed_weight_is_packed_anew(layer):
    pack(layer)
    x = torch.randn(4, 512)
    with torch.no_grad():
        before = layer(x)
        layer.weight.mul_(2.0)
        bias = layer.bias if layer.bias is not None else 0.0
        torch.testing.assert_close(layer(x) - bias, 2 * (before - bias), atol=1e-3, rtol=1e-4)


def test_gradients_go_through(layer):
    pack(layer)
    layer(torch.randn(4, 512)).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


def test_small_layers_stay_as_they_are():
    layer = nn.Linear(16, 16)
    pack(layer)
    assert not isinstance(layer.forward, Packed)


@pytest.mark.parametrize("precision", PRODUCTS)
@pytest.mark.parametrize("bias", [True, False])
def test_queries_keys_and_values_share_a_product(bias, precision):
    """Each precision rounds a row of a weight by itself, so sharing changes rounding alone."""
    torch.manual_seed(0)
    part = Attention(512, 8, bias=bias)
    x = torch.randn(3, 5, 512)
    with torch.no_grad():
        plain = part(x)
        lacking = pack(part, precision)
        apart = part.ask(x), *part.remember(x)
        shared = part.ask_and_remember(x)
        for one, other in zip(shared, apart, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
        exact = lacking or precision == "float32"
        assert (part(x) - plain).norm() <= (1e-5 if exact else 0.03) * plain.norm()
        for changed in part.memory.parameters():  # whatever changes is made ready anew
            changed.mul_(2.0)
        _, keys, values = part.ask_and_remember(x)
        torch.testing.assert_close(keys, 2 * shared[1], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(values, 2 * shared[2], atol=1e-4, rtol=1e-4)
    q, k, v = part.ask_and_remember(x)
    assert q.requires_grad and k.requires_grad and v.requires_grad  # where one learns
