"""Vocabularies learned from lines: BPE, unigram, words, characters."""

from __future__ import annotations

import json
import string
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ..errors import DataError, RegardError
from ..progress import tell
from .text import EOS, SPACE, SPECIALS, SPELLINGS, UNK, Text, readable

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# Letters with their marks, digits, or one sign; each keeps the space before it, so that nothing
# is lost.
PIECES = Regex(
    f"{SPACE}?[\\p{{L}}\\p{{M}}]+|{SPACE}?\\p{{N}}+|{SPACE}?[^\\p{{L}}\\p{{M}}\\p{{N}}{SPACE}]|{SPACE}"
)
# Typography that differs between sources of one language and means the same.
PLAIN = {
    "[‘’‚‛`´]": "'",
    "[“”„‟«»]": '"',
    "[‐‑–—−]": "-",
    "…": "...",
    "[\\u00A0\\u202F\\u2009\\u3000]": " ",
}


@dataclass(frozen=True)
class Settings:
    """How text becomes ids."""

    kind: Annotated[
        Literal["bpe", "byte-bpe", "unigram", "wordpiece", "words", "spaced", "characters"],
        "the unit; byte-bpe: GPT-2's; wordpiece: BERT's; spaced: what stands between spaces",
    ] = "bpe"
    vocabulary: Annotated[
        str,
        Path,
        "a folder with GPT-2's vocab.json and merges.txt, or a tokenizer.json; else learned",
    ] = ""
    size: Annotated[
        int,
        Gt(len(SPECIALS)),
        Le(10**7),
        "entries in a vocabulary; for words and characters, at most",
    ] = 8000
    joint: Annotated[bool, "one vocabulary for source and target"] = True
    lowercase: Annotated[bool, "fold case before anything else"] = False
    unicode: Annotated[Literal["none", "nfc", "nfkc"], "Unicode normal form of the text"] = "nfc"
    punctuation: Annotated[bool, "write curly quotes, long dashes and odd spaces plainly"] = False
    bytes: Annotated[bool, "spell a character never seen in bytes (bpe, unigram); 256 entries"] = (
        True
    )
    min_frequency: Annotated[int, Gt(0), "how often a word or merge must be seen to count"] = 1
    dropout: Annotated[
        float, Ge(0), Lt(1), "BPE dropout: chance that a merge is left out in training"
    ] = 0.0


def learn(lines: Iterable[str], settings: Settings, extra: Sequence[str] = ()) -> Text:
    """A vocabulary from lines; the same lines give the same vocabulary.

    `extra` are specials of a task, which stand right after the usual ones. Where the data do not
    allow as many entries as were asked for, there are fewer, and the text's `note` says so.
    """
    where = "text.size"
    if settings.vocabulary:
        return open_vocabulary(Path(settings.vocabulary))
    empty = False

    def told() -> Iterator[str]:
        nonlocal empty
        seen = False
        for line in lines:
            seen = seen or bool(line.strip())
            yield line
        empty = not seen

    tell("learning a vocabulary")
    try:
        tokenizer = KINDS[settings.kind](told(), settings, [*SPECIALS, *extra])
    except (RegardError, MemoryError):
        raise
    except Exception as error:  # the library raises bare Exception
        if not empty:
            reason = str(error) or f"{type(error).__name__}, of which nothing more is known"
            raise DataError(f"{where}: no vocabulary could be learned ({reason}).") from error
    if empty:  # specials and bytes alone are entries too
        raise DataError(
            f"{where}: no text to learn a vocabulary from; the training data are empty."
        )
    text = Text(tokenizer)
    if text.size <= len(SPECIALS) + len(extra):
        raise DataError(
            f"{where}: there must be an entry to learn, but nothing is seen often enough; lower "
            f"text.min_frequency ({settings.min_frequency})."
        )
    if settings.kind in ("bpe", "byte-bpe", "unigram", "wordpiece") and text.size < settings.size:
        text.note = (
            f"{where}: {settings.size} entries were asked for, but the data allow only "
            f"{text.size}; that many are used."
        )
    return text


