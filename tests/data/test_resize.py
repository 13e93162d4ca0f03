"""Pictures made of one size: as Pillow has it where it does the same."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.batch import Pixels, Sizes
from regard.data.resize import inside, resize, square
from regard.models.door import Retina


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (3, height, width), np.uint8)


@pytest.mark.parametrize("size", [(5, 7), (32, 32), (90, 64), (224, 31), (1, 1)])
@pytest.mark.parametrize("start", [(17, 23), (64, 64), (1, 1), (300, 2)])
def test_it_is_pillows_bilinear_but_for_rounding(start, size):
    pixels = noise(*start)
    picture = Image.fromarray(pixels.transpose(1, 2, 0))
    wanted = np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    found = resize(pixels, *size)
    assert found.shape == (3, *size) and found.dtype == np.uint8
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_the_same_size_is_the_same_picture():
    pixels = noise(9, 9)
    assert (resize(pixels, 9, 9) == pixels).all() and (square(pixels, 9) == pixels).all()


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (33, 33), (1, 500), (500, 1)])
def test_a_square_is_the_middle_and_the_inside_is_all(shape):
    pixels = np.zeros((1, *shape), np.uint8)
    pixels[0, shape[0] // 2 :, :] = 200
    assert square(pixels, 16).shape == (1, 16, 16) == inside(pixels, 16).shape
    if min(shape) > 16:  # above the middle dark, below it bright
        assert square(pixels, 16)[0, 0].max() == 0 and square(pixels, 16)[0, -1].min() == 200
    filled = inside(np.full((1, *shape), 7, np.uint8), 16, fill=0)
    assert set(np.unique(filled)) <= {0, 7}
    sides = (filled[0] > 0).any(1).sum(), (filled[0] > 0).any(0).sum()
    assert max(sides) == 16 and sides[0] >= 1 and sides[1] >= 1


def test_bytes_become_numbers_around_zero():
    pixels = torch.from_numpy(noise(8, 8))[None]
    colours = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    retina = Retina(Sizes(0, 0, False, item=(3, 4, 4), colours=colours))
    mean, spread = (torch.tensor(numbers)[:, None, None] for numbers in colours)
    back = (retina(Pixels(pixels)) * spread + mean) * 255
    assert torch.equal(back.round().to(torch.uint8), pixels)
