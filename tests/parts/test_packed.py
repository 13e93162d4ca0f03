"""Packed products are the plain ones, follow their weights, and let gradients through."""

import pytest
import torch
from torch import nn

from regard.parts.output import Output
from regard.parts.packed import Packed, pack


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
