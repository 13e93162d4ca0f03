"""The one operation, against its formula, against torch, and against itself on the fused path."""

import pytest
import torch
from torch import nn

import regard
from regard.parts import mask as masks
from regard.parts.attention import Attend, Attention, asks_little, weigh
from regard.parts.score import SCORES, Dot, ScaledDot


def test_the_lectures_worked_example():
    """Scores 112 and 96 with key size 64 become 14 and 12, and the weights 0.88 and 0.12."""
    q = torch.zeros(1, 1, 1, 64)
    q[..., 0] = 1.0
    k = torch.zeros(1, 1, 2, 64)
    k[0, 0, 0, 0], k[0, 0, 1, 0] = 112.0, 96.0
    score = ScaledDot(64)
    assert Dot()(q, k).flatten().tolist() == [112.0, 96.0]
    assert score(q, k).flatten().tolist() == [14.0, 12.0]
    assert [round(w, 2) for w in weigh(q, k, score).flatten().tolist()] == [0.88, 0.12]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_fused_equals_plain(causal, masked, biased, key_heads):
    torch.manual_seed(0)
    q = torch.randn(2, 4, 5, 8, dtype=torch.float64, requires_grad=True)
    k, v = (
        torch.randn(2, key_heads, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    mask = masks.padding(torch.tensor([5, 3]), 5) if masked else None
    bias = torch.randn(1, 4, 5, 5, dtype=torch.float64) if biased else None
    grads = []
    for plain in (False, True):
        out = Attend(ScaledDot(8), plain=plain)(q, k, v, mask, bias, causal)
        grads.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
    for fused, plain in zip(*grads, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("queries", [1, 4, 8])
@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("biased", [False, True])
def test_who_asks_little_is_answered_the_same(queries, key_heads, biased):
    """Many rows with few queries are answered by products, on a CPU; one row by the kernel."""
    torch.manual_seed(0)
    q, k = torch.randn(9, 4, queries, 6), torch.randn(9, key_heads, 13, 6)
    v, mask = torch.randn_like(k), torch.rand(9, 1, 1, 13) > 0.4
    mask[3] = False  # a row that may see nothing
    bias = torch.randn(1, 4, queries, 13) if biased else None
    attend = Attend(ScaledDot(6))
    assert asks_little(q) and not asks_little(q[:1])
    together = attend(q, k, v, mask, bias)
    alone = [
        attend(*rows, bias) for rows in zip(*(x.split(1) for x in (q, k, v, mask)), strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)
    with torch.enable_grad():
        assert not asks_little(q)


@pytest.mark.parametrize("plain", [False, True])
def test_a_query_that_may_see_nothing_gets_zeros(plain):
    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[0, 0, 1] = False
    out = Attend(ScaledDot(4), plain=plain)(q, k, v, mask)
    assert not out.isnan().any()
    assert (out[:, :, 1] == 0).all()
    assert (out[:, :, 0] != 0).any()


@pytest.mark.parametrize("name", SCORES)
def test_no_score_looks_ahead_under_a_causal_mask(name):
    torch.manual_seed(0)
    part = Attention(8, 2, score=SCORES[name](4, 2))
    x = torch.randn(1, 6, 8)
    before = part(x, causal=True)
    x[:, 4:] += 1.0
    after = part(x, causal=True)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    width = theirs.embed_dim
    with torch.no_grad():
        ours.query.weight.copy_(theirs.in_proj_weight[:width])
        ours.query.bias.copy_(theirs.in_proj_bias[:width])
        ours.memory.weight.copy_(theirs.in_proj_weight[width:])
        ours.memory.bias.copy_(theirs.in_proj_bias[width:])
        ours.output.load_state_dict(theirs.out_proj.state_dict())


@pytest.mark.parametrize("cross", [False, True])
def test_parity_with_torch_multihead_attention(cross):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(16, 4, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    ours = Attention(16, 4)
    copy_attention(ours, theirs)
    x = torch.randn(2, 5, 16)
    memory = torch.randn(2, 7, 16) if cross else x
    lengths = torch.tensor([memory.shape[1], 3])
    mask = masks.padding(lengths, memory.shape[1])
    expected, weights = theirs(x, memory, memory, key_padding_mask=~mask[:, 0, 0])
    torch.testing.assert_close(ours(x, memory, mask=mask), expected)
    q, (k, _) = ours.ask(x), ours.remember(memory)
    torch.testing.assert_close(weigh(q, k, ours.attend.score, mask).mean(1), weights)


def test_attend_as_a_function():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4), torch.randn(3, 5, 4), torch.randn(3, 5, 6)
    mask = torch.rand(3, 2, 5) > 0.3
    mask[..., 0] = True
    mixed, weights = regard.attend(query, key, value, mask=mask)
    expected = nn.functional.scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(mixed, expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2))
    assert (weights[~mask] == 0).all()
    with pytest.raises(ValueError, match="score must be one of dot, scaled-dot.* but is 'nosuch'"):
        regard.attend(query, key, value, score="nosuch")


def test_masks():
    assert masks.padding(torch.tensor([1, 3]), 3)[:, 0, 0].tolist() == [
        [True, False, False],
        [True] * 3,
    ]
    assert masks.causal(2, 3)[0, 0].tolist() == [[True, True, False], [True, True, True]]
    a, b = torch.tensor([True, False]), torch.tensor([True, True])
    assert masks.both(a, b).tolist() == [True, False]
    assert masks.both(None, b) is b and masks.both(a, None) is a and masks.both(None, None) is None
