"""Rows given in Python, written as the files that readers take."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import InputError
from .parts import PART

Record = dict[str, Any]


class Given:
    """The rows of one part of the data: a list, a data frame, or whatever yields rows."""

    def __init__(self, rows: Iterable[Any], part: str = "train") -> None:
        self.rows, self.part = rows, part

    def __iter__(self) -> Iterator[Any]:
        frame: Any = self.rows
        if hasattr(frame, "iterrows"):  # pandas, whose frames yield the names of their columns
            yield from frame.to_dict("records")
        else:
            yield from frame

    def records(self, columns: Sequence[str]) -> Iterator[Record]:
        """Rows as objects: as they are, or, where they are tuples, by the order of the columns."""
        for number, row in enumerate(self, 1):
            values = (row,) if isinstance(row, str) else row
            if isinstance(row, Mapping):
                yield dict(row)
            elif isinstance(values, tuple | list) and len(values) == len(columns) > 0:
                yield dict(zip(columns, values, strict=True))
            else:
                wanted = f" or ({', '.join(columns)})" if columns else ""
                raise self.refusal(number, f"must be a dict{wanted}, but is {_shown(row)}")

    def refusal(self, number: int, what: str) -> InputError:
        return InputError(f"data, {self.part}, row {number}: {what}.")


def parts(data: object) -> dict[str, Given]:
    """The parts of what is given: rows alone are there to learn from."""
    if not isinstance(data, Mapping):
        if isinstance(data, str) or not isinstance(data, Iterable):
            raise InputError(
                f"data: must be rows, or rows by part, but is {_shown(data)}; files are named by "
                "data.train=FILE."
            )
        return {"train": Given(data)}
    odd = [str(name) for name in data if name not in PART]
    if odd or not data:
        raise InputError(
            f"data: its parts must be train, valid or test, but one is '{', '.join(odd[:1])}'; "
            'give a list of rows, or {"train": rows, "valid": rows}.'
        )
    found = {PART[name]: Given(rows, PART[name]) for name, rows in data.items()}
    if "train" not in found:
        raise InputError("data: there must be rows to train on, but there is no part 'train'.")
    return found


def write_records(path: Path, records: Iterable[Record], given: Given) -> None:
    """A line of JSON each."""
    with path.open("w", encoding="utf-8") as file:
        for number, record in enumerate(records, 1):
            try:
                file.write(json.dumps(record, ensure_ascii=False, default=_plain) + "\n")
            except (TypeError, ValueError) as error:
                raise given.refusal(number, f"cannot be written as JSON ({error})") from error


def write_tagged(path: Path, given: Given, word: int, tag: int) -> None:
    """Words with their tags in the columns that the reader looks at."""
    width = max(word, tag, 2)
    with path.open("w", encoding="utf-8") as file:
        for number, record in enumerate(given.records(("words", "tags")), 1):
            words, tags = record.get("words", record.get("tokens")), record.get("tags")
            if words is None or tags is None or len(words) != len(tags):
                raise given.refusal(number, "must have as many 'words' as 'tags'")
            for name, label in zip(words, tags, strict=True):
                cells = ["-"] * width
                cells[word - 1], cells[tag - 1] = str(name), str(label)
                if any(len(cell.split()) != 1 for cell in cells):
                    raise given.refusal(number, f"a word must have no space, but is '{name}'")
                file.write(" ".join(cells) + "\n")
            file.write("\n")


def write_questions(path: Path, given: Given) -> None:
    """SQuAD's JSON; an answer without its place is looked for in the text."""
    paragraphs = []
    for number, record in enumerate(given.records(("question", "context", "answers")), 1):
        try:
            question, context = str(record["question"]), str(record["context"])
            answers = _answers(record["answers"], context)
        except (KeyError, TypeError, ValueError) as error:
            told = f"must have a question, its context and answers that stand there ({error})"
            raise given.refusal(number, told) from error
        asked = {"id": str(record.get("id", number)), "question": question, "answers": answers}
        paragraphs.append({"context": context, "qas": [asked]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")


def _answers(said: Any, context: str) -> list[Record]:
    """A text, several, SQuAD's objects, or what `datasets` makes of them."""
    if isinstance(said, Mapping):
        places = zip(said["text"], said["answer_start"], strict=True)
        return [{"text": str(text), "answer_start": int(start)} for text, start in places]
    some = [said] if isinstance(said, str) else list(said)
    return [
        {"text": one, "answer_start": context.index(one)} if isinstance(one, str) else dict(one)
        for one in some
    ]


def write_pictures(
    table: Path, tar: Path, given: Given, columns: Sequence[str], image: str
) -> None:
    """A table, and the tar that its pictures are in."""
    with tarfile.open(tar, "w") as file:

        def packed() -> Iterator[Record]:
            for number, record in enumerate(given.records(columns), 1):
                if image not in record:
                    raise given.refusal(number, f"must have a picture ('{image}'), but has none")
                ending, content = _content(record[image], number, given)
                member = tarfile.TarInfo(f"{number}{ending}")  # of no time and nobody
                member.size = len(content)
                file.addfile(member, io.BytesIO(content))
                yield {**record, image: member.name}

        write_records(table, packed(), given)


def _content(picture: Any, number: int, given: Given) -> tuple[str, bytes]:
    """A picture's file: its ending and its bytes."""
    if isinstance(picture, str | Path):
        path = Path(picture)
        try:
            return path.suffix.lower(), path.read_bytes()
        except OSError as error:
            raise given.refusal(number, f"{path} cannot be read ({error.strerror})") from error
    if isinstance(picture, bytes):
        return ".png", picture
    try:
        opened = picture if isinstance(picture, Image.Image) else Image.fromarray(_bytes(picture))
    except (TypeError, ValueError, AttributeError) as error:
        told = "a picture must be a file, a PIL.Image, or bytes (height, width[, colours])"
        raise given.refusal(number, f"{told}, but is {_shown(picture)}") from error
    made = io.BytesIO()
    opened.save(made, "PNG")
    return ".png", made.getvalue()


def _bytes(picture: Any) -> Any:
    array = np.asarray(picture)
    if array.dtype != np.uint8:
        raise ValueError("not bytes")
    return array


def _plain(value: Any) -> Any:
    """Numbers and arrays of other libraries, which say themselves what they are in Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is neither text nor number")


def _shown(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:60]}…"
