"""Pictures on a GPU: changed as on a CPU, trained by captured steps, captioned, glimpsed."""

import json
import warnings

import pytest
import torch

import regard
from regard.batch import Batch, Label, Pixels, Sizes, Words
from regard.data.draws import Draws
from regard.decode import Limits, Settings, with_cuda_graphs, write
from regard.models import MODELS
from regard.parts.augment import augment
from regard.tasks.picture import PictureSettings, draw_changes
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import ClassLoss, TokenLoss
from tests.tasks.test_pictures import RECIPE, write_set

ALL = PictureSettings(
    size=16, patch=4, stem="conv", flip=0.5, shift=2, zoom=0.7, randaugment=0.7, erase=0.4,
    mixup=0.8, cutmix=1.0,
)  # fmt: skip


def pictures(rows=24):
    drawn = torch.Generator().manual_seed(0)
    values = torch.randint(0, 256, (rows, 3, 16, 16), generator=drawn, dtype=torch.uint8)
    changes, others, share = draw_changes(ALL, Draws(0, 1, range(rows)), rows)
    return Pixels(values, changes, values[others], True), torch.from_numpy(others), share


def test_pictures_are_changed_as_on_a_cpu(gpu):
    read, _, _ = pictures(200)
    x, others = read.values.float() / 255, read.others.float() / 255
    here = augment(x, read.changes, others)
    there = augment(x.to(gpu), read.changes.to(gpu), others.to(gpu)).cpu()
    # What is rounded to a shade may fall to either side.
    apart = (here - there).abs()
    assert (apart > 0.01).float().mean() < 0.002 and apart.mean() < 1e-3


def gradients(kind, settings, compiling, gpu):
    read, others, share = pictures()
    torch.manual_seed(0)
    sizes = Sizes(
        0, 40, False, 5, Pixels, Label, (3, 4, 4), (4, 4), "conv", ((0.5,) * 3, (0.2,) * 3)
    )
    loss = ClassLoss(0.1)
    if kind in ("vit", "glimpse"):
        label = torch.arange(24) % 5
        asked = Label(label, torch.ones(24), label[others], share)
    else:
        sizes, loss = Sizes(**{**vars(sizes), "asked": Words, "classes": 0}), TokenLoss(0.1)
        ids = torch.randint(4, 40, (24, 9), generator=torch.Generator().manual_seed(1))
        asked = Words(ids, torch.arange(24) % 6 + 3)
    batch = Batch(read, asked).to(gpu)
    model = MODELS[kind](sizes, MODELS[kind].Settings(**settings)).to(gpu).train()
    backward = make_backward(model, loss, World(0, 1, gpu), compiling, None)
    for _ in range(3):  # the third is a replay
        torch.manual_seed(5)
        model.zero_grad(set_to_none=False)
        backward(batch, [1 / 24], True)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


SOME = {
    "vit": {"width": 32, "depth": 2, "heads": 4, "drop_path": 0.3, "position": "relative"},
    "glimpse": {"glimpses": 4, "size": 4, "scales": 2, "width": 16, "hidden": 32},
    "seq2seq": {"width": 32, "hidden": 32, "reader": "none", "score": "additive",
                "feed": "context", "doubly": 1.0},
    "transformer": {"width": 32, "depth": 2, "heads": 4, "hidden": 64},
}  # fmt: skip


@pytest.mark.parametrize("kind", SOME)
def test_captured_steps_have_the_plain_gradient(kind, gpu):
    plain = gradients(kind, SOME[kind], "off", gpu)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = gradients(kind, SOME[kind], "graph", gpu)
    assert plain.norm() > 0
    assert float((fast - plain).norm() / plain.norm()) < 1e-3


@pytest.mark.parametrize("kind", ["seq2seq", "transformer"])
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_captions_are_those_of_a_cpu(kind, way, gpu):
    torch.manual_seed(0)
    sizes = Sizes(0, 40, False, 0, Pixels, Words, (3, 4, 4), (4, 4), "resnet")
    model = MODELS[kind](sizes, MODELS[kind].Settings(**SOME[kind])).double().eval()
    values = torch.randn(5, 3, 16, 16, dtype=torch.float64)
    batch = Batch(Pixels(values), Words(torch.ones(5, 2).long(), torch.ones(5).long()))
    settings, longest = Settings(kind=way, num_beams=3), torch.full((5,), 12)
    wanted = write(model, batch, Limits.begin(1, 2, longest), settings)
    model = model.to(gpu)
    fast = with_cuda_graphs(model, settings)
    found = write(fast, batch.to(gpu), Limits.begin(1, 2, longest.to(gpu)), settings)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine[0].score == pytest.approx(theirs[0].score, abs=1e-4)


@pytest.mark.parametrize("model", ["vit", "glimpse"])
def test_a_recipe_trains_and_answers(model, tmp_path):
    write_set(tmp_path / "set")
    text = RECIPE.replace('device = "cpu"', 'device = "cuda"')
    if model == "glimpse":
        i, j = text.index("[model]"), text.index("[train]")
        text = text[:i] + '[model]\nkind = "glimpse"\nsize = 4\nglimpses = 3\n' + text[j:]
    (tmp_path / "p.toml").write_text(text.replace("steps = 60", "steps = 200"))
    run = regard.train(str(tmp_path / "p.toml"), run=tmp_path / "run")
    results = json.loads((tmp_path / "run/results.json").read_text())["valid"]
    assert results["accuracy"] > 90
    assert run.predict([str(tmp_path / "set/green/01.png")])[0].label == "green"
