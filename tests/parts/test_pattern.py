"""Patterns: what blocks say against what places say, and attention over blocks against the
written-out path."""

import pytest
import torch

from regard.parts.attention import Attend, Attention
from regard.parts.pattern import (
    PATTERNS,
    BlockWindow,
    Global,
    GlobalBlocks,
    Pattern,
    RandomBlocks,
    Sinks,
    Union,
    Window,
    laid_out,
)
from regard.parts.relative import Buckets
from regard.parts.score import ScaledDot
from regard.parts.watch import watch

SOME = {
    "window": Window(5),
    "wide": Window(9),
    "dilated": Window(4, 3),
    "global": Global(3),
    "global blocks": GlobalBlocks(1, 1),
    "sinks": Sinks(5),
    "block window": BlockWindow(1),
    "random": RandomBlocks(2),
    "union": Union((BlockWindow(1), GlobalBlocks(1, 1), RandomBlocks(2, seed=3))),
    **{name: make(4, 6, 2, 2) for name, make in PATTERNS.items()},
}
every = pytest.mark.parametrize("name", SOME)
either = pytest.mark.parametrize("causal", [False, True])


@every
@either
@pytest.mark.parametrize("length", [40, 43])
def test_blocks_say_what_places_say(name, causal, length):
    layout = laid_out(SOME[name], 4, length, 3, causal)
    whole = laid_out(SOME[name], 4, layout.size.blocks * 4, 3, causal)
    may = whole.mask()[0].unfold(1, 4, 4).unfold(2, 4, 4)  # (H, N, N, 4, 4)
    some, all_of = layout.blocks
    assert (some | ~may.any((-1, -2))).all()  # nothing that is allowed is left out
    assert (~all_of | may.all((-1, -2))).all()  # what is taken whole is allowed whole
    assert (~all_of | some).all()
    assert not causal or not layout.mask()[0].triu(1).any()


def heads_of(rows=2, heads=4, length=43, width=8, key_heads=None):
    torch.manual_seed(0)
    shape = (rows, heads, length, width)
    fewer = (rows, key_heads or heads, length, width)
    return [torch.randn(s, requires_grad=True) for s in (shape, fewer, fewer)]


@every
@either
@pytest.mark.parametrize("padded", [False, True])
def test_blocks_alone_give_what_all_give(name, causal, padded, monkeypatch):
    monkeypatch.setattr("regard.parts.attention.MOST_SHARE", 1.1)  # always in blocks
    monkeypatch.setattr("regard.parts.sparse.AT_ONCE", 2**12)  # in several pieces
    mask = (torch.arange(43) < torch.tensor([43, 17])[:, None])[:, None, None] if padded else None
    found = []
    for plain in (False, True):
        q, k, v = heads_of()
        layout = laid_out(SOME[name], 4, 43, 4, causal)
        out = Attend(ScaledDot(8), plain=plain)(q, k, v, mask, None, False, layout)
        # Queries that stand in padding are nobody's.
        kept = out if mask is None else out * mask.transpose(-1, -2)
        kept.square().sum().backward()
        found.append((kept.detach(), q.grad, k.grad, v.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["window", "union", "global"])
def test_a_bias_by_distance_is_worked_out_where_it_is_looked_at(name, monkeypatch):
    monkeypatch.setattr("regard.parts.attention.MOST_SHARE", 1.1)
    torch.manual_seed(1)
    buckets = Buckets(4, 8, 16)
    torch.nn.init.normal_(buckets.weight)
    layout, found = laid_out(SOME[name], 4, 43, 4, False), []
    for plain in (False, True):
        q, k, v = heads_of()
        buckets.weight.grad = None
        out = Attend(ScaledDot(8), plain=plain)(q, k, v, None, buckets.at, False, layout)
        out.square().sum().backward()
        found.append((out.detach(), q.grad, v.grad, buckets.weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_heads_may_share_keys():
    q, k, v = heads_of(key_heads=2)
    layout = laid_out(SOME["union"], 4, 43, 4, False)
    one, other = (
        Attend(ScaledDot(8), plain=plain)(q, k, v, layout=layout) for plain in (False, True)
    )
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_random_blocks_are_new_to_those_who_look():
    layout = laid_out(RandomBlocks(3, 1, 2), 4, 4 * 40, 5, False)
    table = layout.blocks.some
    assert (table.sum(-1) <= 3).all() and (table[:, :16].sum(-1) == 3).all()
    every = torch.arange(40)
    near = (every[:, None] - every).abs() <= 1
    assert not table[:, near].any() and not table[:, :, :2].any()
    assert not torch.equal(table[0], table[1])  # each head has its own
    other = laid_out(RandomBlocks(3, 1, 2).of_layer(1), 4, 160, 5, False).blocks.some
    assert not torch.equal(table, other)
    ahead = table & (every[:, None] < every)
    assert 0.3 < ahead[:, 5:20].sum() / table[:, 5:20].sum() < 0.7


@either
def test_a_longer_text_does_not_change_what_was_looked_at(causal):
    for name, pattern in SOME.items():
        if name not in ("global blocks", "union"):  # which have a last block
            short, longer = (laid_out(pattern, 4, n, 2, causal).mask() for n in (40, 64))
            assert torch.equal(short, longer[:, :, :40, :40]), name


def test_what_is_worked_out_grows_with_the_length_alone():
    pattern = PATTERNS["bigbird"](64, 64, 0, 3)
    counts = [laid_out(pattern, 64, n, 1, False).blocks.some.sum() for n in (4096, 8192, 16384)]
    assert counts[2] / counts[1] == pytest.approx(2, rel=0.05) and counts[1] < 2.1 * counts[0]
    # 3 of a window, 2 global, 3 random, but for the rows that look at all
    some = laid_out(pattern, 64, 16384, 1, False).blocks.some[0]
    assert (some[4:120].sum(-1) == 8).all() and some[:2].all()


@pytest.mark.parametrize("name", ["window", "bigbird"])
def test_watching_shows_what_was_allowed(name):
    torch.manual_seed(0)
    part = Attention(32, 4, pattern=PATTERNS[name](4, 6, 2, 2), block=4)
    x = torch.randn(2, 43, 32)
    with watch(part) as seen:
        out = part(x)
    (weights,) = (w for call in seen.values() for w in call)
    may = laid_out(part.pattern, 4, 43, 4, False).mask().expand_as(weights)
    assert not weights[~may].any() and torch.allclose(weights.sum(-1), torch.ones(()))
    torch.testing.assert_close(part.join(weights @ part.remember(x)[1]), out, rtol=1e-4, atol=1e-5)


def test_full_is_no_pattern():
    assert laid_out(Pattern(), 4, 40, 1, False).share == 1.0