def learn_bpe(lines: Iterable[str], settings: Settings, specials: list[str]) -> Tokenizer:
    """Merges of the most frequent pairs (Sennrich et al. 2016)."""
    tokenizer = _subwords(models.BPE(unk_token=SPECIALS[UNK], fuse_unk=True), settings)
    trainer = trainers.BpeTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=_reserved(settings, specials),
        limit_alphabet=max(settings.size // 2, 1),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return _unregister(tokenizer, byte_fallback=settings.bytes)


def learn_wordpiece(lines: Iterable[str], settings: Settings, specials: list[str]) -> Tokenizer:
    """Words and pieces that go on with ## (Wu et al. 2016); accents go with the case."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=SPECIALS[UNK]))
    steps = [normalizers.BertNormalizer(lowercase=settings.lowercase)]
    tokenizer.normalizer = normalizers.Sequence([*_normalisers(settings), *steps])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        letters = set[str]()
        for line in lines:
            letters.update(line)
            spool.write(line.replace("\n", " ") + "\n")
        # Which of two pairs that are as frequent is merged first hangs on the numbers of letters
        # inside words, and those on a hash table; unless they are given beforehand, in order.
        inside = [f"##{letter}" for letter in _inside(tokenizer, letters)]
        trainer = trainers.WordPieceTrainer(
            vocab_size=settings.size,
            min_frequency=settings.min_frequency,
            special_tokens=[*specials, *inside],
            show_progress=False,
        )
        spool.seek(0)
        tokenizer.train_from_iterator((line.removesuffix("\n") for line in spool), trainer)
    # The trainer numbers pieces of one letter as its hash table has them; settle that.
    whole = json.loads(_unregister(tokenizer).to_str())
    learned = sorted(whole["model"]["vocab"].keys() - set(specials), key=lambda p: (len(p), p))
    whole["model"]["vocab"] = {piece: i for i, piece in enumerate([*specials, *learned])}
    return Tokenizer.from_str(json.dumps(whole))


def _inside(tokenizer: Tokenizer, letters: set[str]) -> list[str]:
    """Letters that can stand inside a word; signs and ideographs are words of their own."""

    def stays_alone(letter: str) -> bool:
        kind, name = unicodedata.category(letter), unicodedata.name(letter, "")
        alone = kind[0] == "P" or letter in string.punctuation or name.startswith("CJK UNIFIED")
        return alone or letter.isspace()

    normal = set(tokenizer.normalizer.normalize_str(" ".join(sorted(letters))))
    return sorted(letter for letter in normal if not stays_alone(letter))


def learn_byte_bpe(lines: Iterable[str], settings: Settings, specials: list[str]) -> Tokenizer:
    """Merges of bytes, so that no text is unknown and none is changed (Radford et al. 2019)."""
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    _byte_level(tokenizer, _normalisers(settings)).train_from_iterator(lines, trainer)
    return _unregister(tokenizer)


def open_vocabulary(folder: Path) -> Text:
    """Somebody's vocabulary: a tokenizer.json, or GPT-2's two files."""
    if folder.is_file() or (folder / "tokenizer.json").is_file():
        text = Text.load(folder if folder.is_file() else folder / "tokenizer.json")
        return _with_end(untyped(text.tokenizer), folder)
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    for path in (vocabulary, merges):
        if not path.is_file():
            raise DataError(
                f"text.vocabulary: {folder} must hold vocab.json and merges.txt, or a "
                f"tokenizer.json, but there is no {path.name}."
            )
    with readable(f"{vocabulary}: not a readable vocabulary"):
        tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    return _with_end(_byte_level(tokenizer, []), folder)


def _with_end(tokenizer: Tokenizer, folder: Path) -> Text:
    text = Text(tokenizer)
    if text.eos < 0:
        known = ", ".join((SPECIALS[EOS], *SPELLINGS["eos"]))
        raise DataError(
            f"text.vocabulary: {folder} must have an entry that ends a text, such as {known}, but "
            "has none."
        )
    return text


def untyped(tokenizer: Tokenizer) -> Tokenizer:
    """Specials that are in the vocabulary anyway are not found in text that spells them."""
    whole = json.loads(tokenizer.to_str())
    vocabulary = whole["model"].get("vocab", {})
    kept = [token for token in whole["added_tokens"] if token["content"] not in vocabulary]
    return Tokenizer.from_str(json.dumps(whole | {"added_tokens": kept}))


def _byte_level(tokenizer: Tokenizer, normalisers: list[object]) -> Tokenizer:
    tokenizer.normalizer = normalizers.Sequence(normalisers) if normalisers else None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def learn_unigram(lines: Iterable[str], settings: Settings, specials: list[str]) -> Tokenizer:
    """The likeliest segmentation under a unigram model (Kudo 2018)."""
    tokenizer = _subwords(models.Unigram(), settings)
    trainer = trainers.UnigramTrainer(
        vocab_size=settings.size,
        unk_token=SPECIALS[UNK],
        special_tokens=_reserved(settings, specials),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    reserved = len(_reserved(settings, specials))
    return _settle(_unregister(tokenizer, byte_fallback=settings.bytes), reserved)


def learn_words(lines: Iterable[str], settings: Settings, specials: list[str]) -> Tokenizer:
    """Every word and sign seen often enough."""
    tokenizer = _subwords(models.WordLevel(unk_token=SPECIALS[UNK]), settings)
    return _whole(tokenizer, lines, settings, specials)


def learn_spaced(lines: Iterable[str], settings: Settings, specials: list[str]) -> Tokenizer:
    """Whatever stands between spaces, for text that was cut before; `<unk>` in it is unknown."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIALS[UNK]))
    typed = normalizers.Replace(Regex("<(pad|bos|eos)>"), SPECIALS[UNK])  # typing makes no special
    tokenizer.normalizer = normalizers.Sequence([*_normalisers(settings), typed])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # Every word gets a space before it, and the first loses it again.
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(Regex("^"), " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    words = (" ".join(w for w in line.split() if w not in SPECIALS) for line in lines)
    return _whole(tokenizer, words, settings, specials)


def learn_characters(lines: Iterable[str], settings: Settings, specials: list[str]) -> Tokenizer:
    """Every character seen."""
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIALS[UNK]))
    tokenizer.normalizer = normalizers.Sequence(_normalisers(settings))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return _whole(tokenizer, lines, settings, specials)


