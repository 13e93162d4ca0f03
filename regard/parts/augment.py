"""Pictures as training sees them this time: moved, turned, coloured, covered, mixed.

What is done to each picture was drawn before, as a row of numbers (`COLUMNS`), so that all
pictures of a batch are changed by the same few operations, on whatever device they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# What each number of a row says; heights and widths are parts of the picture's.
COLUMNS = (
    "flip",  # 1: left and right change places
    "down", "right",  # by how much it is moved
    "zoom",  # how much of it is seen, along each side
    "op1", "size1", "op2", "size2",  # RandAugment: which of OPS, and how strongly, from -1 to 1
    "top", "left", "height", "width",  # what is covered
    "mix",  # 0: nothing, 1: two pictures shine through each other, 2: a piece of another
    "share",  # of its own in the mix
    "mix_top", "mix_left", "mix_height", "mix_width",
)  # fmt: skip
GREY = 0.5


def augment(
    x: Tensor, changes: Tensor, others: Tensor | None = None, coloured: bool = True
) -> Tensor:
    """(B, C, H, W) from 0 to 1, (B, columns) -> the same, changed

    What a picture is mixed with is changed as it is: seen as it was time and again, it would be
    learned by heart.
    """
    own = len(x)
    told = changes
    if others is not None:
        x, told = torch.cat((x, others)), torch.cat((changes, changes))
    said = dict(zip(COLUMNS, told.unbind(1), strict=True))
    x = place(x, said["flip"], said["down"], said["right"], said["zoom"])
    for op, size in (("op1", "size1"), ("op2", "size2")) if coloured else ():
        x = operate(x, said[op], said[size])
    box = inside_box(x, said["top"], said["left"], said["height"], said["width"])
    x = torch.where(box, x.mean((1, 2, 3), keepdim=True), x)
    if others is None:
        return x
    x, others = x[:own], x[own:]
    said = dict(zip(COLUMNS, changes.unbind(1), strict=True))
    named = ("mix_top", "mix_left", "mix_height", "mix_width")
    mix, share = said["mix"].view(-1, 1, 1, 1), said["share"].view(-1, 1, 1, 1)
    both = share * x + (1 - share) * others
    x = torch.where(mix == 1, both, x)
    return torch.where((mix == 2) & inside_box(x, *(said[name] for name in named)), others, x)


def inside_box(x: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Which pixels lie in each picture's box.  (B, C, H, W), (B,) … -> (B, 1, H, W)"""
    rows = (torch.arange(x.shape[2], device=x.device) + 0.5) / x.shape[2]
    columns = (torch.arange(x.shape[3], device=x.device) + 0.5) / x.shape[3]
    low = (rows >= top[:, None]) & (rows < (top + height)[:, None])  # (B, H)
    across = (columns >= left[:, None]) & (columns < (left + width)[:, None])  # (B, W)
    return (low[:, :, None] & across[:, None])[:, None]


def place(x: Tensor, flip: Tensor, down: Tensor, right: Tensor, zoom: Tensor) -> Tensor:
    """Flipped, moved, and of what is left a part stretched; black comes in at the edges."""
    across = torch.where(flip > 0, -zoom, zoom)
    none = torch.zeros_like(zoom)
    # Where each pixel comes from: moved down, it comes from above.
    matrix = torch.stack((across, none, -2 * right, none, zoom, -2 * down), 1).view(-1, 2, 3)
    return sample(x, matrix, 0.0)


def sample(x: Tensor, matrix: Tensor, fill: float) -> Tensor:
    """Pixels from where a map of each picture says.  (B, C, H, W), (B, 2, 3) -> (B, C, H, W)"""
    grid = F.affine_grid(matrix.to(x.dtype), list(x.shape), align_corners=False)
    return F.grid_sample(x - fill, grid, align_corners=False) + fill


# RandAugment (Cubuk et al. 2020). Each takes pictures and how strongly, from -1 to 1.


