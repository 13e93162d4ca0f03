"""Tagging: words in, a tag for each out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from ..batch import Sizes, Tagged, Texts
from ..data.read import Faults, is_text, lines
from ..data.store import Chunk, Store, cached
from ..decode import Settings as Decode
from ..errors import DataError, InputError
from ..text import Settings as TextSettings
from ..text import Text, learn
from .classify import chunks, read_labels, some_of
from .measure import Confusion, Entities, to_bio
from .prediction import Prediction
from .texts import Rows, TextTask, TokenRow, windows

NONE = 0  # in a store, where no tag is asked; tags are one more


class Example(NamedTuple):
    """A sentence's words with their tags, and where it stands."""

    words: list[str]
    tags: list[str]
    where: str


class Piece(NamedTuple):
    """A window of a sentence: its row, and which of its tokens begin which words."""

    row: TokenRow
    places: list[int]  # in the row
    words: list[int]  # in the sentence


@dataclass(frozen=True)
class TagSettings:
    """Which columns hold what."""

    word: Annotated[int, Gt(0), "the column of the word, the first being 1"] = 1
    tag: Annotated[int, Ge(0), "the column of the tag; 0: the last"] = 0
    scheme: Annotated[
        Literal["iob1", "bio", "plain"],
        "iob1: B- only where needed, read as bio; bio: strictly; plain: tags of words, no entities",
    ] = "iob1"
    context: Annotated[
        int, Gt(3), Le(2**20), "longest row in tokens; longer sentences are read in windows"
    ] = 128


def read(files: Sequence[Path], settings: TagSettings, faults: Faults) -> Iterator[Example]:
    """The sentences of CoNLL files: a word a line, a blank line after each sentence."""
    for path in files:
        words: list[str] = []
        tags: list[str] = []
        first, broken = 1, False
        numbered = enumerate(chain(lines(path, faults.skip), [""]), 1)
        for number, line in numbered:
            cells = line.split()
            if not cells or cells[0] == "-DOCSTART-":
                if words and not broken:
                    yield from _sentence(words, tags, settings, f"{path}:{first}", faults)
                words, tags, first, broken = [], [], number + 1, False
                continue
            if max(settings.word, settings.tag, 2) > len(cells) or not is_text(line):
                what = f"a line must have {max(settings.word, settings.tag, 2)} columns"
                faults.report(f"{path}:{number}", f"{what} of UTF-8 text, but has {len(cells)}")
                broken = True
                continue
            words.append(cells[settings.word - 1])
            tags.append(cells[settings.tag - 1])


def _sentence(
    words: list[str], tags: list[str], settings: TagSettings, where: str, faults: Faults
) -> Iterator[Example]:
    if settings.scheme == "plain":
        yield Example(words, tags, where)
        return
    try:
        begun = to_bio(tags)
    except ValueError as error:
        faults.report(where, f"in this sentence, {str(error).rstrip('.')}")
        return
    if settings.scheme == "bio" and begun != tags:
        place = next(i for i, (a, b) in enumerate(zip(tags, begun, strict=True)) if a != b)
        faults.report(
            where,
            f"an entity must begin with B- (task.scheme=bio), but word {place + 1}, "
            f"'{words[place]}', has {tags[place]}",
        )
        return
    yield Example(words, begun, where)


