"""Columns by their names or numbers, and what is said where there is no such column."""

import json

import pytest

from regard.data.read import Faults
from regard.data.table import rows
from regard.errors import DataError

ASKED = [("task.text", "text"), ("task.label", "label")]
COUNT = (
    "; where the first line is no header, count the columns from 1 in all such settings, as in "
    "task.text=1 task.label=2."
)
SKIP = "; put it right, or go on without such lines by data.skip_bad=true."


@pytest.mark.parametrize("end, separator", [("tsv", "\t"), ("csv", ",")])
def test_columns_of_a_file_without_header_are_counted(end, separator, tmp_path):
    path = tmp_path / f"a.{end}"
    path.write_text(f"0{separator}good film\n1{separator}bad film\n")
    found = rows(path, [("task.text", "2"), ("task.label", "1")], Faults())
    assert list(found) == [
        (f"{path}:1", ["good film", "0"]),
        (f"{path}:2", ["bad film", "1"]),
    ]


SAID = {
    "near": ("txt\tlabel\n", "; did you mean 'txt'? There are txt, label"),
    "far": ("sentence\tlabel\n", "; there are sentence, label"),
    "no header": ("good film\t1\n", "; there are good film, 1"),
    "empty": ("", "; there are none"),
    "long": ("x" * 99 + "\t1" * 20 + "\n", f"; there are {'x' * 40}…{', 1' * 9}, …"),
}


@pytest.mark.parametrize("case", SAID)
def test_a_column_that_is_not_there_is_told_in_a_sentence(case, tmp_path):
    text, said = SAID[case]
    path = tmp_path / "a.tsv"
    path.write_text(text)
    with pytest.raises(DataError) as told:
        list(rows(path, ASKED, Faults()))
    assert str(told.value) == f"{path}:1: there is no column 'text' (task.text){said}{COUNT}"


@pytest.mark.parametrize(
    "name, said",
    [("txt", "; did you mean 'txt'? There are txt, label"), ("body", "; there are body, label")],
)
def test_the_same_of_json(name, said, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({name: "good film", "label": 1}) + "\n")
    with pytest.raises(DataError) as told:
        list(rows(path, ASKED, Faults()))
    assert str(told.value) == f"{path}:1: there is no column 'text' (task.text){said}{SKIP}"
