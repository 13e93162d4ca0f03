"""Masked words: texts with some words hidden, which are to be told; and what follows on what."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Gt, Le, Lt
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Masked, Sizes, Texts
from ..data.cut import Plan
from ..data.read import PIECE, Faults, documents, is_text, kind_of, parcels
from ..data.store import Chunk, Store, cached
from ..decode import Settings as Decode
from ..errors import DataError, InputError
from ..text import HIDDEN, Text, learn
from ..text import Settings as TextSettings
from .prediction import Prediction
from .texts import TextTask, TokenRow

SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'“‘(]*[A-ZÀ-Þ0-9])")
HEADING = re.compile(r"\s*= [^=].*[^=] =\s*$")


Documents = Literal["blank", "headings", "file"]
WHERE = "where a text begins: after a blank line, at a line like = Title =, or with its file"


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


def read(files: Sequence[Path], settings: Any, faults: Faults) -> Iterator[tuple[str, bool]]:
    """Sentences, and whether each is the first of its text."""
    for file in files:
        if not file.is_dir() and kind_of(file) not in (".txt", ".jsonl"):
            raise DataError(f"{file}: text must be a .txt file, a folder of them, or .jsonl.")
        begins = True
        for piece, _, last in documents(file, faults):
            *rows, rest = piece.split("\n")
            for line in (*rows, rest) if rest else rows:  # behind the last end is no line
                blank = not line.strip()
                heading = settings.documents == "headings" and HEADING.match(line)
                if heading or (blank and settings.documents == "blank"):
                    begins = True
                for sentence in SENTENCE.split(line.strip()) if not blank else ():
                    yield sentence, begins
                    begins = False
            begins = begins or last


def documents_of(files: Sequence[Path], settings: Any, faults: Faults) -> Iterator[str]:
    """Whole texts, each on one line; a very long one counts as several."""
    held: list[str] = []
    length = 0
    for sentence, begins in read(files, settings, faults):
        if held and (begins or length >= PIECE):
            yield " ".join(held)
            held, length = [], 0
        held.append(sentence)
        length += len(sentence)
    if held:
        yield " ".join(held)


class Row(NamedTuple):
    """Where the two halves of a row begin and end in the running text."""

    one: int
    middle: int
    two: int
    end: int
    follows: int  # 1 or 0; -1: there is one text


SWEPT = 16  # rows that are scored at a time


class Rows(Plan):
    """Rows as full as can be: each goes on where the one before it in its text ended.

    Half of the pairs are cut out of one text at the end of a sentence; the others have a second
    half from another text, drawn anew in every epoch.
    """

    def __init__(self, store: Store, settings: MaskedSettings, rows: int, room: int, seed: int):
        self.settings, self.room, self.seed = settings, room, seed
        self.starts = np.asarray(store.starts("text"))  # of sentences
        first = np.flatnonzero(store.flat("begins"))  # sentences that begin a text
        self.texts = np.append(self.starts[first], self.starts[-1])
        if settings.next and len(first) < 2:
            raise DataError(
                "task.next needs two texts or more, to draw what does not follow from, but there "
                f"is {len(first)}; set task.documents, or task.next=false."
            )
        self.pieces = [
            (text, *piece)
            for text, (begin, end) in enumerate(zip(self.texts[:-1], self.texts[1:], strict=True))
            for piece in self.cut(int(begin), int(end))
        ]
        if not self.pieces:
            raise DataError("the data must hold a text of two tokens or more, but hold none.")
        self.rows = min(rows, len(self.pieces))
        self.batches = len(self.pieces) // self.rows

    def cut(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """A text in pieces of a row's room, each from the beginning of a sentence."""
        while begin < end:
            stop = min(begin + self.room, end)
            if stop - begin > 1:
                yield begin, stop
            before = int(self.starts[np.searchsorted(self.starts, stop, "right") - 1])
            begin = before if stop < end and before > begin else stop

    def epoch(self, number: int) -> list[list[Row]]:
        rng = np.random.default_rng((self.seed, number))
        order = rng.permutation(len(self.pieces))[: self.batches * self.rows]
        drawn = [self.row(self.pieces[i], rng) for i in order]
        return [drawn[i : i + self.rows] for i in range(0, len(drawn), self.rows)]

    def row(self, piece: tuple[int, int, int], rng: np.random.Generator) -> Row:
        text, begin, end = piece
        if not self.settings.next:
            return Row(begin, end, end, end, -1)
        low, high = np.searchsorted(self.starts, (begin + 1, end))
        middle = int(self.starts[rng.integers(low, high)]) if high > low else (begin + end) // 2
        if rng.random() < 0.5:
            return Row(begin, middle, middle, end, 1)
        other = int(rng.integers(len(self.texts) - 2))
        other += other >= text  # any but this one
        low, high = np.searchsorted(self.starts, self.texts[other : other + 2])
        two = int(self.starts[rng.integers(low, high)])
        return Row(
            begin,
            middle,
            two,
            min(two + self.room - (middle - begin), int(self.texts[other + 1])),
            0,
        )

    def largest(self) -> list[Row]:
        begin = min(int(self.pieces[0][1]), int(self.starts[-1]) - 2)
        end = min(begin + self.room, int(self.starts[-1]))
        middle = (begin + end) // 2
        return [Row(begin, middle, middle, end, 1 if self.settings.next else -1)] * self.rows