class Tag(TextTask):
    """Words with tags; scored by whole entities, as seqeval does; answers with a tag a word."""

    Settings = TagSettings
    asked = "tokens"
    loss = "classes"
    higher_is_better = True
    unit = "word"

    def __init__(self, settings: TagSettings, text: Text, labels: Sequence[str]) -> None:
        self.settings, self.text = settings, text
        self.labels, self.number = list(labels), {name: i for i, name in enumerate(labels)}
        self.metric = "accuracy" if settings.scheme == "plain" else "f1"

    @classmethod
    def learn(
        cls, settings: TagSettings, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> Tag:
        every = (" ".join(row.words) for row in read(files, settings, faults))
        return cls.adopt(settings, learn(every, text), files, faults)

    @classmethod
    def adopt(cls, settings: TagSettings, text: Text, files: Sequence[Path], faults: Faults) -> Tag:
        """With a vocabulary that is there already; what the tags are is learned."""
        found = {tag for row in read(files, settings, Faults(faults.skip)) for tag in row.tags}
        if not found:
            raise DataError(f"{files[0]}: there must be a sentence, but there is none.")
        if settings.scheme != "plain":  # an entity of one word may yet have two
            found |= {f"I-{tag[2:]}" for tag in found if tag != "O"} | {"O"}
        return cls(settings, text, sorted(found, key=lambda tag: (tag != "O", tag[2:], tag)))

    @classmethod
    def imported(
        cls, settings: TagSettings, text: Text, labels: list[str], config: dict[str, Any]
    ) -> Tag:
        return cls(settings, text, labels)

    def save(self, folder: Path) -> None:
        super().save(folder)
        kept = json.dumps({"labels": self.labels}, indent=1, ensure_ascii=False)
        (folder / "labels.json").write_text(kept + "\n", encoding="utf-8")

    @classmethod
    def load(cls, settings: TagSettings, text: TextSettings, folder: Path) -> Tag:
        return cls(settings, Text.load(folder / "tokenizer.json"), read_labels(folder)["labels"])

    @property
    def sizes(self) -> Sizes:
        return self.sizes_for("tokens", len(self.labels))

    # Batches.

    def pieces(self, sentences: Sequence[Sequence[str]], stride: int = 0) -> list[list[Piece]]:
        """Each sentence as rows: one, or windows of it, `stride` apart or side by side."""
        encoded = self.text.encode_with_places([" ".join(words) for words in sentences])
        found = []
        for words, (ids, places) in zip(sentences, encoded, strict=True):
            ends = np.cumsum([len(word) + 1 for word in words])
            # By its last character: a token may take the space before its word along.
            owner = [int(np.searchsorted(ends, end - 1, "right")) for _, end in places]
            begins = [i for i, o in enumerate(owner) if i == 0 or o != owner[i - 1]]
            f = self.text.frame
            room = self.settings.context - len(f.first) - len(f.last)
            rows = []
            for start, end in windows(len(ids), room, stride or room):
                framed = self.frame(ids[start:end], None, self.settings.context)
                inside = [i for i in begins if start <= i < end]
                at = [i - start + len(f.first) for i in inside]
                rows.append(Piece(framed, at, [owner[i] for i in inside]))
            found.append(rows)
        return found

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' sentences as ids, from the cache where their content has not changed."""
        marks = ("tag", self.text.tokenizer.to_str(), repr(self.settings), repr(self.labels))
        size = max(self.text.size, len(self.labels) + 1)
        rows = self._encode(files, faults)
        return cached(cache, files, marks, rows, size, faults, "a sentence")

    def _encode(self, files: Sequence[Path], faults: Faults) -> Iterator[Chunk]:
        for chunk in chunks(self.known(files, faults)):
            rows: dict[str, list[list[int]]] = {"ids": [], "split": [], "tags": []}
            pieces = self.pieces([example.words for example in chunk])
            for example, own in zip(chunk, pieces, strict=True):
                for piece in own:
                    tags = [NONE] * len(piece.row)
                    for place, word in zip(piece.places, piece.words, strict=True):
                        tags[place] = 1 + self.number[example.tags[word]]
                    rows["ids"].append(piece.row.ids)
                    rows["split"].append([piece.row.split])
                    rows["tags"].append(tags)
            yield rows

    def known(self, files: Sequence[Path], faults: Faults) -> Iterator[Example]:
        """Sentences whose tags training has met."""
        for example in read(files, self.settings, faults):
            odd = [tag for tag in example.tags if tag not in self.number]
            if odd:
                faults.report(
                    example.where,
                    f"a tag must be one that training has ({some_of(self.labels)}), but one is "
                    f"'{odd[0]}'",
                )
                continue
            yield example

    def batch(self, store: Store, rows: Rows, rng: np.random.Generator | None = None) -> Tagged:
        texts = self.stored(store, rows)
        tags = torch.from_numpy(store.padded("tags", rows, [], [])[0]) - 1
        return Tagged(*texts, tags, (tags >= 0).float())

    @staticmethod
    def sample_batch(settings: TagSettings, budget: int) -> Tagged:
        """A batch of the usual shape, sentences of 32 tokens, to reckon with."""
        width = min(32, settings.context)
        ids = torch.zeros(max(1, budget // width), width, dtype=torch.long)
        return Tagged(ids, torch.full((len(ids),), width), ids, ids, torch.ones(ids.shape))

    def asking(self, batch: Texts) -> Tagged:
        none = torch.full_like(batch.ids, -1)
        return Tagged(batch.ids, batch.lengths, batch.segments, none, none.float())

    # Answers.

    def tagged(
        self, model: torch.nn.Module, sentences: Sequence[Sequence[str]], budget: int
    ) -> list[list[str]]:
        """Tags of each sentence's words; in a window, those farther from its edges know more."""
        f = self.text.frame
        room = self.settings.context - len(f.first) - len(f.last)
        pieces = self.pieces(sentences, stride=max(1, room // 2))
        flat = [(number, piece) for number, own in enumerate(pieces) for piece in own]

        def answer(scores: Tensor, i: int) -> list[int]:
            return scores[flat[i][1].places].argmax(-1).tolist()

        given = self.each(model, [piece.row for _, piece in flat], answer, budget)
        outside = "O" if "O" in self.number else self.labels[0]
        found = [[outside] * len(words) for words in sentences]
        depth = [[-1] * len(words) for words in sentences]
        for (number, piece), tags in zip(flat, given, strict=True):
            for place, word, tag in zip(piece.places, piece.words, tags, strict=True):
                inside = min(place, len(piece.row) - place)
                if inside > depth[number][word]:
                    depth[number][word], found[number][word] = inside, self.labels[tag]
        return found

    def predict(
        self,
        model: torch.nn.Module,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """word/TAG for each word; signs are set apart from words first."""
        began = time.perf_counter()
        sentences = [words_of(line, number) for number, line in enumerate(inputs, first)]
        found = self.tagged(model, sentences, decode.batch_tokens)
        seconds = round(time.perf_counter() - began, 6)
        answers = []
        for line, words, tags in zip(inputs, sentences, found, strict=True):
            pairs = tuple(zip(words, tags, strict=True))
            shown = " ".join(f"{word}/{tag}" for word, tag in pairs)
            answers.append(Prediction(line, shown, seconds=seconds, tags=pairs))
        return answers

    def framed_input(self, line: str, number: int = 1) -> TokenRow:
        return self.pieces([words_of(line, number)])[0][0].row

    # Scores.

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        rows = islice(read(files, self.settings, Faults(skip=True)), 200)
        short = [" ".join(row.words) for row in rows if 4 <= len(row.words) <= 12]
        return short[0] if short else ""

    def quick_scores(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        count: int,
    ) -> dict[str, Any]:
        entities, _, words = self.judge(model, files, faults, decode.batch_tokens, count)
        accuracy = {"accuracy": round(100 * words.accuracy(), 4)}
        if self.settings.scheme == "plain":
            return accuracy
        return {"f1": round(100 * entities.scores()["f1"], 4), **accuracy}

    def evaluate(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """Entities found whole, leniently and strictly; words tagged rightly beside them."""
        began = time.perf_counter()
        entities, strict, words = self.judge(model, files, faults, decode.batch_tokens)
        seconds = time.perf_counter() - began
        count = int(words.matrix.sum())
        if not count:
            raise DataError(f"{files[0]}: there must be a sentence to score, but there is none.")
        found: dict[str, Any] = {}
        if self.settings.scheme != "plain":
            for name in ("f1", "precision", "recall"):
                found[name] = round(100 * entities.scores()[name], 4)
                low_high = entities.interval(name)
                found[f"{name}_interval"] = [round(100 * edge, 2) for edge in low_high]
            found["f1_unit"] = "whole entities, as seqeval scores by default"
            found["f1_strict"] = round(100 * strict.scores()["f1"], 4)
            found["f1_strict_unit"] = "whole entities, seqeval's strict mode, IOB2"
        found["accuracy"] = round(100 * words.accuracy(), 4)
        found["accuracy_interval"] = [
            round(100 * edge, 2) for edge in words.interval(Confusion.accuracy)
        ]
        found["accuracy_unit"] = "words"
        found["loss"] = round(nll / tokens, 5)
        plain = self.settings.scheme == "plain"
        found["per_class"] = (
            dict(zip(self.labels, words.per_class(), strict=True)) if plain else entities.per_type()
        )
        rate = {"predict_words_per_second": round(count / seconds, 1)}
        return {**found, **rate, "words": count, "examples": self.sentences}

    def judge(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        faults: Faults,
        budget: int,
        most: int | None = None,
    ) -> tuple[Entities, Entities, Confusion]:
        lenient, strict, words = Entities(), Entities(strict=True), Confusion(len(self.labels))
        self.sentences = 0
        for chunk in chunks(islice(self.known(files, faults), most)):
            given = self.tagged(model, [example.words for example in chunk], budget)
            self.sentences += len(chunk)
            for example, tags in zip(chunk, given, strict=True):
                words.add(*([self.number[tag] for tag in side] for side in (example.tags, tags)))
                if self.settings.scheme != "plain":
                    lenient.add(example.tags, tags)
                    strict.add(example.tags, tags)
        return lenient, strict, words


def words_of(line: str, number: int = 1) -> list[str]:
    """A typed sentence as words and signs."""
    if not is_text(line):
        raise InputError(f"input {number}: the text must be UTF-8, but is not.")
    words = re.findall(r"\w+(?:[-.'’&]\w+)*|[^\w\s]", line)
    if not words:
        raise InputError(f"input {number}: there must be a word to tag, but there is none.")
    return words
