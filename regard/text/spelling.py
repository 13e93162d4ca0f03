"""What single tokens say, for those who want each with its probability."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property

from .text import SPACE, Text

KEPT = 8  # tokens before a place that decide what the next one adds: a character, or a space
UNFINISHED = "\ufffd"  # how a part of a character is decoded


class Spelling:
    """A text read token by token: what each adds, or would have added, and where it stands.

    A token that is no whole character is told by its bytes, as OpenAI's server tells it:
    `bytes:\\xc3`.
    """

    def __init__(self, text: Text) -> None:
        self.text = text
        self.before: list[int] = []
        self.place = 0  # characters so far

    @cached_property
    def in_bytes(self) -> bool:
        """Whether every sign of a token stands for a byte (GPT-2), or only <0xC3> and the like."""
        decoder = self.text.tokenizer.decoder
        return decoder is not None and b'"ByteLevel"' in decoder.__getstate__()

    def names(self, tokens: Sequence[int]) -> list[str]:
        """What each of several tokens would add here."""
        rows = [self.before, *([*self.before, token] for token in tokens)]
        known, *grown = self.text.decode(rows)
        return [self._name(known, *pair) for pair in zip(grown, tokens, strict=True)]

    def read(self, token: int) -> None:
        """Go on behind a token."""
        known, grown = self.text.decode([self.before, [*self.before, token]])
        self.place += len(grown.rstrip(UNFINISHED)) - len(known.rstrip(UNFINISHED))
        self.before = [*self.before, token][-KEPT:]

    def _name(self, known: str, grown: str, token: int) -> str:
        if token in self.text.specials:
            return self.text.tokens([token])[0]
        if UNFINISHED not in known[-1:] + grown[-1:]:
            return grown[len(known) :]
        raw = as_bytes(self.text.tokens([token])[0], self.in_bytes)
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def as_bytes(token: str, signs: bool) -> bytes:
    """What a token stands for."""
    if signs:
        table = byte_signs()
        return bytes(table[sign] for sign in token if sign in table)
    if spelled := re.fullmatch(r"<0x([0-9A-F]{2})>", token):
        return bytes.fromhex(spelled[1])
    return token.replace(SPACE, " ").encode("utf-8")


@cache
def byte_signs() -> dict[str, int]:
    """The sign that stands for each byte in GPT-2's vocabulary: itself where it can be printed,
    the others from 256 on (Radford et al. 2019)."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    signs = {chr(byte): byte for byte in printed}
    return signs | {chr(256 + place): byte for place, byte in enumerate(others)}