class MaskedWords(TextTask):
    """BERT's pre-training (Devlin et al. 2019, section 3.1); scored by how many words it tells."""

    Settings = MaskedSettings
    asked = "words"
    loss = "masked"
    metric, higher_is_better = "accuracy", True
    unit = "hidden word"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
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

    @classmethod
    def learn(
        cls, settings: MaskedSettings, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> MaskedWords:
        sentences = (sentence for sentence, _ in read(files, settings, faults))
        return cls(settings, learn(sentences, text, [HIDDEN]))

    @classmethod
    def adopt(
        cls, settings: MaskedSettings, text: Text, files: Sequence[Path], faults: Faults
    ) -> MaskedWords:
        return cls(settings, text)

    @classmethod
    def load(cls, settings: MaskedSettings, text: TextSettings, folder: Path) -> MaskedWords:
        return cls(settings, Text.load(folder / "tokenizer.json"))

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for("words")

    # Batches.

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' sentences as ids, from the cache where their content has not changed."""
        marks = ("masked", self.text.tokenizer.to_str(), self.settings.documents)
        rows = self._encode(files, faults)
        store = cached(cache, files, marks, rows, self.text.size, faults, "text to learn from")
        if len(store.flat("text")) < 16:
            raise DataError(
                f"{files[0]}: there must be text to learn from, but there is hardly any."
            )
        return store

    def _encode(self, files: Sequence[Path], faults: Faults) -> Iterator[Chunk]:
        every = read(files, self.settings, faults)
        waits = False
        for chunk in parcels(every, lambda sentence: len(sentence[0]), 5000):
            ids = self.text.encode([sentence for sentence, _ in chunk])
            rows: dict[str, list[list[int]]] = {"text": [], "begins": []}
            for row, (_, begins) in zip(ids, chunk, strict=True):
                waits = waits or begins  # a first sentence without a token hands it on
                if row:
                    rows["text"].append(row)
                    rows["begins"].append([int(waits)])
                    waits = False
            yield rows

    @property
    def room(self) -> int:
        f = self.text.frame
        edges = (f.first, f.between, f.end) if self.settings.next else (f.first, f.last)
        return self.settings.context - sum(map(len, edges))

    def plan(self, store: Store, budget: int, seed: int) -> Plan:
        rows = budget // self.settings.context
        if rows < 1:
            raise DataError(
                f"train.batch_tokens ({budget}) must be at least task.context "
                f"({self.settings.context})."
            )
        return Rows(store, self.settings, rows, self.room, seed)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Masked]:
        """Every piece once, always the same words hidden, whatever the budget."""
        plan, rng = Rows(store, self.settings, SWEPT, self.room, 0), np.random.default_rng(0)
        drawn = [plan.row(piece, rng) for piece in plan.pieces]
        for first in range(0, len(drawn), SWEPT):
            rows = drawn[first : first + SWEPT]
            yield self.batch(store, rows, np.random.default_rng(first))

    def batch(self, store: Store, rows: Any, rng: np.random.Generator | None = None) -> Masked:
        flat = store.flat("text")
        framed = []
        for row in rows:
            one, two = (flat[a:b].tolist() for a, b in ((row.one, row.middle), (row.two, row.end)))
            framed.append(self.frame(one, None if row.follows < 0 else two, self.settings.context))
        follows = torch.tensor([row.follows for row in rows])
        return self.hide(framed, follows, rng or np.random.default_rng(0))

    def hide(self, framed: Sequence[TokenRow], follows: Tensor, rng: np.random.Generator) -> Masked:
        """Choose words, and put a mask, another word, or themselves in their place."""
        s, text = self.settings, self.text
        ids, lengths, parts = (x.numpy() for x in self.texts(framed))
        inside = np.arange(ids.shape[1]) < lengths[:, None]
        able = inside & ~np.isin(ids, sorted(text.specials))
        # Rounded up as often as down, so that the share holds in short rows too.
        counts = np.maximum(1, s.hidden * able.sum(1) + rng.random(len(ids))).astype(int)
        chosen = choose(able, counts, self.continues[ids] if s.whole_words else None, rng)
        counts = chosen.sum(1)
        places = np.argsort(~chosen, 1, kind="stable")[:, : max(1, int(counts.max()))]
        words = np.take_along_axis(ids, places, 1)
        fate = rng.random(ids.shape)
        hidden = np.where(chosen & (fate < s.masked), text.mask, ids)
        swapped = chosen & (fate >= s.masked) & (fate < s.masked + s.replaced)
        hidden[swapped] = rng.choice(self.words, int(swapped.sum()))
        worth = torch.full((len(ids),), float(counts.sum()) / len(ids))
        full = bool((lengths == ids.shape[1]).all())
        put = torch.from_numpy
        asked = (put(places), put(words), put(counts), follows, worth)
        return Masked(put(hidden), put(lengths), put(parts), *asked, full=full)

    @staticmethod
    def sample_batch(settings: MaskedSettings, budget: int) -> Masked:
        """A batch of the usual shape, to reckon with."""
        rows = max(1, budget // settings.context)
        count = max(1, round(settings.hidden * settings.context))
        ids = torch.zeros(rows, settings.context, dtype=torch.long)
        lengths = torch.full((rows,), settings.context)
        some = torch.zeros(rows, count, dtype=torch.long)
        worth = torch.full((rows,), float(count))
        follows = torch.full((rows,), 1 if settings.next else -1)
        return Masked(ids, lengths, ids, some, some, torch.full((rows,), count), follows, worth)

    # Answers.

    @torch.inference_mode()
    def predict(
        self,
        model: torch.nn.Module,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """The text with its masks filled, each by the likeliest word."""
        answers = []
        device = next(model.parameters()).device
        for number, line in enumerate(inputs, first):
            began = time.perf_counter()
            framed = self.framed_input(line, number)
            places = [i for i, token in enumerate(framed.ids) if token == self.text.mask]
            batch = Texts(*self.texts([framed])).to(device)
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

    def framed_input(self, line: str, number: int = 1) -> TokenRow:
        """A typed text; what hides a word is spelled as the vocabulary has it."""
        if not is_text(line):
            raise InputError(f"input {number}: the text must be UTF-8, but is not.")
        name = self.text.tokens([self.text.mask])[0].strip()
        pieces = re.split(r"\s?" + re.escape(name), line)
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

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        name = self.text.tokens([self.text.mask])[0].strip()
        for sentence, _ in read(files, self.settings, Faults(skip=True)):
            words = sentence.split()
            if 6 <= len(words) <= 14:
                words[len(words) // 2] = name
                return " ".join(words)
        return ""

    def quick_scores(
        self, model: Any, files: Sequence[Path], decode: Decode, faults: Faults, count: int
    ) -> dict[str, Any]:
        """The losses say it."""
        return {}

    @torch.no_grad()
    def evaluate(
        self,
        model: Any,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """Hidden words told rightly, and pairs that were seen to follow or not."""
        device = next(model.parameters()).device
        right = words = judged = pairs = rows = 0
        with TemporaryDirectory() as cache:
            store = self.store(files, Path(cache), 0, faults)
            for batch in self.evaluation_batches(store, decode.batch_tokens):
                passed = model.states(batch.to(device))
                given = model.output(passed.states).argmax(-1).cpu()
                right += int(((given == batch.words) & batch.real).sum())
                words, rows = words + batch.tokens, rows + len(batch)
                if passed.follows is not None and self.settings.next:
                    judged += int((passed.follows.argmax(-1).cpu() == batch.follows).sum())
                    pairs += len(batch)
        found: dict[str, Any] = {
            "accuracy": round(100 * right / max(1, words), 4),
            "accuracy_interval": proportion(right, words),
            "accuracy_unit": "hidden words",
        }
        if pairs:
            found["next_accuracy"] = round(100 * judged / pairs, 4)
            found["next_accuracy_interval"] = proportion(judged, pairs)
        return {**found, "loss": round(nll / tokens, 5), "words": words, "examples": rows}


def proportion(hits: int, whole: int) -> list[float]:
    """A 95 % interval of a share, in hundredths (Wilson 1927)."""
    if not whole:
        return [0.0, 0.0]
    z, p = 1.96, hits / whole
    middle = (p + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z * math.sqrt(p * (1 - p) / whole + z * z / (4 * whole**2)) / (1 + z * z / whole)
    return [round(100 * (middle - half), 2), round(100 * (middle + half), 2)]


def choose(
    able: NDArray[np.bool_],
    counts: NDArray[np.integer[Any]],
    continues: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """So many tokens of each row, drawn alike; with `continues`, words drawn whole.  (B, T)

    A word whose first piece comes under the count is taken with all its pieces.
    """
    draw = rng.random(able.shape)
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
