"""Cross-entropy that never holds all scores: (B, T, V) is made and used a chunk at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..batch import Batch, Choices, Heard, Hidden, Ids, Label, Patches, Span, Tags, Words
from ..model import AnyBatch, Model
from ..parts.output import Output
from ..parts.precision import at_least_float32, autocast_dtype
from . import kernel
from .ctc import ctc_loss
from .settings import Settings

# Scores held at a time: 64 MiB in float32; on a GPU 1 GiB in bfloat16, for large products.
CHUNK = defaultdict(lambda: 2**24, cuda=2**29)


class Loss(NamedTuple):
    """Sums over a batch; the caller divides each by what it is a mean over, `batch.counts`."""

    total: Tensor  # () what is minimised; or (P,) its parts, where it has several
    nll: Tensor  # () or (P,) what is reported of them, such as -log p
    past: tuple[Tensor, ...] = ()  # what the next batch of a stream goes on from


class TokenLoss:
    """-Σ log p(label), smoothed by ε: (1 - ε) of the target is the label, ε is spread over all
    tokens.

    Szegedy et al. 2016. With `r_drop`, the batch goes through twice under two dropouts, and the
    symmetric divergence of the two is added (Liang et al. 2021).
    """

    parts: ClassVar[tuple[str, ...]] = ()  # names of what it is made of, where that is several

    def __init__(self, smoothing: float = 0.0, r_drop: float = 0.0) -> None:
        self.smoothing, self.r_drop = smoothing, r_drop

    @classmethod
    def of(cls, settings: Settings) -> TokenLoss:
        return cls(settings.smoothing, settings.r_drop)

    def __call__(self, model: Model, batch: AnyBatch) -> Loss:
        twice = self.r_drop > 0 and model.training
        passed = model.states(batch.repeat(2) if twice else batch)
        loss = self.measure(model, passed.states, batch, twice)
        past = tuple(rows[: len(batch)] for rows in passed.past)  # of two dropouts, one goes on
        if passed.penalty is None:
            return loss._replace(past=past)
        # A penalty is a mean; so that it weighs the same in every batch, each token has its share.
        return Loss(loss.total + passed.penalty * batch.asked.real.sum(), loss.nll, past)

    def measure(self, model: Model, states: Tensor, batch: AnyBatch, twice: bool) -> Loss:
        output, asked = model.output, batch.asked
        assert isinstance(output, Output)
        sides = [side.flatten(0, 1) for side in states.chunk(2 if twice else 1)]  # (N, D)
        labels, real = asked.labels.flatten(), asked.real.flatten()  # (N,)
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
        p, q = (at_least_float32(F.linear(x, weight, bias)).log_softmax(-1) for x in (a, b))
        nll = -(p + q).gather(1, labels[:, None])[:, 0] / 2
        spread = -(p + q).mean(-1) / 2
        apart = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2  # KL(p‖q)/2 + KL(q‖p)/2
        # The paper adds both losses and α times the divergence; this is half of that.
        total = (1 - self.smoothing) * nll + self.smoothing * spread + self.r_drop / 2 * apart
        return (total * real).sum(), (nll * real).sum()


class HeardLoss(TokenLoss):
    """The same, and beside it CTC: what is said must be told in order from the places of what is
    read alone, with nothing between (Graves et al. 2006; both: Kim et al. 2017).

    A mean of the two, of which CTC counts `ctc`.
    """

    def __init__(self, smoothing: float = 0.0, r_drop: float = 0.0, ctc: float = 0.3) -> None:
        super().__init__(smoothing, r_drop)
        self.ctc = ctc

    @classmethod
    def of(cls, settings: Settings) -> HeardLoss:
        return cls(settings.smoothing, settings.r_drop, settings.ctc_weight)

    def __call__(self, model: Model, batch: Batch[Any, Words]) -> Loss:
        passed = model.states(batch)
        words = self.measure(model, passed.states, batch, twice=False)
        total, nll = words.total, words.nll
        if passed.heard is not None and self.ctc:
            told = self.tell(model, passed.heard, batch.asked)
            total = (1 - self.ctc) * total + self.ctc * told
            nll = (1 - self.ctc) * nll + self.ctc * told.detach()
        if passed.penalty is not None:
            total = total + passed.penalty * batch.asked.real.sum()
        return Loss(total, nll)

    def tell(self, model: Model, heard: Heard, asked: Words) -> Tensor:
        """-Σ log p of whole texts, over all ways to lay them along what is heard."""
        logs = at_least_float32(model.ctc(heard.states)).log_softmax(-1)  # type: ignore[operator]
        # A text's end is not told.
        return ctc_loss(logs, asked.labels, heard.lengths, asked.lengths - 1).sum()


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
        dtype = autocast_dtype(states) or weight.dtype
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


class MaskedLoss(TokenLoss):
    """Of the hidden words, and of whether the second text follows: a mean of each, together.

    Devlin et al. 2019, section 3.1 and appendix A.2.
    """

    parts = ("masked", "next")

    def __call__(self, model: Model, batch: Batch[Any, Hidden]) -> Loss:
        passed = model.states(batch)
        words = self.measure(model, passed.states, batch, twice=False)
        after = torch.zeros_like(words.total)
        if passed.follows is not None:
            follows = batch.asked.follows
            scores = at_least_float32(passed.follows)
            each = F.cross_entropy(scores, follows.clamp_min(0), reduction="none")
            after = (each * (follows >= 0)).sum()
        total, nll = torch.stack((words.total, after)), torch.stack((words.nll, after.detach()))
        return Loss(total, nll)


class ClassLoss(TokenLoss):
    """-Σ log p(class), each as much as it weighs; of texts or of their tokens.

    With `language`, the words of the text are predicted too, and count so much (Radford et al.
    2018, eq. 5).
    """

    def __init__(self, smoothing: float = 0.0, r_drop: float = 0.0, language: float = 0.0) -> None:
        super().__init__(smoothing, r_drop)
        self.language = language

    @classmethod
    def of(cls, settings: Settings) -> ClassLoss:
        return cls(settings.smoothing, settings.r_drop, settings.language_weight)

    def __call__(self, model: Model, batch: AnyBatch) -> Loss:
        twice, asked = self.r_drop > 0 and model.training, batch.asked
        passed = model.states(batch.repeat(2) if twice else batch)
        scores = at_least_float32(model.output(passed.states))
        sides = scores.chunk(2 if twice else 1)
        pairs = [self.compare(side, asked) for side in sides]
        total, nll = (torch.stack(values).mean(0) for values in zip(*pairs, strict=True))
        if twice:
            p, q = (side.log_softmax(-1) for side in sides)
            apart = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # KL(p‖q) + KL(q‖p)
            total = total + self.r_drop / 4 * (apart * (asked.labels >= 0)).sum()
        if passed.penalty is not None:  # a mean, of which each example has its share
            total = total + passed.penalty * len(batch)
        if self.language and passed.words is not None and torch.is_grad_enabled():
            words = self.language * self.words(model, passed.words, batch.read)
            return Loss(torch.stack((total, words.to(total.dtype))), nll.detach())
        return Loss(total, nll.detach())

    def compare(self, scores: Tensor, asked: Any) -> tuple[Tensor, Tensor]:
        assert isinstance(asked, Label | Tags)
        labels = asked.labels.flatten()
        each = self.class_loss(scores, labels)
        if isinstance(asked, Label) and asked.other is not None and asked.share is not None:
            # A mix is of two classes, each as much as there is of it (Zhang et al. 2018).
            each = asked.share * each + (1 - asked.share) * self.class_loss(scores, asked.other)
            apart = [self.plain_loss(scores, kind) for kind in (labels, asked.other)]
            plain = asked.share * apart[0] + (1 - asked.share) * apart[1]
            return (each * asked.weight.flatten()).sum(), plain.sum()
        plain = each.detach()
        if self.smoothing:
            plain = F.cross_entropy(
                scores.detach().flatten(0, 1), labels, ignore_index=-1, reduction="none"
            )
        return (each * asked.weight.flatten()).sum(), plain.sum()

    def plain_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Without smoothing, to be told."""
        flat = scores.detach().flatten(0, 1)
        return F.cross_entropy(flat, labels, ignore_index=-1, reduction="none")

    def class_loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(
            scores.flatten(0, 1), labels, ignore_index=-1, reduction="none",
            label_smoothing=self.smoothing,
        )  # fmt: skip

    def words(self, model: Model, states: Tensor, read: Ids) -> Tensor:
        """-Σ log p of the words after each text's first."""
        states = states[: len(read), :-1]  # of two dropouts, one
        labels = read.ids[:, 1:]
        real = torch.arange(labels.shape[1], device=labels.device) < read.lengths[:, None] - 1
        output = model.words
        assert isinstance(output, Output)
        args = (states.flatten(0, 1), output.weight, output.bias, labels.flatten(), real.flatten())
        total: Tensor = LinearCrossEntropy.apply(*args, 0.0, True)[0]  # type: ignore[no-untyped-call]
        return total


