"""Stories: sentences and a question in, a word out."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from annotated_types import Gt, Le
from numpy.typing import NDArray

from ..batch import Sizes, Stories, pad
from ..data.cut import Plan
from ..data.order import Shuffled
from ..data.read import Faults, is_text, lines
from ..data.store import Chunk, Store, cached
from ..decode import Settings as Decode
from ..errors import DataError, InputError, RecipeError
from ..text import Settings as TextSettings
from ..text import Text, learn
from .length import buckets
from .prediction import Prediction

PASS = 5.0  # per cent of wrong answers at which a task counts as solved
CHUNK = 1000  # questions tokenised or answered at a time
MARK = "★ "  # before a sentence that the answer follows from


class Example(NamedTuple):
    """A question with what was told before it."""

    story: list[str]
    question: str
    answer: str
    support: list[int]  # places in the story
    task: str
    where: str


@dataclass(frozen=True)
class StorySettings:
    """How much of a story is kept."""

    sentences: Annotated[int, Gt(0), Le(10**5), "the newest so many sentences are kept"] = 50


def words(text: str) -> str:
    """Lower-case words with a space between: what is left of a sentence.

    A mark belongs to the letter before it; a sign inside a word (don't, well-known) stays.
    """
    kept = (
        c if c.isalnum() or c in "'’-" or unicodedata.category(c)[0] == "M" else " "
        for c in unicodedata.normalize("NFC", text.lower())
    )
    return " ".join(filter(None, (word.strip("'’-") for word in "".join(kept).split())))


def one_word(answer: str) -> str:
    """An answer as one entry of the vocabulary; a list is joined by commas."""
    return ",".join(words(part).replace(" ", "-") for part in answer.split(","))


def read(files: Sequence[Path], faults: Faults) -> Iterator[Example]:
    """The questions of bAbI files; each file is a task, named as the file is."""
    for path in files:
        task = re.sub(r"[_-](train|valid|test)$", "", path.name.partition(".")[0])
        story: list[str] = []
        places: dict[int, int] = {}  # of a line's number in the story
        before = 0
        for at, line in enumerate(lines(path, faults.skip), 1):
            where = f"{path}:{at}"
            if not line.strip():
                continue
            if not is_text(line):
                faults.report(where, "the text must be UTF-8, but is not")
                continue
            number, _, rest = line.strip().partition(" ")
            if not is_number(number) or int(number) not in (1, before + 1):
                faults.report(
                    where,
                    f"a line must begin with its number in the story, 1 or {before + 1}, but "
                    f"begins with '{number[:20]}'",
                )
                continue
            before = int(number)
            if before == 1:
                story, places = [], {}
            asked, _, more = rest.partition("\t")
            answer, _, support = more.partition("\t")
            if "\t" not in rest and not asked.rstrip().endswith("?"):
                places[before] = len(story)
                story.append(asked.strip())
            elif not words(answer):
                faults.report(
                    where, "a question must have an answer after a tab, but this one has none"
                )
            else:
                named = [int(n) for n in support.split() if is_number(n)]
                found = [places[n] for n in named if n in places]
                yield Example(list(story), asked.strip(), answer, found, task, where)


def is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def parse(text: str, number: int = 1) -> Example:
    """A story and its question as somebody types them, or as lines of a bAbI file."""
    rows = [row for row in map(str.strip, text.split("\n")) if row]
    numbered = "\t" in text or len(rows) > 1
    numbered = numbered and all(is_number(row.partition(" ")[0]) for row in rows)
    if not numbered:
        rows = [piece for row in rows for piece in re.split(r"(?<=[.?!])\s+", row)]
    told: list[str] = []
    places: dict[int, int] = {}
    asked, support = "", list[int]()
    for row in rows:
        first, _, rest = row.partition(" ") if numbered else ("0", "", row)
        plain, _, more = rest.partition("\t")
        plain = plain.strip()
        asked = plain if plain.endswith("?") else ""
        if asked:
            named = more.partition("\t")[2].split()
            support = [places[int(n)] for n in named if is_number(n) and int(n) in places]
            continue
        places[int(first)] = len(told)
        told.append(plain)
    if not words(asked):
        raise InputError(
            f"input {number}: the last sentence must be a question, ending in '?', but is "
            f"'{told[-1][:60] if told else ''}'."
        )
    return Example(told, asked, "", support, "", f"input {number}")


class Story:
    """Questions about stories; scored by accuracy, task by task; answers with a word."""

    Settings = StorySettings
    loss = "tokens"
    metric, higher_is_better = "accuracy", True
    unit = "answer"
    looks_at_answer = True
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "text": {"kind": "spaced", "size": 100_000},
        "train": {"smoothing": 0.0},
    }

    def __init__(self, settings: StorySettings, text: Text) -> None:
        self.settings, self.text = settings, text

    # The vocabulary: words and answers in one.

    @classmethod
    def learn(
        cls, settings: StorySettings, text: TextSettings, files: Sequence[Path], faults: Faults
    ) -> Story:
        if text.kind != "spaced":
            raise RecipeError("text.kind: a story is read word by word; leave it at 'spaced'.")

        def every() -> Iterator[str]:
            for example in read(files, faults):
                yield from map(words, (*example.story, example.question))
                yield one_word(example.answer)

        return cls(settings, learn(every(), text))

    def save(self, folder: Path) -> None:
        self.text.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, settings: StorySettings, text: TextSettings, folder: Path) -> Story:
        return cls(settings, Text.load(folder / "tokenizer.json"))

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.text.size, self.text.size, True)

    # Batches.

    def store(self, files: Sequence[Path], cache: Path, longest: int, faults: Faults) -> Store:
        """The files' questions as ids, from the cache where their content has not changed."""
        marks = ("story", self.text.tokenizer.to_str(), str(longest), repr(self.settings))
        rows = self._encode(files, longest, faults)
        return cached(cache, files, marks, rows, self.text.size, faults, "a question to answer")

    def _encode(self, files: Sequence[Path], longest: int, faults: Faults) -> Iterator[Chunk]:
        rows: list[dict[str, list[int]]] = []
        for example in read(files, faults):
            row = self.row(example)
            if max([len(row["question"]), *row["sizes"]]) > longest:
                faults.report(
                    example.where,
                    f"a sentence may have {longest} words (data.max_length), but one has "
                    f"{max([len(row['question']), *row['sizes']])}",
                )
                continue
            rows.append(row)
            if len(rows) == CHUNK:
                yield {name: [r[name] for r in rows] for name in row}
                rows = []
        if rows:
            yield {name: [r[name] for r in rows] for name in rows[0]}

    def row(self, example: Example) -> dict[str, list[int]]:
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

    def plan(self, store: Store, budget: int, seed: int) -> Plan:
        """Batches of `budget` answers."""
        return Shuffled(store.lengths("words") + store.lengths("question"), budget, seed)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Stories]:
        """Every question once."""
        rows = np.arange(store.rows)
        for start in range(0, len(rows), budget):
            yield self.batch(store, rows[start : start + budget])

    def batch(
        self,
        store: Store,
        rows: NDArray[np.integer[Any]],
        rng: np.random.Generator | None = None,
    ) -> Stories:
        """Rows of a store as a batch."""
        names = ("words", "sizes", "question", "answer")
        return arrange({name: store.padded(name, rows, [], [])[0] for name in names})

    def stories(self, examples: Sequence[Example]) -> Stories:
        """Examples as a batch, without a store."""
        rows = [self.row(example) for example in examples]
        return arrange({name: pad([row[name] for row in rows]).numpy() for name in rows[0]})

    @staticmethod
    def sample_batch(settings: StorySettings, budget: int) -> Stories:
        """A batch of the usual shape, ten sentences of eight words, to reckon with."""
        sentences = torch.ones(budget, min(10, settings.sentences), 8, dtype=torch.long)
        counts = torch.full((budget,), sentences.shape[1])
        return Stories(sentences, counts, sentences[:, 0], counts * 0 + 1)

    # Answers.

    def predict(
        self,
        model: torch.nn.Module,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        """A word for each story with its question; a word never met is named in a warning."""
        examples = []
        for number, text in enumerate(inputs, first):
            if not is_text(text):
                raise InputError(f"input {number}: the text must be UTF-8, but is not.")
            examples.append(parse(text, number))
        found: list[Prediction] = []
        began = time.perf_counter()
        for text, example, ranked in zip(
            inputs, examples, self.rank(model, examples, decode.num_return_sequences), strict=True
        ):
            more = tuple(ranked) if len(ranked) > 1 else None
            seconds = round(time.perf_counter() - began, 6)
            warning = self.strange(example)
            found.append(Prediction(text, *ranked[0], more, seconds, warning))
        return found

    @torch.inference_mode()
    def rank(
        self, model: Any, examples: Sequence[Example], count: int = 1
    ) -> Iterator[list[tuple[str, float]]]:
        """The likeliest answers with their log-probabilities."""
        device = next(model.parameters()).device
        for start in range(0, len(examples), CHUNK):
            logits = model(self.stories(examples[start : start + CHUNK]).to(device))[:, 0]
            logits[:, sorted(self.text.specials)] = float("-inf")
            best = (
                logits.float()
                .log_softmax(-1)
                .topk(min(count, logits.shape[1] - len(self.text.specials)), -1)
            )
            for scores, ids in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                yield list(zip(self.text.decode([[i] for i in ids]), scores, strict=True))

    def strange(self, example: Example) -> str | None:
        """A warning that names the words that training never met."""
        said = [word for line in (*example.story, example.question) for word in words(line).split()]
        ids = self.text.encode(said)
        unknown = [w for w, i in zip(said, ids, strict=True) if i == [self.text.unk]]
        if not unknown:
            return None
        return f"{example.where}: never met in training: {', '.join(dict.fromkeys(unknown))}"

    def trace(self, source: str, target: str) -> tuple[Stories, dict[str, list[str]]]:
        """One story as a batch, and the sentences that its columns stand for."""
        example = parse(source)
        if not example.story:
            raise InputError("input: there must be a sentence to look at before the question.")
        marked = [MARK * (i in example.support) + line for i, line in enumerate(example.story)]
        sides = {"story": marked[-self.settings.sentences :], "question": [example.question]}
        return self.stories([example]), sides

    # Scores.

    def example(self, files: Sequence[Path], longest: int | None = None) -> str:
        """The first question with its story, on one line."""
        first = next(read(files, Faults(skip=True)), None)
        if first is None:
            return ""
        told = (line if line.endswith((".", "!")) else f"{line}." for line in first.story)
        return " ".join(
            [*told, first.question if first.question[-1] == "?" else f"{first.question}?"]
        )

    def quick_scores(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        count: int,
    ) -> dict[str, Any]:
        """Accuracy on all questions: there is nothing to decode."""
        _, right = self.judge(model, files, faults)
        return {"accuracy": round(100 * float(right.mean()), 4)}

    def evaluate(
        self,
        model: torch.nn.Module,
        files: Sequence[Path],
        decode: Decode,
        faults: Faults,
        nll: float,
        tokens: int,
    ) -> dict[str, Any]:
        """Error of each task, their mean, and how many tasks are solved."""
        began = time.perf_counter()
        examples, right = self.judge(model, files, faults)
        seconds = time.perf_counter() - began
        tasks = [example.task for example in examples]
        errors = {
            name: round(100 * float(1 - right[[task == name for task in tasks]].mean()), 4)
            for name in dict.fromkeys(tasks)
        }
        told = [len(example.story) for example in examples]
        lengths = [
            (low, high, np.array([low <= n <= high for n in told])) for low, high in buckets(told)
        ]
        rng = np.random.default_rng(12345)
        means = [right[rng.integers(len(right), size=len(right))].mean() for _ in range(1000)]
        low, high = np.quantile(means, (0.025, 0.975))
        return {
            "accuracy": round(100 * float(right.mean()), 4),
            "accuracy_interval": [round(100 * float(low), 2), round(100 * float(high), 2)],
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
            "loss": round(nll / tokens, 5),
            "examples": len(right),
        }

    def judge(
        self, model: torch.nn.Module, files: Sequence[Path], faults: Faults
    ) -> tuple[list[Example], NDArray[np.float64]]:
        """The questions, and whether each was answered rightly."""
        examples = list(read(files, faults))
        if not examples:
            raise DataError(f"{files[0]}: there must be a question to answer, but there is none.")
        given = [ranked[0][0] for ranked in self.rank(model, examples)]
        wanted = [self.text.normalise(one_word(example.answer)) for example in examples]
        right = [a == b for a, b in zip(given, wanted, strict=True)]
        return examples, np.array(right, float)


def arrange(fields: dict[str, NDArray[np.int64]]) -> Stories:
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
    arrays = (sentences, (sizes > 0).sum(1), fields["question"], fields["answer"][:, 0])
    return Stories(*(torch.from_numpy(array) for array in arrays))
