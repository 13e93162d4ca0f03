"""Cross-entropy that never holds all scores: (B, T, V) is made and used a chunk at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..batch import Passed
from ..parts.output import Output
from . import kernel

# Scores held at a time: 64 MiB in float32; on a GPU 1 GiB in bfloat16, for large products.
CHUNK = defaultdict(lambda: 2**24, cuda=2**29)


class Loss(NamedTuple):
    """Sums over a batch's tokens; the caller divides by how many there are."""

    total: Tensor  # what is minimised
    nll: Tensor  # -log p of the right tokens, for reporting
    past: tuple[Tensor, ...] = ()  # what the next batch of a stream goes on from


class TokenLoss:
    """-Σ log p(label), smoothed by ε: (1 - ε) of the target is the label, ε is spread over all
    tokens.

    Szegedy et al. 2016. With `r_drop`, the batch goes through twice under two dropouts, and the
    symmetric divergence of the two is added (Liang et al. 2021).
    """

    def __init__(self, smoothing: float = 0.0, r_drop: float = 0.0) -> None:
        self.smoothing, self.r_drop = smoothing, r_drop

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        """`model` maps a batch to states (B, T, D) and has an `output` layer."""
        twice = self.r_drop > 0 and model.training
        passed: Passed = model.states(batch.repeat(2) if twice else batch)  # type: ignore[operator]
        loss = self.measure(model, passed.states, batch, twice)
        if passed.penalty is None:
            return loss._replace(past=passed.past)
        # A penalty is a mean; so that it weighs the same in every batch, each token has its share.
        return Loss(loss.total + passed.penalty * batch.real.sum(), loss.nll, passed.past)

    def measure(self, model: nn.Module, states: Tensor, batch: Any, twice: bool) -> Loss:
        output = model.output
        assert isinstance(output, Output)
        sides = [side.flatten(0, 1) for side in states.chunk(2 if twice else 1)]  # (N, D)
        labels, real = batch.labels.flatten(), batch.real.flatten()  # (N,)
        if (
            labels.device.type == "cpu"
        ):  # padding is quicker left out than scored; a GPU would have to wait
            sides, labels, real = [side[real] for side in sides], labels[real], real[real]
        if not twice:
            wanted = torch.is_grad_enabled()
            args = (sides[0], output.weight, output.bias, labels, real, self.smoothing, wanted)
            return Loss(*LinearCrossEntropy.apply(*args))  # type: ignore[no-untyped-call]
        split = (chunks(x, output.weight) for x in (*sides, labels, real))
        parts = [
            checkpoint(self._twice, *chunk, output.weight, output.bias, use_reentrant=False)
            for chunk in zip(*split, strict=True)
        ]
        total, nll = (torch.stack(values).sum() for values in zip(*parts, strict=True))
        return Loss(total, nll.detach())

    def _twice(
        self,
        a: Tensor,
        b: Tensor,
        labels: Tensor,
        real: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        p, q = (F.linear(x, weight, bias).float().log_softmax(-1) for x in (a, b))
        nll = -(p + q).gather(1, labels[:, None])[:, 0] / 2
        spread = -(p + q).mean(-1) / 2
        apart = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2  # KL(p‖q)/2 + KL(q‖p)/2
        # The paper adds both losses and α times the divergence; this is half of that.
        total = (1 - self.smoothing) * nll + self.smoothing * spread + self.r_drop / 2 * apart
        return (total * real).sum(), (nll * real).sum()


LOSSES = {"tokens": TokenLoss}


class LinearCrossEntropy(torch.autograd.Function):
    """The output layer and its loss in one: the gradient is made where the scores are, chunk by
    chunk.

    states (N, D), weight (V, D), labels (N,), real (N,) -> Loss. Nothing is computed twice, and of
    (N, V) there is one chunk at a time.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        real: Tensor,
        smoothing: float,
        wanted: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = weight.dtype
        kind = states.device.type
        if kind != "meta" and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        x, w = states.to(dtype), weight.to(dtype)
        b = None if bias is None else bias.to(dtype)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        loss, nll = (
            torch.zeros((), dtype=wide, device=x.device),
            torch.zeros((), dtype=wide, device=x.device),
        )
        dx = torch.empty_like(x) if wanted else None
        # Tensor cores want whole multiples; the words added are zeros, and so are their scores.
        added = -len(w) % (64 if x.is_cuda else 1)
        w = F.pad(w, (0, 0, 0, added)) if added else w  # (V', D)
        dw = torch.zeros_like(w, dtype=wide) if wanted else None
        db = torch.zeros_like(bias, dtype=wide) if wanted and bias is not None else None
        measure = kernel.score_chunk if kernel.fits(x) else score_chunk
        columns = len(weight)
        room = x.new_empty(min(rows_at_a_time(w), len(x)), len(w))
        start = 0
        for xs, ys, keep in zip(chunks(x, w), chunks(labels, w), chunks(real, w), strict=True):
            scores = torch.mm(xs, w.T, out=room[: len(xs)])  # (n, V')
            real_words = scores[:, :columns]
            if b is not None:
                real_words += b
            part, nll_part = measure(real_words, ys, keep, smoothing, wanted)
            loss, nll = loss + part, nll + nll_part
            if dx is not None and dw is not None:  # `scores` now holds their gradient
                torch.mm(scores, w, out=dx[start : start + len(xs)])
                if dtype == wide:
                    torch.addmm(dw, scores.T, xs, out=dw)
                elif scores.is_cuda:
                    dw += torch.mm(scores.T, xs, out_dtype=torch.float32)
                else:
                    dw += scores.T @ xs
                if db is not None:
                    db += real_words.sum(0, dtype=wide)
            start += len(xs)
        if dw is not None:
            ctx.save_for_backward(dx, dw[:columns], db)
            ctx.dtypes = states.dtype, weight.dtype
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, loss: Tensor, nll: Tensor) -> tuple[Tensor | None, ...]:
        dx, dw, db = ctx.saved_tensors
        to_states, to_weight = ctx.dtypes
        bias = None if db is None else (db * loss).to(to_weight)
        return (dx * loss).to(to_states), (dw * loss).to(to_weight), bias, None, None, None, None


def score_chunk(
    scores: Tensor, labels: Tensor, real: Tensor, smoothing: float, wanted: bool
) -> tuple[Tensor, Tensor]:
    """Smoothed loss and plain loss of a chunk; where wanted, the gradient takes the scores' place.

    d loss / d scores = softmax(scores) - (1 - ε) onehot(label) - ε / V.
    """
    wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    norms = wide.logsumexp(-1)  # (n,)
    nll = (norms - wide.gather(1, labels[:, None])[:, 0]).masked_fill(~real, 0.0)
    total = nll.sum()
    if smoothing:
        spread = (norms - wide.mean(-1)).masked_fill(~real, 0.0)
        total = (1 - smoothing) * total + smoothing * spread.sum()
    if wanted:
        gradient = (
            (wide - norms[:, None]).exp_()
            if wide is not scores
            else wide.sub_(norms[:, None]).exp_()
        )
        if smoothing:
            gradient -= smoothing / scores.shape[1]
        index = labels[:, None]
        gradient.scatter_add_(1, index, gradient.new_full(index.shape, smoothing - 1.0))
        gradient *= real[:, None]
        if gradient is not scores:
            scores.copy_(gradient)
    return total, nll.sum()


def rows_at_a_time(weight: Tensor) -> int:
    return max(1, CHUNK[weight.device.type] // weight.shape[0])


def chunks(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return x.split(rows_at_a_time(weight)) if len(x) else ()
