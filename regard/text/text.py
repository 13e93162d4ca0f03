"""A vocabulary with its rules: raw text to ids and back, all in one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from ..errors import RunError

# The same four ids in every vocabulary that we make; what hides a word comes next, where one does.
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)
HIDDEN = "<mask>"
# How those who made other vocabularies spell them.
SPELLINGS = {
    "pad": ("<pad>", "[PAD]"),
    "bos": ("[CLS]", "<s>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos": ("[SEP]", "</s>", "<|endoftext|>", "<|end_of_text|>"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
}
SPACE = "▁"  # how a space is written inside a token

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


Place = tuple[int, int]


class Frame(NamedTuple):
    """Ids around one text (first, last) and around two (first, between, end)."""

    first: list[int]
    between: list[int]
    last: list[int]
    end: list[int]


class Text:
    """Encodes and decodes; specials are never produced from text that merely spells them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.size = tokenizer.get_vocab_size()
        if tokenizer.token_to_id(SPECIALS[EOS]) == EOS:  # ours
            hidden = tokenizer.token_to_id(HIDDEN) == len(SPECIALS)
            self.pad, self.bos, self.eos, self.unk = PAD, BOS, EOS, UNK
            self.mask = len(SPECIALS) if hidden else -1
        else:
            self.pad, self.bos, self.eos, self.unk, self.mask = map(self._find, SPELLINGS)
            # Marian and T5 begin what they write with padding.
            self.bos = self.pad if self.bos < 0 else self.bos
        roles = (self.pad, self.bos, self.eos, self.unk, self.mask)
        self.specials = {role for role in roles if role >= 0}

    def _find(self, role: str) -> int:
        """The id of a special, -1 where there is none: bytes leave nothing unknown."""
        # Where text must not be able to spell it, there is a space before its name.
        names = (form for name in SPELLINGS[role] for form in (name, f" {name}"))
        ids = (self.tokenizer.token_to_id(name) for name in names)
        return next((i for i in ids if i is not None), -1)

    @classmethod
    def load(cls, path: Path) -> Text:
        if not path.is_file():
            raise RunError(f"{path}: the vocabulary is missing; the run folder is not complete.")
        try:
            return cls(Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises bare Exception
            raise RunError(f"{path}: not a readable tokenizer file ({error}).") from error

    def save(self, path: Path) -> None:
        path.write_text(self.tokenizer.to_str(pretty=True), encoding="utf-8")

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, without specials."""
        encoded = self.tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return [line.ids for line in encoded]

    def encode_with_places(self, lines: Sequence[str]) -> list[tuple[list[int], list[Place]]]:
        """The same, each token with its place in its line: from a character, up to another."""
        encoded = self.tokenizer.encode_batch(list(lines), add_special_tokens=False)
        return [(line.ids, line.offsets) for line in encoded]

    @cached_property
    def frame(self) -> Frame:
        """What stands around a text, and between two; as the vocabulary's own rules have it."""
        if self.tokenizer.post_processor is None:  # it has no rules
            first = [self.bos] if self.bos not in (self.eos, self.pad) else []
            return Frame(first, [self.eos], [self.eos], [self.eos])
        one, two = self.tokenizer.encode("a"), self.tokenizer.encode("a", "a")
        places = [i for i, mark in enumerate(two.special_tokens_mask) if not mark]
        half = len(places) // 2
        first, end = two.ids[: places[0]], places[half - 1] + 1
        last = one.ids[len(first) + half :]
        return Frame(first, two.ids[end : places[half]], last, two.ids[places[-1] + 1 :])

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Raw text of each row of ids; specials leave no trace, except that unknown shows."""
        kept = [[i for i in row if i not in self.specials or i == self.unk] for row in rows]
        texts: list[str] = self.tokenizer.decode_batch(kept, skip_special_tokens=False)
        return texts

    def normalise(self, line: str) -> str:
        """What the vocabulary sees of a line: `decode(encode(line))` gives this back."""
        if self.tokenizer.normalizer is None:
            return line
        normal: str = self.tokenizer.normalizer.normalize_str(line)
        return normal.removeprefix(SPACE).replace(SPACE, " ")

    def words(self, line: str) -> list[str]:
        """A line cut where tokens may not cross: words, numbers, signs, with the space before."""
        normal = (
            line
            if self.tokenizer.normalizer is None
            else self.tokenizer.normalizer.normalize_str(line)
        )
        return [piece for piece, _ in self.tokenizer.pre_tokenizer.pre_tokenize_str(normal)]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """How each id is written, a space shown as `▁`."""
        return [self.tokenizer.id_to_token(i) or SPECIALS[UNK] for i in ids]
