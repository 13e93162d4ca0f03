"""SentencePiece's files as we read them against SentencePiece: the same ids, the same text."""

import io
import random
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer

from regard.errors import RunError
from regard.exchange import spiece

WORDS = [
    "the", "cat", "dog", "sat", "house", "running", "naïve", "café", "über", "Straße", "élan",
    "Việt", "tiếng", "日本", "東京", "ｆｕｌｌ", "ＡＢＣ", "ﬁne", "①", "2024", "3.5", "한국어",
    "Ωmega", "что", "книга", "👍🏽", "👩‍👩‍👧", "it's", "(so)", "well,", "good!", "x<y>0",
    "12", "tab\there",
]  # fmt: skip
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
LLAMA = {"unk_id": 0, "bos_id": 1, "eos_id": 2}
AS_TYPED = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
}
MODELS = {
    "unigram as T5": {"vocab_size": 150, **T5},
    "unigram folding case": {"vocab_size": 150, "normalization_rule_name": "nmt_nfkc_cf", **LLAMA},
    "unigram across words": {
        "vocab_size": 250, "split_by_whitespace": False, "normalization_rule_name": "identity",
        **LLAMA,
    },
    "unigram with bytes": {"vocab_size": 400, "byte_fallback": True, **LLAMA},
    "unigram as typed": {"vocab_size": 400, "byte_fallback": True, **LLAMA, **AS_TYPED},
    "unigram with user's pieces": {
        "vocab_size": 150, "user_defined_symbols": ["<sep>", "catdog"],
        "control_symbols": ["<cls>"], **LLAMA,
    },
    "bpe as Llama": {
        "model_type": "bpe", "vocab_size": 500, "byte_fallback": True, **LLAMA, **AS_TYPED,
    },
    "bpe without bytes": {"model_type": "bpe", "vocab_size": 200, **T5},
    "bpe with user's pieces": {
        "model_type": "bpe", "vocab_size": 500, "byte_fallback": True, "add_dummy_prefix": False,
        "user_defined_symbols": ["<sep>", "catdog", "▁▁", "\n\n"], **LLAMA, **AS_TYPED,
    },
}  # fmt: skip
AWKWARD = [
    "", " ", "   ", "a", " a", "a ", "  two  spaces,   three ", "tab\tand\nline\r\n\n\nend",
    "</s> <pad> <s> <unk> <cls> <0x41>", "a</s>", "<0x0A><0x11>", "<sep>the<sep> catdog catdogs",
    "▁", "▁the ▁ cat▁", "\u200bzero\u200bwidth\u00a0space\u3000", "\x00\x01control\x7f",
    "ｶﾞｷﾞ ﾊﾟ 10～20", "½ ² ™️ … №", "Ａ\u0301 X\u0301", "مُحَمَّدٌ رَسُولُ", "בְּרֵאשִׁית בָּרָא",
    "می‌خواهم", "हिन्दी क़ानून", "ภาษาไทย น้ำ", "🇩🇪 A🏽", "𝒳 𝔸", "ᄒ\u1161\u11ab", "\U0010ffff",
    "\u0651\u064e marks \u0645\u0651\u064e typed unsorted", "line \n  next \n ",
    *(unicodedata.normalize("NFD", word) for word in ("tiếng Việt", "한국어", "ἀρχῇ ὦν", "ガギ")),
]  # fmt: skip


def lines(words, count, seed, gaps=(" ",)):
    draw = random.Random(seed)
    return [
        "".join(draw.choice(words) + draw.choice(gaps) for _ in range(draw.randint(2, 9))).strip()
        for _ in range(count)
    ]


def train(text, **settings):
    """A model as bytes."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=file, minloglevel=3, hard_vocab_limit=False,
        num_threads=1, **settings,
    )  # fmt: skip
    return file.getvalue()


def load(data, folder):
    """SentencePiece's own, and what we read of it."""
    path = folder / "some.model"
    path.write_bytes(data)
    return sentencepiece.SentencePieceProcessor(model_proto=data), spiece.read(path)


