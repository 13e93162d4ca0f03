"""An answer while it grows, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..decode import Hypothesis
from ..text import Text
from ..text.spelling import KEPT, UNFINISHED


class Growing:
    """An answer and the text of it that may be shown: nothing of a stop text, no half a character.

    Only the newest tokens are decoded again, so that each costs the same however long the answer.
    """

    def __init__(self, text: Text, before: Sequence[int] = (), stops: Sequence[str] = ()) -> None:
        """`before`: the tokens that the answer goes on from; a space after them is the answer's."""
        self.text, self.stops = text, stops
        self.ids = list(before)[-KEPT:]
        self.read = len(self.ids)  # tokens whose text is known
        self.held = ""  # known, but perhaps the beginning of a stop text
        self.stopped = self.ended = False  # ended: at a stop text, or by the model itself
        self.new: list[int] = []
        self.total = 0.0

    @property
    def hypothesis(self) -> Hypothesis:
        return Hypothesis(self.new, self.total, self.ended)

    def add(self, token: int, score: float = 0.0) -> str:
        """One token more, unless it has ended; what can be shown now."""
        if self.ended:
            return ""
        self.total += score
        if token in self.text.ends:
            self.ended = True
            return self.finish()
        self.new.append(token)
        self.ids.append(token)
        known, whole = self.text.decode([self.ids[: self.read], self.ids])
        if len(whole) > len(known) and not whole.endswith(UNFINISHED):
            self.ids = self.ids[-KEPT:]
            self.read = len(self.ids)
            self.held += whole[len(known) :]
        return self.show()

    def show(self) -> str:
        self.held, self.stopped = cut_at(self.held, self.stops)
        self.ended = self.stopped
        kept = 0 if self.stopped else max((begun(self.held, s) for s in self.stops), default=0)
        shown = self.held[: len(self.held) - kept]
        self.held = self.held[len(shown) :]
        return shown

    def finish(self) -> str:
        """The rest, when nothing more comes."""
        if self.stopped:
            return ""
        known, whole = self.text.decode([self.ids[: self.read], self.ids])
        rest, self.stopped = cut_at(self.held + whole[len(known) :], self.stops)
        self.held = ""
        return rest


def cut_at(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text up to the first of the stop texts, and whether there was one."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def begun(text: str, stop: str) -> int:
    """Characters at the end of a text that may begin a stop text; in time linear in the latter.

    Knuth, Morris and Pratt 1977. Of "xaab" and "aabc" three.
    """
    falls, matched = fallbacks(stop), 0
    for letter in text[len(text) - len(stop) + 1 :] if len(text) >= len(stop) else text:
        while matched and stop[matched] != letter:
            matched = falls[matched - 1]
        matched += stop[matched] == letter
    return matched


@lru_cache(1024)
def fallbacks(stop: str) -> tuple[int, ...]:
    """For each beginning of a text, how much of its end begins it too."""
    falls = [0]
    for letter in stop[1:]:
        matched = falls[-1]
        while matched and stop[matched] != letter:
            matched = falls[matched - 1]
        falls.append(matched + (stop[matched] == letter))
    return tuple(falls)
