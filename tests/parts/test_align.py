"""Windows, picks and coverage: each against what its paper says."""

import math

import pytest
import torch

from regard.parts import mask as masks
from regard.parts.align import Align, AlignedAttend
from regard.parts.pick import PICKS, Gumbel, Hard, Soft
from regard.parts.recurrent import CELLS, Reader
from regard.parts.score import SCORES
from regard.parts.state import Source
from regard.parts.window import WINDOWS, Everywhere, Monotonic, Predictive


def padding(lengths, size=8):
    return masks.padding(torch.tensor(lengths), size)


def places(rows, steps):
    return torch.arange(steps).expand(rows, steps)


def test_a_monotonic_window_moves_along_the_source_and_stays_at_its_end():
    window = Monotonic(4, 1, reach=1)
    seen, taper = window(torch.zeros(2, 1, 6, 4), padding([8, 3]), places(2, 6))
    assert taper is None
    found = [[row.nonzero()[:, 0].tolist() for row in rows[0]] for rows in seen]
    assert found[0] == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert found[1] == [[0, 1], [0, 1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]


@torch.no_grad()
def test_a_predicted_window_has_luongs_gaussian():
    torch.manual_seed(0)
    window, q = Predictive(4, 2, reach=2), torch.randn(3, 2, 5, 4)
    seen, taper = window(q, padding([8, 5, 1]), places(3, 5))
    for b, length in enumerate((8, 5, 1)):
        for h in range(2):
            for t in range(5):
                inner = (q[b, h, t] @ window.weight[h]).tanh() @ window.value[h, :, 0]
                centre = (length - 1) / (1 + math.exp(-float(inner)))
                for s in range(8):
                    inside = s < length and abs(s - centre) <= 2
                    assert bool(seen[b, h, t, s]) == inside
                    wanted = math.exp(-((s - centre) ** 2) / (2 * 1.0**2))
                    assert float(taper[b, h, t, s]) == pytest.approx(wanted, rel=1e-4)
    assert seen.any(-1).all()  # somewhere there is always something to see


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_wider_than_the_sentence_is_global(name):
    torch.manual_seed(0)
    window, q = WINDOWS[name](4, 1, 100), torch.randn(2, 1, 3, 4)
    seen, _ = window(q, padding([8, 3]), places(2, 3))
    assert (seen == padding([8, 3])).all()


def test_now_and_then_the_mean_takes_a_draws_place():
    torch.manual_seed(0)
    weights = torch.tensor([0.5, 0.3, 0.2]).expand(1, 1, 4000, 3).clone().requires_grad_()
    hard = Hard(often=0.25).train()
    picked = hard(weights)
    mean = (picked == weights).all(-1)
    assert abs(float(mean.float().mean()) - 0.25) < 0.03
    assert set(picked[~mean].unique().tolist()) == {0.0, 1.0}
    chance = Hard.log_chance(weights, picked)
    assert not chance[mean].any() and (chance[~mean] < 0).all()
    picked[mean].sum().backward()  # what a mean teaches passes; a draw's does not
    assert torch.equal(weights.grad.amax(-1) > 0, mean)
    assert set(hard.eval()(weights).unique().tolist()) == {0.0, 1.0}


def test_hard_draws_follow_the_weights():
    torch.manual_seed(0)
    weights = torch.tensor([0.5, 0.3, 0.2, 0.0])
    hard = Hard().train()
    drawn = hard(weights.expand(1, 1, 20_000, 4))
    assert (drawn.sum(-1) == 1).all() and not drawn[..., 3].any()
    torch.testing.assert_close(drawn.mean((0, 1, 2)), weights, atol=0.015, rtol=0)
    assert hard.eval()(weights).tolist() == [1.0, 0.0, 0.0, 0.0]
    gumbel = Gumbel().train()
    drawn = gumbel(weights.expand(1, 1, 20_000, 4))
    torch.testing.assert_close(drawn.mean((0, 1, 2)), weights, atol=0.015, rtol=0)


def test_the_rewarded_gradient_is_right_on_average():
    """E[(gain - baseline) ∇ log p(draw)] is the gradient of the expected gain, counted out."""
    torch.manual_seed(0)
    scores = torch.tensor([0.4, -0.3, 0.1], requires_grad=True)
    gains = torch.tensor([1.0, -2.0, 0.5])
    (scores.softmax(-1) * gains).sum().backward()
    exact, scores.grad = scores.grad.clone(), None
    weights = scores.softmax(-1).expand(1, 1, 200_000, 3)
    picked = Hard().train()(weights)
    gain = (picked * gains).sum(-1)
    ((gain - 0.3) * Hard.log_chance(weights, picked)).mean().backward()
    torch.testing.assert_close(scores.grad, exact, atol=0.01, rtol=0)


def test_gumbel_passes_the_gradient_of_its_soft_choice():
    torch.manual_seed(0)
    weights = torch.tensor([[0.5, 0.3, 0.2]], requires_grad=True)
    picked = Gumbel(temperature=0.5).train()(weights)
    assert sorted(picked[0].tolist()) == pytest.approx([0.0, 0.0, 1.0], abs=1e-6)
    (picked * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert weights.grad.abs().min() > 0


@pytest.mark.parametrize("name", PICKS)
@pytest.mark.parametrize("training", [True, False])
def test_what_may_see_nothing_gets_zeros(name, training):
    weights = torch.zeros(1, 1, 2, 3, requires_grad=True)
    picked = PICKS[name]().train(training)(weights)
    assert (picked == 0).all()
    if picked.requires_grad:
        picked.sum().backward()
        assert weights.grad.isfinite().all()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_reader_is_torchs_bidirectional_net_on_packed_rows(cell, depth):
    torch.manual_seed(0)
    theirs = CELLS[cell](6, 5, depth, batch_first=True, bidirectional=True)
    ours = Reader(cell, 6, 10, depth, both_ways=True)
    for number, layer in enumerate(ours.layers):
        for way, end in zip(layer, ("", "_reverse"), strict=True):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(way, f"{name}_l0").data = getattr(theirs, f"{name}_l{number}{end}").data
    x, lengths = torch.randn(3, 7, 6), torch.tensor([7, 3, 1])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    wanted, last = theirs(packed)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(wanted, batch_first=True)
    states, lasts, same = ours(x, lengths)
    assert same is lengths
    for row, length in enumerate(lengths):
        torch.testing.assert_close(states[row, :length], wanted[row, :length])
    hidden = last[0] if cell == "lstm" else last
    torch.testing.assert_close(
        torch.stack(lasts), hidden.unflatten(0, (depth, 2)).transpose(1, 2).flatten(2)
    )


def make(score="general", window="global", pick="soft", heads=2, **more):
    torch.manual_seed(0)
    look = AlignedAttend(
        SCORES[score](8 // heads, heads), WINDOWS[window](8 // heads, heads, 2), PICKS[pick]()
    )
    return Align(8, heads, look, **more)


def test_plain_alignment_is_the_lectures_formula():
    """e_i = s·W h_i, w = softmax(e), c = Σ w_i h_i."""
    part = make(heads=1)
    query, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    found = part(query, Source(*part.remember(memory), padding([5, 4], 5), 1), places(2, 3))
    for b, length in enumerate((5, 4)):
        for t in range(3):
            h = memory[b, :length]
            weights = (h @ (query[b, t] @ part.attend.score.weight[0])).softmax(0)
            torch.testing.assert_close(found.weights[b, 0, t, :length], weights)
            torch.testing.assert_close(found.context[b, t], weights @ h)


@pytest.mark.parametrize("window", WINDOWS)
def test_rows_that_share_a_source_look_as_if_each_had_its_own(window):
    part = make("additive", window, separate=True).eval()
    query, memory, mask = torch.randn(6, 1, 8), torch.randn(2, 5, 8), padding([5, 3], 5)
    at = torch.tensor([3] * 6)[:, None]
    shared = part(query, Source(*part.remember(memory), mask, 3), at)
    own = part(
        query,
        Source(*part.remember(memory.repeat_interleave(3, 0)), mask.repeat_interleave(3, 0), 1),
        at,
    )
    for a, b in zip(shared, own, strict=True):
        torch.testing.assert_close(a, b)


def test_coverage_is_inside_the_additive_score():
    """v·tanh(W s + U h + w c), See et al. 2017, eq. 11."""
    part = make("additive", heads=1, coverage=True)
    query, memory, covered = torch.randn(1, 1, 8), torch.randn(1, 4, 8), torch.rand(1, 1, 4)
    found = part(query, Source(*part.remember(memory), padding([4], 4), 1), places(1, 1), covered)
    score = part.attend.score
    inner = (
        query[0] @ score.query[0]
        + memory[0] @ score.key[0]
        + covered[0, 0, :, None] * part.coverage.direction[0]
    )
    wanted = (inner.tanh() @ score.value[0, :, 0]).softmax(0)
    torch.testing.assert_close(found.weights[0, 0, 0], wanted)


def test_soft_global_attention_with_a_dot_is_the_fused_one():
    part = make("scaled-dot", separate=True)
    assert isinstance(part.attend.window, Everywhere) and isinstance(part.attend.pick, Soft)
    query, memory, mask = torch.randn(2, 3, 8), torch.randn(2, 5, 8), padding([5, 4], 5)
    found = part(query, Source(*part.remember(memory), mask, 1), places(2, 3))
    q, k, v = (part.split(x) for x in (part.query(query), part.key(memory), part.value(memory)))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(found.context, part.output(mixed.transpose(1, 2).flatten(-2)))


def test_location_aware_attention_is_chorowskis():
    """e = v·tanh(W s + V h + U f), f the last weights through convolutions (2015, eq. 8 and 9)."""
    torch.manual_seed(0)
    part = make("additive", heads=1, coverage="location")
    width = part.attend.score.query.shape[-1]
    query, memory = torch.randn(1, 1, width), torch.randn(1, 7, width)
    before = torch.rand(1, 1, 7)
    before = before / before.sum()
    source = Source(*part.remember(memory), torch.ones(1, 1, 1, 7, dtype=torch.bool), 1)
    found = part(query, source, torch.zeros(1, 1, dtype=torch.long), before).weights[0, 0, 0]
    score, look = part.attend.score, part.coverage
    f = torch.nn.functional.conv1d(before, look.filters.weight, look.filters.bias, padding=50)
    told = query[0] @ score.query[0] + memory[0] @ score.key[0] + f[0].T @ look.out[0]
    wanted = (told.tanh() @ score.value[0])[:, 0].softmax(0)
    torch.testing.assert_close(found, wanted)
    assert torch.equal(look.grow(before, torch.ones(1, 1, 2, 7) / 7), torch.ones(1, 1, 7) / 7)
