"""The vocabulary of a Hugging Face folder, in whichever of its files; and ours as theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from ..errors import RunError
from ..text import Frame, Text
from ..text.chat import ChatFormat
from ..text.learn import untyped
from ..text.text import HOLES, check_numbers, read_tokenizer, readable
from . import spiece
from .architecture import shown
from .folder import LARGEST, find, read_bytes, read_json

SENTINELS = [f"<extra_id_{i}>" for i in range(99, -1, -1)]  # T5's, behind the pieces
MOMENTS = 1501  # that Whisper tells apart
TEMPLATE = "chat_template.jinja"
PADDED = HOLES  # rows that a table may have beyond its vocabulary, to be a round number


def read(folder: Path, kind: str, config: dict[str, object]) -> list[Text]:
    """One vocabulary, or one for each side."""
    rows = config.get("vocab_size")
    if not isinstance(rows, int):
        raise RunError(f"config.json: vocab_size must be a number, but is {shown(rows)}.")
    for names, make in FILES:
        if all(find(folder, name) for name in names):
            with readable(f"{folder / names[0]}: not a readable vocabulary"):
                return [checked(made, folder, config, rows) for made in make(folder, kind)]
    known = ", ".join(" with ".join(names) for names, _ in FILES)
    raise RunError(f"{folder}: there must be a vocabulary ({known}), but there is none.")


def read_chat(folder: Path) -> ChatFormat | None:
    """The chat template of a folder, and the entries that it may use; None where there is none."""
    about, path = read_json(folder, "tokenizer_config.json"), find(folder, TEMPLATE)
    template = about.get("chat_template")
    if path is not None:
        template = read_bytes(path).decode("utf-8", "replace")
    elif isinstance(template, list):  # several, each with its name
        named = {str(one.get("name")): one for one in template if isinstance(one, dict)}
        template = named.get("default", {}).get("template")
    if not isinstance(template, str):
        return None
    added = read_json(folder, "tokenizer.json").get("added_tokens")
    added = added if isinstance(added, list) else []
    special = (t for t in added if isinstance(t, dict) and t.get("special"))
    controls = [t["content"] for t in special if isinstance(t.get("content"), str)]
    bos, eos = (named_token(about.get(f"{role}_token")) for role in ("bos", "eos"))
    known = dict.fromkeys([*controls, bos, eos])
    return ChatFormat(template, [name for name in known if name], bos, eos)


def named_token(value: object) -> str:
    """A special as tokenizer_config.json has it: its name, or an object with it."""
    name = value.get("content") if isinstance(value, dict) else value
    return name if isinstance(name, str) else ""


def from_json(folder: Path, kind: str) -> list[Tokenizer]:
    path = folder / "tokenizer.json"
    if path.stat().st_size > LARGEST:
        raise ValueError(f"it may have {LARGEST:,} bytes, but has {path.stat().st_size:,}")
    tokenizer = read_tokenizer(path)
    tokenizer.no_truncation()  # how much is read is not the vocabulary's to say
    tokenizer.no_padding()
    if kind.startswith("whisper") and tokenizer.token_to_id("<|0.00|>") is None:
        # Moments, a fiftieth of a second apart, of which the file may say nothing.
        moments = [AddedToken(f"<|{i / 50:.2f}|>", special=True) for i in range(MOMENTS)]
        tokenizer.add_special_tokens(moments)
    return [untyped(tokenizer)]


def read_numbers(folder: Path) -> dict[str, int]:
    """vocab.json: the number of each entry."""
    ids: dict[str, int] = read_json(folder, "vocab.json")
    check_numbers(ids.values(), len(ids) + HOLES)
    return ids


def from_two_sides(folder: Path, kind: str) -> list[Tokenizer]:
    """Marian: pieces of each side, and the numbers that both share."""
    ids = read_numbers(folder)
    sides = [spiece.read(folder / f"{side}.spm") for side in ("source", "target")]
    for side in sides:
        unknown = side.pieces[side.unk][0]
        if unknown not in ids:
            raise RunError(f"{folder / 'vocab.json'}: there must be an entry '{unknown}'.")
    return [spiece.unigram(side, ids=ids) for side in sides]


def from_pieces(folder: Path, kind: str) -> list[Tokenizer]:
    pieces = spiece.read(folder / "spiece.model")
    return [spiece.unigram(pieces, extra=SENTINELS if kind == "t5" else ())]


def from_llama(folder: Path, kind: str) -> list[Tokenizer]:
    pieces = spiece.read(folder / "tokenizer.model")
    make: Callable[..., Tokenizer] = spiece.bpe if pieces.kind == "bpe" else spiece.unigram
    tokenizer = make(pieces)
    names = [piece for piece, _, sort in pieces.pieces if sort == spiece.CONTROL]
    if kind == "llama" and names:
        begin = names[0]
        place = [piece for piece, _, _ in pieces.pieces].index(begin)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, place)]
        )
    return [tokenizer]


def from_words(folder: Path, kind: str) -> list[Tokenizer]:
    """BERT's own file: a piece a line."""
    names = read_bytes(folder / "vocab.txt").decode("utf-8").removesuffix("\n").split("\n")
    vocabulary = {name.removesuffix("\r"): i for i, name in enumerate(names)}
    lower = read_json(folder, "tokenizer_config.json").get("do_lower_case", True)
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=bool(lower))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    return [tokenizer]


