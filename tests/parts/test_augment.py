"""Changes of pictures: as Pillow has them, each row by itself, nothing where nothing is drawn."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from regard.parts.augment import COLUMNS, OPS, augment, smooth


def noise(rows=3, size=12, seed=0, channels=3):
    """Shades that bytes can hold."""
    drawn = np.random.default_rng(seed).integers(20, 230, (rows, channels, size, size))
    return torch.from_numpy(drawn).float() / 255


def row(**said):
    return torch.tensor([[{"zoom": 1.0, "share": 1.0, **said}.get(name, 0.0) for name in COLUMNS]])


def as_pillow(x):
    return Image.fromarray((x * 255).round().byte().permute(1, 2, 0).numpy())


def as_tensor(picture):
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255


PILLOW = {
    "brightness": lambda p, s: ImageEnhance.Brightness(p).enhance(1 + 0.9 * s),
    "contrast": lambda p, s: ImageEnhance.Contrast(p).enhance(1 + 0.9 * s),
    "colour": lambda p, s: ImageEnhance.Color(p).enhance(1 + 0.9 * s),
    "sharpness": lambda p, s: ImageEnhance.Sharpness(p).enhance(1 + 0.9 * s),
    "posterize": lambda p, s: ImageOps.posterize(p, 8 - int(4 * abs(s))),
    "solarize": lambda p, s: ImageOps.solarize(p, round(255 * (1 - abs(s))) + 1),
    "stretch": lambda p, s: ImageOps.autocontrast(p),
    "equalize": lambda p, s: ImageOps.equalize(p),
}


@pytest.mark.parametrize("name", PILLOW)
@pytest.mark.parametrize("size", [-0.8, 0.3, 0.6])
def test_colours_change_as_pillow_changes_them(name, size):
    x = noise(1, 40)
    found = OPS[name](x, torch.tensor([size]))[0]
    wanted = as_tensor(PILLOW[name](as_pillow(x[0]), size))
    # Pillow rounds at every turn.
    assert ((found - wanted).abs() * 255).max() <= 2.01


def test_smooth_is_pillows():
    x = noise(1)
    wanted = as_tensor(as_pillow(x[0]).filter(ImageFilter.SMOOTH))
    assert ((smooth(x)[0] - wanted).abs() * 255).max() <= 1.01


def test_turning_and_moving_by_whole_pixels_is_exact():
    x = noise(1, size=8)
    close = {"atol": 2e-5, "rtol": 0}
    torch.testing.assert_close(augment(x, row(flip=1.0)), x.flip(3), **close)
    moved = augment(x, row(down=2 / 8, right=-3 / 8))[0]
    torch.testing.assert_close(moved[:, 2:, :5], x[0, :, :6, 3:], **close)
    assert (moved[:, :2].abs() < 1e-5).all() and (moved[:, :, 5:].abs() < 1e-5).all()
    middle = augment(x, row(zoom=0.5))[0]
    assert middle.mean() == pytest.approx(x[0, :, 2:6, 2:6].mean().item(), abs=0.05)


def test_a_quarter_turn_like_pillows():
    picture = as_pillow(noise(1, 24)[0]).resize((48, 48), Image.Resampling.BILINEAR)
    x = as_tensor(picture)[None]
    found = OPS["rotate"](x, torch.tensor([0.5]))[0]  # 15 degrees
    wanted = as_tensor(picture.rotate(-15, Image.Resampling.BILINEAR))
    apart = (found - wanted)[:, 14:34, 14:34].abs().mean()
    other = as_tensor(picture.rotate(15, Image.Resampling.BILINEAR))
    apart = min(apart, (found - other)[:, 14:34, 14:34].abs().mean())
    assert apart < 0.02


def test_what_is_covered_and_mixed():
    x, y = noise(1, 10), noise(1, 10, seed=1)
    covered = augment(x, row(top=0.2, left=0.1, height=0.5, width=0.3))[0]
    assert (covered[:, 2:7, 1:4] - x.mean()).abs().max() < 1e-5
    torch.testing.assert_close(covered[:, :, 4:], x[0, :, :, 4:], atol=2e-5, rtol=0)
    both = augment(x, row(mix=1.0, share=0.3), y)
    torch.testing.assert_close(both, 0.3 * x + 0.7 * y, atol=2e-5, rtol=0)
    said = {"mix_top": 0.5, "mix_left": 0.0, "mix_height": 0.5, "mix_width": 0.5}
    piece = augment(x, row(mix=2.0, share=0.75, **said), y)[0]
    torch.testing.assert_close(piece[:, 5:, :5], y[0, :, 5:, :5])
    torch.testing.assert_close(piece[:, :5], x[0, :, :5], atol=2e-5, rtol=0)


def test_no_picture_knows_its_neighbours():
    x, y = noise(16), noise(16, seed=1)
    drawn = torch.rand(16, len(COLUMNS), generator=torch.Generator().manual_seed(0))
    for name in ("op1", "op2"):
        drawn[:, COLUMNS.index(name)] = torch.arange(16) % (len(OPS) + 1)
    drawn[:, COLUMNS.index("mix")] = torch.arange(16) % 3
    whole = augment(x, drawn, y)
    assert torch.isfinite(whole).all() and whole.min() > -0.01 and whole.max() < 1.01
    for i in range(16):
        alone = augment(x[i : i + 1], drawn[i : i + 1], y[i : i + 1])
        torch.testing.assert_close(alone[0], whole[i], atol=1e-5, rtol=1e-5)
    grey = augment(noise(4, channels=1), drawn[:4])
    assert grey.shape == (4, 1, 12, 12)


def test_what_a_picture_is_mixed_with_is_changed_too():
    x, y = torch.rand(2, 1, 3, 8, 8)
    said = row(flip=1.0, right=0.25, op1=float(1 + list(OPS).index("solarize")), size1=0.4)
    mixed = said.clone()
    mixed[:, COLUMNS.index("mix")], mixed[:, COLUMNS.index("share")] = 1.0, 0.3
    wanted = 0.3 * augment(x, said) + 0.7 * augment(y, said)
    torch.testing.assert_close(augment(x, mixed, y), wanted)
