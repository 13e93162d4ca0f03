"""Encoder and decoder of recurrent nets, with or without attention between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Batch, Heard, ModelOutput, Sizes, Tensors, Words
from ..model import Looks, Model
from ..parts import mask as masks
from ..parts.align import Align, Aligned, AlignedAttend
from ..parts.output import Output
from ..parts.pick import PICKS, Hard
from ..parts.pool import mean
from ..parts.position import POSITIONS
from ..parts.recurrent import CELLS, Pyramid, Reader, Recurrent
from ..parts.score import SCORES
from ..parts.state import Carried, Memory, Source, State
from ..parts.window import WINDOWS
from .door import DOORS, make_door, table_of

MOST_PLACES = 1024  # that learned positions tell apart
AT_A_TIME = 1024  # words whose chances are looked up together, to reward a draw


@dataclass(frozen=True)
class Seq2SeqSettings:
    """Sizes and choices; the defaults are a small model after Luong et al. 2015."""

    cell: Annotated[str, CELLS, "rnn (Elman), lstm or gru"] = "lstm"
    width: Annotated[int, Gt(0), Le(2**16), "size of a word's vector"] = 256
    hidden: Annotated[int, Gt(0), Le(2**16), "size of the hidden vectors"] = 512
    depth: Annotated[int, Gt(0), Le(100), "layers on each side"] = 1
    reader: Annotated[
        Literal["recurrent", "pyramid", "none"],
        "pyramid: each layer but the first reads half as many vectors, two at a time; none: what "
        "is read is looked at as it is, and the decoder begins with its mean",
    ] = "recurrent"
    reader_depth: Annotated[
        int, Ge(0), Le(100), "layers that read, where they differ; 0: depth"
    ] = 0
    bidirectional: Annotated[bool, "read the source both ways, half of each vector one way"] = True
    attention: Annotated[
        Literal["none", "plain", "separate"],
        "none: only the last state passes; plain: look at the source's states; separate: at keys, "
        "and mix values, that have projections of their own",
    ] = "plain"
    score: Annotated[str, SCORES, "how a query and a key are compared"] = "general"
    heads: Annotated[int, Gt(0), "attention heads; they share the hidden vector"] = 1
    window: Annotated[
        str, WINDOWS, "look everywhere, along the source, or around a place that is predicted"
    ] = "global"
    reach: Annotated[int, Gt(0), "how far a window reaches to either side"] = 10
    pick: Annotated[
        str, PICKS, "soft: mix all places; hard: draw one, rewarded; gumbel: draw one by noise"
    ] = "soft"
    temperature: Annotated[float, Gt(0), "of the gradient of gumbel"] = 1.0
    reward: Annotated[float, Ge(0), Le(1000), "hard: weight of what draws gain"] = 0.1
    exploration: Annotated[float, Ge(0), "hard: weight of the draws' entropy"] = 0.01
    mean_often: Annotated[
        float, Ge(0), Le(1), "hard: how often, in training, the mean takes a draw's place"
    ] = 0.5
    doubly: Annotated[
        float, Ge(0), Le(1000), "weight of looking at each place about once in all (Xu et al. 2015)"
    ] = 0.0
    coverage: Annotated[
        bool | Literal["location"],
        "tell the score how much each place was looked at so far; location: where the last look "
        "was, seen through convolutions (Chorowski et al. 2015)",
    ] = False
    feed: Annotated[
        Literal["none", "attended", "context"],
        "what a step reads beside the word: nothing; what the last step came to (input feeding, "
        "Luong); what the last state looks at (Bahdanau)",
    ] = "none"
    position: Annotated[
        str,
        POSITIONS,
        "how places of what is read are told apart; a net that reads in order needs none",
    ] = "none"
    dropout: Annotated[float, Ge(0), Lt(1), "on words, between layers and before the output"] = 0.2
    tie: Annotated[
        Literal["all", "target", "none"], "which of source, target and output embeddings are one"
    ] = "target"
    ctc: Annotated[
        bool, "tell from each place of what is read alone, too, what is written there (CTC)"
    ] = False


class Past(NamedTuple):
    """What a step needs of those before it."""

    hidden: list[Tensor]  # (B, W) each
    place: Tensor  # (B,) how many words are written
    fed: Tensor | None = None  # (B, D) what the last step came to
    covered: Tensor | None = None  # (B, H, S) what is remembered of its weights so far

    def flat(self) -> list[Tensor]:
        return [*self.hidden, *(x for x in self[1:] if x is not None)]


class AsItIs(nn.Module):
    """No net reads: each vector by itself, and their mean for the decoder to begin with."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.widen, self.depth = nn.Linear(width, hidden), depth

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        """(B, S, D) -> (B, S, W), (B, W) for each layer, and how many are real"""
        memory = self.widen(x)
        return memory, [mean(memory, lengths)] * self.depth, lengths


