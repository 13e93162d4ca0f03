"""Pictures with labels: what is given and how, what training changes, what is said of bad ones."""

import base64
import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.data.draws import Draws
from regard.data.pictures import Picture, decode
from regard.errors import DataError, InputError, RecipeError
from regard.parts.augment import augment
from regard.tasks.picture import (
    PictureForm,
    PictureSettings,
    beta,
    draw_changes,
    fitted,
    learn_colours,
)
from tests.data.test_pictures import content, picture


def url(raw):
    return f"data:image/png;base64,{base64.b64encode(raw).decode()}"


def test_a_picture_can_be_given_in_many_ways(tmp_path):
    made, form, path = picture(), PictureForm(), tmp_path / "a.png"
    made.save(path)
    pixels = np.asarray(made).transpose(2, 0, 1)
    ways = [form.parse(str(path)), *map(form.accept, (
        path, made, np.asarray(made), url(path.read_bytes()), {"image": url(path.read_bytes())}
    ))]  # fmt: skip
    for given in ways:
        assert (given.pixels == pixels).all()
    assert form.show(ways[0]) == str(path) and form.accept(ways[0]) is ways[0]


def test_a_text_over_http_never_opens_a_file(tmp_path):
    path = tmp_path / "a.png"
    picture().save(path)
    for sent in (
        str(path),
        {"image": str(path)},
        {"image": f"file://{path}"},
        {"photo": "x"},
        7,
        [],
    ):
        with pytest.raises(InputError, match=r"input 2: must be a picture as a data: URL"):
            PictureForm().accept(sent, 2)
    with pytest.raises(InputError, match="input 1: not base64"):
        PictureForm().accept("data:image/png;base64,*&^")
    with pytest.raises(InputError, match=r"input 1: picture: no picture \(cannot identify"):
        PictureForm().accept(url(b"hello"))


def test_a_path_that_is_no_picture_is_told(tmp_path):
    with pytest.raises(InputError, match=r"input 3: .*nothing.png: cannot be read \(No such file"):
        PictureForm().parse(str(tmp_path / "nothing.png"), 3)
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(InputError, match=r"text.png: no picture \(cannot identify"):
        PictureForm().parse(str(tmp_path / "text.png"))
    with pytest.raises(InputError, match="cannot be read"):
        PictureForm().parse("a\0b")


def test_what_is_changed_depends_on_the_draw_alone():
    settings = PictureSettings(
        size=16, patch=4, flip=0.5, shift=3, zoom=0.7, randaugment=0.5, erase=0.5, mixup=0.8,
        cutmix=1.0, mix=0.8,
    )  # fmt: skip
    seen = set()
    for seed in range(40):
        one = draw_changes(settings, Draws(1, 5, [seed]), 100)
        two = draw_changes(settings, Draws(1, 5, [seed, 77]), 100)
        assert torch.equal(one[0][0], two[0][0]) and one[1][0] == two[1][0]
        seen.add(tuple(one[0][0].tolist()))
    assert len(seen) == 40
    plain, _, share = draw_changes(PictureSettings(size=16), Draws(0, 0, [0]), 9)
    x = torch.rand(1, 3, 16, 16)
    torch.testing.assert_close(augment(x, plain), x, atol=1e-5, rtol=0)
    assert share.tolist() == [1.0]


def test_what_cannot_be_is_told():
    with pytest.raises(RecipeError, match="must divide"):
        PictureSettings(size=10, patch=4)
    with pytest.raises(RecipeError, match="picture.patch must be a power of two"):
        PictureSettings(size=12, patch=6, stem="conv")


def test_colours_are_those_of_the_pictures():
    made = [picture(9, 6, seed) for seed in range(5)]
    examples = [Picture(content(one), "x", "") for one in made] + [Picture(b"bad", "x", "")]
    every = np.concatenate([np.asarray(one).reshape(-1, 3) for one in made]) / 255
    mean, spread = learn_colours(examples, PictureSettings())
    np.testing.assert_allclose(mean, every.mean(0), atol=1e-4)
    np.testing.assert_allclose(spread, every.std(0), atol=1e-4)


def write_set(folder, count=24):
    for number in range(count):
        name = ("red", "green")[number % 2]
        pixels = np.random.default_rng(number).integers(0, 90, (10, 13, 3), np.uint8)
        pixels[:, :, number % 2] += 120
        path = folder / name / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


RECIPE = """
[task]
kind = "picture"
[picture]
size = 8
patch = 4
shift = 1
[data]
train = "set"
valid = "set"
[model]
kind = "vit"
width = 16
depth = 1
heads = 2
[train]
steps = 60
batch_tokens = 64
rate = 0.01
warmup = 5
evaluate_every = 30
device = "cpu"
"""


