"""Recurrent layers: lower precision and dropped weights, in one piece as a GPU wants them."""

import pytest
import torch

from regard.parts.recurrent import CELLS, Recurrent, in_one_piece, run


def layer_of(cell):
    torch.manual_seed(1)
    return CELLS[cell](6, 5, batch_first=True)


@pytest.mark.parametrize("cell", CELLS)
def test_what_autocast_asks_for_is_done(cell):
    layer, x = layer_of(cell), torch.randn(3, 7, 6)
    plain, state = run(layer, x, [])
    plain.square().sum().backward()
    wanted = {name: weight.grad.clone() for name, weight in layer.named_parameters()}
    layer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        lower, lower_state = run(layer, x, [])
    lower.float().square().sum().backward()
    assert lower.dtype == torch.bfloat16
    torch.testing.assert_close(lower.float(), plain, atol=0.02, rtol=0.02)
    for one, other in zip(lower_state, state, strict=True):
        torch.testing.assert_close(one.float(), other, atol=0.02, rtol=0.02)
    for name, weight in layer.named_parameters():
        torch.testing.assert_close(weight.grad, wanted[name], atol=0.05, rtol=0.05)


def test_only_recurrent_weights_are_dropped_and_only_in_training():
    torch.manual_seed(2)
    net, x = Recurrent("lstm", [6, 5, 4], weight_drop=0.5), torch.randn(3, 7, 6)
    kept = {name: weight.clone() for name, weight in net.named_parameters()}
    one, other = (net(x, net.begin(x, 3))[0] for _ in range(2))
    assert not torch.equal(one, other)
    # The first step has no state to multiply the dropped weights with.
    torch.testing.assert_close(
        net(x[:, :1], net.begin(x, 3))[0], net.eval()(x[:, :1], net.begin(x, 3))[0]
    )
    torch.testing.assert_close(net(x, net.begin(x, 3))[0], net(x, net.begin(x, 3))[0])
    for name, weight in net.named_parameters():
        assert torch.equal(weight, kept[name])


def test_shapes_can_be_reckoned_without_numbers():
    with torch.device("meta"):
        net, x = Recurrent("lstm", [6, 5, 4], weight_drop=0.5), torch.zeros(3, 7, 6)
        assert net(x, net.begin(x, 3))[0].shape == (3, 7, 4)


def test_weights_in_one_piece_are_the_same_and_side_by_side():
    weights = list(layer_of("gru").parameters())
    pieces = in_one_piece(weights, torch.float32)
    place = 0
    for piece, weight in zip(pieces, weights, strict=True):
        assert torch.equal(piece, weight)
        assert piece.storage_offset() == place
        place += weight.numel()
    assert place == pieces[0].untyped_storage().nbytes() // 4


def test_nothing_of_a_pass_is_kept():
    """A captured pass must not wait for one that was not."""
    net, x = Recurrent("lstm", [6, 5], weight_drop=0.5), torch.randn(3, 7, 6)
    out, _ = net(x, net.begin(x, 3))
    out.sum().backward()
    assert all(weight.grad_fn is None for weight in net.layers[0]._flat_weights)
