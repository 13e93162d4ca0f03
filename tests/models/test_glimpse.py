"""Recurrent visual attention: what a glimpse sees, what it costs, and the sampled gradient."""

import pytest
import torch

from regard.batch import Batch, Label, Pixels, Sizes
from regard.models.glimpse import Glimpse, GlimpseSettings, glimpse


def model(**more):
    torch.manual_seed(0)
    settings = GlimpseSettings(**{"glimpses": 3, "size": 4, "width": 16, "hidden": 24, **more})
    return Glimpse(Sizes(0, 0, False, 3, Pixels, Label, (1, 4, 4), (4, 4)), settings)


def pictures(rows=4, size=16, seed=0):
    return torch.randn(rows, 1, size, size, generator=torch.Generator().manual_seed(seed))


def ask(values):
    return Batch(Pixels(values), Label(torch.arange(len(values)) % 3, torch.ones(len(values))))


def test_a_glimpse_is_a_piece_of_the_picture():
    picture = torch.arange(100.0).view(1, 1, 10, 10)
    seen = glimpse(picture, torch.zeros(1, 2), 4, 1).view(4, 4)
    torch.testing.assert_close(seen, picture[0, 0, 3:7, 3:7])
    # Two pixels to the right and one down: places go from -1 to 1 over ten pixels.
    seen = glimpse(picture, torch.tensor([[0.4, 0.2]]), 4, 1).view(4, 4)
    torch.testing.assert_close(seen, picture[0, 0, 4:8, 5:9])


def test_a_wider_square_is_seen_more_coarsely():
    picture = torch.rand(2, 1, 16, 16)
    fine, coarse = glimpse(picture, torch.zeros(2, 2), 4, 2).view(2, 2, 4, 4).unbind(1)
    torch.testing.assert_close(fine, picture[:, 0, 6:10, 6:10])
    wanted = torch.nn.functional.avg_pool2d(picture[:, :, 4:12, 4:12], 2)[:, 0]
    torch.testing.assert_close(coarse, wanted)


def test_beyond_the_edge_it_is_dark():
    picture = torch.rand(1, 1, 8, 8) + 1
    seen = glimpse(picture, torch.ones(1, 2), 4, 1).view(4, 4)
    torch.testing.assert_close(seen[:2, :2], picture[0, 0, 6:, 6:])
    assert (seen[2:] == picture.min()).all() and (seen[:, 2:] == picture.min()).all()


def test_a_row_is_the_same_alone_and_answers_do_not_change():
    ours, values = model().eval(), pictures()
    whole = ours(ask(values))
    assert whole.shape == (4, 1, 3)
    torch.testing.assert_close(ours(ask(values[2:3])), whole[2:3])
    assert torch.equal(ours(ask(values)), whole)  # nothing is drawn


@pytest.mark.parametrize("scales", [1, 3])
def test_what_an_answer_costs_does_not_grow_with_the_picture(scales):
    """Counted, not timed: the products of one answer to pictures of 16² and of 256² pixels."""
    from torch.utils.flop_counter import FlopCounterMode

    ours, counts = model(scales=scales).eval(), []
    for size in (16, 256):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            ours(ask(pictures(2, size)))
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_the_class_teaches_what_is_seen_and_the_reward_where_to_look():
    ours = model().train()
    passed = ours.states(ask(pictures(16)))
    where = {f"{part}.{kind}" for part in ("next", "baseline") for kind in ("weight", "bias")}
    passed.penalty.backward(retain_graph=True)
    taught = {n for n, w in ours.named_parameters() if w.grad is not None and w.grad.any()}
    assert taught == where
    ours.zero_grad()
    ours.output(passed.states).sum().backward()
    taught = {n for n, w in ours.named_parameters() if w.grad is not None and w.grad.any()}
    assert not taught & where and "core.weight" in taught


def test_the_sampled_gradient_is_the_exact_one_on_average():
    """One choice in one dimension: the chance of a right answer, as a function of the place chosen,
    is summed up over all places, and its gradient compared with that of 40,000 draws."""
    ours = model(glimpses=2, spread=0.3).double().train()
    with torch.no_grad():  # only across; the answer must depend on where it looked
        ours.next.weight.zero_()
        ours.next.bias.zero_()
        ours.output.weight.mul_(5)
    picture = 4 * torch.randn(1, 1, 16, 16, dtype=torch.float64)
    spread, rows = 0.3, 40_000

    def told(places):
        """The answer after a second look at each place."""
        first = ours.both(torch.cat((
            ours.what(glimpse(picture, torch.zeros(1, 2).double(), 4, 1)).relu(),
            ours.where(torch.zeros(1, 2).double()).relu(),
        ), -1)).relu()  # fmt: skip
        memory = ours.core(torch.cat((torch.zeros(1, 24).double(), first), -1)).relu()
        many = picture.expand(len(places), -1, -1, -1)
        seen = ours.what(glimpse(many, places, 4, 1)).relu()
        look = ours.both(torch.cat((seen, ours.where(places).relu()), -1)).relu()
        memory = ours.core(torch.cat((memory.expand(len(places), -1), look), -1)).relu()
        return ours.output(memory).argmax(-1)

    # Exact: the integral of right(place) times the gradient of the Gaussian's density.
    ticks = torch.linspace(-1.8, 1.8, 241, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), -1).view(-1, 2)
    with torch.no_grad():
        density = torch.exp(-(grid**2).sum(-1) / (2 * spread**2))
        density = density / density.sum()
        answers = told(grid.clamp(-1, 1))
    chances = [float(density[answers == c].sum()) for c in range(3)]
    label = torch.tensor([min(range(3), key=lambda c: abs(chances[c] - 0.5))])
    hits = (answers == label).double()
    assert 0.1 < float((hits * density).sum()) < 0.9, "the toy must be neither sure nor hopeless"
    # Through tanh at 0 the gradient passes as it is; a reward is to grow, a loss to shrink.
    wanted = -(hits[:, None] * density[:, None] * grid / spread**2).sum(0)
    batch = Batch(
        Pixels(picture.expand(rows, -1, -1, -1)), Label(label.expand(rows), torch.ones(rows))
    )
    ours.states(batch).penalty.backward()
    found = ours.next.bias.grad
    noise = 3 * (1 / spread) / rows**0.5
    torch.testing.assert_close(found, wanted, atol=noise, rtol=0.0)
    assert wanted.abs().max() > 2 * noise
