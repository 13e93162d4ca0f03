"""Text to ids and back: `learn` makes a vocabulary, `Text` uses it."""

from .learn import KINDS, Settings, learn, open_vocabulary
from .text import BOS, EOS, HIDDEN, PAD, SPECIALS, UNK, Frame, Text

__all__ = [
    "BOS", "EOS", "HIDDEN", "KINDS", "PAD", "SPECIALS", "UNK",
    "Frame", "Settings", "Text", "learn", "open_vocabulary",
]  # fmt: skip
