"""A vocabulary with its rules: raw text to ids and back, all in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from ..errors import RegardError, RunError

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
# What ends a turn of a conversation, beside what ends a text.
TURNS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>")
SPACE = "▁"  # how a space is written inside a token
DEEPEST = 100  # levels of a tokenizer file; real ones have about ten
HOLES = 128  # numbers below its highest that a vocabulary may leave out

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


Place = tuple[int, int]


class Frame(NamedTuple):
    """Ids around one text (first, last) and around two (first, between, end)."""

    first: list[int]
    between: list[int]
    last: list[int]
    end: list[int]


@contextmanager
def readable(complaint: str) -> Iterator[None]:
    """Whatever becomes of a file that cannot be read is told in one line."""
    try:
        yield
    except RegardError:
        raise
    except BaseException as error:
        # The library raises bare Exception; where it gives itself up, not even that.
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"{complaint} ({why[:200]}).") from error


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer file, looked through before the library is given it, which trusts what it says:
    it would go down with a nest too deep, and count up to a number however high."""
    said = path.read_text(encoding="utf-8")
    whole = json.loads(said)
    level, depth = [whole], 0
    while level:
        level = [x for y in level for x in _inside(y) if isinstance(x, dict | list)]
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
    vocabulary, added = whole["model"]["vocab"], whole.get("added_tokens") or []
    numbered = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    names = {*(vocabulary if isinstance(vocabulary, dict) else ()), *(t["content"] for t in added)}
    entries = len(names) + (0 if isinstance(vocabulary, dict) else len(vocabulary))
    check_numbers([*numbered, *(token["id"] for token in added)], entries + HOLES)
    return Tokenizer.from_str(said)


def _inside(value: Any) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value


def check_numbers(numbers: Iterable[object], size: int) -> None:
    """The entries of a vocabulary count up from 0."""
    for number in numbers:
        if type(number) is not int or not 0 <= number < size:
            raise ValueError(f"an entry must have a number below {size}, but one has {number!r}")


class Text:
    """Encodes and decodes; specials are never produced from text that merely spells them."""

    note: str = ""  # what whoever had it learned should know

    def __init__(self, tokenizer: Tokenizer, end: str = "", controls: Sequence[str] = ()) -> None:
        """`controls`: entries that are no text, such as those that tell whose turn it is; `end`:
        which of them ends a text, where it is not the usual one."""
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
        self.controls = {name: self._control(name) for name in controls}
        if end:
            self.eos = self._control(end)
        if controls:  # text that spells one stays text
            tokenizer.encode_special_tokens = True
        self.ends = {self.eos, *(i for name, i in self.controls.items() if name in TURNS)}
        roles = (self.pad, self.bos, self.eos, self.unk, self.mask, *self.controls.values())
        self.specials = {role for role in roles if role >= 0}

    def _find(self, role: str) -> int:
        """The id of a special, -1 where there is none: bytes leave nothing unknown."""
        # Where text must not be able to spell it, there is a space before its name.
        names = (form for name in SPELLINGS[role] for form in (name, f" {name}"))
        ids = (self.tokenizer.token_to_id(name) for name in names)
        return next((i for i in ids if i is not None), -1)

    def _control(self, name: str) -> int:
        number: int | None = self.tokenizer.token_to_id(name)
        if number is None:
            raise RunError(f"the vocabulary must have an entry '{name}', but has none.")
        return number

    @classmethod
    def load(cls, path: Path, end: str = "", controls: Sequence[str] = ()) -> Text:
        if not path.is_file():
            raise RunError(f"{path}: the vocabulary is missing; the run folder is not complete.")
        with readable(f"{path}: not a readable tokenizer file"):
            text = cls(read_tokenizer(path), end, controls)
            if text.tokenizer.post_processor is not None:  # its rules may be somebody else's
                check_numbers((i for part in text.frame for i in part), text.size)
            return text

    def save(self, path: Path) -> None:
        try:
            path.write_text(self.tokenizer.to_str(pretty=True), encoding="utf-8")
        except OSError as error:
            raise RunError(f"{path}: could not be written ({error.strerror}).") from error

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
