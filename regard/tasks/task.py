"""What a task is: the contract between tasks and all who train, score, answer, show or serve them.

Every task is a `Task`. What only some can do are capabilities, each a Protocol of its own that is
asked for with `isinstance`; nobody asks for a task's name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor

from ..batch import Sizes
from ..data.cut import Plan
from ..data.environments import Policy
from ..data.examples import Data, Examples, read_once
from ..data.given import Given, write_records
from ..data.pieces import prepared, ranges
from ..data.read import Faults
from ..data.store import EDITION, Chunk, Field, Store
from ..decode import Hypothesis, Limits
from ..decode import Settings as Decode
from ..errors import RunError
from ..model import AnyBatch, Model
from ..progress import Work
from ..score.bertscore import Read
from ..text import Text
from ..text.chat import Chat
from .form import Form
from .prediction import Prediction

S = TypeVar("S")  # its settings
R = TypeVar("R", bound=NamedTuple)  # an example, as its reader has it
P = TypeVar("P")  # what a plan picks for a batch
Sections = Mapping[str, Any]  # the task's own sections of a recipe, each as its settings
Rng = Sequence[np.random.Generator]  # one for each row of a batch
Scores = dict[str, Any]


class Axis(NamedTuple):
    """What the rows or columns of an attention's weights stand for; the views draw by `kind`."""

    names: list[str]  # one for each row or column
    kind: str = "words"
    shape: tuple[int, ...] = ()  # where they lie in several dimensions: patches of a picture
    picture: bytes = b""  # what they are parts of, where that can be shown
    layout: Mapping[str, Any] | None = None  # of nodes: where they are drawn, and who is joined

    def real(self, count: int) -> int:
        """How many of so many rows or columns are shown: what a sound is filled up with has no
        name."""
        return min(count, len(self.names)) if self.kind == "frames" else count

    def spaced(self, count: int) -> Axis:
        """The same for a model that has taken several frames of a sound together."""
        if self.kind != "frames" or len(self.names) <= count:
            return self
        stride = 2  # a pyramid halves as often as it must
        while -(-len(self.names) // stride) > count:
            stride *= 2
        return self._replace(names=self.names[::stride][:count], shape=(count,))


class Measured(NamedTuple):
    """A loss over a whole store: its sum, and how many it is of."""

    nll: float
    tokens: int


class Task(Protocol[S, R, P]):
    """What is read, what is asked of it, how that is scored, and how it is answered."""

    Settings: ClassVar[type]
    Example: ClassVar[type]  # what examples are
    sections: ClassVar[Mapping[str, type]]  # recipe sections of its own: {"text": …} or {}
    keeps: ClassVar[tuple[str, ...]]  # files that it may keep in a run folder
    # Endings of the files that rows given in Python become; (): it reads files alone.
    row_files: ClassVar[tuple[str, ...]] = (".jsonl",)
    # What a recipe that says nothing gets, where it is not the usual.
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    settings: S
    loss: str  # of `LOSSES`
    metric: str
    chosen_by: str = ""  # a score of `quick_scores` that the best is chosen by; empty: the metric
    higher_is_better: bool = True
    unit: str  # what the loss is a mean over
    wanted: str  # what there must be at least one of, for messages
    gets: ClassVar[str] = "text"  # what an answer is: a text, a label, tags, a span, a vector
    caution: ClassVar[str] = ""  # what a card says before all else
    looks_at_answer: bool = False  # whether `see` looks at the pass that writes the answer
    draws: bool = False  # whether batches are drawn anew in every epoch
    names_classes: ClassVar[bool] = False  # whether a folder that it is made of must do so
    recuts: ClassVar[bool] = False  # whether `text.dropout` cuts its text anew in every batch
    encodes_apart: ClassVar[bool] = False  # whether each example becomes rows by itself

    @property
    @abstractmethod
    def gives(self) -> Form[Any]:
        """How an input is typed, sent and shown."""

    @property
    @abstractmethod
    def sizes(self) -> Sizes:
        """What a model must know of the data."""

    # From files to batches.

    @staticmethod
    @abstractmethod
    def read(settings: S, files: Sequence[Path], faults: Faults) -> Iterator[R]:
        """The files' examples; what cannot be used is told to `faults`."""

    @classmethod
    def columns(cls, settings: S) -> tuple[str, ...]:
        """What a row given in Python as a tuple has; (): rows must be dicts."""
        return ()

    @classmethod
    def write_rows(cls, settings: S, given: Given, paths: Sequence[Path]) -> None:
        """Rows given in Python as files that `read` takes, named as `row_files` says."""
        write_records(paths[0], given.records(cls.columns(settings)), given)

    @staticmethod
    def reads_by(settings: S) -> str:
        """Whatever of the settings shapes what is read."""
        return repr(settings)

    @classmethod
    def divides(cls, settings: S, files: Sequence[Path]) -> tuple[str, ...]:
        """Which part of the files is read, where they hold several."""
        return ()

    @classmethod
    @abstractmethod
    def learn(cls, settings: S, sections: Sections, examples: Examples[R]) -> Self:
        """What can only be known from the training examples: a vocabulary, names of classes."""

    @property
    @abstractmethod
    def fields(self) -> Mapping[str, Field]:
        """What a store keeps of each example."""

    @property
    @abstractmethod
    def marks(self) -> tuple[str, ...]:
        """Whatever of the task shapes what a store keeps."""

    @abstractmethod
    def encode(self, examples: Examples[R], longest: int, faults: Faults) -> Iterator[Chunk]:
        """Examples as rows of those fields."""

    def check(self, store: Store, where: str) -> None:
        """Refuse what is too little to learn from."""
        return

    @abstractmethod
    def plan(self, store: Store, budget: int, seed: int) -> Plan[P]:
        """Which rows make up which batch."""

    @abstractmethod
    def batch(self, store: Store, rows: P, rng: Rng | None = None) -> AnyBatch:
        """Rows of a store; what is drawn of each depends on its own generator alone."""

    def amount(self, store: Store) -> str:
        """How much there is to learn from, as people say it."""
        return f"{store.rows:,} examples"

    @abstractmethod
    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[AnyBatch]:
        """Everything once, always the same."""

    def evaluation_rows(self, store: Store, budget: int, thorough: bool = False) -> int | None:
        """How many rows those batches have in all, where that is known beforehand."""
        return store.rows

    @staticmethod
    @abstractmethod
    def sample_batch(settings: S, budget: int, sections: Sections | None = None) -> AnyBatch:
        """A batch of the usual shape, to reckon with before there are data."""

    @classmethod
    def usual_sizes(cls, settings: S, sections: Sections) -> Sizes:
        """What the sizes may be, before the data have told them."""
        batch, text = cls.sample_batch(settings, 1, sections), sections.get("text")
        size, joint = (text.size, text.joint) if text is not None else (0, False)
        return Sizes(size, size, joint, 2, type(batch.read), type(batch.asked))

    @classmethod
    def longest_read(cls, settings: S, sections: Sections) -> tuple[str, int] | None:
        """What a model must be able to place at least, after the setting that says so; None: a
        line of `data.max_length`."""
        context = vars(settings).get("context")
        return None if context is None else ("task.context", int(context))

    # Answers and scores.

    @abstractmethod
    def predict(
        self, model: Model, inputs: Sequence[Any], decode: Decode, longest: int, first: int = 1
    ) -> list[Prediction]:
        """An answer to each input; messages count from `first`."""

    def looked_at(self, given: Any) -> Any:
        """What of an input can be looked into at once."""
        return given

    @abstractmethod
    def example(self, examples: Examples[R], longest: int | None = None) -> str:
        """Something to try, as it would be typed; "" where there is nothing."""

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        """The metric on the first so many examples, while training."""
        return {}

    @abstractmethod
    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        """All scores, with their intervals and units."""

    # In a run folder.

    @abstractmethod
    def artefacts(self) -> Mapping[str, str]:
        """What a run keeps of it: the contents of files, by name."""

    @classmethod
    @abstractmethod
    def load(cls, settings: S, sections: Sections, folder: Path) -> Self:
        """The task of a run."""

    @property
    def notes(self) -> list[str]:
        """What whoever had it learned should know."""
        return []

    # What follows from the above.

    @classmethod
    def examples(
        cls, settings: S, files: Sequence[Path], cache: Path, faults: Faults
    ) -> Examples[R]:
        """The files' examples, read now or found in the cache."""
        marks = (cls.__name__, cls.reads_by(settings), *cls.divides(settings, files))
        rows = cls.read(settings, files, faults)
        return read_once(cache, files, cls.Example, marks, rows, faults, cls.wanted)

    def data(self, examples: Examples[R], cache: Path, longest: int, faults: Faults) -> Data:
        """Examples with what the task makes of them, made now or found in the cache."""
        # The examples' name stands for the files, of which nothing need be read again.
        made_of = (EDITION, type(self).__name__, examples.store.name, repr(self.fields))
        marks = (*made_of, *self.marks, str(longest))
        wanted = f"{examples.first_file}: there must be {self.wanted}"
        size = examples.size if self.encodes_apart else 0
        pieces = [
            partial(self.encode, examples.between(*some), longest)
            for some in ranges(len(examples), size)
        ]
        work = Work(f"preparing {examples.first_file.name}", total=len(examples))
        store = prepared(cache, marks, self.fields, pieces, faults, wanted, work)
        self.check(store, str(examples.first_file))
        return Data(examples, store)

    def save(self, folder: Path) -> None:
        """Keep its artefacts."""
        for name, content in self.artefacts().items():
            try:
                (folder / name).write_text(content, encoding="utf-8")
            except OSError as error:
                raise RunError(
                    f"{folder / name}: could not be written ({error.strerror})."
                ) from error


# What only some tasks can do.


AnyTask = Task[Any, Any, Any]


@runtime_checkable
class Adopts(Protocol):
    """It can take over what another run reads by, such as a vocabulary, whatever that was asked."""

    @classmethod
    def adopt_from(
        cls, settings: Any, sections: Sections, origin: Path, examples: Examples[Any]
    ) -> AnyTask:
        """With what another run's folder keeps; what is asked is learned from the examples."""


@runtime_checkable
class HasText(Protocol):
    """It reads or writes text: its vocabularies."""

    @property
    def texts(self) -> Mapping[str, Text]:
        """By the names that they have in a run folder."""


@runtime_checkable
class Labels(Protocol):
    """It has names for its classes."""

    labels: list[str]
    predicts: str


@runtime_checkable
class Imports(Protocol):
    """It can be made of somebody else's folder."""

    @classmethod
    def imported(
        cls,
        settings: object,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> AnyTask: ...


@runtime_checkable
class TakesTurns(Protocol):
    """An answer of it may take long, in which others have their turn."""

    def turns(
        self, model: Model, inputs: Sequence[Any], decode: Decode
    ) -> Generator[None, None, list[Prediction]]:
        """The same as `predict`; where it yields, others may use the model."""


@runtime_checkable
class Decides(Protocol):
    """It says what to do next."""

    def policy(self, model: Model, columns: Sequence[str], actions: Sequence[str]) -> Policy | None:
        """What it would do where this is observed and that can be done; None: it cannot tell."""


@runtime_checkable
class Fuses(Protocol):
    """Its answers may be searched for together with a language model."""

    def fuse(self, other: object, model: Model) -> str:
        """Ask another run's task and model, too.  -> why that cannot be; "" where it can"""


@runtime_checkable
class ReadsTokens(Protocol):
    """Its encoder has a vector for each token of a text."""

    def read_tokens(self, model: Model, lines: Sequence[str], budget: int) -> list[Read]: ...


@runtime_checkable
class Compares(Protocol):
    """What it writes may be compared with what is right by what another run reads in both."""

    def compare_by(self, read: Callable[[Sequence[str]], list[Read]], signature: str) -> None: ...


@runtime_checkable
class Embeds(HasText, Protocol):
    """It makes vectors."""

    def vectors(self, model: Model, rows: Sequence[Sequence[int]], budget: int) -> list[Tensor]: ...


@runtime_checkable
class Shows(Protocol):
    """Its examples are files; one of them as a user would give it."""

    def as_given(self, example: Any) -> object: ...


@runtime_checkable
class Traces(Protocol):
    """It can be looked into: an input as a batch, and what its rows and columns stand for."""

    def trace(self, given: object, target: str) -> tuple[AnyBatch, dict[str, Axis]]: ...


@runtime_checkable
class WritesText(Protocol):
    """It answers token by token; all decoding goes through this."""

    @property
    def written(self) -> Text:
        """The vocabulary that answers are written in."""

    @property
    def writes_on(self) -> bool:
        """Whether an answer goes on from its input, which is then its prompt."""

    @property
    def never_written(self) -> tuple[int, ...]:
        """Entries of that vocabulary that are no text."""

    def read_ids(self, given: object, number: int = 1) -> list[int]:
        """An input's tokens, however many."""

    def read_input(
        self, model: Model, given: object, decode: Decode, longest: int, number: int = 1
    ) -> Any:
        """What is read of an input, all of which can be: its tokens, or whatever `begin` takes; it
        has a length, and what has none gets an empty answer."""

    def begin(
        self, model: Model, rows: Sequence[object], decode: Decode
    ) -> tuple[AnyBatch, Limits]:
        """What `start` takes, and how far an answer may go."""

    def answer(
        self,
        given: object,
        read: object,
        hypotheses: Sequence[Hypothesis],
        decode: Decode,
        seconds: float,
    ) -> Prediction: ...


@runtime_checkable
class Streams(WritesText, Protocol):
    """It gives out its answer as it comes, and tells how likely a text is."""

    def predict(
        self,
        model: Model,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
        draft: Model | None = None,
    ) -> list[Prediction]: ...

    def stream(
        self, model: Model, line: str, decode: Decode, draft: Model | None = None
    ) -> Iterator[str]: ...

    begins: bool  # whether a text stands behind the end of another

    def slides(self, line: str, model: Model, decode: Decode) -> bool:
        """Whether the beginning of the text will be forgotten."""

    def stream_ids(
        self, model: Model, ids: Sequence[int], decode: Decode, draft: Model | None = None
    ) -> Iterator[str]: ...

    def logprobs(self, model: Model, line: str) -> list[tuple[str, float | None]]: ...


@runtime_checkable
class Chats(Streams, Protocol):
    """It may have been taught to converse: then it has a template for that."""

    chat: Chat | None
