"""Questions: a question and a text in, the piece of the text that answers it out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import numpy as np
import torch
from annotated_types import Gt, Le
from torch import Tensor

from ..batch import Batch, Ids, Sizes, Span
from ..data import squad
from ..data.cut import Plan
from ..data.examples import Data, Examples, chunks
from ..data.given import Given, write_questions
from ..data.order import Order, Repeated, Rows, longest_first
from ..data.read import Faults
from ..data.store import Chunk, Store
from ..data.store import Field as StoreField
from ..decode import Settings as Decode
from ..errors import InputError
from ..model import Model
from ..score.interval import hundredths
from ..score.texts import Mean, exact_match, token_f1
from ..text import Text, learn
from .form import Form, PairForm, TwoTexts
from .prediction import Prediction
from .task import Measured, Rng, Scores, Sections
from .texts import TextTask, TokenRow, windows

Place = tuple[int, int]  # from a character, up to another


class QuestionIds(NamedTuple):
    """A question and its text as tokens, with their characters in the text."""

    question: list[int]
    ids: list[int]
    places: list[Place]


class Window(NamedTuple):
    """A question with a window of its text."""

    row: TokenRow
    first: int  # the window's first token in the row
    places: list[Place]  # characters of the window's tokens in the text


class Found(NamedTuple):
    """An answer: its characters in the text, and how much it is preferred to others."""

    start: int
    end: int
    score: float


@dataclass(frozen=True)
class AnswerSettings:
    """How long texts are read, and what may be an answer."""

    context: Annotated[
        int, Gt(8), Le(2**20), "longest row in tokens; longer texts are read in windows"
    ] = 384
    stride: Annotated[int, Gt(0), "tokens that each window is on from the one before"] = 128
    question: Annotated[int, Gt(0), "longest question in tokens; the rest is cut"] = 64
    longest: Annotated[int, Gt(0), "longest answer in tokens"] = 30
    nothing: Annotated[float, "how much better than none an answer must score (SQuAD 2.0)"] = 0.0


class Answer(TextTask[AnswerSettings, squad.Question, Rows]):
    """Answers that stand in a text; scored by exact match and F1 as SQuAD has them."""

    Settings = AnswerSettings
    Example = squad.Question
    row_files = (".json",)
    keeps = ("tokenizer.json", "labels.json")
    loss = "span"
    gets = "span"
    metric = "f1"
    unit = "question"
    wanted = "a question"
    encodes_apart = True

    def __init__(self, settings: AnswerSettings, text: Text, may_be_none: bool = True) -> None:
        self.settings, self.text, self.may_be_none = settings, text, may_be_none

    @property
    def gives(self) -> Form[TwoTexts]:
        return PairForm("a question and a text", "question", "text to answer from")

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for(Span, 2)

    @staticmethod
    def read(
        settings: AnswerSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[squad.Question]:
        return squad.read(files, faults)

    @classmethod
    def write_rows(cls, settings: AnswerSettings, given: Given, paths: Sequence[Path]) -> None:
        write_questions(paths[0], given)

    @staticmethod
    def reads_by(settings: AnswerSettings) -> str:
        return ""

    @classmethod
    def learn(
        cls, settings: AnswerSettings, sections: Sections, examples: Examples[squad.Question]
    ) -> Self:
        every = (line for row in examples for line in (row.question, row.context))
        return cls.adopt(settings, learn(every, sections["text"]), examples)

    @classmethod
    def adopt(
        cls, settings: AnswerSettings, text: Text, examples: Examples[squad.Question]
    ) -> Self:
        """With a vocabulary that is there already; whether there may be no answer is learned."""
        return cls(settings, text, any(not row.answers for row in examples))

    def artefacts(self) -> Mapping[str, str]:
        kept = json.dumps({"may_be_none": self.may_be_none})
        return {**super().artefacts(), "labels.json": kept + "\n"}

    @classmethod
    def load(cls, settings: AnswerSettings, sections: Sections, folder: Path) -> Self:
        path = folder / "labels.json"
        none = json.loads(path.read_text()).get("may_be_none", True) if path.is_file() else True
        return cls(settings, Text.load(folder / "tokenizer.json"), bool(none))

    # Batches: whole texts in the store; a long one is cut into windows when it is read.

    def tokenise(self, pairs: Sequence[tuple[str, str]]) -> list[QuestionIds]:
        s = self.settings
        asked = self.text.encode([question for question, _ in pairs])
        told = self.text.encode_with_places([context for _, context in pairs])
        most = min(s.question, s.context // 2)
        return [
            QuestionIds(q[:most], ids, places) for q, (ids, places) in zip(asked, told, strict=True)
        ]

    @property
    def fields(self) -> Mapping[str, StoreField]:
        characters = StoreField("uint32", (2,))
        ids = self.ids_field
        return {"question": ids, "ids": ids, "places": characters, "answer": characters}

    def encode(
        self, examples: Examples[squad.Question], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        for some in chunks(examples):
            rows = self.tokenise([(example.question, example.context) for example in some])
            yield {
                "question": [row.question for row in rows],
                "ids": [row.ids for row in rows],
                "places": [row.places for row in rows],
                "answer": [
                    [(start, start + len(text)) for text, start in example.answers[:1]]
                    for example in some
                ],
            }

    def stored_question(self, store: Store, row: int) -> QuestionIds:
        places = [(start, end) for start, end in store.array("places", row).tolist()]
        return QuestionIds(store.row("question", row), store.row("ids", row), places)

    def pieces(self, sizes: Sequence[tuple[int, int]]) -> Rows:
        """Every window of texts of which question and text have so many tokens.

        -> (N, 4) row, from, to, columns that it fills
        """
        s, f = self.settings, self.text.frame
        found = []
        for row, (question, length) in enumerate(sizes):
            edges = len(f.first) + len(f.between) + len(f.end) + question
            room = s.context - edges
            for start, end in windows(length, room, min(s.stride, room)):
                found.append((row, start, end, end - start + edges))
        return np.array(found, np.int64).reshape(-1, 4)

    def stored_pieces(self, store: Store, most: int | None = None) -> Rows:
        sides = (store.lengths(name)[:most].tolist() for name in ("question", "ids"))
        return self.pieces(list(zip(*sides, strict=True)))

    def piece(self, asked: QuestionIds, start: int, end: int) -> Window:
        f = self.text.frame
        first = len(f.first) + len(asked.question) + len(f.between)
        row = self.frame(asked.question, asked.ids[start:end], self.settings.context)
        return Window(row, first, asked.places[start:end])

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        pieces = self.stored_pieces(store)
        return Repeated(Order(pieces[:, 3:].astype(np.int32), budget, seed), pieces)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Ids, Span]]:
        pieces = self.stored_pieces(store)
        for rows in longest_first(pieces[:, 3], budget):
            yield self.batch(store, pieces[rows])

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        return len(self.stored_pieces(store))

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Ids, Span]:
        pieces = [
            self.piece(self.stored_question(store, row), start, end)
            for row, start, end, _ in rows.tolist()
        ]
        spans = [
            span_of(store.array("answer", row).tolist(), piece)
            for (row, *_), piece in zip(rows.tolist(), pieces, strict=True)
        ]
        read = self.rows_as_ids([piece.row for piece in pieces])
        window = torch.tensor([[p.first, p.first + len(p.places)] for p in pieces])
        span = torch.tensor(spans).view(len(pieces), 2)
        return Batch(read, Span(span, allowed(read.ids.shape[1], window.view(-1, 2))))

    @staticmethod
    def sample_batch(
        settings: AnswerSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Ids, Span]:
        """Whole rows."""
        width = settings.context
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        span = torch.zeros(len(ids), 2, dtype=torch.long)
        read = Ids(ids, torch.full((len(ids),), width), ids)
        return Batch(read, Span(span, torch.ones_like(ids)))

    # Answers.

    def found(self, model: Model, asked: Sequence[QuestionIds], budget: int) -> list[Found | None]:
        """The best answer of all windows; None where none is better."""
        table = self.pieces([(len(one.question), len(one.ids)) for one in asked]).tolist()
        pieces = [self.piece(asked[row], start, end) for row, start, end, _ in table]
        scores = self.scores(model, [piece.row for piece in pieces], budget)
        best: list[Found | None] = [None] * len(asked)
        nothing = [float("inf")] * len(asked)
        for (row, *_), piece, told in zip(table, pieces, scores, strict=True):
            nothing[row] = min(nothing[row], float(told[0].sum()))
            one, now = best_span(told, piece, self.settings.longest), best[row]
            if one is not None and (now is None or one.score > now.score):
                best[row] = one
        for row, one in enumerate(best):
            if one is not None:
                lead = one.score - nothing[row]
                refused = self.may_be_none and lead < self.settings.nothing
                best[row] = None if refused else one._replace(score=lead)
        return best

    def predict(
        self, model: Model, inputs: Sequence[TwoTexts], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """The answer to each question about its text."""
        began = time.perf_counter()
        pairs = [checked(given, number) for number, given in enumerate(inputs, first)]
        told = self.found(model, self.tokenise(pairs), decode.batch_tokens)
        seconds = round(time.perf_counter() - began, 6)
        answers = []
        for given, (_, context), one in zip(inputs, pairs, told, strict=True):
            line = self.gives.show(given)
            if one is None:
                answers.append(Prediction(line, "", seconds=seconds, answer=""))
                continue
            text = context[one.start : one.end]
            place = {"answer": text, "start": one.start, "end": one.end}
            answers.append(Prediction(line, text, one.score, seconds=seconds, **place))  # type: ignore[arg-type]
        return answers

    def framed_input(self, given: TwoTexts, number: int = 1) -> TokenRow:
        asked = self.tokenise([checked(given, number)])[0]
        _, start, end, _ = self.pieces([(len(asked.question), len(asked.ids))])[0].tolist()
        return self.piece(asked, start, end).row

    # Scores.

    def example(self, examples: Examples[squad.Question], longest: int | None = None) -> str:
        rows = [row for row in islice(examples, 200) if "\n" not in row.context]
        if not rows:
            return ""
        short = min(rows, key=lambda row: len(row.context))
        return f"{short.question}\t{short.context}"

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        judged = self.judge(model, data, decode.batch_tokens, count)
        return {name: round(100 * value, 4) for name, value in judged.means().items()}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """Exact match and F1, the best of the references, under SQuAD's normalisation."""
        began, count = time.perf_counter(), data.store.rows
        judged = self.judge(model, data, decode.batch_tokens, count)
        seconds = time.perf_counter() - began
        found: Scores = {}
        for name, value in judged.means().items():
            found[name] = round(100 * value, 4)
            found[f"{name}_interval"] = hundredths(judged.interval(name))
            found[f"{name}_unit"] = "SQuAD's normalisation, best of the references"
        rate = {"predict_answers_per_second": round(count / seconds, 1)}
        return {**found, "loss": round(loss.nll / loss.tokens, 5), **rate, "examples": count}

    def judge(self, model: Model, data: Data, budget: int, most: int) -> Mean:
        """The first questions' answers against their references."""
        judged = Mean()
        for rows in chunks(range(min(most, data.store.rows))):
            asked = [self.stored_question(data.store, row) for row in rows]
            for row, one in zip(rows, self.found(model, asked, budget), strict=True):
                example = data.examples[row]
                given = "" if one is None else example.context[one.start : one.end]
                wanted = [text for text, _ in example.answers]
                judged.add(
                    {"f1": token_f1(given, wanted), "exact_match": exact_match(given, wanted)}
                )
        return judged


