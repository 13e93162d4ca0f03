"""Questions: a question and a text in, the piece of the text that answers it out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from annotated_types import Gt, Le
from torch import Tensor

from ..batch import Answered, Sizes, Texts
from ..data.read import WHOLE, Faults, is_text, whole_lines
from ..data.store import Chunk, Store, cached
from ..decode import Settings as Decode
from ..errors import DataError, InputError
from ..text import Settings as TextSettings
from ..text import Text, learn
from .classify import chunks
from .measure import Mean, exact_match, token_f1
from .prediction import Prediction
from .texts import Rows, TextTask, TokenRow, two_texts, windows


class Example(NamedTuple):
    """A question, the text it is asked of, and its answers with their first characters."""

    question: str
    context: str
    answers: list[tuple[str, int]]  # none: the text does not answer it
    name: str
    where: str


class Piece(NamedTuple):
    """A question with a window of its text."""

    row: TokenRow
    first: int  # the window's first token in the row
    places: list[tuple[int, int]]  # characters of the window's tokens in the text


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


def read(files: Sequence[Path], faults: Faults) -> Iterator[Example]:
    """The questions of SQuAD files, 1.1 or 2.0; an answer must stand where it is said to."""
    for path in files:
        try:
            whole = json.loads("".join(whole_lines(path, longest=WHOLE)))
            paragraphs = [p for article in whole["data"] for p in article["paragraphs"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{path}: not a SQuAD file ({type(error).__name__}: {error})."
            ) from error
        for number, paragraph in enumerate(paragraphs, 1):
            where = f"{path}: paragraph {number}"
            try:
                yield from _questions(paragraph, where, faults)
            except (KeyError, TypeError, AttributeError) as error:
                faults.report(where, f"it must have 'context' and 'qas' as SQuAD has ({error})")


def _questions(paragraph: Any, where: str, faults: Faults) -> Iterator[Example]:
    context = paragraph["context"]
    for asked in paragraph["qas"]:
        name = str(asked.get("id", asked["question"][:40]))
        given = [] if asked.get("is_impossible") else asked["answers"]
        answers = [(a["text"], int(a["answer_start"])) for a in given]
        here = f"{where}, question {name}"
        if not is_text(context) or not is_text(asked["question"]):
            faults.report(here, "the text must be UTF-8, but is not")
            continue
        odd = [(t, s) for t, s in answers if s < 0 or context[s : s + len(t)] != t or not t]
        if odd:
            text, start = odd[0]
            stands = context[max(start, 0) : max(start, 0) + len(text)]
            faults.report(
                here,
                f"the answer '{text[:60]}' must stand at character {start} of its context, but "
                f"there stands '{stands[:60]}'",
            )
            continue
        yield Example(asked["question"].strip(), context, answers, name, here)


class Answer(TextTask):
    """Answers that stand in a text; scored by exact match and F1 as SQuAD has them."""

    Settings = AnswerSettings
    asked = "tokens"
    loss = "span"
    metric, higher_is_better = "f1", True
    unit = "question"

    def __init__(self, settings: AnswerSettings, text: Text, may_be_none: bool = True) -> None:
        self.settings, self.text, self.may_be_none = settings, text, may_be_none

    @classmethod
    def learn(
        cls, settings: AnswerSettings, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> Answer:
        every = (line for row in read(files, faults) for line in (row.question, row.context))
        return cls.adopt(settings, learn(every, text), files, faults)

    @classmethod
    def adopt(
        cls, settings: AnswerSettings, text: Text, files: Sequence[Path], faults: Faults
    ) -> Answer:
        """With a vocabulary that is there already; whether there may be no answer is learned."""
        none = any(not row.answers for row in read(files, Faults(faults.skip)))
        return cls(settings, text, none)

    def save(self, folder: Path) -> None:
        super().save(folder)
        kept = json.dumps({"may_be_none": self.may_be_none})
        (folder / "labels.json").write_text(kept + "\n", encoding="utf-8")

    @classmethod
    def load(cls, settings: AnswerSettings, text: TextSettings, folder: Path) -> Answer:
        path = folder / "labels.json"
        none = json.loads(path.read_text()).get("may_be_none", True) if path.is_file() else True
        return cls(settings, Text.load(folder / "tokenizer.json"), bool(none))

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for("tokens", 2)

    # Batches.

    def pieces(self, examples: Sequence[Example]) -> list[list[Piece]]:
        """Each question with every window of its text."""
        s, f = self.settings, self.text.frame
        asked = self.text.encode([example.question for example in examples])
        told = self.text.encode_with_places([example.context for example in examples])
        found = []
        for question, (ids, places) in zip(asked, told, strict=True):
            question = question[: min(s.question, s.context // 2)]
            room = s.context - len(f.first) - len(f.between) - len(f.end) - len(question)
            first = len(f.first) + len(question) + len(f.between)
            rows = []
            for start, end in windows(len(ids), room, min(s.stride, room)):
                row = self.frame(question, ids[start:end], s.context)
                rows.append(Piece(row, first, places[start:end]))
            found.append(rows)
        return found

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' questions as ids, from the cache where their content has not changed."""
        marks = ("answer", self.text.tokenizer.to_str(), repr(self.settings))
        rows = self._encode(files, faults)
        return cached(cache, files, marks, rows, self.text.size, faults, "a question")

    def _encode(self, files: Sequence[Path], faults: Faults) -> Iterator[Chunk]:
        for chunk in chunks(read(files, faults)):
            names = ("ids", "split", "span", "window")
            rows: dict[str, list[list[int]]] = {name: [] for name in names}
            for example, own in zip(chunk, self.pieces(chunk), strict=True):
                for piece in own:
                    rows["ids"].append(piece.row.ids)
                    rows["split"].append([piece.row.split])
                    rows["span"].append(list(span_of(example, piece)))
                    rows["window"].append([piece.first, piece.first + len(piece.places)])
            yield rows

    def batch(self, store: Store, rows: Rows, rng: np.random.Generator | None = None) -> Answered:
        texts = self.stored(store, rows)
        span, window = (
            torch.from_numpy(store.padded(name, rows, [], [])[0]) for name in ("span", "window")
        )
        return Answered(*texts, span, allowed(texts[0].shape[1], window))

    @staticmethod
    def sample_batch(settings: AnswerSettings, budget: int) -> Answered:
        """A batch of the usual shape, whole rows, to reckon with."""
        width = settings.context
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        span = torch.zeros(len(ids), 2, dtype=torch.long)
        return Answered(ids, torch.full((len(ids),), width), ids, span, torch.ones_like(ids))

    def asking(self, batch: Texts) -> Answered:
        span = torch.zeros(len(batch), 2, dtype=torch.long)
        every = torch.ones_like(batch.ids)
        return Answered(batch.ids, batch.lengths, batch.segments, span, every)

    # Answers.

    def found(
        self, model: torch.nn.Module, examples: Sequence[Example], budget: int
    ) -> list[Found | None]:
        """The best answer of all windows; None where none is better."""
        pieces = self.pieces(examples)
        flat = [(number, piece) for number, own in enumerate(pieces) for piece in own]

        def answer(scores: Tensor, i: int) -> tuple[Found | None, float]:
            piece = flat[i][1]
            nothing = float(scores[0].sum())
            return best_span(scores, piece, self.settings.longest), nothing

        given = self.each(model, [piece.row for _, piece in flat], answer, budget)
        best: list[Found | None] = [None] * len(examples)
        nothing = [float("inf")] * len(examples)
        for (number, _), (one, none) in zip(flat, given, strict=True):
            nothing[number] = min(nothing[number], none)
            now = best[number]
            if one is not None and (now is None or one.score > now.score):
                best[number] = one
        for number, one in enumerate(best):
            if one is not None:
                lead = one.score - nothing[number]
                refused = self.may_be_none and lead < self.settings.nothing
                best[number] = None if refused else one._replace(score=lead)
        return best

    def predict(
        self,
        model: torch.nn.Module,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """The answer to each question, which stands before its text and a tab."""
        began = time.perf_counter()
        examples = [self.typed(line, number) for number, line in enumerate(inputs, first)]
        given = self.found(model, examples, decode.batch_tokens)
        seconds = round(time.perf_counter() - began, 6)
        answers = []
        for line, example, one in zip(inputs, examples, given, strict=True):
            if one is None:
                answers.append(Prediction(line, "", seconds=seconds, answer=""))
                continue
            text = example.context[one.start : one.end]
            answers.append(
                Prediction(
                    line,
                    text,
                    one.score,
                    seconds=seconds,
                    answer=text,
                    start=one.start,
                    end=one.end,
                )
            )
        return answers

    def typed(self, line: str, number: int = 1) -> Example:
        question, context = two_texts(line, number, True, "a question and a text")
        if not question.strip() or not (context or "").strip():
            raise InputError(f"input {number}: question and text must not be empty.")
        return Example(question.strip(), context or "", [], "", "")

    def framed_input(self, line: str, number: int = 1) -> TokenRow:
        return self.pieces([self.typed(line, number)])[0][0].row

    # Scores.

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        rows = [r for r in islice(read(files, Faults(skip=True)), 200) if "\n" not in r.context]
        if not rows:
            return ""
        short = min(rows, key=lambda row: len(row.context))
        return f"{short.question}\t{short.context}"

    def quick_scores(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        count: int,
    ) -> dict[str, Any]:
        judged, _ = self.judge(model, files, faults, decode.batch_tokens, count)
        return {name: round(100 * value, 4) for name, value in judged.means().items()}

    def evaluate(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """Exact match and F1, the best of the references, under SQuAD's normalisation."""
        began = time.perf_counter()
        judged, count = self.judge(model, files, faults, decode.batch_tokens)
        seconds = time.perf_counter() - began
        if not count:
            raise DataError(f"{files[0]}: there must be a question to score, but there is none.")
        found: dict[str, Any] = {}
        for name, value in judged.means().items():
            found[name] = round(100 * value, 4)
            found[f"{name}_interval"] = [round(100 * edge, 2) for edge in judged.interval(name)]
            found[f"{name}_unit"] = "SQuAD's normalisation, best of the references"
        rate = {"predict_answers_per_second": round(count / seconds, 1)}
        return {**found, "loss": round(nll / tokens, 5), **rate, "examples": count}

    def judge(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        faults: Faults,
        budget: int,
        most: int | None = None,
    ) -> tuple[Mean, int]:
        judged, count = Mean(), 0
        for chunk in chunks(islice(read(files, faults), most)):
            count += len(chunk)
            for example, one in zip(chunk, self.found(model, chunk, budget), strict=True):
                given = "" if one is None else example.context[one.start : one.end]
                wanted = [text for text, _ in example.answers]
                judged.add(
                    {"f1": token_f1(given, wanted), "exact_match": exact_match(given, wanted)}
                )
        return judged, count


def span_of(example: Example, piece: Piece) -> tuple[int, int]:
    """The first answer's tokens in a row; (0, 0) where the window does not hold all of it."""
    if not example.answers or not piece.places:
        return 0, 0
    text, start = example.answers[0]
    end = start + len(text)
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


def best_span(scores: Tensor, piece: Piece, longest: int) -> Found | None:
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
