"""Text to ids and back: `learn` makes a vocabulary, `Text` uses it."""

from .learn import KINDS, Settings, learn
from .text import BOS, EOS, PAD, SPECIALS, UNK, Text

__all__ = ["BOS", "EOS", "KINDS", "PAD", "SPECIALS", "UNK", "Settings", "Text", "learn"]
