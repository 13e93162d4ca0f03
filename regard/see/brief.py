"""One short line of a report, for whoever prints it."""

from __future__ import annotations

import textwrap

WIDE = 40


def quoted(text: str) -> str:
    """A text's beginning, in quotes."""
    return repr(textwrap.shorten(text, WIDE, placeholder="…"))


def counted(number: int, what: str) -> str:
    """1 layer, 2 layers."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
