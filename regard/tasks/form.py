"""Forms: what a user gives a task, and how it is typed, sent and shown.

The shell, Python, HTTP and the page choose by a task's form; none of them knows tasks by name.
"""

from __future__ import annotations

import base64
import binascii
import sys
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from ..data.read import is_text
from ..errors import InputError

Given = TypeVar("Given")


class Form(Protocol[Given]):
    """One kind of thing that can be given."""

    kind: str  # the page has a way to ask for each kind
    labels: tuple[str, ...]  # what the page writes beside its fields
    from_file: bool  # typed as the name of a file, sent as its content

    def parse(self, word: str, number: int = 1) -> Given:
        """From a word of the shell or a line of standard input; messages count from `number`."""

    def accept(self, sent: object, number: int = 1) -> Given:
        """From what came over HTTP, where a text is never the name of a file; or from Python."""

    def show(self, given: Given) -> str:
        """As it is told back."""


@runtime_checkable
class ReadsFiles(Protocol):
    """A form whose things are files, each with one of these endings."""

    endings: tuple[str, ...]


class TextForm:
    """A text."""

    kind = "text"
    from_file = False

    def __init__(self, label: str = "text") -> None:
        self.labels: tuple[str, ...] = (label,)

    def parse(self, word: str, number: int = 1) -> str:
        if not is_text(word):
            raise InputError(f"input {number}: the text must be UTF-8, but is not.")
        return word

    def accept(self, sent: object, number: int = 1) -> str:
        if not isinstance(sent, str):
            raise InputError(f"input {number}: must be a text, but is {kind_of(sent)}.")
        return self.parse(sent, number)

    def show(self, given: str) -> str:
        return given


class LineForm(TextForm):
    """A text that no tab divides."""

    def parse(self, word: str, number: int = 1) -> str:
        if "\t" in super().parse(word, number):
            raise InputError(
                f"input {number}: there must be one text, but a tab divides it in two."
            )
        return word


class TwoTexts(NamedTuple):
    """Two texts that belong together."""

    one: str
    two: str


class PairForm:
    """Two texts; typed, they have a tab between."""

    kind = "pair"
    from_file = False

    def __init__(self, what: str, *labels: str) -> None:
        self.what, self.labels = what, labels

    def parse(self, word: str, number: int = 1) -> TwoTexts:
        if not is_text(word):
            raise InputError(f"input {number}: the text must be UTF-8, but is not.")
        one, tab, two = word.partition("\t")
        if not tab:
            raise InputError(
                f"input {number}: there must be {self.what} with a tab between, but there is no "
                "tab."
            )
        return TwoTexts(one, two)

    def accept(self, sent: object, number: int = 1) -> TwoTexts:
        if isinstance(sent, str):
            return self.parse(sent, number)
        if (
            isinstance(sent, list | tuple)
            and len(sent) == 2
            and all(isinstance(text, str) and is_text(text) for text in sent)
        ):
            return TwoTexts(*sent)
        raise InputError(
            f"input {number}: must be {self.what}, with a tab between or as a list, but is "
            f"{kind_of(sent)}."
        )

    def show(self, given: TwoTexts) -> str:
        return "\t".join(given)


def read_file(word: str, number: int) -> bytes:
    """The content of a file that a shell word names; `-` is standard input."""
    if word == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(word).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"input {number}: {word}: cannot be read ({reason}).") from error


def read_url(sent: object, kinds: tuple[str, ...], wanted: str, number: int) -> bytes:
    """The content of a data: URL of one of these kinds; `wanted` says what else it is not."""
    head, comma, body = sent.partition(",") if isinstance(sent, str) else ("", "", "")
    known = head.startswith(tuple(f"data:{kind}/" for kind in kinds))
    if not (comma and known and head.endswith(";base64")):
        raise InputError(f"input {number}: must be {wanted}, but is not.")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"input {number}: not base64 ({error}).") from error


def kind_of(sent: object) -> str:
    """What something is called in JSON."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", tuple: "a list", str: "a text"}
    return kinds.get(type(sent), "a number" if isinstance(sent, int | float) else "something else")
