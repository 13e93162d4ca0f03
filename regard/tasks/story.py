"""Stories: sentences and a question in, a word out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from annotated_types import Gt, Le
from numpy.typing import NDArray

from ..batch import Batch, Sizes, Tokens, pad
from ..batch import Story as StoryBatch
from ..data import babi
from ..data.babi import Told, one_word, parse, words
from ..data.cut import Plan
from ..data.examples import Data, Examples
from ..data.order import Rows, Shuffled
from ..data.read import Faults, parcels
from ..data.store import Chunk, Store, ids_below
from ..data.store import Field as StoreField
from ..decode import Settings as Decode
from ..errors import InputError, RecipeError
from ..model import Model
from ..progress import counted
from ..score.interval import hundredths
from ..score.length import buckets
from ..score.texts import Mean
from ..text import Text, learn
from .form import Form, TextForm
from .prediction import Prediction
from .task import Axis, Measured, Rng, Scores, Sections
from .vocabulary import OneVocabulary

PASS = 5.0  # per cent of wrong answers at which a task counts as solved
CHUNK = 1000  # questions tokenised or answered at a time
MARK = "★ "  # before a sentence that the answer follows from
NAMES = ("words", "sizes", "question", "answer")


@dataclass(frozen=True)
class StorySettings:
    """How much of a story is kept."""

    sentences: Annotated[int, Gt(0), Le(10**5), "the newest so many sentences are kept"] = 50


class Story(OneVocabulary[StorySettings, Told, Rows]):
    """Questions about stories; scored by accuracy, task by task; answers with a word."""

    Settings = StorySettings
    row_files = ()
    Example = Told
    loss = "tokens"
    metric = "accuracy"
    unit = "answer"
    wanted = "a question to answer"
    looks_at_answer = True
    defaults: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "text": {"kind": "spaced", "size": 100_000},
        "train": {"smoothing": 0.0},
    }

    def __init__(self, settings: StorySettings, text: Text) -> None:
        self.settings, self.text = settings, text

    @property
    def gives(self) -> Form[str]:
        return TextForm("a story, then a question ending in ?")

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.text.size, self.text.size, True, read=StoryBatch, asked=Tokens)

    # The vocabulary: words and answers in one.

    @staticmethod
    def read(settings: StorySettings, files: Sequence[Path], faults: Faults) -> Iterator[Told]:
        return babi.read(files, faults)

    @staticmethod
    def reads_by(settings: StorySettings) -> str:
        return ""

    @classmethod
    def learn(cls, settings: StorySettings, sections: Sections, examples: Examples[Told]) -> Self:
        if sections["text"].kind != "spaced":
            raise RecipeError("text.kind: a story is read word by word; leave it at 'spaced'.")

        def every() -> Iterator[str]:
            for example in examples:
                yield from map(words, (*example.story, example.question))
                yield one_word(example.answer)

        return cls(settings, learn(every(), sections["text"]))

    @classmethod
    def load(cls, settings: StorySettings, sections: Sections, folder: Path) -> Self:
        return cls(settings, Text.load(folder / "tokenizer.json"))

    # Batches.

    @property
    def fields(self) -> Mapping[str, StoreField]:
        ids, sizes = ids_below(self.text.size), ids_below(2**20)
        return {"words": ids, "sizes": sizes, "question": ids, "answer": ids}

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.text.tokenizer.to_str(), repr(self.settings))

    def encode(self, examples: Examples[Told], longest: int, faults: Faults) -> Iterator[Chunk]:
        for some in parcels(examples, lambda example: len(example.story), CHUNK):
            rows = []
            for example in some:
                row = self.row(example)
                most = max([len(row["question"]), *row["sizes"]])
                if most <= longest:
                    rows.append(row)
                    continue
                faults.report(
                    example.where,
                    f"a sentence may have {longest} words (data.max_length), but one has {most}",
                )
            yield {name: [row[name] for row in rows] for name in NAMES}

    def row(self, example: Told) -> dict[str, list[int]]:
        kept = example.story[-self.settings.sentences :]
        told = self.text.encode([words(sentence) for sentence in kept])
        told = [ids or [self.text.unk] for ids in told]
        question, answer = self.text.encode([words(example.question), one_word(example.answer)])
        return {
            "words": [i for ids in told for i in ids],
            "sizes": [len(ids) for ids in told],
            "question": question or [self.text.unk],
            "answer": answer[:1] or [self.text.unk],
        }

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        """Batches of `budget` answers."""
        return Shuffled(store.lengths("words") + store.lengths("question"), budget, seed)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[StoryBatch, Tokens]]:
        """Every question once."""
        rows = np.arange(store.rows)
        for start in range(0, len(rows), budget):
            yield self.batch(store, rows[start : start + budget])

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[StoryBatch, Tokens]:
        return arrange({name: store.padded(name, rows, [], [])[0] for name in NAMES})

    def stories(self, examples: Sequence[Told]) -> Batch[StoryBatch, Tokens]:
        """Examples as a batch, without a store."""
        rows = [self.row(example) for example in examples]
        return arrange({name: pad([row[name] for row in rows]).numpy() for name in NAMES})

    @staticmethod
    def sample_batch(
        settings: StorySettings, budget: int, sections: Sections | None = None
    ) -> Batch[StoryBatch, Tokens]:
        """Ten sentences of eight words."""
        sentences = torch.ones(budget, min(10, settings.sentences), 8, dtype=torch.long)
        counts = torch.full((budget,), sentences.shape[1])
        return Batch(StoryBatch(sentences, counts, sentences[:, 0]), answers(counts * 0 + 1))

    # Answers.

    def predict(
        self, model: Model, inputs: Sequence[str], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """A word for each story with its question; a word never met is named in a warning."""
        examples = [parse(text, number) for number, text in enumerate(inputs, first)]
        began = time.perf_counter()
        batches = (
            self.stories(examples[start : start + CHUNK])
            for start in range(0, len(examples), CHUNK)
        )
        found = [
            ranked
            for batch in batches
            for ranked in self.rank(model, batch, decode.num_return_sequences)
        ]
        seconds = round(time.perf_counter() - began, 6)
        told = []
        for text, example, ranked in zip(inputs, examples, found, strict=True):
            more = tuple(ranked) if len(ranked) > 1 else None
            warning = self.strange(example)
            told.append(Prediction(text, *ranked[0], more, seconds, warning))
        return told

    @torch.inference_mode()
    def rank(
        self, model: Model, batch: Batch[StoryBatch, Tokens], count: int = 1
    ) -> list[list[tuple[str, float]]]:
        """The likeliest answers with their log-probabilities."""
        logits = model(batch.to(next(model.parameters()).device))[:, 0]
        logits[:, sorted(self.text.specials)] = float("-inf")
        most = min(count, logits.shape[1] - len(self.text.specials))
        best = logits.float().log_softmax(-1).topk(most, -1)
        rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [
            list(zip(self.text.decode([[i] for i in ids]), scores, strict=True))
            for scores, ids in rows
        ]

    def strange(self, example: Told) -> str | None:
        """A warning that names the words that training never met."""
        said = [word for line in (*example.story, example.question) for word in words(line).split()]
        ids = self.text.encode(said)
        unknown = [w for w, i in zip(said, ids, strict=True) if i == [self.text.unk]]
        if not unknown:
            return None
        return f"{example.where}: never met in training: {', '.join(dict.fromkeys(unknown))}"

    def trace(self, given: str, target: str) -> tuple[Batch[StoryBatch, Tokens], dict[str, Axis]]:
        """One story as a batch, and the sentences that its columns stand for."""
        example = parse(given)
        if not example.story:
            raise InputError("input: there must be a sentence to look at before the question.")
        marked = [MARK * (i in example.support) + line for i, line in enumerate(example.story)]
        told = Axis(marked[-self.settings.sentences :], "sentences")
        sides = {"story": told, "question": Axis([example.question], "sentences")}
        return self.stories([example]), sides

    # Scores.

    def example(self, examples: Examples[Told], longest: int | None = None) -> str:
        """The first question with its story, on one line."""
        first = next(iter(examples))
        told = (line if line.endswith((".", "!")) else f"{line}." for line in first.story)
        return " ".join(
            [*told, first.question if first.question[-1] == "?" else f"{first.question}?"]
        )

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        """Accuracy on all questions: there is nothing to decode."""
        return {"accuracy": round(100 * float(self.judge(model, data).mean()), 4)}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """Error of each task, their mean, and how many tasks are solved."""
        began = time.perf_counter()
        right = self.judge(model, data)
        seconds = time.perf_counter() - began
        tasks, told = [], []
        for example in data.examples:
            tasks.append(example.task)
            told.append(len(example.story))
        errors = {
            name: round(100 * float(1 - right[[task == name for task in tasks]].mean()), 4)
            for name in dict.fromkeys(tasks)
        }
        lengths = [
            (low, high, np.array([low <= n <= high for n in told])) for low, high in buckets(told)
        ]
        every = Mean()
        for one in right.tolist():
            every.add({"accuracy": one})
        return {
            "accuracy": round(100 * float(right.mean()), 4),
            "accuracy_interval": hundredths(every.interval("accuracy")),
            "mean_error": round(float(np.mean(list(errors.values()))), 4),
            "tasks": len(errors),
            "tasks_passed": sum(error <= PASS for error in errors.values()),
            "error": errors,
            "by_length": [
                {
                    "from": low,
                    "to": high,
                    "examples": int(some.sum()),
                    "accuracy": round(100 * float(right[some].mean()), 2),
                }
                for low, high, some in lengths
            ],
            "by_length_unit": "sentences told",
            "predict_answers_per_second": round(len(right) / seconds, 1),
            "loss": round(loss.nll / loss.tokens, 5),
            "examples": len(right),
        }

    def judge(self, model: Model, data: Data) -> NDArray[np.float64]:
        """Whether each question was answered rightly."""
        batches = self.evaluation_batches(data.store, CHUNK)
        given = [
            ranked[0][0]
            for batch in counted(batches, "answering", data.store.rows, len)
            for ranked in self.rank(model, batch)
        ]
        wanted = [self.text.normalise(one_word(example.answer)) for example in data.examples]
        return np.array([a == b for a, b in zip(given, wanted, strict=True)], float)


def answers(ids: torch.Tensor) -> Tokens:
    """One word for each question.  (B,)"""
    return Tokens(ids[:, None], torch.tensor([[0, 1]]).repeat(len(ids), 1))


def arrange(fields: dict[str, NDArray[np.int64]]) -> Batch[StoryBatch, Tokens]:
    """Zero-padded rows as a batch: the words, which come sentence after sentence, are set apart.

    words (B, all), sizes (B, M) of the sentences, question (B, W), answer (B, 1)
    """
    sizes = fields["sizes"]
    if not sizes.shape[1]:  # nobody is told anything
        sizes = np.zeros((len(sizes), 1), np.int64)
    longest = max(1, int(sizes.max()))
    sentences = np.zeros((*sizes.shape, longest), np.int64)
    words = fields["words"]
    # A mask is filled in the order that the words come in.
    sentences[np.arange(longest) < sizes[..., None]] = words[
        np.arange(words.shape[1]) < sizes.sum(1)[:, None]
    ]
    put = torch.from_numpy
    read = StoryBatch(put(sentences), put((sizes > 0).sum(1)), put(fields["question"]))
    return Batch(read, answers(put(fields["answer"][:, 0])))
