"""The chunked loss against the plain one, and R-Drop against its formula."""

import pytest
import torch
import torch.nn.functional as F

from regard.training import loss as losses
from regard.training.loss import LinearCrossEntropy, TokenLoss
from tests.toys import random_pairs, small_model


@pytest.fixture(params=[5, 10**9], ids=["chunks", "whole"])
def chunk(request, monkeypatch):
    monkeypatch.setitem(losses.CHUNK, "cpu", request.param * 30)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
def test_value_and_gradient_are_those_of_cross_entropy(chunk, smoothing, biased):
    torch.manual_seed(0)
    states = torch.randn(17, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(30, dtype=torch.float64, requires_grad=True) if biased else None
    labels, real = torch.randint(30, (17,)), torch.rand(17) > 0.3
    found, nll = LinearCrossEntropy.apply(states, weight, bias, labels, real, smoothing, True)
    target = labels.masked_fill(~real, -100)
    scores = F.linear(states, weight, bias)
    expected = F.cross_entropy(scores, target, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(nll, F.cross_entropy(scores, target, reduction="sum"))
    leaves = [states, weight, *([bias] if biased else [])]
    mine = torch.autograd.grad(found * 0.7, leaves)
    torch.testing.assert_close(mine, torch.autograd.grad(expected * 0.7, leaves))


def test_a_model_s_loss_counts_words_and_not_padding():
    model, batch = small_model("transformer"), random_pairs()
    real, labels = batch.asked.real, batch.asked.labels
    assert int(real.sum()) == batch.tokens
    loss = TokenLoss(0.1)(model, batch)
    logits = model(batch)[real]
    torch.testing.assert_close(loss.nll, F.cross_entropy(logits, labels[real], reduction="sum"))
    expected = F.cross_entropy(logits, labels[real], reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(loss.total, expected)


def test_reduced_precision_stays_near():
    torch.manual_seed(0)
    model, batch = small_model("transformer"), random_pairs()
    full = TokenLoss(0.1)(model, batch)
    full.total.backward()
    exact = model.output.weight.grad.clone()
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        low = TokenLoss(0.1)(model, batch)
    low.total.backward()
    assert low.total.dtype == torch.float32
    torch.testing.assert_close(low.total, full.total, rtol=2e-2, atol=0)
    close = F.cosine_similarity(exact.flatten(), model.output.weight.grad.flatten(), 0)
    assert close > 0.99


def test_the_whole_table_of_scores_is_never_held(monkeypatch):
    held = []
    chunk = losses.score_chunk

    def note(scores, *rest):
        held.append(scores.numel())
        return chunk(scores, *rest)

    monkeypatch.setattr(losses, "score_chunk", note)
    monkeypatch.setitem(losses.CHUNK, "cpu", 30 * 8)
    states, weight = torch.randn(256, 6, requires_grad=True), torch.randn(30, 6, requires_grad=True)
    labels, real = torch.zeros(256, dtype=torch.long), torch.ones(256, dtype=torch.bool)
    LinearCrossEntropy.apply(states, weight, None, labels, real, 0.0, True)
    assert len(held) == 32
    assert max(held) == 30 * 8


def test_r_drop_without_dropout_is_the_plain_loss():
    model, batch = small_model("transformer").train(), random_pairs()
    torch.testing.assert_close(
        TokenLoss(0.1, r_drop=3.0)(model, batch), TokenLoss(0.1)(model, batch)
    )


def test_r_drop_is_its_formula(chunk):
    model, batch = small_model("transformer", dropout=0.3).train(), random_pairs()
    torch.manual_seed(1)
    found = TokenLoss(0.1, r_drop=3.0)(model, batch)
    torch.manual_seed(1)
    real = batch.asked.real
    p, q = (x[real].log_softmax(-1) for x in model(batch.repeat(2)).chunk(2))
    labels = batch.asked.labels[real]
    plain = (
        sum(F.cross_entropy(x, labels, reduction="sum", label_smoothing=0.1) for x in (p, q)) / 2
    )
    apart = (
        F.kl_div(p, q, reduction="sum", log_target=True)
        + F.kl_div(q, p, reduction="sum", log_target=True)
    ) / 2
    torch.testing.assert_close(found.total, plain + 1.5 * apart)
    found.total.backward()
    assert all(weight.grad is not None for weight in model.parameters())
