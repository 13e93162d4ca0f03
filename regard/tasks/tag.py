"""Tagging: words in, a tag for each out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import torch
from annotated_types import Ge, Gt, Le

from ..batch import Batch, Ids, Sizes, Tags
from ..data import conll
from ..data.cut import Plan
from ..data.examples import Data, Examples, chunks
from ..data.given import Given, write_tagged
from ..data.order import Order, Repeated, Rows, longest_first
from ..data.read import Faults
from ..data.store import Chunk, Store, ids_below
from ..data.store import Field as StoreField
from ..decode import Settings as Decode
from ..errors import DataError, InputError
from ..model import Model
from ..score.classes import Confusion
from ..score.entities import Entities, to_bio
from ..score.interval import hundredths
from ..text import Text, learn
from .form import Form, TextForm
from .labels import read_labels, some_of
from .prediction import Prediction
from .task import Measured, Rng, Scores, Sections
from .texts import TextTask, TokenRow, windows

Scheme = Literal["iob1", "bio", "plain"]


class TaggedIds(NamedTuple):
    """A sentence's tokens, and which of them begin which words."""

    ids: list[int]
    begins: list[int]
    words: list[int]


@dataclass(frozen=True)
class TagSettings:
    """Which columns hold what."""

    word: Annotated[int, Gt(0), "the column of the word, the first being 1"] = 1
    tag: Annotated[int, Ge(0), "the column of the tag; 0: the last"] = 0
    scheme: Annotated[
        Scheme,
        "iob1: B- only where needed, read as bio; bio: strictly; plain: tags of words, no entities",
    ] = "iob1"
    context: Annotated[
        int, Gt(3), Le(2**20), "longest row in tokens; longer sentences are read in windows"
    ] = 128


