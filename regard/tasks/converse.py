"""Chat: conversations in, of which the answers alone are learned; a message in, an answer out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from annotated_types import Gt, Le
from torch.nn.functional import pad

from ..batch import Batch, Running, Sizes, Tensors, Tokens
from ..data import conversations
from ..data.conversations import Conversation
from ..data.cut import Plan
from ..data.examples import Data, Examples
from ..data.order import Order, Rows, longest_first
from ..data.read import Faults, parcels
from ..data.store import Chunk, Field, Store, ids_below
from ..decode import Settings as Decode
from ..errors import InputError
from ..model import Model
from ..text import Text, learn
from ..text.chat import ROLES, Chat, ChatFormat
from .form import Form, TextForm
from .task import Axis, Measured, Rng, Scores, Sections
from .writer import ContinuationTask, load_text

# How turns are told apart where nobody has said it: ChatML.
CONTROLS = ["<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class ConverseSettings:
    """How much of a conversation a model sees."""

    context: Annotated[int, Gt(0), Le(2**20), "tokens that a conversation may have"] = 512


class Converse(ContinuationTask[ConverseSettings, Conversation, Rows]):
    """Each answer of a conversation is an example, behind all that was said before it."""

    Settings: ClassVar[type] = ConverseSettings
    Example: ClassVar[type] = Conversation
    asks: ClassVar[type[Tensors]] = Running
    loss = "tokens"
    metric, higher_is_better = "perplexity", False
    unit = "token"
    wanted = "a conversation in which an assistant answers"
    encodes_apart = True
    begins = lines = False
    kind = ""
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "train": {"smoothing": 0.0},
        "decode": {"kind": "sample"},
    }

    def __init__(self, settings: ConverseSettings, text: Text, chat_format: ChatFormat) -> None:
        self.settings, self.text = settings, text
        self.chat = self.template = Chat(chat_format, text)

    @property
    def gives(self) -> Form[str]:
        return TextForm("what is said to it")

    @staticmethod
    def read(
        settings: ConverseSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[Conversation]:
        return conversations.read(files, faults)

    @staticmethod
    def reads_by(settings: ConverseSettings) -> str:
        return ""

    @classmethod
    def learn(
        cls, settings: ConverseSettings, sections: Sections, examples: Examples[Conversation]
    ) -> Self:
        said = (message["content"] for row in examples for message in json.loads(row.messages))
        roles = "\n".join(ROLES)
        lines = (line for text in (roles, *said) for line in text.split("\n"))
        learned = learn(lines, sections["text"], CONTROLS)
        end = CONTROLS[1]
        chat_format = ChatFormat(CHATML, CONTROLS, "", end)
        return cls(settings, Text(learned.tokenizer, end, CONTROLS), chat_format)

    @classmethod
    def load(cls, settings: ConverseSettings, sections: Sections, folder: Path) -> Self:
        text, chat_format = load_text(folder)
        if chat_format is None:
            raise InputError(
                f"{folder}: a run must have a chat template to learn to answer by it, but this one "
                "has none."
            )
        return cls(settings, text, chat_format)

    @property
    def sizes(self) -> Sizes:
        size = self.text.size
        return Sizes(size, size, True, read=self.asks, asked=Tokens)

    # Batches: the tokens up to an answer's end, and where the answer begins.

    @property
    def fields(self) -> Mapping[str, Field]:
        return {"ids": ids_below(self.text.size), "answer": ids_below(2**20)}

    @property
    def marks(self) -> tuple[str, ...]:
        return (
            self.text.tokenizer.to_str(),
            self.template.format.json(),
            str(self.settings.context),
        )

    def encode(
        self, examples: Examples[Conversation], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        for some in parcels(examples, lambda row: len(row.messages), 1000):
            answers = [answer for row in some for answer in self.answers(row, faults)]
            yield {
                "ids": [ids for ids, _ in answers],
                "answer": [[place] for _, place in answers],
            }

    def answers(self, row: Conversation, faults: Faults) -> Iterator[tuple[list[int], int]]:
        """Every answer behind what was said before it, and the place of its first token."""
        messages = json.loads(row.messages)
        for number, message in enumerate(messages):
            if message["role"] != "assistant" or not number:
                continue
            try:
                prompt = self.template.ids(messages[:number])
                ids = self.template.ids(messages[: number + 1], answered=True)
            except InputError as error:
                faults.report(row.where, str(error).rstrip("."))
                return
            if ids[: len(prompt)] != prompt:
                faults.report(row.where, "the chat template must write an answer behind its prompt")
                continue
            ends = (i for i in range(len(prompt), len(ids)) if ids[i] in self.text.ends)
            ids = ids[: next(ends, len(ids) - 1) + 1]
            if len(ids) > self.settings.context:
                faults.report(
                    row.where,
                    f"a conversation may have {self.settings.context} tokens (task.context), but "
                    f"has {len(ids)}",
                )
                continue
            yield ids, len(prompt)

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        return Order(store.lengths("ids")[:, None], budget, seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Running, Tokens]:
        ids, lengths = (torch.from_numpy(a) for a in store.padded("ids", rows, [], []))
        ids = pad(ids, (0, max(0, 2 - ids.shape[1])))  # a rank may have no row
        first = torch.from_numpy(store.first("answer", rows).astype(np.int64))
        # The label of an input is the next token, so an answer's labels begin one before it.
        label_range = torch.stack((first, lengths), 1) - 1
        return Batch(Running(ids[:, :-1]), Tokens(ids[:, 1:], label_range))

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Running, Tokens]]:
        for rows in longest_first(store.lengths("ids"), budget):
            yield self.batch(store, rows)

    @staticmethod
    def sample_batch(
        settings: ConverseSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Any, Tokens]:
        rows = max(1, budget // settings.context)
        ids = torch.zeros(rows, settings.context, dtype=torch.long)
        half = [settings.context // 2, settings.context]
        return Batch(Running(ids), Tokens(ids, torch.tensor([half] * rows)))

    # Answers and scores.

    def ids(self, line: str) -> list[int]:
        """What a user says, up to where the answer begins."""
        return self.template.ids([{"role": "user", "content": line}])

    def trace(self, given: str, target: str) -> tuple[Batch[Any, Tokens], dict[str, Axis]]:
        """A message and its answer as a batch, and the tokens that its rows and columns are."""
        ids = [*self.ids(given), *self.text.encode([target])[0]]
        tokens = [name.replace("Ġ", "▁").replace("Ċ", "⏎") for name in self.text.tokens(ids)]
        labels = torch.tensor([[*ids[1:], self.text.eos]])
        asked = Tokens(labels, torch.tensor([[0, len(ids)]]))
        sides = {"inputs": Axis(tokens), "outputs": Axis([*tokens[1:], "…"])}
        return Batch(Running(torch.tensor([ids])), asked), sides

    def example(self, examples: Examples[Conversation], longest: int | None = None) -> str:
        """The first thing that a user says."""
        for row in examples:
            for message in json.loads(row.messages):
                if message["role"] == "user":
                    return str(message["content"])
        return ""

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """How likely the answers are, in the usual units."""
        nll, tokens = loss
        return {
            "loss": round(nll / tokens, 5),
            "loss_unit": "nats a token of an answer",
            "perplexity": round(math.exp(min(nll / tokens, 700.0)), 4),
            "perplexity_unit": "token of an answer, its end counted",
            "tokens": tokens,
            "examples": len(data.store.lengths("ids")),
        }
