"""Masked words: texts with some words hidden, which are to be told; and what follows on what."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from annotated_types import Gt, Le, Lt
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Batch, Hidden, Ids, Nothing, Sizes
from ..data import running
from ..data.cut import Plan
from ..data.examples import Data, Examples
from ..data.halves import Half, Halves
from ..data.read import Faults, parcels
from ..data.running import WHERE, Documents
from ..data.store import Chunk, Store
from ..data.store import Field as StoreField
from ..decode import Settings as Decode
from ..errors import DataError, InputError
from ..model import Model
from ..progress import counted
from ..score.interval import proportion
from ..text import HIDDEN, Text, learn
from .form import Form, TextForm
from .prediction import Prediction
from .task import Measured, Rng, Scores, Sections
from .texts import TextTask, TokenRow


@dataclass(frozen=True)
class MaskedSettings:
    """How text is cut and what is hidden of it; the defaults are BERT's."""

    context: Annotated[int, Gt(8), Le(2**20), "tokens of a row"] = 128
    documents: Annotated[Documents, WHERE] = "blank"
    next: Annotated[bool, "rows are pairs, of which half do follow on each other"] = True
    hidden: Annotated[float, Gt(0), Lt(1), "the part of the words that is to be told"] = 0.15
    masked: Annotated[float, Gt(0), Le(1), "of those, the part that a mask stands for"] = 0.8
    replaced: Annotated[float, Le(1), "of those, the part that another word stands for"] = 0.1
    whole_words: Annotated[bool, "hide all pieces of a word or none"] = False


SCORED_ROWS = 16  # rows that are scored at a time


