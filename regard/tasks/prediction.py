"""An answer, the same for every task, in Python, in the shell and over HTTP."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = 120


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a model answers to one input; fields that a task does not fill are left out of JSON."""

    input: str
    output: str
    score: float | None = None
    nbest: tuple[tuple[str, float], ...] | None = None  # further answers with their scores
    seconds: float | None = None  # of the batch that the input was in
    warning: str | None = None  # what the reader of the answer should know
    label: str | None = None
    probabilities: dict[str, float] | None = None  # of each label
    tags: tuple[tuple[str, str], ...] | None = None  # words, each with its tag
    answer: str | None = None
    start: int | None = None  # the answer's first character in its text
    end: int | None = None  # and the one after its last
    vector: tuple[float, ...] | None = None
    value: float | None = None  # what the action is worth
    recorded: dict[str, float] | None = None  # how likely each action was in such states
    times: dict[str, int] | None = None  # how often each was recorded in this very state
    segments: tuple[tuple[float, float, str], ...] | None = None  # of a sound: from, to, what

    def __repr__(self) -> str:
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.vector is not None:
            told["vector"] = f"({len(self.vector)} numbers)"
        given = {name: value for name, value in told.items() if value is not None}
        shown = (f"{name}={_BRIEF.repr(value)}" for name, value in given.items())
        return f"Prediction({', '.join(shown)})"

    @classmethod
    def written(
        cls, line: str, texts: Sequence[str], scores: Sequence[float], seconds: float
    ) -> Prediction:
        """An answer that was written: the first of several, best first; none, where every
        continuation was forbidden."""
        if not texts:
            return cls(line, "", None, None, seconds)
        more = tuple(zip(texts, scores, strict=True)) if len(texts) > 1 else None
        return cls(line, texts[0], scores[0], more, seconds)

    def json(self) -> dict[str, object]:
        told = {name: value for name, value in asdict(self).items() if value is not None}
        if self.nbest is not None:
            told["nbest"] = [{"output": text, "score": score} for text, score in self.nbest]
        if self.segments is not None:
            names = ("start", "end", "text")
            told["segments"] = [dict(zip(names, one, strict=True)) for one in self.segments]
        return told