def from_merges(folder: Path, kind: str) -> list[Tokenizer]:
    """GPT-2's and RoBERTa's two files."""
    ids = read_numbers(folder)
    paths = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = Tokenizer(models.BPE.from_file(*paths))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if kind == "roberta":
        end, begin = ("</s>", ids["</s>"]), ("<s>", ids["<s>"])
        tokenizer.post_processor = processors.RobertaProcessing(end, begin, add_prefix_space=False)
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return [tokenizer]


FILES: list[tuple[tuple[str, ...], Callable[[Path, str], list[Tokenizer]]]] = [
    (("tokenizer.json",), from_json),
    (("source.spm", "target.spm", "vocab.json"), from_two_sides),
    (("spiece.model",), from_pieces),
    (("tokenizer.model",), from_llama),
    (("vocab.txt",), from_words),
    (("vocab.json", "merges.txt"), from_merges),
]


def checked(tokenizer: Tokenizer, folder: Path, config: dict[str, object], rows: int) -> Text:
    """As many entries as the model has rows, and the ends that its config names."""
    have = tokenizer.get_vocab_size()
    if not have <= rows < have + PADDED:
        raise RunError(
            f"{folder}: the vocabulary must have as many entries as the checkpoint has rows, "
            f"{rows} (config.json), but has {have}."
        )
    check_numbers(tokenizer.get_vocab().values(), rows)
    chat = config.get("chat")
    own = (chat.eos, chat.controls) if isinstance(chat, ChatFormat) else ()
    text = Text(filled(tokenizer, rows), *own)
    end = config.get("eos_token_id")
    ends = end if isinstance(end, list) else [end]
    if text.eos < 0:
        raise RunError(f"{folder}: the vocabulary must have an entry that ends a text.")
    if end is not None and text.eos not in ends:
        raise RunError(
            f"{folder}: config.json ends a text by entry {shown(end)}, but the vocabulary's end, "
            f"'{text.tokens([text.eos])[0]}', is {text.eos}."
        )
    check_numbers((i for part in text.frame for i in part), rows)
    return text


def filled(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """With entries that no text becomes, up to a size; a table's last rows may have no word."""
    have = tokenizer.get_vocab_size()
    if have >= size:
        return tokenizer
    whole = json.loads(tokenizer.to_str())
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    whole["added_tokens"] += [
        {"id": i, "content": f" <unused {i}>", "special": True, **token} for i in range(have, size)
    ]
    return Tokenizer.from_str(json.dumps(whole))


def framed(text: Text, single: bool = False) -> Tokenizer:
    """A copy whose own rules put the specials where ours do; `single`: a source has an end only."""
    if single:
        return placed(text, text.frame._replace(first=[], last=[text.eos]))
    if text.tokenizer.post_processor is None:
        return placed(text, text.frame)
    return Tokenizer.from_str(text.tokenizer.to_str())


def placed(text: Text, frame: Frame) -> Tokenizer:
    """A copy that puts these specials around a text and around two."""
    tokenizer = Tokenizer.from_str(text.tokenizer.to_str())
    names = {i: text.tokens([i])[0] for part in frame for i in part}

    def spelled(ids: list[int], segment: int = 0) -> list[str]:
        return [f"{names[i]}:{segment}" for i in ids]

    first, between = spelled(frame.first), spelled(frame.between)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*first, "$A:0", *spelled(frame.last)],
        pair=[*first, "$A:0", *between, "$B:1", *spelled(frame.end, 1)],
        special_tokens=[(name, i) for i, name in names.items()],
    )
    return tokenizer
