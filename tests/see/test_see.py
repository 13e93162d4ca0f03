"""What is seen is what was used, and every form it is saved in can be opened."""

import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

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
        named = text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
        assert "http" not in named, "the page asks nobody for anything"
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


def test_the_pages_script_is_whole(sight, tmp_path):
    """By node, where there is one; the browser's tests run it."""
    page = sight.save(tmp_path / "see.html").read_text()
    script = re.findall(r'<script type="module">(.*?)</script>', page, re.S)[0]
    assert script.count("{") == script.count("}") and "show(" in script
    (tmp_path / "page.mjs").write_text(script)
    if shutil.which("node"):
        subprocess.run(["node", "--check", "page.mjs"], cwd=tmp_path, check=True)


def test_the_numbers_behind_the_weights(trained):
    """Scores, softmaxed, are the weights; weights mix values; the lecture's table for any token."""
    for look in trained.see("two red cats").looks:
        scores = torch.from_numpy(look.scores)
        weights = scores.softmax(-1).nan_to_num(0.0)
        torch.testing.assert_close(weights, torch.from_numpy(look.weights), atol=1e-4, rtol=1e-4)
        assert look.scale == pytest.approx(16**-0.5) and look.values.shape[-1] == 16
        products = torch.from_numpy(look.queries) @ torch.from_numpy(look.keys).mT
        allowed = scores.isfinite()
        torch.testing.assert_close(
            (products * look.scale)[allowed], scores[allowed], atol=1e-4, rtol=1e-4
        )
    for look in trained.see("two red cats", vectors=False).looks:
        assert look.queries is None and look.keys is None and look.values.shape[-1] == 4


def test_what_else_could_have_been_written(trained):
    told = trained.see("two red cats").generation
    for step in told["steps"]:
        chances = [chance for _, chance in step["candidates"]]
        assert chances == sorted(chances, reverse=True) and step["probability"] <= chances[0] + 1e-6
    nodes = {node["id"]: node for node in told["beam"]["nodes"]}
    for node in nodes.values():
        if node["parent"] is not None:
            assert nodes[node["parent"]]["score"] >= node["score"] - 1e-4, (
                "it only gets less likely"
            )
    best = max((n for n in nodes.values() if n["final"]), key=lambda n: n["score"])
    path = []
    while best["parent"] is not None:
        path.append(best["token"])
        best = nodes[best["parent"]]
    assert trained.predict(["two red cats"])[0].output.split()[0] in "".join(reversed(path))


def test_a_head_can_be_silenced(trained):
    from regard.parts.watch import silence
    from regard.see.ablate import ablate

    whole = trained.predict(["two red cats"])[0]
    names = [look.name for look in trained.see("two red cats").looks]
    with silence(trained.model, names[-1], [0, 1]):
        changed = trained.predict(["two red cats"])[0]
    again = trained.predict(["two red cats"])[0]
    assert changed.score != whole.score and again.score == whole.score
    found = ablate(trained, "two red cats", examples=4)
    assert len(found["heads"]) == 2 * len(names) and found["metric"] == "bleu"
    assert all(0 <= row["value"] <= 100 for row in found["heads"])


def test_a_recurrent_decoders_head_can_be_silenced(tmp_path):
    from regard.see.ablate import ablate

    run = regard.train(
        "seq2seq-additive", "train.steps=1", "train.evaluate_examples=0", "model.width=16",
        "model.hidden=32", "data.test=", run=tmp_path / "run",
    )  # fmt: skip
    found = ablate(run, "I am cold.", examples=2)
    assert len(found["heads"]) == 1 and found["heads"][0]["output"] is not None


def test_too_much_to_look_at_is_refused(trained):
    with pytest.raises(InputError, match="weights would be looked at, but at most 10 may"):
        trained.see("two red cats", most=10)
    with pytest.raises(InputError, match="heads: from 0 to 1, but one is 7"):
        trained.see("two red cats", heads=[7])
    with pytest.raises(InputError, match="layers: the model has none of"):
        trained.see("two red cats", layers=[9])
    some = trained.see("two red cats", layers=[-1], heads=[1])
    assert all(look.weights.shape[0] == 1 for look in some.looks)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_positions_masks_and_schedules_are_drawn(tmp_path, kind):
    from regard.parts import mask as masks
    from regard.parts.position import POSITIONS
    from regard.see import figure
    from regard.training.schedule import SCHEDULES

    drawn = [figure.positions(name, tmp_path / f"p-{name}.{kind}") for name in POSITIONS]
    drawn += [figure.schedule(name, tmp_path / f"s-{name}.{kind}") for name in SCHEDULES]
    drawn.append(figure.mask(masks.causal(6, 6), tmp_path / f"m.{kind}"))
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_how_likely_the_answer_stays_without_a_head(trained):
    from regard.see.ablate import LIKELY, ablate

    found = ablate(trained, "two red cats", examples=0)
    assert found["metric"] == LIKELY
    assert all(row["value"] <= found["whole"] + 5 for row in found["heads"])
    assert min(row["value"] for row in found["heads"]) < found["whole"]