class Tag(TextTask[TagSettings, conll.Sentence, Rows]):
    """Words with tags; scored by whole entities, as seqeval does; answers with a tag a word."""

    Settings = TagSettings
    Example = conll.Sentence
    row_files = (".conll",)
    keeps = ("tokenizer.json", "labels.json")
    loss = "classes"
    gets = "tags"
    unit = "word"
    wanted = "a sentence"
    encodes_apart = True
    predicts = "class"

    def __init__(self, settings: TagSettings, text: Text, labels: Sequence[str]) -> None:
        self.settings, self.text = settings, text
        self.labels, self.number = list(labels), {name: i for i, name in enumerate(labels)}
        self.metric = "accuracy" if settings.scheme == "plain" else "f1"

    @property
    def gives(self) -> Form[str]:
        return TextForm("sentence to tag")

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for(Tags, len(self.labels))

    # The vocabulary and the tags: from the training examples, kept in the run folder.

    @staticmethod
    def read(
        settings: TagSettings, files: Sequence[Path], faults: Faults
    ) -> Iterator[conll.Sentence]:
        sentences = conll.read(files, settings.word, settings.tag, faults)
        return in_scheme(sentences, settings.scheme, faults)

    @classmethod
    def write_rows(cls, settings: TagSettings, given: Given, paths: Sequence[Path]) -> None:
        write_tagged(paths[0], given, settings.word, settings.tag)

    @staticmethod
    def reads_by(settings: TagSettings) -> str:
        return repr((settings.word, settings.tag, settings.scheme))

    @classmethod
    def learn(
        cls, settings: TagSettings, sections: Sections, examples: Examples[conll.Sentence]
    ) -> Self:
        text = learn((" ".join(row.words) for row in examples), sections["text"])
        return cls.adopt(settings, text, examples)

    @classmethod
    def adopt(cls, settings: TagSettings, text: Text, examples: Examples[conll.Sentence]) -> Self:
        """With a vocabulary that is there already; what the tags are is learned."""
        tags = {tag for row in examples for tag in row.tags}
        if settings.scheme != "plain":  # an entity of one word may yet have two
            tags |= {f"I-{tag[2:]}" for tag in tags if tag != "O"} | {"O"}
        return cls(settings, text, sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag)))

    names_classes = True

    @classmethod
    def imported(
        cls,
        settings: TagSettings,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> Self:
        return cls(settings, texts[0], labels)

    def artefacts(self) -> Mapping[str, str]:
        kept = json.dumps({"labels": self.labels}, indent=1, ensure_ascii=False)
        return {**super().artefacts(), "labels.json": kept + "\n"}

    @classmethod
    def load(cls, settings: TagSettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, Text.load(folder / "tokenizer.json"), read_labels(folder)["labels"])

    # Batches: whole sentences in the store; a long one is cut into windows when it is read.

    def tokenise(self, sentences: Sequence[Sequence[str]]) -> list[TaggedIds]:
        encoded = self.text.encode_with_places([" ".join(words) for words in sentences])
        found = []
        for words, (ids, places) in zip(sentences, encoded, strict=True):
            ends = np.cumsum([len(word) + 1 for word in words])
            # By its last character: a token may take the space before its word along.
            owner = [int(np.searchsorted(ends, end - 1, "right")) for _, end in places]
            begins = [i for i, o in enumerate(owner) if i == 0 or o != owner[i - 1]]
            found.append(TaggedIds(ids, begins, [owner[i] for i in begins]))
        return found

    @property
    def fields(self) -> Mapping[str, StoreField]:
        place = ids_below(2**20)
        tags = ids_below(len(self.labels))
        return {"ids": self.ids_field, "begins": place, "words": place, "tags": tags}

    @property
    def marks(self) -> tuple[str, ...]:
        return (*super().marks, repr(self.labels))

    def encode(
        self, examples: Examples[conll.Sentence], longest: int, faults: Faults
    ) -> Iterator[Chunk]:
        for some in chunks(examples):
            kept = [example for example in some if self.is_known(example, faults)]
            rows = self.tokenise([example.words for example in kept])
            yield {
                "ids": [row.ids for row in rows],
                "begins": [row.begins for row in rows],
                "words": [row.words for row in rows],
                "tags": [[self.number[tag] for tag in example.tags] for example in kept],
            }

    def is_known(self, example: conll.Sentence, faults: Faults) -> bool:
        """Whether training has met all its tags."""
        odd = [tag for tag in example.tags if tag not in self.number]
        if odd:
            faults.report(
                example.where,
                f"a tag must be one that training has ({some_of(self.labels)}), but one is "
                f"'{odd[0]}'",
            )
        return not odd

    @property
    def room(self) -> int:
        """Tokens of a sentence that a row holds."""
        f = self.text.frame
        return self.settings.context - len(f.first) - len(f.last)

    def pieces(self, lengths: Sequence[int], stride: int = 0) -> Rows:
        """Every sentence's windows, `stride` apart or side by side.  -> (N, 3) row, from, to"""
        found = [
            (row, start, end)
            for row, length in enumerate(lengths)
            for start, end in windows(length, self.room, stride or self.room)
        ]
        return np.array(found, np.int64).reshape(-1, 3)

    def widths(self, pieces: Rows) -> Rows:
        """Columns that each window fills."""
        f = self.text.frame
        return pieces[:, 2] - pieces[:, 1] + len(f.first) + len(f.last)

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        pieces = self.pieces(store.lengths("ids").tolist())
        return Repeated(Order(self.widths(pieces)[:, None].astype(np.int32), budget, seed), pieces)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Ids, Tags]]:
        pieces = self.pieces(store.lengths("ids").tolist())
        for rows in longest_first(self.widths(pieces), budget):
            yield self.batch(store, pieces[rows])

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        return len(self.pieces(store.lengths("ids").tolist()))

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Ids, Tags]:
        first, framed = len(self.text.frame.first), []
        tags = np.full((len(rows), max(map(int, self.widths(rows)), default=1)), -1, np.int64)
        for place, (row, start, end) in enumerate(rows.tolist()):
            ids, begins, words = (store.row(name, row) for name in ("ids", "begins", "words"))
            framed.append(self.frame(ids[start:end], None, self.settings.context))
            right = store.row("tags", row)
            for begin, word in zip(begins, words, strict=True):
                if start <= begin < end:
                    tags[place, begin - start + first] = right[word]
        labels = torch.from_numpy(tags)
        return Batch(self.rows_as_ids(framed), Tags(labels, (labels >= 0).float()))

    @staticmethod
    def sample_batch(
        settings: TagSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Ids, Tags]:
        """Sentences of 32 tokens."""
        width = min(32, settings.context)
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        read = Ids(ids, torch.full((len(ids),), width), ids)
        return Batch(read, Tags(ids, torch.ones(ids.shape)))

    # Answers.

    def tagged(
        self, model: Model, sentences: Sequence[tuple[TaggedIds, int]], budget: int
    ) -> list[list[int]]:
        """Tags of each sentence's words, of which it has so many; in a window, those farther from
        its edges know more."""
        stride = max(1, self.room // 2)
        pieces = self.pieces([len(words.ids) for words, _ in sentences], stride).tolist()
        first = len(self.text.frame.first)
        framed = [
            self.frame(sentences[row][0].ids[start:end], None, self.settings.context)
            for row, start, end in pieces
        ]
        found = [[self.number.get("O", 0)] * count for _, count in sentences]
        depth = [[-1] * count for _, count in sentences]
        scores = self.scores(model, framed, budget)
        for (row, start, end), told, piece in zip(pieces, scores, framed, strict=True):
            best = told.argmax(-1).tolist()
            words = sentences[row][0]
            for begin, word in zip(words.begins, words.words, strict=True):
                if not start <= begin < end:
                    continue
                place = begin - start + first
                inside = min(place, len(piece.ids) - place)
                if inside > depth[row][word]:
                    depth[row][word], found[row][word] = inside, best[place]
        return found

    def predict(
        self, model: Model, inputs: Sequence[str], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """word/TAG for each word; signs are set apart from words first."""
        began = time.perf_counter()
        sentences = [words_of(line, number) for number, line in enumerate(inputs, first)]
        rows = zip(self.tokenise(sentences), map(len, sentences), strict=True)
        found = self.tagged(model, list(rows), decode.batch_tokens)
        seconds = round(time.perf_counter() - began, 6)
        answers = []
        for line, words, tags in zip(inputs, sentences, found, strict=True):
            pairs = tuple(zip(words, (self.labels[tag] for tag in tags), strict=True))
            shown = " ".join(f"{word}/{tag}" for word, tag in pairs)
            answers.append(Prediction(line, shown, seconds=seconds, tags=pairs))
        return answers

    def framed_input(self, given: str, number: int = 1) -> TokenRow:
        ids = self.tokenise([words_of(given, number)])[0].ids
        return self.frame(ids, None, self.settings.context)

    # Scores.

    def example(self, examples: Examples[conll.Sentence], longest: int | None = None) -> str:
        rows = islice(examples, 200)
        short = [" ".join(row.words) for row in rows if 4 <= len(row.words) <= 12]
        return short[0] if short else ""

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        entities, _, words = self.judge(model, data.store, decode.batch_tokens, count)
        accuracy = {"accuracy": round(100 * words.accuracy(), 4)}
        if self.settings.scheme == "plain":
            return accuracy
        return {"f1": round(100 * entities.scores()["f1"], 4), **accuracy}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """Entities found whole, leniently and strictly; words tagged rightly beside them."""
        began, sentences = time.perf_counter(), data.store.rows
        entities, strict, words = self.judge(model, data.store, decode.batch_tokens, sentences)
        seconds = time.perf_counter() - began
        count = int(words.matrix.sum())
        if not count:
            raise DataError(f"{data.examples.first_file}: there must be a word to score.")
        found: Scores = {}
        if self.settings.scheme != "plain":
            for name in ("f1", "precision", "recall"):
                found[name] = round(100 * entities.scores()[name], 4)
                found[f"{name}_interval"] = hundredths(entities.interval(name))
            found["f1_unit"] = "whole entities, as seqeval scores by default"
            found["f1_strict"] = round(100 * strict.scores()["f1"], 4)
            found["f1_strict_unit"] = "whole entities, seqeval's strict mode, IOB2"
        found["accuracy"] = round(100 * words.accuracy(), 4)
        found["accuracy_interval"] = hundredths(words.interval(Confusion.accuracy))
        found["accuracy_unit"] = "words"
        found["loss"] = round(loss.nll / loss.tokens, 5)
        plain = self.settings.scheme == "plain"
        found["per_class"] = (
            dict(zip(self.labels, words.per_class(), strict=True)) if plain else entities.per_type()
        )
        rate = {"predict_words_per_second": round(count / seconds, 1)}
        return {**found, **rate, "words": count, "examples": sentences}

    def judge(
        self, model: Model, store: Store, budget: int, most: int
    ) -> tuple[Entities, Entities, Confusion]:
        """The first sentences: entities leniently and strictly, and words."""
        lenient, strict, words = Entities(), Entities(strict=True), Confusion(len(self.labels))
        for rows in chunks(range(min(most, store.rows))):
            right = [store.row("tags", row) for row in rows]
            kept = [
                TaggedIds(*(store.row(n, row) for n in ("ids", "begins", "words"))) for row in rows
            ]
            given = self.tagged(model, list(zip(kept, map(len, right), strict=True)), budget)
            for wanted, told in zip(right, given, strict=True):
                words.add(wanted, told)
                if self.settings.scheme != "plain":
                    names = [[self.labels[tag] for tag in side] for side in (wanted, told)]
                    lenient.add(*names)
                    strict.add(*names)
        return lenient, strict, words


def words_of(line: str, number: int = 1) -> list[str]:
    """A typed sentence as words and signs."""
    words = re.findall(r"\w+(?:[-.'’&]\w+)*|[^\w\s]", line)
    if not words:
        raise InputError(f"input {number}: there must be a word to tag, but there is none.")
    return words


def in_scheme(
    sentences: Iterator[conll.Sentence], scheme: Scheme, faults: Faults
) -> Iterator[conll.Sentence]:
    """Sentences whose entities all begin with B-, as they are or as they are read."""
    for words, tags, where in sentences:
        if scheme == "plain":
            yield conll.Sentence(words, tags, where)
            continue
        try:
            begun = to_bio(tags)
        except ValueError as error:
            faults.report(where, f"in this sentence, {str(error).rstrip('.')}")
            continue
        if scheme == "bio" and begun != tags:
            place = next(i for i, (a, b) in enumerate(zip(tags, begun, strict=True)) if a != b)
            faults.report(
                where,
                f"an entity must begin with B- (task.scheme=bio), but word {place + 1}, "
                f"'{words[place]}', has {tags[place]}",
            )
            continue
        yield conll.Sentence(words, begun, where)
