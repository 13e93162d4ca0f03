"""SentencePiece model files, read without SentencePiece: the same ids from the same text."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ..errors import RunError
from .folder import read_bytes

KINDS = {1: "unigram", 2: "bpe"}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # the types of a piece
SPACE = "▁"  # how a space is written inside a piece
LONGEST = 1000  # characters of a piece; theirs have sixteen unless asked for more
NEVER = -1e4  # a score that any spelling in single characters beats
# Hebrew and Arabic marks, which NFKC would sort; SentencePiece leaves them as they are typed.
SORTED = "\u0591-\u05c7\u0610-\u061a\u064b-\u0652\u0670\u06d6-\u06ed"
JOINED = "\\p{M}\u200c\u200d\U0001f3fb-\U0001f3ff"  # these make one letter with what is before them
APART, TILDE = "\ufdd0", "\ufdd1"  # never in text, being no characters
VARINT = re.compile(b"[\x80-\xff]{0,9}[\x00-\x7f]")
Value = TypeVar("Value")


class Pieces(NamedTuple):
    """What a model file holds; the place of a piece in the list is its id."""

    pieces: list[tuple[str, float, int]]  # (piece, score, type)
    kind: str
    byte_fallback: bool
    charsmap: bytes
    normaliser: str
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    unk: int
    unk_surface: str  # what unknown is decoded to


def read(path: Path) -> Pieces:
    """The pieces of a model file, and how it prepares its text."""
    try:
        return _pieces(read_bytes(path))
    except UnicodeDecodeError:
        why = "a piece is not text"
    except ValueError as error:
        why = str(error)
    raise RunError(f"{path}: not a readable SentencePiece model ({why}).")


def unigram(
    pieces: Pieces, extra: Sequence[str] = (), ids: Mapping[str, int] | None = None
) -> Tokenizer:
    """The likeliest pieces; a piece that text may not become has a space before its name."""
    # Prepared text has no space left, so such a name is never found in it, but can be decoded.
    scores = {piece: score for piece, score, kind in pieces.pieces if kind == NORMAL}
    scores |= {piece: -0.1 for piece, _, kind in pieces.pieces if kind == USER}  # nearly certain
    # The library finds bytes by name, so theirs stay as they are.
    scores |= {piece: NEVER for piece, _, kind in pieces.pieces if kind == BYTE}
    names = [piece for piece, _, _ in pieces.pieces]
    if ids is None:
        ids = {name: i for i, name in enumerate(names)}
    entries = [(f" <{i}>", 0.0) for i in range(max(ids.values()) + 1)]
    for name, i in ids.items():
        entries[i] = (name, scores[name]) if name in scores else (f" {name}", 0.0)
    model = models.Unigram(entries, ids[names[pieces.unk]], pieces.byte_fallback)
    tokenizer = _surround(model, pieces)
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in extra])
    return tokenizer


def bpe(pieces: Pieces) -> Tokenizer:
    """The two neighbours that make the best piece become one, again and again."""
    scores = {piece: score for piece, score, kind in pieces.pieces if kind == NORMAL}
    merges = []
    for piece in sorted(scores, key=lambda piece: -scores[piece]):
        halves = [(piece[:cut], piece[cut:]) for cut in range(len(piece) - 1, 0, -1)]
        merges += [(left, right) for left, right in halves if left in scores and right in scores]
    model = models.BPE(
        vocab={piece: i for i, (piece, _, _) in enumerate(pieces.pieces)},
        merges=merges,
        unk_token=pieces.pieces[pieces.unk][0],
        fuse_unk=True,
        byte_fallback=pieces.byte_fallback,
    )
    tokenizer = _surround(model, pieces)
    tokenizer.add_tokens([AddedToken(piece) for piece, _, kind in pieces.pieces if kind == USER])
    return tokenizer


def _surround(model: Any, pieces: Pieces) -> Tokenizer:
    """What happens to text before the model sees it, and to pieces when they become text."""
    before: list[object] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    if before and "nfkc" in pieces.normaliser:
        # The library's own reading of the map composes only short letters and loses marks behind
        # a mapped character; so compose before it, all but the wide tilde, and keep marks apart.
        before = [
            normalizers.Replace(Regex(f"(?<=[\\s\\S])(?=[{SORTED}])"), APART),
            normalizers.Replace("～", TILDE),
            normalizers.NFKC(),
            normalizers.Replace(TILDE, "～"),
            normalizers.Replace(Regex(f"(?<=[\\s\\S])(?=[{JOINED}])"), APART),
            *before,
            normalizers.Replace(APART, ""),
        ]
    if pieces.remove_extra_whitespaces:
        before.append(normalizers.Replace(Regex("\\A +| +(?= )"), ""))
    if pieces.add_dummy_prefix:
        before.append(normalizers.Prepend(SPACE))
    before.append(normalizers.Replace(" ", SPACE))
    if pieces.remove_extra_whitespaces:
        before.append(normalizers.Replace(Regex(f"{SPACE}+\\z"), ""))

    names = [piece for piece, _, _ in pieces.pieces]
    # A word is looked at alone, unless a piece can reach into the next one.
    alone = SPACE in names and not any(re.search(f"[^{SPACE}]{SPACE}", name) for name in names)
    cuts = [f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+" if alone else "[\\s\\S]+"]
    strange = "".join(sorted(set("<0x123456789ABCDEF>") - set(names)))
    if pieces.byte_fallback and strange:
        cuts.append(f"[{strange}]")  # no piece holds these; cut, `<0x41>` typed is not the byte

    controls = "|".join(re.escape(piece) for piece, _, kind in pieces.pieces if kind == CONTROL)
    after: list[object] = [
        decoders.Replace(Regex(f"\\A ?({controls})\\z|\\A "), ""),
        decoders.Replace(Regex(f"\\A{re.escape(names[pieces.unk])}\\z"), pieces.unk_surface),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if pieces.add_dummy_prefix or pieces.remove_extra_whitespaces:
        after.append(decoders.Strip(SPACE, 10**6 if pieces.remove_extra_whitespaces else 1, 0))

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(before)
    splits = [pre_tokenizers.Split(Regex(cut), "isolated") for cut in cuts]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.Sequence([*after, decoders.Replace(SPACE, " ")])
    return tokenizer


def _pieces(data: bytes) -> Pieces:
    """The message of a whole file: 1 its pieces, 2 how it was trained, 3 its normaliser."""
    model = _fields(data)
    entries = [_fields(entry) for entry in model.get(1, [])]
    pieces = [(_one(e, 1, b"").decode(), _one(e, 2, 0.0), _one(e, 3, NORMAL)) for e in entries]
    names, kinds = {piece for piece, _, _ in pieces}, [kind for _, _, kind in pieces]
    trained, normaliser = _fields(_one(model, 2, b"")), _fields(_one(model, 3, b""))
    kind, charsmap = KINDS.get(_one(trained, 3, 1), ""), _one(normaliser, 2, b"")
    prefix = bool(_one(normaliser, 3, 1))
    trie = int.from_bytes(charsmap[:4], "little")  # bytes; it comes in blocks of 1024
    wrong = {
        "it has no pieces": not pieces,
        "it is cut short": not trained or not normaliser,
        "a piece is empty or there twice": "" in names or len(names) < len(pieces),
        f"a piece has more than {LONGEST} characters": max(map(len, names), default=0) > LONGEST,
        "not exactly one piece is the unknown one": kinds.count(UNKNOWN) != 1,
        "it is neither unigram nor BPE": not kind,
        "it marks spaces in another way": _one(trained, 24, 0) or not _one(normaliser, 5, 1),
        "its character map is broken": charsmap and (trie % 1024 or not 0 < trie < len(charsmap)),
        "BPE with user-defined pieces and a space put before the text cannot be matched": (
            kind == "bpe" and prefix and USER in kinds
        ),
    }
    for why, holds in wrong.items():
        if holds:
            raise ValueError(why)
    return Pieces(
        pieces=pieces,
        kind=kind,
        byte_fallback=bool(_one(trained, 35, 0)),
        charsmap=charsmap,
        normaliser=_one(normaliser, 1, b"").decode(),
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=bool(_one(normaliser, 4, 1)),
        unk=kinds.index(UNKNOWN),
        unk_surface=_one(trained, 44, " ⁇ ".encode()).decode(),
    )


def _fields(data: bytes) -> dict[int, list[Any]]:
    """The values of a protobuf message by the numbers of its fields."""
    if not isinstance(data, bytes):
        raise ValueError("it is not a protobuf of pieces")
    fields: dict[int, list[object]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = divmod(tag, 8)
        if wire == 0:
            value, at = _varint(data, at)
            fields.setdefault(number, []).append(value)
            continue
        if wire not in (1, 2, 5):
            raise ValueError("it is not a protobuf")
        size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        chunk, at = data[at : at + size], at + size
        if at > len(data):
            raise ValueError("it is cut short")
        fields.setdefault(number, []).append(struct.unpack("<f", chunk)[0] if wire == 5 else chunk)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the low ones first, and where it ends."""
    found = VARINT.match(data, at)
    if found is None:
        raise ValueError("it is cut short")
    return sum((byte & 127) << 7 * i for i, byte in enumerate(found[0])), found.end()


def _one(fields: dict[int, list[object]], number: int, default: Value) -> Value:
    value = fields.get(number, [default])[-1]
    if not isinstance(value, type(default)):
        raise ValueError("it is not a protobuf of pieces")
    return value
