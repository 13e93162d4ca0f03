"""Pictures of one size out of pictures of any, as tensors."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from .pictures import Pixels


def resize(pixels: Pixels, height: int, width: int) -> Pixels:
    """By linear interpolation, the whole of what shrinks counted.  (C, H, W) -> (C, h, w)"""
    if pixels.shape[1:] == (height, width):
        return pixels
    floats = torch.from_numpy(pixels.copy())[None].float()
    found = F.interpolate(floats, (height, width), mode="bilinear", antialias=True)
    rounded: Pixels = found[0].round_().clamp_(0, 255).to(torch.uint8).numpy()
    return rounded


def square(pixels: Pixels, size: int) -> Pixels:
    """The middle of a picture, its shorter side made `size`.  (C, H, W) -> (C, size, size)"""
    height, width = pixels.shape[1:]
    side = min(height, width)  # cut before it is scaled: one that is narrow would become huge
    top, left = (height - side) // 2, (width - side) // 2
    return resize(np.ascontiguousarray(pixels[:, top : top + side, left : left + side]), size, size)


def inside(pixels: Pixels, size: int, fill: int = 0) -> Pixels:
    """The whole of a picture, its longer side made `size`; what is left over is filled.

    (C, H, W) -> (C, size, size)
    """
    height, width = pixels.shape[1:]
    scale = size / max(height, width)
    tall, wide = max(1, round(height * scale)), max(1, round(width * scale))
    found = np.full((len(pixels), size, size), fill, np.uint8)
    top, left = (size - tall) // 2, (size - wide) // 2
    found[:, top : top + tall, left : left + wide] = resize(pixels, tall, wide)
    return found


def stretch(pixels: Pixels, size: int) -> Pixels:
    """The whole of a picture, made square.  (C, H, W) -> (C, size, size)"""
    return resize(pixels, size, size)
