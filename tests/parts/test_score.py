"""Every score against its formula, written out with loops in double precision."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.parts import score as scores
from regard.parts.attention import Attend, weigh
from regard.parts.score import SCORES

WIDTH, HEADS = 4, 2


def dot(part, q, k, h, place):
    return float(q @ k)


def scaled_dot(part, q, k, h, place):
    return float(q @ k) / math.sqrt(len(q))


def general(part, q, k, h, place):
    return float(q @ part.weight[h] @ k)


def additive(part, q, k, h, place):
    """v·tanh(W [q; k]), W the two matrices side by side."""
    matrix = torch.cat((part.query[h], part.key[h])).T
    return float(part.value[h, :, 0] @ (matrix @ torch.cat((q, k))).tanh())


def mlp(part, q, k, h, place):
    matrix = torch.cat((part.query[h], part.key[h])).T
    inner = (matrix @ torch.cat((q, k)) + part.bias[h, 0]).clamp_min(0)
    return float(part.value[h, :, 0] @ inner)


def cosine(part, q, k, h, place):
    return float(part.sharpness[h].exp() * (q @ k) / (q.norm() * k.norm()))


def location(part, q, k, h, place):
    return float((part.weight[h].T @ q)[place])


FORMULAS = {
    "dot": dot,
    "scaled-dot": scaled_dot,
    "general": general,
    "additive": additive,
    "mlp": mlp,
    "cosine": cosine,
    "location": location,
}


def make(name, **more):
    torch.manual_seed(0)
    part = SCORES[name](WIDTH, HEADS, **more).double()
    for weight in part.parameters():  # what begins at zero must matter too
        weight.data += torch.randn_like(weight) * 0.3
    return part


def some(queries=3, keys=5, rows=2):
    torch.manual_seed(1)
    q = torch.randn(rows, HEADS, queries, WIDTH, dtype=torch.float64)
    return q, torch.randn(rows, HEADS, keys, WIDTH, dtype=torch.float64)


def test_every_score_has_its_formula():
    assert set(FORMULAS) == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
@torch.no_grad()
def test_it_is_its_formula(name):
    part, (q, k) = make(name), some()
    found = part(q, k)
    assert found.shape == (2, HEADS, 3, 5)
    for b in range(2):
        for h in range(HEADS):
            for t in range(3):
                for s in range(5):
                    wanted = FORMULAS[name](part, q[b, h, t], k[b, h, s], h, s)
                    assert float(found[b, h, t, s]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_it_is_differentiable(name):
    part, (q, k) = make(name), some(2, 3, 1)
    weights = list(part.parameters())

    def run(q, k, *weights):
        return part(q, k)

    inputs = (q.requires_grad_(), k.requires_grad_(), *weights)
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("name", SCORES)
def test_a_query_that_may_see_nothing_gets_zeros(name):
    part, (q, k) = make(name), some()
    q.requires_grad_()
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    weights = weigh(q, k, part, mask)
    assert (weights[:, :, 1] == 0).all() and weights[:, :, 0].sum(-1).allclose(
        torch.ones(2, 2).double()
    )
    (weights**2).sum().backward()
    assert q.grad.isfinite().all()


def test_the_cosine_of_a_zero_vector_is_zero():
    part, (q, k) = make("cosine"), some()
    q, k = q.detach(), k.detach()
    q[0, 0, 0] = 0
    k[:, :, 1] = 0
    found = part(q.requires_grad_(), k)
    assert (found[0, 0, 0] == 0).all() and (found[..., 1] == 0).all()
    found.sum().backward()
    assert q.grad.isfinite().all()


def test_places_beyond_the_last_share_its_score():
    part, (q, k) = make("location", places=3), some(keys=6)
    found = part(q, k)
    assert torch.equal(found[..., 2], found[..., 5])


class Largest(TorchDispatchMode):
    """The most elements that any result had."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not result._is_view():
            self.most = max(self.most, result.numel())
        return result


@pytest.mark.parametrize("name", ["additive", "mlp"])
def test_comparing_element_by_element_is_bounded_in_memory(name, monkeypatch):
    """Forward and backward hold a chunk of (B, H, T, S, K) at a time, and give the same."""
    part, (q, k) = make(name), some(queries=40, keys=30)
    q.requires_grad_()

    def run():
        q.grad = None
        with Largest() as seen:
            found = part(q, k)
            (found**2).sum().backward()
        return seen.most, found.detach(), q.grad.clone()

    whole = run()
    assert whole[0] >= 2 * HEADS * 40 * 30 * WIDTH
    monkeypatch.setattr(scores, "CHUNK", 2 * HEADS * 4 * 30 * WIDTH)
    pieces = run()
    assert pieces[0] <= 2 * HEADS * 40 * 30  # the scores themselves are larger than a chunk
    torch.testing.assert_close(pieces[1:], whole[1:])


@pytest.mark.parametrize("name", SCORES)
def test_as_a_function_and_by_name(name):
    query, key, value = torch.randn(3, 2, 8), torch.randn(3, 5, 8), torch.randn(3, 5, 8)
    mixed, weights = regard.attend(query, key, value, score=name)
    assert mixed.shape == (3, 2, 8)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2))
    torch.testing.assert_close(mixed, weights @ value)


@pytest.mark.parametrize("name", SCORES)
def test_chosen_heads_are_watched_with_their_own_weights(name):
    model = torch.nn.ModuleDict({"attend": Attend(make(name).float())})
    q, k = (x.float() for x in some())
    with regard.watch(model) as every:
        model["attend"](q, k, k)
    with regard.watch(model, heads=[1]) as one:
        model["attend"](q, k, k)
    (whole,), (chosen,) = every["attend"], one["attend"]
    torch.testing.assert_close(chosen, whole[:, 1:])
