"""A vocabulary with its rules: raw text to ids and back, all in one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from ..errors import RunError

# The same four ids in every vocabulary that we make.
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)
SPACE = "▁"  # how a space is written inside a token

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


class Text:
    """Encodes and decodes; specials are never produced from text that merely spells them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.size = tokenizer.get_vocab_size()
        # GPT-2's vocabulary has one special, which ends a text and so begins the next.
        end = tokenizer.token_to_id("<|endoftext|>")
        ours = tokenizer.token_to_id(SPECIALS[EOS]) == EOS
        self.bos, self.eos = (BOS, EOS) if ours or end is None else (end, end)
        self.unk = UNK if ours else -1  # bytes leave nothing unknown
        self.specials = set(range(len(SPECIALS))) if ours else {self.eos}

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
