"""Masked patches: what is hidden, what is predicted, how it is filled in, who begins with it."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.batch import Batch, Patches, Pixels, Words
from regard.data.draws import Draws
from regard.errors import RecipeError, RunError
from regard.exchange import WRITERS
from regard.models import MODELS
from regard.tasks.patches import MaskedPatches, PatchesSettings
from regard.tasks.picture import Eye, PictureSettings
from regard.training.distil import start_encoder
from regard.training.loss import LOSSES
from tests.tasks.test_pictures import RECIPE, write_set

COLOURS = [[0.4, 0.5, 0.6], [0.2, 0.25, 0.3]]


def task(hidden=0.75, **picture):
    made = PictureSettings(**{"size": 8, "patch": 2, **picture})
    eye = Eye(made, [numbers[: made.channels] for numbers in COLOURS])
    return MaskedPatches(PatchesSettings(hidden=hidden), eye)


def model(own):
    torch.manual_seed(0)
    kind = MODELS["vit"]
    return kind(own.sizes, kind.Settings(width=16, depth=2, heads=2)).eval()


def noise(rows=4, seed=0):
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, 3, 8, 8), generator=dice, dtype=torch.uint8)


def under(places):
    """Which pixels of 8 × 8 lie on those patches.  (B, M) -> (B, 1, 8, 8)"""
    on = torch.zeros(len(places), 16, dtype=torch.bool).scatter(1, places, True)
    grid = on.view(-1, 1, 4, 4)
    return grid.repeat_interleave(2, 2).repeat_interleave(2, 3)


def test_seed_step_and_row_say_what_is_hidden():
    own, seen = task(), set()
    for seed, step, row in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)):
        alone = own.choose(Draws(seed, step, [row])).places
        beside = own.choose(Draws(seed, step, [7, row])).places
        assert torch.equal(alone[0], beside[1]) and len(set(alone[0].tolist())) == 12
        seen.add(tuple(alone[0].tolist()))
    assert len(seen) == 4
    often = own.choose(Draws(0, 0, range(4000))).places.flatten().bincount() / 4000
    torch.testing.assert_close(often, torch.full((16,), 0.75), atol=0.05, rtol=0)


@pytest.mark.parametrize(("hidden", "count"), [(0.01, 1), (0.5, 8), (0.99, 15)])
def test_something_is_hidden_and_something_is_left(hidden, count):
    assert task(hidden).choose(Draws(0, 0, [0])).places.shape == (1, count)
    assert MaskedPatches.sample_batch(PatchesSettings(hidden=hidden), 64).counts[0] > 0


def test_what_is_hidden_is_not_seen():
    own = task()
    net, places = model(own), own.choose(Draws(0, 0, range(4)))
    torch.nn.init.normal_(net.hidden)
    whole = noise()
    other = torch.where(under(places.places), noise(seed=1), whole)
    beside = torch.where(under(places.places), whole, noise(seed=1))
    with torch.no_grad():
        out = net(Batch(Pixels(whole), places))
        assert out.shape == (4, 12, 12)
        assert torch.equal(net(Batch(Pixels(other), places)), out)
        assert not torch.allclose(net(Batch(Pixels(beside), places)), out, atol=1e-5)


def test_the_loss_is_of_hidden_patches_in_their_own_scale():
    """A patch told as its mean costs 1, however bright or strong it is; one all alike nothing."""
    own = task(channels=1)
    net, loss = model(own), LOSSES[own.loss]()
    torch.nn.init.zeros_(net.output.weight)
    places, whole = Patches(torch.tensor([[0, 5, 6]] * 4)), noise()[:, :1]
    blank = torch.where(under(places.places[:, :1]), torch.full_like(whole, 7), whole)
    left = torch.where(under(places.places), whole, torch.zeros_like(whole))
    for values, total in ((whole, 12), (whole // 2, 12), (left, 12), (blank, 8)):
        batch = Batch(Pixels(values), places)
        assert batch.counts == (12,)
        assert loss(net, batch).nll.item() == pytest.approx(total, abs=0.05)


def test_what_is_predicted_rightly_is_the_picture_again():
    own = task()
    net, values, places = model(own), noise(1), torch.tensor([2, 7, 15])
    patches = own.cut(values)
    right = net.pixels(Pixels(values))[0, places]
    whole, left, full = own.filled(patches, right, places)
    assert torch.equal(whole, values[0])
    assert (full.int() - whole.int()).abs().max() <= 1
    hidden = under(places[None])[0].expand(3, -1, -1)
    assert torch.equal(left[~hidden], whole[~hidden])
    assert (left[hidden].view(3, -1) == torch.tensor([102, 128, 153])[:, None]).all()


PRETRAINED = RECIPE.replace('"picture"', '"patches"').replace("patch = 4", "patch = 2")


def test_it_fills_in_is_looked_into_and_begun_with(tmp_path):
    write_set(tmp_path / "set")
    (tmp_path / "p.toml").write_text(PRETRAINED)
    run = regard.train(str(tmp_path / "p.toml"), "train.steps=10", run=tmp_path / "run")
    path = str(tmp_path / "set/green/01.png")
    (answer,) = run.predict([path])
    with Image.open(io.BytesIO(base64.b64decode(answer.output.partition(",")[2]))) as drawn:
        assert drawn.size == (24, 8)
        whole, left, full = np.split(np.asarray(drawn), 3, 1)
    places = run.task.choose(Draws(0, 0, [0])).places
    hidden = under(places)[0, 0].numpy()
    assert (whole[~hidden] == left[~hidden]).all() and (whole[~hidden] == full[~hidden]).all()
    assert (left[hidden] == left[hidden][0]).all() and not (full[hidden] == left[hidden]).all()
    report = run.see(path)
    with Image.open(io.BytesIO(report.picture)) as seen:
        assert (np.asarray(seen) == left).all()
    assert report.looks[0].columns[:2] == ["[class]", "1,1"]

    (tmp_path / "q.toml").write_text(RECIPE.replace("patch = 4", "patch = 2"))
    name = "blocks.0.attention.query.weight"
    learned = dict(run.model.named_parameters())[name]
    more = [f"model.from={tmp_path / 'run'}", "train.steps=1", "train.warmup=0", "train.rate=1e-9"]
    begun = regard.train(str(tmp_path / "q.toml"), *more, run=tmp_path / "begun")
    assert begun.task.labels == ["green", "red"]
    weights = dict(begun.model.named_parameters())
    torch.testing.assert_close(weights[name], learned, atol=1e-6, rtol=0)
    assert "hidden" not in weights

    kind = MODELS["transformer"]
    sizes = replace(run.task.sizes, target=9, asked=Words)
    teller = kind(sizes, kind.Settings(width=16, depth=1, heads=2))
    assert start_encoder(teller, run.folder, frozen=False)
    own, other = "source.cut.weight", "embedding.cut.weight"
    assert torch.equal(teller.get_parameter(own), run.model.get_parameter(other))

    for kind in ("hf", "onnx"):
        with pytest.raises(RunError, match=r"fills in hidden patches has no counterpart there; be"):
            WRITERS[kind](run, tmp_path / kind)


def test_what_cannot_be_hidden_is_told():
    with pytest.raises(RecipeError, match=r"picture.stem must be linear where .* but is conv"):
        task(stem="conv")
    with pytest.raises(RecipeError, match=r"picture.patch \(8\) must be less than picture.size"):
        task(patch=8)