class MaskedWords(TextTask[MaskedSettings, running.Sentence, list[Half]]):
    """BERT's pre-training (Devlin et al. 2019, section 3.1); scored by how many words it tells."""

    Settings = MaskedSettings
    Example = running.Sentence
    loss = "masked"
    metric = "accuracy"
    unit = "hidden word"
    wanted = "text to learn from"
    draws = True
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "text": {"kind": "wordpiece", "lowercase": True},
        "train": {"smoothing": 0.0, "evaluate_examples": 0},
    }

    def __init__(self, settings: MaskedSettings, text: Text) -> None:
        self.settings, self.text = settings, text
        if text.mask < 0:
            raise DataError(
                "the vocabulary must have an entry that hides a word, <mask> or [MASK], but has "
                "none."
            )
        self.words = np.array([i for i in range(text.size) if i not in text.specials])
        self.continues = continues(text)

    @property
    def gives(self) -> Form[str]:
        return TextForm("text with masks to fill")

    @staticmethod
    def read(
        settings: MaskedSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[running.Sentence]:
        return running.sentences(files, settings.documents, faults)

    @classmethod
    def columns(cls, settings: MaskedSettings) -> tuple[str, ...]:
        return ("text",)

    @staticmethod
    def reads_by(settings: MaskedSettings) -> str:
        return str(settings.documents)

    @classmethod
    def learn(
        cls, settings: MaskedSettings, sections: Sections, examples: Examples[running.Sentence]
    ) -> Self:
        sentences = (sentence.text for sentence in examples)
        return cls(settings, learn(sentences, sections["text"], [HIDDEN]))

    @classmethod
    def adopt(
        cls, settings: MaskedSettings, text: Text, examples: Examples[running.Sentence]
    ) -> Self:
        return cls(settings, text)

    @classmethod
    def load(cls, settings: MaskedSettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, Text.load(folder / "tokenizer.json"))

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for(Hidden)

    # Batches.

    def amount(self, store: Store) -> str:
        return running.amount(store)

    @property
    def fields(self) -> Mapping[str, StoreField]:
        return {"text": self.ids_field, "begins": StoreField("uint8")}

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.text.tokenizer.to_str(),)

    def encode(
        self, examples: Examples[running.Sentence], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        waits = False
        for chunk in parcels(examples, lambda sentence: len(sentence.text), 5000):
            ids = self.text.encode([sentence.text for sentence in chunk])
            rows: dict[str, list[list[int]]] = {"text": [], "begins": []}
            for row, sentence in zip(ids, chunk, strict=True):
                waits = waits or sentence.begins  # a first one without a token hands it on
                if row:
                    rows["text"].append(row)
                    rows["begins"].append([int(waits)])
                    waits = False
            yield rows

    def check(self, store: Store, where: str) -> None:
        if len(store.flat("text")) < 16:
            raise DataError(f"{where}: there must be text to learn from, but there is hardly any.")

    @property
    def room(self) -> int:
        f = self.text.frame
        edges = (f.first, f.between, f.end) if self.settings.next else (f.first, f.last)
        return self.settings.context - sum(map(len, edges))

    def plan(self, store: Store, budget: int, seed: int) -> Plan[list[Half]]:
        rows = budget // self.settings.context
        if rows < 1:
            raise DataError(
                f"train.batch_tokens ({budget}) must be at least task.context "
                f"({self.settings.context})."
            )
        return Halves(store, self.settings.next, rows, self.room, seed)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Ids, Hidden]]:
        """Every piece once, always the same words hidden, whatever the budget."""
        plan = Halves(store, self.settings.next, SCORED_ROWS, self.room, 0)
        rng = np.random.default_rng(0)
        drawn = [plan.row(piece, rng) for piece in plan.pieces]
        for first in range(0, len(drawn), SCORED_ROWS):
            rows = drawn[first : first + SCORED_ROWS]
            own = [np.random.default_rng((0, first + i)) for i in range(len(rows))]
            yield self.batch(store, rows, own)

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        return None

    def batch(self, store: Store, rows: list[Half], rng: Rng | None = None) -> Batch[Ids, Hidden]:
        flat = store.flat("text")
        framed = []
        for row in rows:
            one, two = (flat[a:b].tolist() for a, b in ((row.one, row.middle), (row.two, row.end)))
            framed.append(self.frame(one, None if row.follows < 0 else two, self.settings.context))
        follows = torch.tensor([row.follows for row in rows])
        own = rng or [np.random.default_rng(i) for i in range(len(framed))]
        return self.hide(framed, follows, own)

    def hide(self, framed: Sequence[TokenRow], follows: Tensor, rng: Rng) -> Batch[Ids, Hidden]:
        """Choose words, and put a mask, another word, or themselves in their place."""
        s, text = self.settings, self.text
        whole = self.rows_as_ids(framed)
        ids, lengths = whole.ids.numpy(), whole.lengths.numpy()
        # What is drawn for a row depends on nothing but its own generator and its own length.
        up, draw, fate = np.zeros(len(ids)), np.ones(ids.shape), np.ones(ids.shape)
        for row, (own, length) in enumerate(zip(rng, lengths.tolist(), strict=True)):
            up[row], draw[row, :length] = own.random(), own.random(length)
            fate[row, :length] = own.random(length)
        inside = np.arange(ids.shape[1]) < lengths[:, None]
        able = inside & ~np.isin(ids, sorted(text.specials))
        # Rounded up as often as down, so that the share holds in short rows too.
        counts = np.maximum(1, s.hidden * able.sum(1) + up).astype(int)
        chosen = choose(able, counts, self.continues[ids] if s.whole_words else None, draw)
        counts = chosen.sum(1)
        places = np.argsort(~chosen, 1, kind="stable")[:, : max(1, int(counts.max(initial=1)))]
        words = np.take_along_axis(ids, places, 1)
        hidden = np.where(chosen & (fate < s.masked), text.mask, ids)
        swapped = chosen & (fate >= s.masked) & (fate < s.masked + s.replaced)
        for row in np.flatnonzero(swapped.any(1)).tolist():
            hidden[row, swapped[row]] = rng[row].choice(self.words, int(swapped[row].sum()))
        full = bool((lengths == ids.shape[1]).all())
        put = torch.from_numpy
        read = Ids(put(hidden), whole.lengths, whole.segments, full)
        return Batch(read, Hidden(put(places), put(words), put(counts), follows))

    @staticmethod
    def sample_batch(
        settings: MaskedSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Ids, Hidden]:
        rows = max(1, budget // settings.context)
        count = max(1, round(settings.hidden * settings.context))
        ids = torch.zeros(rows, settings.context, dtype=torch.long)
        lengths = torch.full((rows,), settings.context)
        some = torch.zeros(rows, count, dtype=torch.long)
        follows = torch.full((rows,), 1 if settings.next else -1)
        asked = Hidden(some, some, torch.full((rows,), count), follows)
        return Batch(Ids(ids, lengths, ids), asked)

    # Answers.

    @torch.inference_mode()
    def predict(
        self, model: Model, inputs: Sequence[str], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """The text with its masks filled, each by the likeliest word."""
        answers = []
        device = next(model.parameters()).device
        for number, line in enumerate(inputs, first):
            began = time.perf_counter()
            framed = self.framed_input(line, number)
            places = [i for i, token in enumerate(framed.ids) if token == self.text.mask]
            batch = Batch(self.rows_as_ids([framed]), Nothing()).to(device)
            scores = model(batch)[0, places].float()  # (M, V)
            scores[:, sorted(self.text.specials)] = float("-inf")
            logs = scores.log_softmax(-1).cpu()
            most = logs.shape[1] - len(self.text.specials)
            best = logs.topk(min(max(1, decode.num_return_sequences), most), -1)
            fillings = []
            for rank in range(best.indices.shape[1]):
                ids = list(framed.ids)
                for place, word in zip(places, best.indices[:, rank].tolist(), strict=True):
                    ids[place] = word
                fillings.append(
                    (self.text.decode([ids])[0].strip(), float(best.values[:, rank].sum()))
                )
            more = tuple(fillings) if len(fillings) > 1 else None
            seconds = round(time.perf_counter() - began, 6)
            answers.append(Prediction(line, *fillings[0], more, seconds))
        return answers

    def framed_input(self, given: str, number: int = 1) -> TokenRow:
        """A typed text; what hides a word is spelled as the vocabulary has it."""
        name = self.text.tokens([self.text.mask])[0].strip()
        pieces = re.split(r"\s?" + re.escape(name), given)
        if len(pieces) == 1:
            raise InputError(f"input {number}: there must be a {name} to fill, but there is none.")
        ids: list[int] = []
        for place, piece in enumerate(self.text.encode(pieces)):
            ids += [self.text.mask, *piece] if place else piece
        if len(ids) > self.settings.context - 2:
            raise InputError(
                f"input {number}: a text may have {self.settings.context - 2} tokens, but has "
                f"{len(ids)}."
            )
        return self.frame(ids, None, self.settings.context)

    # Scores.

    def example(self, examples: Examples[running.Sentence], longest: int | None = None) -> str:
        name = self.text.tokens([self.text.mask])[0].strip()
        for sentence in examples:
            words = sentence.text.split()
            if 6 <= len(words) <= 14:
                words[len(words) // 2] = name
                return " ".join(words)
        return ""

    @torch.no_grad()
    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """Hidden words told rightly, and pairs that were seen to follow or not."""
        device = next(model.parameters()).device
        right = words = judged = pairs = rows = 0
        batches = self.evaluation_batches(data.store, decode.batch_tokens)
        for batch in counted(batches, "answering", None, len):
            passed, asked = model.states(batch.to(device)), batch.asked
            given = model.output(passed.states).argmax(-1).cpu()
            right += int(((given == asked.words) & asked.real).sum())
            words, rows = words + batch.tokens, rows + len(batch)
            if passed.follows is not None and self.settings.next:
                judged += int((passed.follows.argmax(-1).cpu() == asked.follows).sum())
                pairs += len(batch)
        found: Scores = {
            "accuracy": round(100 * right / max(1, words), 4),
            "accuracy_interval": proportion(right, words),
            "accuracy_unit": "hidden words",
        }
        if pairs:
            found["next_accuracy"] = round(100 * judged / pairs, 4)
            found["next_accuracy_interval"] = proportion(judged, pairs)
        found["loss"] = round(loss.nll / loss.tokens, 5)
        told = f"{words:,} hidden words in {rows:,} rows"
        return {**found, "words": words, "examples": rows, "scored": told}


def choose(
    able: NDArray[np.bool_],
    counts: NDArray[np.integer[Any]],
    continues: NDArray[np.bool_] | None,
    draw: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """So many tokens of each row, those that drew least; with `continues`, whole words.  (B, T)

    A word whose first piece comes under the count is taken with all its pieces.
    """
    if continues is None:
        ranks = np.argsort(np.argsort(np.where(able, draw, 2.0), 1), 1)
        return able & (ranks < counts[:, None])
    # Pieces have the number that was drawn for the beginning of their word.
    begins = able & ~(continues & np.roll(able, 1, 1))
    word = np.maximum.accumulate(np.where(begins, np.arange(able.shape[1]), 0), 1)
    draw = np.take_along_axis(draw, word, 1)
    ranks = np.argsort(np.argsort(np.where(able, draw, 2.0), 1, kind="stable"), 1)
    return able & np.take_along_axis(ranks < counts[:, None], word, 1)


def continues(text: Text) -> NDArray[np.bool_]:
    """Which entries of a vocabulary go on with a word.  -> (V,)"""
    names = text.tokens(range(text.size))
    if any(name.startswith("##") for name in names):
        return np.array([name.startswith("##") for name in names])
    return np.array([name[:1].isalnum() for name in names])
