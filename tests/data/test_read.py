"""Reading translation data in every format, and what is said when a file is not as it should be."""

import gzip
import json
from pathlib import Path

import pytest

from regard.data.read import Faults, lines, table
from regard.errors import DataError
from regard.tasks.translate import TranslateSettings as Settings
from regard.tasks.translate import read

PAIRS = [("one", "un"), ("two cats", "deux chats"), ("tab? no.", "« non »")]


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def aligned(folder, end=""):
    return [
        write(folder / f"a.{side}{end}", "".join(f"{p[i]}\n" for p in PAIRS))
        for i, side in enumerate("xy")
    ]


FORMS = {
    "aligned": lambda f: aligned(f),
    "aligned gz": lambda f: aligned(f, ".gz"),
    "tsv": lambda f: [write(f / "a.tsv", "".join(f"{a}\t{b}\n" for a, b in PAIRS))],
    "tsv gz": lambda f: [write(f / "a.tsv.gz", "".join(f"{a}\t{b}\tcredit\n" for a, b in PAIRS))],
    "jsonl translation": lambda f: [
        write(
            f / "a.jsonl",
            "".join(json.dumps({"translation": {"en": a, "de": b}}) + "\n" for a, b in PAIRS),
        )
    ],
    "jsonl flat": lambda f: [
        write(f / "a.jsonl.gz", "".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in PAIRS))
    ],
    "windows": lambda f: [
        write(f / "a.tsv", "\ufeff" + "".join(f"{a}\t{b}\r\n" for a, b in PAIRS))
    ],
    "no last newline": lambda f: [write(f / "a.tsv", "\n".join(f"{a}\t{b}" for a, b in PAIRS))],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_format(form, tmp_path):
    found = read(FORMS[form](tmp_path), Settings(source="en", target="de"), Faults())
    assert [(example.source, example.target) for example in found] == PAIRS


def test_default_field_names(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"source": "one", "target": "un"}\n')
    assert [example[:2] for example in read([path], Settings(), Faults())] == [("one", "un")]


def test_odd_line_ends_inside_a_line_do_not_misalign(tmp_path):
    path = write(tmp_path / "a", "one\u2028still one\x0b\x85\ntwo\n")
    assert len(list(lines(path))) == 2


def test_quoted_csv(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\n"two\nlines, ""quoted""",1\nplain,0\n')
    assert list(table(path, ",")) == [
        (1, ["text", "label"]), (2, ['two\nlines, "quoted"', "1"]), (4, ["plain", "0"])
    ]  # fmt: skip


BAD = {
    "missing": (lambda f: [f / "no.tsv"], "no.tsv: no such file"),
    "unequal": (
        lambda f: [write(f / "a.en", "one\ntwo\n"), write(f / "a.de", "eins\n")],
        r"a.en:2: the two files must have the same number of lines, but a.de ends here\.",
    ),
    "unequal the other way": (
        lambda f: [write(f / "a.en", "one\n"), write(f / "a.de", "eins\nzwei\n")],
        r"a.de:2: the two files must have the same number of lines, but a.en ends here\.",
    ),
    "not utf-8": (
        lambda f: [write(f / "a.tsv", b"one\tun\ntwo\td\xe9ux\n")],
        r"a.tsv:2: the file must be UTF-8, but byte 6 of this line is 0xe9; convert "
        r"it with iconv\.",
    ),
    "cut gz": (
        lambda f: (
            [Path(f / "a.tsv.gz")]
            if (f / "a.tsv.gz").write_bytes(gzip.compress(b"one\tun\n" * 9999)[:60])
            else []
        ),
        r"a.tsv.gz:\d+: cannot be read to its end",
    ),
    "not gz": (
        lambda f: [f / "a.tsv.gz"] if (f / "a.tsv.gz").write_bytes(b"one\tun\n") else [],
        r"a.tsv.gz:1: cannot be read to its end",
    ),
    "unknown format": (
        lambda f: [write(f / "a.docx", "x")],
        "must be two aligned files, .* or one .tsv or .jsonl",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_cannot_be_used(case, tmp_path):
    make, said = BAD[case]
    with pytest.raises(DataError, match=said):
        list(read(make(tmp_path), Settings(), Faults()))


ONE, TWO = '{"source": "one", "target": "un"}', '{"source": "two", "target": "deux"}'
FAULTY = {
    "no tab": ("a.tsv", "one\tun\nbroken\ntwo\tdeux\n", "the line must have a tab"),
    "empty side": ("a.tsv", "one\tun\n\tdeux\ntwo\tdeux\n", "both sides must have text"),
    "not json": ("a.jsonl", f'{ONE}\n{{"source"\n{TWO}\n', "the line must be one JSON object"),
    "not an object": ("a.jsonl", f"{ONE}\n[1]\n{TWO}\n", "one JSON object, but is none"),
    "no field": (
        "a.jsonl",
        f'{ONE}\n{{"source": "x"}}\n{TWO}\n',
        "the object must have texts 'source' and 'target', but has source",
    ),
}


@pytest.mark.parametrize("case", FAULTY)
def test_lines_that_cannot_be_used_stop_or_are_counted(case, tmp_path):
    name, text, said = FAULTY[case]
    path = write(tmp_path / name, text)
    with pytest.raises(
        DataError, match=f"{name}:2: .*{said}.*go on without such lines by data.skip_bad=true"
    ):
        list(read([path], Settings(), Faults()))
    faults = Faults(skip=True)
    assert [example.source for example in read([path], Settings(), faults)] == ["one", "two"]
    assert faults.count == 1
    assert said in faults.first[0]


@pytest.mark.parametrize("form", ["tsv", "aligned", "jsonl"])
def test_a_line_that_is_not_utf8_can_be_skipped(form, tmp_path):
    if form == "tsv":
        files = [write(tmp_path / "a.tsv", b"one\tun\ntwo\td\xe9ux\nthree\ttrois\n")]
    elif form == "aligned":
        files = [
            write(tmp_path / "a.en", b"one\ntwo\nthree\n"),
            write(tmp_path / "a.fr", b"un\nd\xe9ux\ntrois\n"),
        ]
    else:
        bad = b'{"source": "two", "target": "\\ud800"}\n'
        files = [write(tmp_path / "a.jsonl", f"{ONE}\n".encode() + bad + f"{TWO}\n".encode())]
    faults = Faults(skip=True)
    assert len(list(read(files, Settings(), faults))) == 2
    assert faults.count == 1
    assert ":2: the text must be UTF-8, but is not" in faults.first[0]
