"""BPE dropout: in training, merges are left out at random, so that words are met in many pieces."""

from __future__ import annotations

import itertools
import json
import random
import zlib
from collections.abc import Sequence

import numpy as np

from ..errors import RecipeError
from .text import UNK, Text

MOST = 2**20  # cuts remembered
VARIANTS = 64  # ways of cutting that are drawn for a word; more are not worth their memory


class Dropout:
    """Cuts words as BPE would with each merge skipped by chance (Provilkov et al. 2020).

    Each word has its own fixed list of cuts, a pure function of the word, from which the batch's
    generator picks; so the same seed gives the same batches, whatever was seen before.
    """

    def __init__(self, text: Text, rate: float) -> None:
        model = json.loads(text.tokenizer.to_str())["model"]
        if model["type"] != "BPE":
            raise RecipeError(
                "text.dropout: only text.kind=bpe has merges to leave out; set it to 0."
            )
        self.text, self.rate = text, rate
        self.ids: dict[str, int] = model["vocab"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self.known: dict[tuple[str, int], list[int]] = {}

    def encode(self, line: str, rng: np.random.Generator) -> list[int]:
        words = self.text.words(line)
        variants = rng.integers(VARIANTS, size=len(words)).tolist()
        return [i for word, pick in zip(words, variants, strict=True) for i in self.cut(word, pick)]

    def recut(
        self, rows: Sequence[Sequence[int]], rng: Sequence[np.random.Generator]
    ) -> list[list[int]]:
        """Ids cut anew, each row by a generator of its own; what is unknown has no text to cut,
        and stays."""
        lines = self.text.decode([[] if UNK in row else row for row in rows])
        found = []
        for row, line, draw in zip(rows, lines, rng, strict=True):
            if UNK not in row:
                found.append(self.encode(line, draw))
                continue
            cut: list[int] = []
            for unknown, run in itertools.groupby(row, lambda i: i == UNK):
                ids = list(run)
                cut += ids if unknown else self.encode(self.text.decode([ids])[0], draw)
            found.append(cut)
        return found

    def cut(self, word: str, variant: int) -> list[int]:
        """One way to write a word in pieces."""
        if (word, variant) not in self.known:
            if len(self.known) >= MOST:
                self.known.clear()
            self.known[word, variant] = self._cut(word, variant)
        return self.known[word, variant]

    def _cut(self, word: str, variant: int) -> list[int]:
        draw = random.Random(zlib.crc32(word.encode()) * VARIANTS + variant).random
        pieces = list(word)
        while len(pieces) > 1:
            ranked = [
                (self.ranks[pair], place)
                for place, pair in enumerate(itertools.pairwise(pieces))
                if pair in self.ranks and draw() >= self.rate
            ]
            if not ranked:
                break
            _, place = min(ranked)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return [i for piece in pieces for i in self._spell(piece)]

    def _spell(self, piece: str) -> list[int]:
        if piece in self.ids:
            return [self.ids[piece]]
        return [self.ids.get(f"<0x{byte:02X}>", UNK) for byte in piece.encode()]
