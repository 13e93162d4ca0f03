"""Memory networks: a question looks at a story's sentences, again and again, and is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Batch, ModelOutput, Sizes, Story, Tokens
from ..model import Looks, Model
from ..parts.attention import Attend
from ..parts.output import Output
from ..parts.score import Dot

PLACES = 32  # words of a sentence told apart where their places are learned


@dataclass(frozen=True)
class MemorySettings:
    """Sizes and choices; the defaults are those of Sukhbaatar et al. 2015 for bAbI."""

    width: Annotated[int, Gt(0), Le(2**16), "size of every vector"] = 50
    hops: Annotated[int, Gt(0), Le(100), "how often the question looks at the story"] = 3
    encoding: Annotated[
        Literal["bag", "position", "learned"],
        "a sentence as the sum of its words, or weighted by place, as written or as learned",
    ] = "position"
    tie: Annotated[
        Literal["adjacent", "layerwise"],
        "adjacent: what one hop reads by is what the next finds by; layerwise: all hops are one",
    ] = "adjacent"
    update: Annotated[
        Literal["sum", "replace", "projected", "gated"],
        "q + found; found alone; R (q + found), an R for each hop; gated: what of q gives way to "
        "what was found is learned",
    ] = "sum"
    ages: Annotated[int, Gt(0), Le(10**6), "sentences told apart by age; older ones share one"] = 64
    noise: Annotated[float, Ge(0), Lt(1), "in training, how often a sentence seems older"] = 0.1
    linear_start: Annotated[
        float, Ge(0), Lt(1), "part of the training during which scores are not put into a softmax"
    ] = 0.0
    dropout: Annotated[float, Ge(0), Lt(1), "on what a hop finds"] = 0.0


class Hop(nn.Module):
    """One look: a = softmax(q·k), o = Σ a v.  (B, D), (B, M, D), (B, M, D), (B, M) -> (B, D)"""

    def __init__(self) -> None:
        super().__init__()
        self.attend = Attend(Dot())

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, linear: Tensor) -> Tensor:
        told = mask.any(1, keepdim=True)  # (B, 1)
        seen = (mask | ~told)[:, None, None]  # a softmax needs something to choose from
        found = self.attend(q[:, None, None], k[:, None], v[:, None], seen)  # (B, 1, 1, D)
        scores = (q[:, None] @ k.transpose(1, 2)).masked_fill(~mask[:, None], 0.0)  # (B, 1, M)
        plain = scores @ v  # (B, 1, D)
        soft = found[:, 0].masked_fill(~told[..., None], 0.0)  # where nothing is told
        return torch.where(linear, plain, soft)[:, 0]


class MemoryNetwork(Model):
    """End-to-end memory network (Sukhbaatar et al. 2015).  -> logits (B, 1, V)

    q ← q + Σ a v, hop by hop; or Σ a v alone; or R (q + Σ a v), as in key-value memory networks
    (Miller et al. 2016); gated, q ← g Σ a v + (1 - g) q with g = sigmoid(W q + b) (Liu & Perez
    2017); an R or a W for each hop. A linear start leaves the softmax out while training begins,
    since hops that look everywhere alike learn slowly (section 4.2 there).
    """

    Settings = MemorySettings
    reads = (Story,)
    answers = (Tokens,)
    looks: ClassVar[Looks] = {"hops.*": ("question", "story")}
    linear: Tensor  # whether the softmax is left out

    def __init__(self, sizes: Sizes, settings: MemorySettings = MemorySettings()) -> None:
        super().__init__(sizes, settings)
        s = settings
        tables = s.hops + 1 if s.tie == "adjacent" else 2
        # With adjacent tying, hop h finds by table h and reads by table h + 1; the question is
        # embedded by the first, and the answer written by the last.
        self.words = nn.ModuleList(nn.Embedding(sizes.source, s.width) for _ in range(tables))
        self.times = nn.ModuleList(nn.Embedding(s.ages, s.width) for _ in range(tables))
        self.hops = nn.ModuleList(Hop() for _ in range(s.hops))
        self.asked = nn.Embedding(sizes.source, s.width) if s.tie == "layerwise" else self.words[0]
        self.carry = nn.Linear(s.width, s.width, bias=False) if s.tie == "layerwise" else None
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.1)
        # What word j of a sentence counts for in each dimension (Henaff et al. 2017, section 2.1).
        self.places = nn.Parameter(torch.ones(PLACES, s.width)) if s.encoding == "learned" else None
        projections = s.hops if s.update == "projected" else 0
        self.projections = nn.ModuleList(identity(s.width) for _ in range(projections))
        gates = s.hops if s.update == "gated" else 0
        self.gates = nn.ModuleList(nn.Linear(s.width, s.width) for _ in range(gates))
        last = self.words[-1] if s.tie == "adjacent" and sizes.shared else None
        self.output = Output(s.width, sizes.target, last)  # type: ignore[arg-type]
        self.dropout = nn.Dropout(s.dropout)
        self.register_buffer("linear", torch.tensor(False), persistent=False)

    def on_progress(self, part: float) -> None:
        self.linear.fill_(part <= self.settings.linear_start)

    def states(self, batch: Batch[Story, Tokens]) -> ModelOutput:
        read = batch.read
        told = torch.arange(read.sentences.shape[1], device=read.counts.device)
        mask = told < read.counts[:, None]  # (B, M)
        ages = self.ages(read.counts, told)
        q = self.encode(read.question, self.asked)  # (B, D)
        adjacent = self.settings.tie == "adjacent"
        linear = self.linear & self.training  # what answers, answers by softmax
        memories = [
            self.encode(read.sentences, words) + time(ages)  # (B, M, D)
            for words, time in zip(self.words, self.times, strict=True)
        ]
        for number, hop in enumerate(self.hops):
            first = number if adjacent else 0
            found = hop(q, memories[first], memories[first + 1], mask, linear)
            found, q = self.dropout(found), q if self.carry is None else self.carry(q)
            q = self.updated(q, found, number)
        return ModelOutput(q[:, None])

    def updated(self, q: Tensor, found: Tensor, hop: int) -> Tensor:
        """The question, after what a hop found.  (B, D), (B, D) -> (B, D)"""
        match self.settings.update:
            case "replace":
                return found
            case "projected":
                asked: Tensor = self.projections[hop](q + found)
                return asked
            case "gated":
                mixed: Tensor = self.gates[hop](q).sigmoid() * (found - q) + q
                return mixed
        return q + found

    def encode(self, words: Tensor, table: Any) -> Tensor:
        """A sentence as one vector.  (…, W) -> (…, D)

        Weighted by place, word j of J counts (1 - j/J) - (k/D)(1 - 2j/J) in dimension k, so that
        the order of the words shows (section 4.1 there).
        """
        real = (words > 0).to(table.weight.dtype)
        if self.settings.encoding == "bag":
            return bag(words, table, real)
        if self.places is not None:
            at = torch.arange(words.shape[-1], device=words.device).clamp_max(PLACES - 1)
            learned: Tensor = (table(words) * real[..., None] * self.places[at]).sum(-2)
            return learned
        length = real.sum(-1, keepdim=True).clamp_min(1)
        place = torch.arange(1, words.shape[-1] + 1, device=words.device) / length  # (…, W)
        unit = torch.arange(1, table.embedding_dim + 1, device=words.device) / table.embedding_dim
        falling = bag(words, table, real * (1 - 2 * place))
        weighted: Tensor = bag(words, table, real * (1 - place)) - unit.to(falling) * falling
        return weighted

    def ages(self, counts: Tensor, told: Tensor) -> Tensor:
        """How long ago each sentence was told, the newest 0; noise makes some seem older.

        (B,), (M,) -> (B, M)
        """
        age = (counts[:, None] - 1 - told).clamp_min(0)
        if self.training and self.settings.noise:
            empty = torch.rand(age.shape, device=age.device) < self.settings.noise
            empty = empty & (told < counts[:, None])
            # Empty sentences told after this one: counted from the newest back.
            age = age + empty.flip(1).cumsum(1).flip(1)
        return age.clamp_max(self.settings.ages - 1)


def identity(width: int) -> nn.Linear:
    """A matrix that changes nothing before it has learned to."""
    layer = nn.Linear(width, width, bias=False)
    nn.init.eye_(layer.weight)
    return layer


def bag(words: Tensor, table: Any, weights: Tensor) -> Tensor:
    """Σ_j weight_j · vector_j, without holding all vectors.  (…, W) twice -> (…, D)"""
    flat, shares = words.flatten(0, -2), weights.flatten(0, -2)
    summed = F.embedding_bag(flat, table.weight, mode="sum", per_sample_weights=shares)
    rows: Tensor = summed.unflatten(0, words.shape[:-1])
    return rows