def test_it_learns_answers_and_is_looked_into(tmp_path):
    write_set(tmp_path / "set")
    (tmp_path / "p.toml").write_text(RECIPE)
    run = regard.train(str(tmp_path / "p.toml"), run=tmp_path / "run")
    results = json.loads((tmp_path / "run/results.json").read_text())["valid"]
    assert results["accuracy"] == 100 and results["examples"] == 24
    card = (tmp_path / "run/README.md").read_text()
    assert "What was taken for what in valid" in card and "![attention](attention.png)" in card
    with Image.open(tmp_path / "run/attention.png") as drawn:
        assert drawn.width > 200
    path = tmp_path / "set/green/01.png"
    (answer,) = run.predict([str(path)])
    assert (answer.label, answer.input) == ("green", str(path))
    assert run.predict(Image.open(path))[0].label == "green"  # one as itself
    report = run.see(str(path))
    look = report.looks[0]
    assert look.columns == ["[class]", "1,1", "1,2", "2,1", "2,2"]
    assert (look.column_kind, look.column_shape) == ("patches", (2, 2))
    shown = report.data()["picture"]
    assert decode(base64.b64decode(shown.partition(",")[2])).shape == (3, 8, 8)
    weights = torch.from_numpy(look.weights.copy())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))


def test_a_damaged_picture_is_told_by_its_name_or_left_out(tmp_path):
    write_set(tmp_path / "set")
    bad = tmp_path / "set/red/bad.png"
    bad.write_bytes((tmp_path / "set/red/00.png").read_bytes()[:90])
    (tmp_path / "p.toml").write_text(RECIPE)
    short = ("train.steps=2", "train.warmup=1")
    with pytest.raises(DataError, match=r"bad.png: the picture cannot be read \(.*data.skip_bad"):
        regard.train(str(tmp_path / "p.toml"), *short, run=tmp_path / "run")
    told = []
    regard.train(
        str(tmp_path / "p.toml"), *short, "data.skip_bad=true", run=tmp_path / "run2",
        on_event=told.append,
    )  # fmt: skip
    assert told[0].left_out == 2 and "bad.png" in told[0].faults[0]  # in train, and in valid


def test_a_patch_must_divide_the_picture():
    with pytest.raises(RecipeError, match=r"picture.patch \(5\) must divide picture.size \(8\)"):
        PictureSettings(size=8, patch=5)


@pytest.mark.parametrize("shape", [0.2, 1.0, 3.0])
def test_shares_are_drawn_from_their_beta(shape):
    drawn = beta(Draws(0, 0, range(50_000)).uniform(1)[:, 0], shape)
    assert drawn.min() >= 0 and drawn.max() <= 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.01)
    assert drawn.var() == pytest.approx(1 / (4 * (2 * shape + 1)), rel=0.03)


def test_what_was_learned_of_small_pictures_helps_with_larger_ones(tmp_path):
    """Other classes, another size: the blocks are the same, places are drawn out, heads are new."""
    write_set(tmp_path / "set")
    (tmp_path / "p.toml").write_text(RECIPE)
    first = regard.train(str(tmp_path / "p.toml"), run=tmp_path / "first")
    for name in ("red", "green"):
        (tmp_path / "set" / name).rename(tmp_path / "set" / f"{name}ish")
    own = 'kind = "vit"\nwidth = 16\ndepth = 1\nheads = 2'
    text = RECIPE.replace("size = 8", "size = 12").replace(own, 'from = "first"')
    text = text.replace("steps = 60", "steps = 1").replace("warmup = 5", "")
    (tmp_path / "q.toml").write_text(text)
    second = regard.train(str(tmp_path / "q.toml"), "train.rate=1e-9", run=tmp_path / "second")
    assert second.task.labels == ["greenish", "redish"]
    assert second.task.eye.colours == first.task.eye.colours
    old, new = (dict(run.model.named_parameters()) for run in (first, second))
    name = "blocks.0.attention.query.weight"
    torch.testing.assert_close(new[name], old[name], atol=1e-6, rtol=0)
    assert new["places.weight"].shape == (1 + 9, 16)
    torch.testing.assert_close(new["places.weight"][0], old["places.weight"][0], atol=1e-6, rtol=0)
    more = ("train.freeze=1", "train.steps=5")
    third = regard.train(str(tmp_path / "q.toml"), *more, run=tmp_path / "third")
    assert torch.equal(dict(third.model.named_parameters())[name], old[name])


def test_odd_arrays_are_told_and_cameras_heeded():
    form, wide = PictureForm(), np.zeros((4, 6, 3), np.uint8)
    for bad in (wide.astype(float), wide.transpose(2, 0, 1), np.zeros((2, 2, 2, 3), np.uint8)):
        with pytest.raises(InputError, match="input 1: an array must be bytes"):
            form.accept(bad)
    turned = Image.fromarray(wide)
    turned.getexif()[0x0112] = 6  # to be looked at turned by a quarter
    assert form.accept(turned).pixels.shape == (3, 6, 4)


def test_a_narrow_picture_stays_small():
    pixels = np.zeros((3, 1, 60_000), np.uint8)
    assert fitted(pixels, PictureSettings(size=224, patch=16)).shape == (3, 224, 224)


def test_colours_are_of_all_classes():
    made = [Image.new("RGB", (4, 4), colour) for colour in ("black",) * 1500 + ("white",) * 1500]
    examples = [Picture(content(one), "x", "") for one in made]
    mean, _ = learn_colours(examples, PictureSettings())
    assert mean == pytest.approx([0.5] * 3, abs=0.02)
