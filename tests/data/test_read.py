"""Reading translation data in every format, and what is said when a file is not as it should be."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from regard.data import running
from regard.data.parallel import read
from regard.data.read import Faults, documents, lines, records, table
from regard.errors import DataError

SIDES = ("source", "target")
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
    found = read(FORMS[form](tmp_path), ("en", "de"), Faults())
    assert [(example.source, example.target) for example in found] == PAIRS


def test_default_field_names(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"source": "one", "target": "un"}\n')
    assert [example[:2] for example in read([path], SIDES, Faults())] == [("one", "un")]


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
        list(read(make(tmp_path), SIDES, Faults()))


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
        list(read([path], SIDES, Faults()))
    faults = Faults(skip=True)
    assert [example.source for example in read([path], SIDES, faults)] == ["one", "two"]
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
    assert len(list(read(files, SIDES, faults))) == 2
    assert faults.count == 1
    assert ":2: the text must be UTF-8, but is not" in faults.first[0]


def texts(path, faults=None):
    return list(documents(path, faults or Faults()))


LONG = {
    "words": "wörd 語 👍🏽 " * 40_000,
    "no space": "ü語👍" * 60_000,
    "spaces": " " * 600_000,
    "one space": "a" * 70_000 + " " + "b" * 400_000,
    "windows": "one two\r\n" * 2 + "x" * 600_000 + "\r\n",
    "lines in long lines": ("one two " * 9_000 + "\n") * 9,
    "indented": "  one two\n" * 90_000,
    "empty lines": "\n" * 900_000,
    "a letter too many": "\ufeff" + "x" * 2**16 + "\n" + "y" * 2**16,
}


@pytest.mark.parametrize("end", ["txt", "txt.gz", "jsonl"])
@pytest.mark.parametrize("case", LONG)
def test_a_long_text_comes_in_pieces_and_whole(case, end, tmp_path):
    text = LONG[case].removeprefix("\ufeff") if end == "jsonl" else LONG[case]
    said = json.dumps({"text": text}, ensure_ascii=False) + "\n" if end == "jsonl" else text
    found = texts(write(tmp_path / f"a.{end}", said))
    whole = text if end == "jsonl" else text.removeprefix("\ufeff").replace("\r\n", "\n")
    assert "".join(piece for piece, _, _ in found) == whole
    assert max(len(piece) for piece, _, _ in found) <= 600_000
    assert [last for _, _, last in found] == [False] * (len(found) - 1) + [True]


def test_a_long_line_is_cut_before_a_word(tmp_path):
    path = write(tmp_path / "a.txt", "a line\n" + " ".join(f"w{i:05}" for i in range(100_000)))
    found = texts(path)
    assert len(found) > 2
    assert all(piece.startswith(" w") for piece, _, _ in found[1:])
    assert [where for _, where, _ in found] == [f"{path}:1"] + [f"{path}:2"] * (len(found) - 1)


def test_a_bad_byte_is_counted_from_the_beginning_of_its_line(tmp_path):
    bad = b"one\n" + "ü".encode() * 200_000 + b"\xe9 " + b"x" * 100_000 + b"\ntwo\n"
    path = write(tmp_path / "a.txt", bad)
    with pytest.raises(DataError, match=r"a.txt:2: .* byte 400001 of this line is 0xe9"):
        texts(path)
    faults = Faults(skip=True)
    found = "".join(piece for piece, _, _ in texts(path, faults))
    assert faults.count == 1 and found.startswith("one\nü") and found.endswith("x\ntwo\n")


def line_of(count):
    return ("x" * 999 + " ") * (count // 1000)


LIMITS = {
    "aligned": lambda f: read(
        [write(f / "a.en", f"one\n{line_of(2**21)}\n"), write(f / "a.fr", "un\ndeux\n")],
        SIDES, Faults(),
    ),
    "tsv": lambda f: table(write(f / "a.en", f"one\t1\n{line_of(2**21)}\t2\n"), "\t"),
    "csv": lambda f: table(write(f / "a.en", f"one,1\n{line_of(2**21)},2\n"), ","),
    "jsonl": lambda f: records(
        write(f / "a.en", f'{ONE}\n{{"a": "{line_of(2**21)}"}}\n'), Faults()
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", LIMITS)
def test_a_line_that_is_an_example_may_not_be_too_long(form, tmp_path):
    with pytest.raises(DataError) as told:
        list(LIMITS[form](tmp_path))
    assert str(told.value) == (
        f"{tmp_path / 'a.en'}:2: a line may have 1 MiB here, but this one has more; divide it."
    )


def test_a_text_in_json_may_be_longer(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps({"text": line_of(2**22)}) + "\n")
    assert len(texts(path)) > 3
    write(path, '{"text": "' + line_of(2**26 + 1000) + '"}\n')
    with pytest.raises(DataError, match=r"a.jsonl:1: a line may have 64 MiB here, but this one"):
        texts(path)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.tsv.gz"])
def test_what_unpacks_without_end_is_refused(name, tmp_path):
    packed = gzip.compress((b"x" * 1021 + b"\ty\n") * 2**10 if "tsv" in name else b"x" * 2**20)
    (tmp_path / name).write_bytes(packed * 300)  # of many members
    every = documents(tmp_path / name, Faults()) if "txt" in name else lines(tmp_path / name)
    with pytest.raises(DataError) as told:
        for _ in every:
            pass
    assert str(told.value) == (
        f"{tmp_path / name}: a .gz may unpack to 200 times its size, or to 256 MiB where that is "
        "more, but this one has more than 256 MiB; unpack it by hand if that is meant."
    )


def test_csv_is_read_row_by_row(tmp_path):
    path = write(tmp_path / "a.csv", 'a,"b\r\nc"\r\n\r\n"d\n\ne",f\n' + "x,y\n" * 9999 + 'g,"h\ni')
    found = table(path, ",")
    assert [next(found) for _ in range(4)] == [
        (1, ["a", "b\nc"]), (3, []), (4, ["d\n\ne", "f"]), (7, ["x", "y"])
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"a.csv:10006: not a readable CSV row \(unexpected end"):
        list(found)


# Memory, told by a process of its own, as the library that tokenises is not Python's to measure.
PEAK = """
import gc, sys
from pathlib import Path
from regard.data.read import Faults
from regard.tasks.{module} import {task} as Task
from regard.text import Settings

