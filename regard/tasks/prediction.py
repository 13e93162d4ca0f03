"""An answer, the same for every task, in Python, in the shell and over HTTP."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
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

    def json(self) -> dict[str, Any]:
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        if self.nbest is not None:
            fields["nbest"] = [{"output": text, "score": score} for text, score in self.nbest]
        return fields
