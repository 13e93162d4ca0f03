"""The memory network against its paper, written out; and what noise and the linear start do."""

import math

import pytest
import torch

import regard
from regard.batch import Batch, Sizes, Story, Tokens
from regard.models.memory import MemoryNetwork, MemorySettings
from tests.toys import random_stories

SIZES = Sizes(24, 24, True)


def make(**more):
    torch.manual_seed(0)
    model = MemoryNetwork(SIZES, MemorySettings(width=6, ages=12, noise=0.0, **more)).eval()
    for weight in model.parameters():
        weight.data += torch.randn_like(weight) * 0.3
    return model


def sentence(ids, table, encoding, places):
    """Σ_j l_j ∘ A x_j, a word and a dimension at a time (section 4.1)."""
    ids = [i for i in ids.tolist() if i]
    total = torch.zeros(6)
    for j, word in enumerate(ids, 1):
        for k in range(1, 7):
            share = j / len(ids)
            weight = (1 - share) - (k / 6) * (1 - 2 * share) if encoding == "position" else 1.0
            weight = places[j - 1, k - 1] if encoding == "learned" else weight
            total[k - 1] += weight * table.weight[word, k - 1]
    return total


@pytest.mark.parametrize("encoding", ["bag", "position", "learned"])
@pytest.mark.parametrize("tie", ["adjacent", "layerwise"])
@pytest.mark.parametrize("linear", [False, True])
@torch.no_grad()
def test_it_is_the_papers_formula(encoding, tie, linear):
    model, batch = make(encoding=encoding, tie=tie, hops=3, linear_start=0.5), random_stories()
    model.train().on_progress(0.4 if linear else 0.6)
    for b in range(len(batch)):
        count = int(batch.read.counts[b])
        u = sentence(batch.read.question[b], model.asked, encoding, model.places)
        for hop in range(3):
            first = hop if tie == "adjacent" else 0
            m, c = (
                [
                    sentence(batch.read.sentences[b, i], model.words[t], encoding, model.places)
                    + model.times[t].weight[count - 1 - i]
                    for i in range(count)
                ]
                for t in (first, first + 1)
            )
            p = torch.stack([u @ mi for mi in m])
            p = p if linear else p.softmax(0)
            o = sum(pi * ci for pi, ci in zip(p, c, strict=True))
            u = (u if tie == "adjacent" else model.carry.weight @ u) + o
        writes = model.words[-1] if tie == "adjacent" else model.output
        torch.testing.assert_close(model(batch)[b, 0], writes.weight @ u, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("update", ["sum", "replace", "projected", "gated"])
def test_a_hop_goes_on_from_the_old_and_the_new(update):
    model, batch = make(update=update, hops=1), random_stories()
    with regard.watch(model) as seen:
        found = model.states(batch).states[:, 0]
    q = model.encode(batch.read.question, model.asked)
    ages = model.ages(batch.read.counts, torch.arange(9))
    values = model.encode(batch.read.sentences, model.words[1]) + model.times[1](ages)
    o = (seen["hops.0"][0][:, 0] @ values)[:, 0]
    if update == "gated":
        g = torch.sigmoid(model.gates[0](q))
        wanted = g * o + (1 - g) * q
    elif update == "projected":
        wanted = (q + o) @ model.projections[0].weight.T
    else:
        wanted = o if update == "replace" else q + o
    torch.testing.assert_close(found, wanted)


def test_noise_makes_sentences_seem_older_in_training_only():
    model = MemoryNetwork(SIZES, MemorySettings(width=6, ages=2000, noise=0.25))
    counts, told = torch.full((500,), 9), torch.arange(14)  # five of them padding
    assert (model.eval().ages(counts, told)[:, :9] == torch.arange(8, -1, -1)).all()
    torch.manual_seed(0)
    older = (model.train().ages(counts, told)[:, :9] - torch.arange(8, -1, -1)).float()
    assert older.min() == 0 and (older[:, :-1] >= older[:, 1:]).all()
    wanted = 0.25 * torch.arange(9, 0, -1)
    torch.testing.assert_close(older.mean(0), wanted, atol=0.12, rtol=0)


def test_an_empty_story_is_answered_and_learned_from():
    model = make()
    question = torch.tensor([[5, 6]])
    read = Story(torch.zeros(1, 1, 1, dtype=torch.long), torch.tensor([0]), question)
    empty = Batch(read, Tokens(question[:, :1], torch.tensor([[0, 1]])))
    logits = model(empty)
    assert logits.isfinite().all()
    logits.sum().backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in model.parameters())


def test_the_linear_start_ends_and_is_not_kept():
    model = make(linear_start=0.3)
    model.on_progress(0.3)
    assert bool(model.linear)
    model.on_progress(0.31)
    assert not bool(model.linear) and "linear" not in model.state_dict()
    batch = random_stories()
    softmax = model(batch)
    model.on_progress(0.1)  # answers go by softmax at any time
    assert torch.equal(model(batch), softmax)
    assert not torch.allclose(model.train()(batch), softmax)
    assert math.isclose(float(make(linear_start=0.0).linear), 0.0)
