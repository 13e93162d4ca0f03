"""The cache when rows have different lengths."""

import pytest
import torch

from regard.parts.attention import Attention
from regard.parts.position import Rotary
from regard.parts.state import Cache

pytestmark = pytest.mark.usefixtures("filled")


def test_rows_of_different_lengths_write_and_see_their_own_places():
    torch.manual_seed(0)
    part = Attention(16, 4, position=Rotary(16, 4)).eval()
    x = torch.randn(2, 6, 16)
    places = torch.arange(6)
    whole = part(x, causal=True, positions=places)
    cache = Cache.empty(1, 2, 4, 4, x)
    cache.used, cache.even = None, False  # only the tensor knows from here on
    cache.lengths = torch.tensor([0, 0])
    first = part.step(x[:, :3], *cache.open(3))
    torch.testing.assert_close(first, whole[:, :3])
    cache.lengths = torch.tensor([3, 2])  # the second row takes one token back
    step = part.step(torch.stack((x[0, 3:4], x[1, 2:3])), *cache.open(1))
    torch.testing.assert_close(step[0], whole[0, 3:4])
    torch.testing.assert_close(step[1], whole[1, 2:3])


def test_a_block_of_tokens_after_others_is_causal():
    torch.manual_seed(0)
    part = Attention(16, 4).eval()
    x = torch.randn(2, 70, 16)
    cache = Cache.empty(1, 2, 4, 4, x)
    pieces = []
    for piece in x.split([3, 1, 20, 46], 1):
        pieces.append(part.step(piece, *cache.open(piece.shape[1])))
        cache.advance(piece.shape[1])
    torch.testing.assert_close(torch.cat(pieces, 1), part(x, causal=True))


def test_a_fixed_cache_steps_alike_and_moves_nothing():
    torch.manual_seed(0)
    part = Attention(16, 4, position=Rotary(16, 4)).eval()
    x = torch.randn(3, 9, 16)
    whole = part(x, causal=True, positions=torch.arange(9))
    cache = Cache.empty(1, 3, 4, 4, x)
    part.step(x[:, :2], *cache.open(2))
    cache.advance(2)
    cache.fix(64)
    places = cache.keys.data_ptr(), cache.values.data_ptr()
    for i in range(2, 9):
        torch.testing.assert_close(part.step(x[:, i : i + 1], *cache.open(1)), whole[:, i : i + 1])
        cache.advance(1)
        cache.select(torch.tensor([0, 1, 2]))
    cache.select(torch.tensor([2, 0, 0]))
    assert places == (cache.keys.data_ptr(), cache.values.data_ptr())
    torch.testing.assert_close(cache.keys[:, 1], cache.keys[:, 2])


def test_a_fixed_cache_takes_keys_of_a_lower_precision():
    torch.manual_seed(0)
    part = Attention(16, 4).eval()
    x = torch.randn(2, 3, 16)
    whole = part(x, causal=True)
    for even in (True, False):
        cache = Cache.empty(1, 2, 4, 4, x)
        cache.fix(32)
        cache.even = even
        with torch.autocast("cpu", torch.bfloat16):
            steps = []
            for i in range(3):
                steps.append(part.step(x[:, i : i + 1], *cache.open(1)))
                cache.advance(1)
        torch.testing.assert_close(torch.cat(steps, 1).float(), whole, atol=0.02, rtol=0.02)


def test_what_is_selected_and_then_fixed_holds_numbers_only():
    """A beam reorders its rows, and is then fixed for capture: unwritten places are masked, but
    nothing times NaN is NaN."""
    torch.manual_seed(0)
    part = Attention(16, 4).eval()
    x = torch.randn(2, 6, 16)
    cache = Cache.empty(1, 2, 4, 4, x)
    with torch.inference_mode():
        part.step(x[:, :4], *cache.open(4))
        cache.advance(4)
        for rows in ([0, 0, 1, 1], [1, 0, 3, 2], [0, 2]):
            cache.select(torch.tensor(rows))
        cache.fix(40)
        found = part.step(x[:, 4:5], *cache.open(1))
        whole = part(x[:, :5], causal=True)
    torch.testing.assert_close(found, whole[:, 4:])
