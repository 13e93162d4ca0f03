"""Training a ViT-S/16 against a plain compiled one, and answering beside `transformers`.

    python benchmarks/pictures.py [--only train|answer] [--rows 256] [--repeats 5] [--quick]

The peer in training is written as the usual single file has it: fused attention, one matrix for
queries, keys and values, torch.compile over the whole model, fused AdamW, bfloat16 autocast. When
answering, both have the same weights, by way of the exchange; the peer is `transformers`' ViT with
its fused attention.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from measure import compare, race, tell, versions
from torch import Tensor, nn

from regard.batch import Batch, Label, Nothing, Pixels, Sizes
from regard.exchange.hf import ARCHITECTURES, rules_of, without_repeats
from regard.exchange.rules import to_ours
from regard.models.vit import ViT, ViTSettings
from regard.training import optim
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import ClassLoss
from regard.training.prepare import autocast
from regard.training.settings import Settings

Pictures = Batch[Pixels, Label]
Step = Callable[[Pictures], None]
Shape = tuple[int, int, int]  # width, depth, heads
CLASSES = 1000


class PeerBlock(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.first(x)).split(x.shape[-1], 2)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.join(mixed.transpose(1, 2).flatten(-2))
        return x + self.narrow(F.gelu(self.widen(self.second(x))))


class Peer(nn.Module):
    """A ViT as a single file would have it."""

    def __init__(self, width: int, depth: int, heads: int, size: int, patch: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(PeerBlock(width, heads) for _ in range(depth)))
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        x = self.cut(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.places
        scores = self.output(self.norm(self.blocks(x)[:, 0]))
        return F.cross_entropy(scores.float(), labels)


def sizes_of(size: int, patch: int) -> Sizes:
    grid = (size // patch, size // patch)
    return Sizes(0, 0, False, CLASSES, Pixels, Label, (3, patch, patch), grid)


def ours(shape: Shape, size: int, patch: int, device: torch.device) -> Step:
    """A step as the training loop makes it."""
    torch.manual_seed(0)
    settings = Settings(rate=1e-3, weight_decay=0.05, smoothing=0.0)
    model = ViT(sizes_of(size, patch), ViTSettings(*shape)).to(device).train()
    compiling = "full" if device.type == "cuda" else "off"
    backward = make_backward(
        model, ClassLoss(), World(0, 1, device), compiling, autocast(device, settings)
    )
    optimizer = optim.OPTIMIZERS["adamw"](model, settings)

    def step(batch: Pictures) -> None:
        backward(batch, [1 / len(batch)], True)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def peers(shape: Shape, size: int, patch: int, device: torch.device) -> Step:
    torch.manual_seed(0)
    model = Peer(*shape, size, patch).to(device).train()
    on_gpu = device.type == "cuda"
    forward = torch.compile(model) if on_gpu else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True)

    def step(batch: Pictures) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = forward(batch.read.values, batch.asked.label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def train(quick: bool, rows: int, repeats: int, device: torch.device) -> None:
    shape, size, patch = ((32, 2, 4), 32, 8) if quick else ((384, 12, 6), 224, 16)
    rows, steps = (2, 1) if quick else (rows, 5)
    values = torch.randn(rows, 3, size, size, device=device)
    label = torch.randint(CLASSES, (rows,), device=device)
    batch = Batch(Pixels(values), Label(label, torch.ones(rows, device=device)))
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    sides: dict[str, Callable[[], object]] = {}
    for name, make in (("ours", ours), ("peer", peers)):
        step = make(shape, size, patch, device)
        for _ in range(4):
            step(batch)
        wait()
        sides[name] = lambda step=step: [step(batch) for _ in range(steps)]
    seconds = race(sides, repeats, wait)
    tell(
        {
            "what": f"training ViT {shape}, {size}², patches of {patch}, {rows} pictures a step",
            "peer_name": "a plain ViT, compiled whole",
            "unit": "pictures/s",
            **compare(seconds["ours"], seconds["peer"], steps * rows),
            "versions": versions(),
        }
    )


def answer(quick: bool, repeats: int, device: torch.device) -> None:
    import transformers

    shape, size, patch = ((32, 2, 4), 32, 8) if quick else ((192, 12, 3), 224, 16)
    width, depth, heads = shape
    config = transformers.ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads,
        intermediate_size=4 * width, image_size=size, patch_size=patch, num_labels=CLASSES,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.ViTForImageClassification(config).to(device).eval()
    architecture = ARCHITECTURES["vit"]
    tensors = without_repeats(theirs.state_dict(), architecture, config.to_dict())
    settings = architecture.settings(config.to_dict(), set(tensors))
    model = ViT(sizes_of(size, patch), settings)  # type: ignore[arg-type]
    model.load_state_dict(
        to_ours(rules_of(architecture, settings, Label, set(tensors)), tensors, "here")
    )
    model = model.to(device).eval()
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for rows in (1, 2) if quick else (1, 16):
        values = torch.randn(rows, 3, size, size, device=device)
        batch = Batch(Pixels(values), Nothing())
        with torch.inference_mode():
            apart = (model(batch)[:, 0] - theirs(values).logits).abs().max()
            assert float(apart) < 1e-2, f"both must say the same, but are {float(apart)} apart"
            seconds = race(
                {"ours": lambda: model(batch), "peer": lambda: theirs(values)},  # noqa: B023
                repeats,
                wait,
            )
        tell(
            {
                "what": f"answering, ViT {shape}, {size}², {rows} at a time, {device.type}",
                "peer_name": "transformers, fused attention",
                "unit": "pictures/s",
                **compare(seconds["ours"], seconds["peer"], rows),
                "versions": versions(),
            }
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["train", "answer"])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if given.only in (None, "answer"):
        answer(given.quick, given.repeats, device)
    if given.only in (None, "train"):
        train(given.quick, given.rows, given.repeats, device)


if __name__ == "__main__":
    main()