def affine(which: str) -> Callable[[Tensor, Tensor], Tensor]:
    def change(x: Tensor, size: Tensor) -> Tensor:
        one, none = torch.ones_like(size), torch.zeros_like(size)
        tall, wide = x.shape[2:]
        if which == "rotate":
            angle = size * (torch.pi / 6)  # up to 30 degrees
            cos, sin = angle.cos(), angle.sin()
            rows = (cos, -sin * tall / wide, none, sin * wide / tall, cos, none)
        elif which == "shear-x":
            rows = (one, 0.3 * size * tall / wide, none, none, one, none)
        elif which == "shear-y":
            rows = (one, none, none, 0.3 * size * wide / tall, one, none)
        elif which == "move-x":
            rows = (one, none, 0.9 * size, none, one, none)  # up to 0.45 of the width
        else:
            rows = (one, none, none, none, one, 0.9 * size)
        return sample(x, torch.stack(rows, 1).view(-1, 2, 3), GREY)

    return change


def blend(toward: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Between a picture and what it would lose; beyond it, more of it.  size 0: as it is"""

    def change(x: Tensor, size: Tensor) -> Tensor:
        other = toward(x)
        return (other + (1 + 0.9 * size).view(-1, 1, 1, 1) * (x - other)).clamp(0, 1)

    return change


def grey(x: Tensor) -> Tensor:
    """As Pillow weighs colours.  (B, C, H, W) -> (B, 1, H, W)"""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = x.split(1, 1)
    out: Tensor = 0.299 * red + 0.587 * green + 0.114 * blue
    return out


def smooth(x: Tensor) -> Tensor:
    """Each pixel with its neighbours, itself five times; edges stay (Pillow's SMOOTH)."""
    inner = (9 * F.avg_pool2d(x, 3, 1) + 4 * x[:, :, 1:-1, 1:-1]) / 13
    middle = torch.cat((x[:, :, 1:-1, :1], inner, x[:, :, 1:-1, -1:]), 3)
    return torch.cat((x[:, :, :1], middle, x[:, :, -1:]), 2)


def posterize(x: Tensor, size: Tensor) -> Tensor:
    """Four to eight bits of each number are kept."""
    step = 2.0 ** (4 * size.abs()).floor().view(-1, 1, 1, 1) / 255
    return ((x / step + 1e-4).floor() * step).clamp(0, 1)


def solarize(x: Tensor, size: Tensor) -> Tensor:
    """What is brighter than a threshold is turned around."""
    darkest = (255 * (1 - size.abs())).round().view(-1, 1, 1, 1) + 0.5
    return torch.where(255 * x > darkest, 1 - x, x)


def stretch(x: Tensor, size: Tensor) -> Tensor:
    """Each colour over the whole range (Pillow's autocontrast)."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)


def equalize(x: Tensor, size: Tensor) -> Tensor:
    """Each shade of each colour as often as any other, as far as that goes (as Pillow has it)."""
    shades = (x * 255).round().long().clamp(0, 255).flatten(2)  # (B, C, N)
    counts = torch.zeros(*x.shape[:2], 256, device=x.device, dtype=torch.long)
    counts = counts.scatter_add_(2, shades, torch.ones_like(shades))
    brightest = counts.gather(2, shades.amax(2, keepdim=True))
    step = (shades.shape[2] - brightest) // 255  # (B, C, 1) pixels to a shade; 0: too few of them
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp_min(1)).clamp_max(255)
    even = table.gather(2, shades).view_as(x).to(x.dtype) / 255
    return torch.where((step > 0)[..., None], even, x)


OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rotate": affine("rotate"),
    "shear-x": affine("shear-x"),
    "shear-y": affine("shear-y"),
    "move-x": affine("move-x"),
    "move-y": affine("move-y"),
    "brightness": blend(torch.zeros_like),
    "contrast": blend(lambda x: grey(x).mean((2, 3), keepdim=True).expand_as(x)),
    "colour": blend(lambda x: grey(x).expand_as(x)),
    "sharpness": blend(smooth),
    "posterize": posterize,
    "solarize": solarize,
    "stretch": stretch,
    "equalize": equalize,
}


def operate(x: Tensor, op: Tensor, size: Tensor) -> Tensor:
    """Each picture by the operation drawn for it; 0: none, else of OPS counted from 1.

    All operations are made of all pictures and one is picked, so that nothing waits for the device.
    """
    out = x
    for number, change in enumerate(OPS.values(), 1):
        out = torch.where((op == number).view(-1, 1, 1, 1), change(x, size), out)
    return out
