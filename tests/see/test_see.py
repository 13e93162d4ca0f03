"""What is seen is what was used, and every form it is saved in can be opened."""

import json
import re
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest

import regard
from regard.errors import InputError
from tests.toys import sentences, translate


@pytest.fixture(scope="module")
def sight(trained):
    return trained.see("two red cats and one dogs")


def test_every_attention_is_there_and_its_rows_sum_to_one(sight, trained):
    assert sight.output == trained.predict([sight.input])[0].output
    assert [look.name for look in sight.looks] == [
        "encoder.0.attention",
        "decoder.0.attention",
        "decoder.0.cross",
    ]
    for look in sight.looks:
        assert look.weights.shape == (2, len(look.rows), len(look.columns))
        np.testing.assert_allclose(look.weights.sum(-1), 1.0, atol=1e-5)


def test_a_reordering_is_visible(trained, sight):
    """A colour comes after its noun, and looks back at the phrase that has it the other way."""
    assert sight.output == translate(sight.input)
    looked = []
    for line in sentences(40, seed=9):
        alignment = trained.see(line).alignment()
        columns = [token.strip("▁") for token in alignment.columns]
        looked += [
            columns[int(weights.argmax())]
            for row, weights in zip(alignment.rows, alignment.weights[0], strict=True)
            if row.strip("▁") in ("rouge", "vert")
        ]
    phrase = [word for word in looked if word in ("red", "green", "cats", "dogs")]
    assert len(looked) > 20 and len(phrase) >= 0.9 * len(looked)


@pytest.mark.parametrize("end", ["png", "svg", "pdf", "html", "json"])
def test_every_form(sight, tmp_path, end):
    path = sight.save(tmp_path / f"deep/see.{end}")
    data = path.read_bytes()
    if end == "png":
        assert data.startswith(b"\x89PNG")
    elif end == "pdf":
        assert data.startswith(b"%PDF")
    elif end == "svg":
        assert ElementTree.fromstring(data).tag.endswith("svg")
    elif end == "json":
        assert len(json.loads(data)["looks"]) == 3
    else:
        assert len(data) < 1_000_000
        text = data.decode()
        assert "http" not in text.replace("http-equiv", ""), "the page asks nobody for anything"
        (inside,) = re.findall(
            r'<script type="application/json" id="data">(.*?)</script>', text, re.S
        )
        assert json.loads(inside)["output"] == sight.output


def test_the_same_weights_draw_the_same_picture(sight, tmp_path):
    one, two = (sight.save(tmp_path / f"{name}.png").read_bytes() for name in "ab")
    assert one == two


def test_text_cannot_break_out_of_the_page(trained):
    page = trained.see(
        "two cats </script><script>alert(1)</script>", target="$x^2$ <b>"
    )._repr_html_()
    assert page.startswith("<iframe")
    text = regard.see.page.standalone({"input": "</script><!--\u2028", "looks": []})
    assert "</script><!--" not in text


def test_a_formula_sign_is_drawn_as_it_is(trained, tmp_path):
    assert trained.see("two cats", target="$ % # deux").save(tmp_path / "x.png").stat().st_size > 0


def test_what_cannot_be_written_is_told(sight, tmp_path):
    with pytest.raises(
        InputError, match=r"see.gif: the file must end in .html, .json, .png, .svg, .pdf"
    ):
        sight.save(tmp_path / "see.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="could not be written"):
        sight.save(tmp_path / "file/see.html")


def test_the_pages_script_runs(sight, tmp_path):
    """By node, where there is one, on a page made of stand-ins; a browser comes with the server."""
    page = sight.save(tmp_path / "see.html").read_text()
    script = re.findall(r"<script>(.*?)</script>", page, re.S)[0]
    (tmp_path / "page.js").write_text(script)
    try:
        subprocess.run(
            ["node", "--check", "page.js"], cwd=tmp_path, check=True, capture_output=True
        )
    except FileNotFoundError:
        assert script.count("{") == script.count("}")
