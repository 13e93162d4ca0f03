"""Recurrent language models: Elman's, LSTM and GRU, plain or regularised as AWD-LSTM was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Batch, ModelOutput, Running, Sizes, Tokens
from ..model import Model
from ..parts.output import Output
from ..parts.recurrent import (
    CELLS,
    Recurrent,
    activation_penalty,
    locked_dropout,
    word_dropout,
)
from ..parts.state import Carried, State

Part = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True)
class RNNSettings:
    """Sizes and choices; every regulariser of AWD-LSTM is a value, and off."""

    cell: Annotated[str, CELLS, "rnn (Elman), lstm or gru"] = "lstm"
    width: Annotated[int, Gt(0), Le(2**16), "size of a word's vector"] = 400
    hidden: Annotated[
        int, Gt(0), Le(2**16), "size of the hidden vectors; where tied, the last layer's is width"
    ] = 400
    depth: Annotated[int, Gt(0), Le(100), "layers"] = 2
    dropout: Annotated[Part, "on the output"] = 0.0
    input_dropout: Annotated[Part, "on the words' vectors"] = 0.0
    layer_dropout: Annotated[Part, "between layers"] = 0.0
    embedding_dropout: Annotated[Part, "of whole words"] = 0.0
    weight_drop: Annotated[Part, "on the recurrent weights"] = 0.0
    activation_penalty: Annotated[float, Ge(0), "weight of the output's size"] = 0.0
    change_penalty: Annotated[float, Ge(0), "weight of its change from step to step"] = 0.0
    tie: Annotated[bool, "write with the vectors that it reads with"] = True


class RNN(Model):
    """h_t = f(x_t, h_{t-1}), and the next word from h_t.  -> logits (B, T, V)

    The dropouts keep one mask through time (Merity et al. 2018, "Regularizing and optimizing LSTM
    language models").
    """

    Settings = RNNSettings
    reads = (Running,)
    answers = (Tokens,)
    carries = True
    packs = False  # documents side by side would run into each other

    def __init__(self, sizes: Sizes, settings: RNNSettings = RNNSettings()) -> None:
        super().__init__(sizes, settings)
        s = settings
        self.tokens = nn.Embedding(sizes.target, s.width)
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)
        last = s.width if s.tie else s.hidden
        widths = [s.width, *[s.hidden] * (s.depth - 1), last]
        self.recurrent = Recurrent(s.cell, widths, s.layer_dropout, s.weight_drop)
        self.output = Output(last, sizes.target, self.tokens if s.tie else None, bias=True)
        if not s.tie:
            nn.init.uniform_(self.output.weight, -0.1, 0.1)

    def states(self, batch: Batch[Running, Tokens]) -> ModelOutput:
        s = self.settings
        past = list(batch.past) or self.begin(batch.read.ids.shape[0])
        words = word_dropout(self.tokens.weight, s.embedding_dropout, self.training)
        x = F.embedding(batch.read.ids, words)  # (B, T, D)
        x = locked_dropout(x, s.input_dropout, self.training)
        x, past = self.recurrent(x, past)
        dropped = locked_dropout(x, s.dropout, self.training)
        penalty = None
        if self.training and (s.activation_penalty or s.change_penalty):
            penalty = activation_penalty(dropped, s.activation_penalty, 0.0)
            penalty = penalty + activation_penalty(x, 0.0, s.change_penalty)
        return ModelOutput(dropped, tuple(vector.detach() for vector in past), penalty)

    def begin(self, rows: int) -> list[Tensor]:
        """The state before the first token."""
        return self.recurrent.begin(self.tokens.weight, rows)

    def start(self, batch: Batch[Running, Tokens]) -> State[Carried]:
        """Read a prompt, all but its last token, which the first step reads."""
        past = Carried(self.begin(len(batch)))
        if batch.read.ids.shape[1]:
            _, past.vectors = self.recurrent(self.tokens(batch.read.ids), past.vectors)
        return State(past)

    def extend(self, tokens: Tensor, state: State[Carried]) -> tuple[Tensor, State[Carried]]:
        """Scores after each of several tokens.  (B, T) -> logits (B, T, V)"""
        states: list[Tensor] = []
        for token in self.tokens(tokens).unbind(1):  # one by one, so that each can be taken back
            x, vectors = self.recurrent(token[:, None], state.past.vectors)
            state.past.advance(vectors)
            states.append(x[:, 0])
        return self.output(torch.stack(states, 1)), state

    def step(self, last: Tensor, state: State[Carried]) -> tuple[Tensor, State[Carried]]:
        """Scores of the next token after `last`.  (B,) -> logits (B, V)"""
        logits, state = self.extend(last[:, None], state)
        return logits[:, -1], state