def checked(given: TwoTexts, number: int) -> tuple[str, str]:
    """A question and its text, neither of them empty."""
    question, context = given
    if not question.strip() or not context.strip():
        raise InputError(f"input {number}: question and text must not be empty.")
    return question.strip(), context


def span_of(answers: Sequence[Sequence[int]], piece: Window) -> tuple[int, int]:
    """The first answer's tokens in a row; (0, 0) where the window does not hold all of it."""
    if not answers or not piece.places:
        return 0, 0
    start, end = answers[0]
    starts, ends = zip(*piece.places, strict=True)
    # A token may take the space before its word along, and so begin before the answer does.
    first = max((i for i, place in enumerate(starts) if place <= start), default=-1)
    if first >= 0 and ends[first] <= start and first + 1 < len(starts):
        first += 1
    last = min((i for i, place in enumerate(ends) if place >= end), default=-1)
    if first < 0 or last < first or starts[first] > end:
        return 0, 0
    return piece.first + first, piece.first + last


def allowed(width: int, window: Tensor) -> Tensor:
    """1 in the window, and at the first token, which stands for no answer.  (B, 2) -> (B, T)"""
    places = torch.arange(width)
    inside = (places >= window[:, :1]) & (places < window[:, 1:])
    return (inside | (places == 0)).long()


def best_span(scores: Tensor, piece: Window, longest: int) -> Found | None:
    """The likeliest pair of begin and end, the end not before the begin nor too far.  (T, 2)"""
    count = len(piece.places)
    if not count:
        return None
    begin, end = scores[piece.first : piece.first + count].unbind(-1)
    both = begin[:, None] + end[None]  # (W, W)
    fit = torch.ones_like(both, dtype=torch.bool).triu().tril(longest - 1)
    value, place = both.masked_fill(~fit, float("-inf")).flatten().max(0)
    first, last = divmod(int(place), count)
    return Found(piece.places[first][0], piece.places[last][1], float(value))