class LabelsLoss(ClassLoss):
    """Each class by itself holds or does not: the mean over classes of -log p."""

    def compare(self, scores: Tensor, asked: Label) -> tuple[Tensor, Tensor]:
        each = F.binary_cross_entropy_with_logits(scores[:, 0], asked.label, reduction="none")
        loss = each.mean(-1).sum()
        return loss, loss.detach()


class NumberLoss(ClassLoss):
    """Squared distance from the right number."""

    def compare(self, scores: Tensor, asked: Label) -> tuple[Tensor, Tensor]:
        loss = (scores[:, 0, 0] - asked.label).square().sum()
        return loss, loss.detach()


class SpanLoss(ClassLoss):
    """Where an answer begins and ends: the mean -log p of both among the places allowed."""

    def compare(self, scores: Tensor, asked: Span) -> tuple[Tensor, Tensor]:
        scores = scores.masked_fill(asked.allowed[..., None] == 0, float("-inf"))  # (B, T, 2)
        each = F.cross_entropy(scores, asked.span, reduction="none")  # (B, 2)
        loss = each.mean(-1).sum()
        return loss, loss.detach()


class PatchLoss(TokenLoss):
    """Squared distance from the pixels of hidden patches, and of no others."""

    def __call__(self, model: Model, batch: Batch[Any, Patches]) -> Loss:
        pixels = at_least_float32(model(batch))  # (B, M, C · p²)
        right = batch.asked.of(model.pixels(batch.read))  # type: ignore[operator]
        total = (pixels - right).square().mean(-1).sum()
        return Loss(total, total.detach())


