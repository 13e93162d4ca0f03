"""What single tokens say."""

import pytest

from regard.text import Settings, learn
from regard.text.spelling import Spelling

LINES = ["The cat sat.", "Émile a mangé du pâté.", "naïve café 日本", "a  b\n c"] * 3
KINDS = {
    "bpe": {"size": 300}, "byte-bpe": {"size": 280}, "words": {}, "characters": {},
    "unigram": {"size": 300},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("line", ["The cat sat.", "Émile a mangé", "日本 pâté", "Ωß cat"])
def test_names_and_places_are_those_of_the_text(kind, line):
    text = learn(LINES, Settings(kind=kind, **KINDS[kind]))
    ids = text.encode([line])[0]
    whole = text.decode([ids])[0]
    spelling, told = Spelling(text), ""
    for token in ids:
        (name,) = spelling.names([token])
        if not name.startswith("bytes:") and token not in text.specials:
            assert whole[spelling.place :].startswith(name), (name, spelling.place)
            told += name
        spelling.read(token)
    assert spelling.place == len(whole)
    if kind in ("words", "characters") or line == "The cat sat.":
        assert told.replace("<unk>", "") == whole.replace("<unk>", "")


def test_half_a_character_is_told_by_its_bytes():
    text = learn(["plain words only"] * 3, Settings(kind="byte-bpe", size=270))
    spelling = Spelling(text)
    names = []
    for token in text.encode(["é"])[0]:
        names += spelling.names([token])
        spelling.read(token)
    assert names == ["bytes:\\xc3", "bytes:\\xa9"] and spelling.place == 1


def test_what_else_could_have_come_is_named_alike():
    text = learn(LINES, Settings(kind="byte-bpe", size=300))
    spelling = Spelling(text)
    for token in text.encode(["The"])[0]:
        spelling.read(token)
    cat, the = (text.encode([word])[0][0] for word in (" cat", "The"))
    assert spelling.names([cat, the])[0].startswith(" ")
    assert "Ġ" not in "".join(spelling.names([cat, the]))