TEXT = lines(WORDS, 400, seed=0, gaps=(" ", " ", " ", "  "))
# No long runs of one piece: where two orders of the same pieces tie, rounding decides.
STRINGS = [*AWKWARD, *lines(WORDS, 250, seed=1, gaps=(" ", " ", "  ", "", "\t", "ß", " <", ">"))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Each model as (theirs, its pieces, ours)."""
    folder, made = tmp_path_factory.mktemp("models"), {}
    for name, settings in MODELS.items():
        theirs, pieces = load(train(TEXT, **settings), folder)
        ours = spiece.unigram(pieces) if pieces.kind == "unigram" else spiece.bpe(pieces)
        made[name] = theirs, pieces, ours
    return made


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_sentencepieces_own(trained, name):
    theirs, _, ours = trained[name]
    again = Tokenizer.from_str(ours.to_str())
    for line in STRINGS:
        expected = theirs.encode(line)
        assert ours.encode(line).ids == expected, line
        assert again.encode(line).ids == expected, line


@pytest.mark.parametrize("name", MODELS)
def test_decoding_is_sentencepieces_own(trained, name):
    theirs, pieces, ours = trained[name]
    for line in STRINGS:
        ids = theirs.encode(line)
        assert ours.decode(ids) == theirs.decode(ids), line
    # Any ids at all, but for bytes that make no character.
    whole = [i for i, (_, _, kind) in enumerate(pieces.pieces) if kind != spiece.BYTE]
    draw = random.Random(2)
    for _ in range(300):
        ids = draw.choices(whole, k=6)
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)


@pytest.mark.parametrize("name", MODELS)
def test_control_pieces_are_never_typed(trained, name):
    theirs, _, ours = trained[name]
    reserved = {i for i in range(theirs.get_piece_size()) if theirs.is_control(i)}
    assert len(reserved) >= 2
    for i in reserved:
        control = theirs.id_to_piece(i)
        for line in (control, f"the {control} cat", f"a{control}b{control}"):
            assert not reserved & set(ours.encode(line).ids)
        assert ours.decode([i, *theirs.encode("the cat"), i]) == "the cat"


def test_what_is_read(trained):
    theirs, pieces, _ = trained["unigram as T5"]
    size = theirs.get_piece_size()
    assert [piece for piece, _, _ in pieces.pieces] == [theirs.id_to_piece(i) for i in range(size)]
    assert [score for _, score, _ in pieces.pieces] == [theirs.get_score(i) for i in range(size)]
    assert pieces.kind == "unigram" and pieces.normaliser == "nmt_nfkc" and pieces.charsmap
    assert pieces.add_dummy_prefix and pieces.remove_extra_whitespaces
    assert not pieces.byte_fallback and pieces.unk == 2
    _, pieces, _ = trained["bpe as Llama"]
    assert pieces.kind == "bpe" and pieces.byte_fallback and pieces.unk == 0
    assert not pieces.charsmap and not pieces.remove_extra_whitespaces


def test_extra_tokens_come_after_the_pieces(trained):
    theirs, pieces, _ = trained["unigram as T5"]
    ours, size = spiece.unigram(pieces, ["<extra_id_1>", "<extra_id_0>"]), len(pieces.pieces)
    assert ours.get_vocab_size() == size + 2
    ids = [*theirs.encode("the cat"), size + 1, *theirs.encode("sat"), size]
    assert ours.encode("the cat <extra_id_0> sat <extra_id_1>").ids == ids
    text = ours.decode(ids, skip_special_tokens=False)
    assert text == "the cat<extra_id_0> sat<extra_id_1>"


def test_two_models_share_one_numbering(tmp_path):
    """Marian's: the source's and the target's pieces in one vocabulary of another order."""
    source_words, target_words = WORDS[:12], WORDS[7:]
    both = [
        load(train(lines(words, 300, seed=3), vocab_size=90, **LLAMA), tmp_path)
        for words in (source_words, target_words)
    ]
    names = {theirs.id_to_piece(i) for theirs, _ in both for i in range(3, theirs.vocab_size())}
    names -= {"S"}  # a piece that the numbering lacks
    ids = {name: i for i, name in enumerate(["</s>", "<unk>", *sorted(names), "<pad>"])}
    for theirs, pieces in both:
        ours = spiece.unigram(pieces, ids=ids)
        assert ours.get_vocab_size() == len(ids)
        known = {piece for piece, _, kind in pieces.pieces if kind == spiece.NORMAL}
        lacking = 0
        for line in [*lines(WORDS, 100, seed=4), "S Sat S", "ßß SßS"]:
            found = theirs.encode(line, out_type=str)
            expected = [ids.get(piece, 1) if piece in known else 1 for piece in found]
            lacking += 1 in expected
            assert ours.encode(line).ids == expected, line
        assert lacking  # each lacks words of the other
        for other, _ in both:
            line = " ".join(target_words[:5])
            found = [piece for piece in other.encode(line, out_type=str) if piece in ids]
            decoded = other.decode([other.piece_to_id(piece) for piece in found])
            assert ours.decode([ids[piece] for piece in found]) == decoded
        assert ours.decode([*ours.encode("café über").ids, ids["</s>"]]) == "café über"
        assert not {0, ids["<pad>"]} & set(ours.encode("</s> <pad> a</s>").ids)


def message(number, value):
    """A protobuf field that holds text or another message."""
    return bytes([number * 8 + 2, len(value)]) + value


UNK = message(1, message(1, b"<unk>") + b"\x18\x02")
A = message(1, message(1, b"a"))
SETTINGS = message(2, b"\x18\x01") + message(3, message(1, b"identity"))
BROKEN = {
    "empty": (b"", "it has no pieces"),
    "text": (b"version https://git-lfs.example", "it is not a protobuf"),
    "endless number": (b"\xff" * 100, "it is cut short"),
    "numbers for pieces": (b"\x08\x01", "it is not a protobuf of pieces"),
    "a number for a name": (message(1, b"\x08\x01"), "it is not a protobuf of pieces"),
    "not UTF-8": (message(1, message(1, b"\xff")) + SETTINGS, "a piece is not text"),
    "only settings": (SETTINGS, "it has no pieces"),
    "only pieces": (UNK + A, "it is cut short"),
    "nothing unknown": (A + SETTINGS, "not exactly one piece is the unknown one"),
    "twice": (UNK + A + A + SETTINGS, "a piece is empty or there twice"),
    "nameless": (UNK + message(1, b"") + SETTINGS, "a piece is empty or there twice"),
    "character map": (
        UNK + A + SETTINGS + message(3, message(2, b"\xff\xff\xff\xff")),
        "its character map is broken",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_says_why(tmp_path, case):
    data, why = BROKEN[case]
    refused(tmp_path / "spiece.model", data, why)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"model_type": "char"}, "it is neither unigram nor BPE"),
        ({"treat_whitespace_as_suffix": True}, "it marks spaces in another way"),
        (
            {"model_type": "bpe", "user_defined_symbols": ["<sep>"]},
            "BPE with user-defined pieces and a space put before the text cannot be matched",
        ),
    ],
)
def test_a_model_we_cannot_follow_is_refused(tmp_path, settings, why):
    refused(tmp_path / "spiece.model", train(TEXT, vocab_size=150, **settings), why)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    data, path = train(TEXT, vocab_size=150, normalization_rule_name="identity"), tmp_path / "cut"
    for end in range(1, len(data), 7):
        path.write_bytes(data[:end])
        with pytest.raises(RunError, match="not a readable SentencePiece model"):
            spiece.read(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"none\.model: .* \(No such file or directory\)\.$"):
        spiece.read(tmp_path / "none.model")


def refused(path: Path, data: bytes, why: str) -> None:
    path.write_bytes(data)
    with pytest.raises(RunError) as caught:
        spiece.read(path)
    assert str(caught.value) == f"{path}: not a readable SentencePiece model ({why})."
