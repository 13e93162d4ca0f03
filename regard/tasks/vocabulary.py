"""What all tasks with one vocabulary share: where it is kept, what it has to say, who brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from ..text import Settings as TextSettings
from ..text import Text
from .task import P, R, S, Sections, Task


class OneVocabulary(Task[S, R, P]):
    """A task that reads, and perhaps writes, one vocabulary."""

    sections: ClassVar[Mapping[str, type]] = {"text": TextSettings}
    keeps: ClassVar[tuple[str, ...]] = ("tokenizer.json",)
    text: Text

    @classmethod
    def imported(
        cls,
        settings: S,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> Self:
        """With somebody else's vocabulary; a task that needs more than that says so."""
        return cls(settings, texts[0])  # type: ignore[call-arg]

    @property
    def texts(self) -> Mapping[str, Text]:
        return {"tokenizer.json": self.text}

    @property
    def notes(self) -> list[str]:
        return [self.text.note] if self.text.note else []

    def artefacts(self) -> Mapping[str, str]:
        return {"tokenizer.json": self.text.tokenizer.to_str(pretty=True)}