def peak():
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 1024

settings, sections = Task.Settings(**{settings}), {{"text": Settings(kind="characters")}}
folder = Path(sys.argv[1])
for name in ("small", "large"):
    files, cache = [folder / f"{{name}}.{end}"], folder / "cache"
    examples = Task.examples(settings, files, cache, Faults())
    task = Task.learn(settings, sections, examples)
    data = task.data(examples, cache, 10**9, Faults())
    print(peak(), len(data.store.flat("text")))
    del examples, task, data
    gc.collect()
"""
LONG_LINES = {  # task, settings, the file's ending
    "language": ("Language", {}, "txt"),
    "language by lines": ("Language", {"lines": True}, "jsonl"),
    "masked": ("MaskedWords", {"next": False}, "txt"),
    "spans": ("Spans", {}, "txt"),
}


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="asks Linux for its memory")
@pytest.mark.parametrize("case", LONG_LINES)
def test_memory_does_not_follow_the_longest_line(case, tmp_path):
    task, settings, end = LONG_LINES[case]
    for name, count in (("small", 1_000), ("large", 2_000_000)):
        line = "the cat sat on the mat and saw a dog " * (count // 37)
        line = json.dumps({"text": line}) if end == "jsonl" else line
        (tmp_path / f"{name}.{end}").write_text(line + "\n")
    module = case.split()[0]
    script = PEAK.format(module=module, task=task, settings=settings, end=end)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    (small, _), (large, tokens) = (map(float, row.split()) for row in done.stdout.splitlines())
    assert tokens > 10**5
    assert large - small < 300, f"{large - small:.0f} MB for a line of 2 MB"


def test_a_line_that_comes_in_pieces_ends_once(tmp_path):
    long = "one two " * 80_000
    path = write(tmp_path / "a.txt", f"first\n\n{long}\nlast\n")
    held, found = "", []
    for piece, _, last, ends in running.pieces([path], True, Faults()):
        held += piece
        assert ends == last
        if last:
            found.append(held)
            held = ""
    assert (held, found) == ("", ["first", "", long, "last"])


def test_a_text_that_comes_in_pieces_begins_once(tmp_path):
    told = "It rained. She read on.\n" * 30_000
    path = write(tmp_path / "a.txt", told + "\n" + "A second text.\n")
    assert len(texts(path)) > 2
    found = list(running.sentences([path], "blank", Faults()))
    assert len(found) == 60_001
    assert [place for place, (_, begins) in enumerate(found) if begins] == [0, 60_000]
