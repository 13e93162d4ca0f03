"""Text to ids and back, exactly, whatever the text."""

import random

import numpy as np
import pytest

from regard.errors import DataError, RecipeError, RunError
from regard.text import BOS, EOS, KINDS, PAD, UNK, Settings, Text, learn
from regard.text.dropout import Dropout
from tests.toys import sentences, translate

LINES = [
    *sentences(400),
    *map(translate, sentences(400)),
    "It's 2024: “well”, she said – 3.5 %!",
] * 2
RESERVED = 4 + 256  # specials and bytes

AWKWARD = {
    "empty": "",
    "spaces": "  two  spaces, and one behind ",
    "emoji": "family 👩‍👩‍👧 and 👍🏽",
    "combining": "e\u0301 and a\u0308\u0323",
    "right-to-left": "مرحبا بالعالم שלום",
    "tab": "tab\there",
    "newline": "a\nb",
    "specials": "<eos> <pad> <unk> <bos> </s>",
    "scripts": "日本語 𝒳 Ω",
    "controls": "a\x00b\x7f",
    "long": "x" * 100_000,
    "many words": "one two " * 12_000,
}


def small(kind: str, **more) -> Settings:
    learned = {"bpe": 80, "unigram": 50}.get(kind, 60)
    bytes_too = kind in ("bpe", "unigram") and more.get("bytes", True)
    return Settings(kind=kind, size=learned + (RESERVED if bytes_too else 0), **more)