class Seq2Seq(Model):
    """One net reads, another writes, and looks at what was read before each word.

    Sutskever et al. 2014 without attention; Bahdanau et al. 2015 and Luong et al. 2015 with it.
    -> logits (B, T, V)
    """

    Settings = Seq2SeqSettings
    reads = DOORS  # whatever has a door
    answers = (Words,)
    doors, heads = ("source", "target"), ("ctc",)
    encoder_names: ClassVar[Mapping[str, str]] = {"embedding": "source"}
    earlier: ClassVar[Mapping[str, str]] = {
        "source.weight": "source.tokens.weight",
        "align.coverage": "align.coverage.direction",
    }

    def __init__(self, sizes: Sizes, settings: Seq2SeqSettings = Seq2SeqSettings()) -> None:
        super().__init__(sizes, settings)
        s = settings
        assert s.attention != "none" or (s.feed != "context" and not s.coverage), (
            "attention is 'none', so there is no context to feed and nothing to cover; set "
            "model.attention to plain or separate"
        )
        place = POSITIONS[s.position](s.width, 1, MOST_PLACES)
        assert not s.doubly or (s.attention != "none" and s.pick == "soft"), (
            "model.doubly is of soft attention; set it to 0, or model.pick to soft"
        )
        self.source = make_door(sizes, s.width, place, scale=1.0)
        self.target = nn.Embedding(sizes.target, s.width)
        nn.init.normal_(self.target.weight, std=s.width**-0.5)
        if s.tie == "all" and sizes.shared:
            self.target = table_of(self.source)
        self.output = Output(s.width, sizes.target, None if s.tie == "none" else self.target)
        self.reader = self._reader()
        fed = {"none": 0, "attended": s.width, "context": s.hidden}[s.feed]
        widths = [s.width + fed, *[s.hidden] * s.depth]
        self.decoder = Recurrent(s.cell, widths, layer_dropout=s.dropout)
        each = 2 if self.decoder.gated else 1
        # Each layer begins with what the same layer of the reader, from the top, ended with.
        self.bridge = nn.ModuleList(nn.Linear(s.hidden, each * s.hidden) for _ in range(s.depth))
        self.align = self._align() if s.attention != "none" else None
        looks: Looks = {"align": ("outputs", "source")} if self.align else {}
        self.looks = looks  # type: ignore[misc]  # without attention there is nothing to see
        self.join = nn.Linear(s.hidden * (2 if self.align else 1), s.width)
        rewarded = self.align is not None and s.pick == "hard"
        self.baseline = nn.Linear(s.hidden, 1) if rewarded else None
        # Whether a step needs what the one before it came to.
        self.by_step = s.feed != "none" or bool(s.coverage)
        self.dropout = nn.Dropout(s.dropout)
        # One entry more, the last: nothing is told here.
        self.ctc = Output(s.hidden, sizes.target + 1, bias=True) if s.ctc else None

    def states(self, batch: Batch[Tensors, Words]) -> ModelOutput:
        """All steps at once where none needs what the one before it came to."""
        past, source, heard = self.read(batch.read)
        x = self.dropout(self.target(batch.asked.inputs))  # (B, T, D)
        states, looked = [], []
        for piece in x.split(1, 1) if self.by_step else [x]:
            state, past, aligned = self.advance(piece, past, source)
            states.append(state)
            looked.append(aligned)
        whole = torch.cat(states, 1)  # (B, T, D)
        found = [aligned for aligned in looked if aligned is not None]
        if self.settings.doubly and self.training and self.baseline is None:
            weights = torch.cat([aligned[1] for aligned in found], 2)  # (B, H, T, S)
            return ModelOutput(whole, penalty=self.once_in_all(weights, batch.asked), heard=heard)
        if self.baseline is None or not self.training:
            return ModelOutput(whole, heard=heard)
        weights, picked = (torch.cat([a[i] for a in found], 2) for i in (1, 2))
        query = torch.cat([a.query for a in found], 1)  # (B, T, W)
        reward = self.reward(whole, query, batch.asked, weights, picked)
        return ModelOutput(whole, penalty=reward, heard=heard)

    def read(self, read: Tensors) -> tuple[Past, Source | None, Heard | None]:
        """The source as the decoder meets it: where it begins, and what it can look at; and what
        CTC is told from."""
        words, lengths, _ = self.source.enter(read)  # (B, S, D)
        if lengths is None:
            lengths = torch.full((words.shape[0],), words.shape[1], device=words.device)
        memory, lasts, lengths = self.reader(self.dropout(words), lengths)  # (B, S, W)
        heard = None if self.ctc is None else Heard(memory, lengths)
        hidden = [
            vector
            for bridge, last in zip(self.bridge, lasts[-len(self.bridge) :], strict=True)
            for vector in bridge(last).tanh().split(self.settings.hidden, -1)
        ]
        rows = memory.shape[0]
        fed = memory.new_zeros(rows, words.shape[2]) if self.settings.feed == "attended" else None
        past = Past(hidden, torch.zeros_like(lengths), fed)
        if self.align is None:
            return past, None, heard
        mask = masks.padding(lengths, memory.shape[1])
        if self.settings.coverage:
            past = past._replace(covered=memory.new_zeros(rows, self.align.heads, memory.shape[1]))
        return past, Source(*self.align.remember(memory), mask, 1), heard

    def advance(
        self, x: Tensor, past: Past, source: Source | None
    ) -> tuple[Tensor, Past, Aligned | None]:
        """Some words further.  (B, T, D) -> what the output layer writes from (B, T, D)"""
        places = past.place[:, None] + torch.arange(x.shape[1], device=x.device)
        looked = None
        if self.settings.feed == "context":
            looked = self.look(self.decoder.top(past.hidden)[:, None], past, source, places)
            x = torch.cat((x, looked.context), -1)
        elif past.fed is not None:
            x = torch.cat((x, past.fed[:, None]), -1)
        out, hidden = self.decoder(x, past.hidden)  # (B, T, W)
        if source is not None:
            looked = looked or self.look(out, past, source, places)
            out = torch.cat((looked.context, out), -1)
        state = self.join(out).tanh()  # (B, T, D)
        covered = past.covered
        if covered is not None and looked is not None:
            assert self.align is not None and self.align.coverage is not None
            covered = self.align.coverage.grow(covered, looked.picked)
        fed = None if past.fed is None else state[:, -1]
        return self.dropout(state), Past(hidden, places[:, -1] + 1, fed, covered), looked

    def look(self, query: Tensor, past: Past, source: Source | None, places: Tensor) -> Aligned:
        assert self.align is not None
        looked: Aligned = self.align(query, source, places, past.covered)
        return looked

    def once_in_all(self, weights: Tensor, asked: Words) -> Tensor:
        """How far the looks at each place are from one in all: a share of it for each word."""
        real = asked.real[:, None, :, None]
        missed = (1 - (weights * real).sum(2)).square().mean(1).sum()
        penalty: Tensor = self.settings.doubly * missed / asked.real.sum().clamp_min(1)
        return penalty

    def reward(
        self, states: Tensor, query: Tensor, asked: Words, weights: Tensor, picked: Tensor
    ) -> Tensor:
        """The sampled gradient of a draw: how much likelier the right word was than expected after
        it, times the gradient of the draw's own log-probability (Williams 1992; Xu et al. 2015).

        What is expected is learned beside it, from the query alone: it must not know the draw.
        Where later words depend on a draw, they count too. What all of them gain is scaled to
        about one and weighed little, for else it would drown what the words themselves teach.
        """
        assert self.baseline is not None
        states = states.detach()
        with torch.no_grad():
            pairs = zip(
                states.flatten(0, 1).split(AT_A_TIME),
                asked.labels.flatten().split(AT_A_TIME),
                strict=True,
            )
            found = [-F.cross_entropy(self.output(x), y, reduction="none") for x, y in pairs]
            gain = torch.cat(found).unflatten(0, asked.labels.shape) * asked.real  # (B, T)
            if self.by_step:
                gain = gain.flip(1).cumsum(1).flip(1)
        expected = self.baseline(query.detach())[..., 0].float()  # (B, T)
        chance = Hard.log_chance(weights, picked).sum(1)  # (B, T)
        shares = weights / weights.sum(-1, keepdim=True).clamp_min(1e-9)  # a window lessens some
        entropy = -(shares * shares.clamp_min(1e-9).log()).sum((1, 3))
        better = gain - expected.detach()
        real = asked.real.sum().clamp_min(1)
        scale = ((better**2 * asked.real).sum() / real).sqrt().clamp_min(1.0)
        loss = ((expected - gain) / scale) ** 2 - self.settings.reward * better / scale * chance
        loss = loss - self.settings.exploration * entropy
        mean: Tensor = (loss * asked.real).sum() / real
        return mean

    def start(self, batch: Batch[Tensors, Words]) -> State[Carried]:
        """Read the source once, and what is needed of it."""
        past, source, heard = self.read(batch.read)
        memory = None
        if source is not None:
            memory = Memory([source.keys], [source.values], source.mask)
        if heard is not None and self.ctc is not None:
            heard = heard._replace(states=self.ctc(heard.states))
        return State(Carried(past.flat()), memory, heard)

    def step(self, last: Tensor, state: State[Carried]) -> tuple[Tensor, State[Carried]]:
        """Scores of the next token after `last`.  (B,) -> logits (B, V)"""
        source = state.memory.open()[0] if state.memory is not None else None
        hidden = len(self.bridge) * (2 if self.decoder.gated else 1)
        place, *rest = state.past.vectors[hidden:]
        fed = rest.pop(0) if self.settings.feed == "attended" else None
        past = Past(state.past.vectors[:hidden], place, fed, rest[0] if rest else None)
        x = self.target(last[:, None])  # (B, 1, D)
        written, past, _ = self.advance(x, past, source)
        state.past.advance(past.flat())
        return self.output(written[:, -1]), state

    def _reader(self) -> nn.Module:
        s = self.settings
        depth = s.reader_depth or s.depth
        assert depth >= s.depth, f"{s.depth} layers cannot begin with what {depth} ended with"
        if s.reader == "none":
            return AsItIs(s.width, s.hidden, s.depth)
        if s.reader == "pyramid":
            return Pyramid(s.cell, s.width, s.hidden, depth, s.dropout)
        return Reader(s.cell, s.width, s.hidden, depth, s.bidirectional, s.dropout)

    def _align(self) -> Align:
        s = self.settings
        assert s.hidden % s.heads == 0, f"{s.heads} heads cannot share a width of {s.hidden}"
        size = s.hidden // s.heads
        own = {"gumbel": {"temperature": s.temperature}, "hard": {"often": s.mean_often}}
        look = AlignedAttend(
            SCORES[s.score](size, s.heads),
            WINDOWS[s.window](size, s.heads, s.reach),
            PICKS[s.pick](**own.get(s.pick, {})),
        )
        return Align(s.hidden, s.heads, look, s.attention == "separate", s.coverage)
