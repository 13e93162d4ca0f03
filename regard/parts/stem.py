"""Stems: from pixels to one vector for each patch; a patch is as wide as the stem's stride."""

from __future__ import annotations

from torch import Tensor, nn


class Linear(nn.Conv2d):
    """A patch through one linear layer (Dosovitskiy et al. 2021).  (B, C, H, W) -> (B, D, h, w)"""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__(channels, width, patch, patch)


def halvings(patch: int, stem: str) -> int:
    """How often a side is halved until a patch is one place."""
    count = patch.bit_length() - 1
    assert patch == 2**count, f"a stem '{stem}' halves, so a patch must be a power of two: {patch}"
    return count


class Convolutional(nn.Sequential):
    """Convolutions, each halved by the largest of its neighbourhood (Hassani et al. 2021, CCT)."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        stages = []
        count = max(1, halvings(patch, "conv"))
        for stage in range(count):
            into = width if stage == count - 1 else max(64, width // 2 ** (count - 1 - stage))
            halve = nn.MaxPool2d(3, 2, 1) if patch > 1 else nn.Identity()
            stages += [nn.Conv2d(channels, into, 3, padding=1, bias=False), nn.ReLU(), halve]
            channels = into
        super().__init__(*stages)


class Residual(nn.Module):
    """Two convolutions and a way around them (He et al. 2016, norms before, of groups)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(groups(channels), channels),
            nn.ReLU(),
            nn.Conv2d(channels, width, 3, stride, 1, bias=False),
            nn.GroupNorm(groups(width), width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
        )
        same = channels == width and stride == 1
        self.around = nn.Identity() if same else nn.Conv2d(channels, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.around(x) + self.body(x)
        return out


class ResNet(nn.Sequential):
    """A small residual net: two blocks at each size, then one vector a place."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        count = halvings(patch, "resnet")
        first = max(32, width // 2**count)
        stages: list[nn.Module] = [nn.Conv2d(channels, first, 3, padding=1, bias=False)]
        before = first
        for stage in range(count):
            into = width if stage == count - 1 else max(first, width // 2 ** (count - 1 - stage))
            stages += [Residual(before, into, 2), Residual(into, into, 1)]
            before = into
        stages += [nn.GroupNorm(groups(before), before), nn.ReLU(), nn.Conv2d(before, width, 1)]
        super().__init__(*stages)


def groups(channels: int) -> int:
    """Groups of about sixteen channels."""
    count = max(1, channels // 16)
    while channels % count:
        count -= 1
    return count


STEMS: dict[str, type[nn.Module]] = {"linear": Linear, "conv": Convolutional, "resnet": ResNet}