@pytest.fixture(scope="module")
def texts():
    return {kind: learn(LINES, small(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("case", AWKWARD)
def test_round_trip_of_awkward_text(texts, kind, case):
    text, line = texts[kind], AWKWARD[case]
    ids = text.encode([line])[0]
    assert text.decode([ids])[0] == text.normalise(line)
    assert not {PAD, BOS, EOS} & set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_of_known_text(texts, kind):
    lines = LINES[:50]
    assert texts[kind].decode(texts[kind].encode(lines)) == lines


@pytest.mark.parametrize("kind", KINDS)
def test_saved_equals_loaded(texts, kind, tmp_path):
    texts[kind].save(tmp_path / "tokenizer.json")
    loaded = Text.load(tmp_path / "tokenizer.json")
    assert loaded.encode(LINES[:20]) == texts[kind].encode(LINES[:20])
    assert loaded.size == texts[kind].size


def test_typing_a_special_does_not_make_one(texts):
    for text in texts.values():
        ids = text.encode(["<eos> one <pad>"])[0]
        assert not {PAD, BOS, EOS} & set(ids)


def test_normalisation_is_stored_with_the_vocabulary(tmp_path):
    settings = small("bpe", lowercase=True, unicode="nfkc", punctuation=True)
    learn(LINES, settings).save(tmp_path / "t.json")
    text = Text.load(tmp_path / "t.json")
    raw = "“Ｏne” – TWO… l’été"
    assert text.decode(text.encode([raw]))[0] == '"one" - two... l\'été'


def test_combining_marks_are_composed_by_default(texts):
    assert texts["bpe"].normalise("e\u0301") == "é"
    assert learn(LINES, small("bpe", unicode="none")).normalise("e\u0301") == "e\u0301"


def test_an_unknown_word_shows(texts):
    ids = texts["words"].encode(["one zebra"])[0]
    assert UNK in ids
    assert "<unk>" in texts["words"].decode([ids])[0]


def test_without_bytes_an_unknown_character_is_unknown():
    text = learn(LINES, small("bpe", bytes=False))
    assert UNK in text.encode(["語"])[0]
    assert text.encode(["one"]) == text.encode(["one"]) != [[UNK]]


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece"])
def test_more_entries_than_the_data_allow(kind):
    text = learn(LINES, Settings(kind=kind, size=50_000))
    assert text.note == (
        f"text.size: 50000 entries were asked for, but the data allow only {text.size}; that many "
        "are used."
    )
    assert 40 < text.size < 50_000
    assert text.decode(text.encode(LINES[:20])) == LINES[:20]


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_entries_as_asked_for_need_no_word(texts, kind, tmp_path):
    assert texts[kind].note == ""
    few = learn(LINES, Settings(kind=kind, size=50_000))
    few.save(tmp_path / "tokenizer.json")
    assert Text.load(tmp_path / "tokenizer.json").note == ""  # it was told when it was learned


@pytest.mark.parametrize("lines", [[], ["", " \n"]], ids=["no line", "blank lines"])
@pytest.mark.parametrize("bytes_too", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_learn_from(kind, bytes_too, lines):
    with pytest.raises(DataError) as told:
        learn(lines, Settings(kind=kind, bytes=bytes_too), ["<extra>"])
    assert str(told.value) == (
        "text.size: no text to learn a vocabulary from; the training data are empty."
    )


@pytest.mark.parametrize("kind", ["words", "spaced", "characters"])
def test_nothing_seen_often_enough(kind):
    with pytest.raises(DataError, match=r"seen often enough; lower text.min_frequency \(99\)\."):
        learn(["one two"], small(kind, min_frequency=99))


def breaking(error):
    yield from LINES[:9]
    raise error


@pytest.mark.parametrize("kind", KINDS)
def test_what_breaks_while_learning_is_told_truly(kind):
    with pytest.raises(DataError, match=r"no vocabulary could be learned \(a reason\)\."):
        learn(breaking(ValueError("a reason")), small(kind))
    with pytest.raises(DataError, match=r"learned \(ValueError, of which nothing more is known\)"):
        learn(breaking(ValueError()), small(kind))
    with pytest.raises(DataError, match="a file that cannot be used"):
        learn(breaking(DataError("a file that cannot be used")), small(kind))
    with pytest.raises(MemoryError):
        learn(breaking(MemoryError()), small(kind))


def test_a_broken_vocabulary_is_told(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(RunError, match="the vocabulary is missing"):
        Text.load(path)
    path.write_text('{"version": "1.0"')
    with pytest.raises(RunError, match="not a readable tokenizer file"):
        Text.load(path)


def rows(dropout, lines, seed=0):
    """Every line cut by a generator of its own."""
    return [
        dropout.encode(line, draw) for line, draw in zip(lines, draws(lines, seed), strict=True)
    ]


def draws(lines, seed=0):
    return [np.random.default_rng((seed, row)) for row in range(len(lines))]


def test_dropout_writes_the_same_text_in_other_pieces(texts):
    text, lines = texts["bpe"], LINES[:100]
    cut = rows(Dropout(text, 0.3), lines)
    assert text.decode(cut) == lines
    assert sum(map(len, cut)) > 1.1 * sum(map(len, text.encode(lines)))


def test_dropout_of_nothing_is_plain_bpe(texts):
    lines = [*LINES[:100], AWKWARD["emoji"]]
    assert rows(Dropout(texts["bpe"], 0.0), lines) == texts["bpe"].encode(lines)


def test_dropout_follows_the_seed_and_nothing_else(texts):
    lines = LINES[:100]
    used = Dropout(texts["bpe"], 0.3)
    rows(used, lines, 7)
    fresh = Dropout(texts["bpe"], 0.3)
    one, two = (rows(d, lines) for d in (used, fresh))
    assert one == two != rows(fresh, lines, 1)


def test_dropout_of_a_row_does_not_depend_on_the_others(texts):
    ids = texts["bpe"].encode(LINES[:40])
    drop = Dropout(texts["bpe"], 0.3)
    whole = drop.recut(ids, draws(ids))
    assert texts["bpe"].decode(whole) == LINES[:40] and whole != ids
    for part, parts in ((0, 2), (1, 2), (3, 5)):
        assert drop.recut(ids[part::parts], draws(ids)[part::parts]) == whole[part::parts]


def test_dropout_leaves_the_unknown_unknown():
    text = learn(LINES, small("bpe", bytes=False))
    ids = text.encode(["one 語 two"])[0]
    assert UNK in ids
    cut = Dropout(text, 0.5).recut([ids, []], draws([ids, []]))
    assert cut[0].count(UNK) == ids.count(UNK)
    assert text.decode(cut) == text.decode([ids, []])


def test_only_bpe_has_merges_to_drop(texts):
    with pytest.raises(RecipeError, match="only text.kind=bpe has merges"):
        Dropout(texts["words"], 0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_lines_give_the_same_vocabulary(kind):
    """Many pairs are as frequent as others; which is merged first must not be left to chance."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopé", k=rng.randint(2, 9))) for _ in range(400)]
    lines = [" ".join(rng.choices(words, k=6)) + " 日本 a+b €5." for _ in range(300)]
    settings = Settings(kind=kind, size=450)
    one, *others = (learn(iter(lines), settings).tokenizer.to_str() for _ in range(4))
    assert all(other == one for other in others)
