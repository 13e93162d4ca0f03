"""ViT and DeiT there and here: scores, gradients, folders both ways, through their front door."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image

import regard
from regard.batch import Batch, Label, Pixels, Sizes
from regard.errors import RunError
from regard.exchange.hf import ARCHITECTURES, read, rules_of, without_repeats, write
from regard.exchange.rules import to_ours, to_theirs
from regard.models.vit import ViT
from tests.tasks.test_pictures import RECIPE, write_set

SMALL = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
    "image_size": 12, "patch_size": 4, "num_labels": 5,
}  # fmt: skip
KINDS = {
    "vit": (hf.ViTForImageClassification, hf.ViTConfig),
    "deit": (hf.DeiTForImageClassification, hf.DeiTConfig),
}


def theirs(name):
    torch.manual_seed(0)
    kind, config = KINDS[name]
    model = kind(config(**SMALL)).eval()
    for weight in model.parameters():
        weight.data += torch.randn_like(weight) * 0.1
    return model


def pictures(rows=3, size=12):
    return torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", KINDS)
def test_forward_and_gradients_are_the_same(name):
    other = theirs(name)
    architecture, config = ARCHITECTURES[name], other.config.to_dict()
    tensors = without_repeats(other.state_dict(), architecture, config)
    settings = architecture.settings(config, set(tensors))
    sizes = Sizes(0, 0, False, 5, Pixels, Label, (3, 4, 4), (3, 3))
    model = ViT(sizes, settings).eval()
    rules = list(rules_of(architecture, settings, Label, set(tensors)))
    model.load_state_dict(to_ours(rules, tensors, "here"))
    values = pictures()
    batch = Batch(Pixels(values), Label(torch.zeros(3, dtype=torch.long), torch.ones(3)))
    found, wanted = model(batch)[:, 0], other(values).logits
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)
    found.square().sum().backward()
    wanted.square().sum().backward()
    grads = {n: w.grad for n, w in other.named_parameters()}
    grads = to_ours(rules, without_repeats(grads, architecture, config), "here")
    for part, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, grads[part], atol=1e-4, rtol=1e-3)
    larger = pictures(size=20)
    asked = {"interpolate_pos_encoding": True}
    batch = Batch(Pixels(larger), batch.asked)
    torch.testing.assert_close(
        model(batch)[:, 0], other(larger, **asked).logits, atol=2e-5, rtol=2e-5
    )
    back = to_theirs(rules, dict(model.named_parameters()))
    assert back.keys() == tensors.keys()
    for part, tensor in tensors.items():
        torch.testing.assert_close(back[part], tensor)


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_of_theirs_answers_here_as_there(name, tmp_path):
    other = theirs(name)
    other.config.id2label = {i: f"kind {i}" for i in range(5)}
    other.save_pretrained(tmp_path / "theirs")
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    size = {"height": 12, "width": 12}
    processor = hf.ViTImageProcessor(size=size, image_mean=mean, image_std=std)
    processor.save_pretrained(tmp_path / "theirs")
    read(tmp_path / "theirs", tmp_path / "run")
    run = regard.load(tmp_path / "run")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 19, 3), np.uint8)
    picture = Image.fromarray(pixels).resize((40, 50), Image.Resampling.BICUBIC)
    (answer,) = run.predict([picture])
    with torch.no_grad():
        wanted = other(**processor(picture, return_tensors="pt")).logits.softmax(-1)[0]
    found = [answer.probabilities[f"kind {i}"] for i in range(5)]
    # A pixel may be rounded otherwise when a picture is made smaller.
    np.testing.assert_allclose(found, wanted.numpy(), atol=0.01)


def test_a_run_of_ours_answers_there_as_here(tmp_path):
    write_set(tmp_path / "set")
    (tmp_path / "p.toml").write_text(RECIPE.replace("shift = 1", 'fit = "stretch"'))
    run = regard.train(str(tmp_path / "p.toml"), run=tmp_path / "run")
    write(run, tmp_path / "out")
    asks = hf.pipeline("image-classification", model=str(tmp_path / "out"), device=-1)
    for path in sorted((tmp_path / "set").rglob("*.png"))[:6]:
        (answer,) = run.predict([str(path)])
        there = {one["label"]: one["score"] for one in asks(Image.open(path))}
        for label, chance in answer.probabilities.items():
            assert there[label] == pytest.approx(chance, abs=0.02)
    read(tmp_path / "out", tmp_path / "again")
    again = regard.load(tmp_path / "again")
    assert again.predict([str(path)])[0].probabilities == pytest.approx(
        answer.probabilities, abs=1e-5
    )


def test_what_has_no_counterpart_is_said(tmp_path):
    write_set(tmp_path / "set")
    (tmp_path / "p.toml").write_text(RECIPE)
    more = ("train.steps=1", "model.pool=sequence")
    run = regard.train(str(tmp_path / "p.toml"), *more, run=tmp_path / "run")
    with pytest.raises(RunError, match="model.pool='sequence' has no counterpart"):
        write(run, tmp_path / "out")
    other = theirs("vit")
    other.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs/preprocessor_config.json"
    path.write_text(json.dumps({"image_mean": [1.0], "image_std": [0.0]}))
    with pytest.raises(RunError, match="one of each for every channel"):
        read(tmp_path / "theirs", tmp_path / "bad")