class DegreesLoss(TokenLoss):
    """Squared distance of actions that are numbers, from those that were taken."""

    def __call__(self, model: Model, batch: Batch[Any, Choices]) -> Loss:
        found = at_least_float32(model(batch))
        each = (found - batch.asked.actions).square().mean(-1)
        total = (each * batch.asked.real).sum()
        return Loss(total, total.detach())


class OneStepLoss(TokenLoss):
    """What was done is told, and what came of it: the value of actions under whoever took them.

    Of each step a model says scores of actions, their values, and perhaps a value of the step. The
    losses that follow differ in what a value is held against.
    """

    parts = ("action", "value")

    def __call__(self, model: Model, batch: Batch[Any, Choices]) -> Loss:
        passed, asked = model.states(batch), batch.asked
        assert passed.slow is not None
        scores, slow = (at_least_float32(x) for x in (model.output(passed.states), passed.slow))
        actions, real = asked.actions[..., None], asked.real
        count = (scores.shape[-1]) // 2  # a value of the step alone may stand behind them
        logits, values = scores[..., :count], scores[..., count : 2 * count]
        nll = -(logits.log_softmax(-1).gather(-1, actions)[..., 0] * real).sum()
        each = self.compare(values, scores[..., 2 * count :], slow, asked)
        total = torch.stack((nll, (each * real).sum()))
        return Loss(total, total.detach())

    def compare(self, values: Tensor, step: Tensor, slow: Tensor, asked: Choices) -> Tensor:
        """(B, T, A), (B, T, 0 or 1), (B, T, C) -> (B, T)"""
        return (self.taken(values, asked) - asked.returns).square()

    def taken(self, values: Tensor, asked: Choices) -> Tensor:
        return values.gather(-1, asked.actions[..., None])[..., 0]

    def ahead(self, values: Tensor, own: Tensor, asked: Choices) -> Tensor:
        """How far `own` is from the reward and the value of the next step; at the end there is
        none. Where a window ends before its history, one step more is read.  (B, T) each"""
        after = F.pad(values[:, 1:], (0, 1))
        goal = asked.rewards + asked.how.discount * after * (1 - asked.ends)
        return (own - goal.detach()).square()


class IterationLoss(OneStepLoss):
    """The value of the best action that has support (Q-learning; limited as in Fujimoto et al.
    2019)."""

    def compare(self, values: Tensor, step: Tensor, slow: Tensor, asked: Choices) -> Tensor:
        count = values.shape[-1]
        chances = slow[..., :count].softmax(-1)
        supported = chances >= asked.how.support * chances.amax(-1, keepdim=True)
        best = slow[..., count : 2 * count].masked_fill(~supported, float("-inf")).amax(-1)
        return self.ahead(best, self.taken(values, asked), asked)


class ConservativeLoss(IterationLoss):
    """The same, and values of what was not done are pressed down (Kumar et al. 2020)."""

    def compare(self, values: Tensor, step: Tensor, slow: Tensor, asked: Choices) -> Tensor:
        above = values.logsumexp(-1) - self.taken(values, asked)
        return super().compare(values, step, slow, asked) + asked.how.conservatism * above


class ImplicitLoss(OneStepLoss):
    """The value of a step is a high expectile of what its recorded actions are worth; no other
    action is asked about (Kostrikov et al. 2022)."""

    def compare(self, values: Tensor, step: Tensor, slow: Tensor, asked: Choices) -> Tensor:
        count, worth = values.shape[-1], step[..., 0]
        apart = self.taken(slow[..., count : 2 * count], asked) - worth
        weight = torch.where(apart < 0, 1 - asked.how.expectile, asked.how.expectile)
        return self.ahead(worth, self.taken(values, asked), asked) + weight * apart.square()


LOSSES: dict[str, type[TokenLoss]] = {
    "tokens": TokenLoss,
    "heard": HeardLoss,
    "masked": MaskedLoss,
    "classes": ClassLoss,
    "labels": LabelsLoss,
    "number": NumberLoss,
    "span": SpanLoss,
    "pixels": PatchLoss,
    "degrees": DegreesLoss,
    "one-step": OneStepLoss,
    "iteration": IterationLoss,
    "conservative": ConservativeLoss,
    "implicit": ImplicitLoss,
}