KINDS: dict[str, Callable[[Iterable[str], Settings, list[str]], Tokenizer]] = {
    "bpe": learn_bpe,
    "byte-bpe": learn_byte_bpe,
    "unigram": learn_unigram,
    "wordpiece": learn_wordpiece,
    "words": learn_words,
    "spaced": learn_spaced,
    "characters": learn_characters,
}


def _whole(
    tokenizer: Tokenizer, lines: Iterable[str], settings: Settings, specials: list[str]
) -> Tokenizer:
    trainer = trainers.WordLevelTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_frequency,
        special_tokens=specials,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return _unregister(tokenizer)


def _subwords(model: Any, settings: Settings) -> Tokenizer:
    """A space becomes a sign at the head of the next word; decoding reverses it exactly."""
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    tokenizer.normalizer = normalizers.Sequence([*_normalisers(settings), *spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(PIECES, "isolated")
    steps = [
        decoders.Replace(SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _normalisers(settings: Settings) -> list[object]:
    forms: dict[str, list[object]] = {
        "none": [],
        "nfc": [normalizers.NFC()],
        "nfkc": [normalizers.NFKC()],
    }
    steps = forms[settings.unicode]
    if settings.lowercase:
        steps.append(normalizers.Lowercase())
    if settings.punctuation:
        steps += [normalizers.Replace(Regex(odd), plain) for odd, plain in PLAIN.items()]
    return steps


def _reserved(settings: Settings, specials: list[str]) -> list[str]:
    return [*specials, *(BYTES if settings.bytes else [])]


def _settle(tokenizer: Tokenizer, reserved: int) -> Tokenizer:
    """The trainer's scores differ in their last digits from run to run; settle them."""
    whole = json.loads(tokenizer.to_str())
    vocabulary = [[token, round(score, 6)] for token, score in whole["model"]["vocab"]]
    learned = sorted(vocabulary[reserved:], key=lambda entry: (-entry[1], entry[0]))
    whole["model"]["vocab"] = vocabulary[:reserved] + learned
    return Tokenizer.from_str(json.dumps(whole))


def _unregister(tokenizer: Tokenizer, byte_fallback: bool = False) -> Tokenizer:
    """Keep the specials' ids, but never find them in text: `<eos>` typed is not eos."""
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = []
    if byte_fallback:
        whole["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(whole))
