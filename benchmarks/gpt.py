"""Training GPT-2 124M against the usual single-file trainer's model, in tokens a second.

    python benchmarks/gpt.py [--rows 64] [--repeats 5] [--quick]

The peer is written from nanoGPT's description: GPT-2's sizes, fused attention, a tied head over
50,304 words, torch.compile, fused AdamW, bfloat16 autocast, full logits.
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

from regard.batch import Batch, Running, Sizes, Tokens
from regard.models.gpt import GPT, GPTSettings
from regard.training import optim
from regard.training.backward import make_backward
from regard.training.cost import peak_rate
from regard.training.distributed import World
from regard.training.loss import TokenLoss
from regard.training.prepare import autocast
from regard.training.settings import Settings

VOCABULARY, PADDED = 50257, 50304
Text = Batch[Running, Tokens]


class PeerBlock(nn.Module):
    """Pre-norm attention and feed-forward, one matrix for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.first(x)).split(x.shape[-1], 2)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(mixed.transpose(1, 2).flatten(-2))
        return x + self.narrow(F.gelu(self.widen(self.second(x))))


class Peer(nn.Module):
    """GPT-2 as a single file would have it; the loss is computed from all logits."""

    def __init__(self, width: int, depth: int, heads: int, context: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(PADDED, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(PeerBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def ours(size: tuple[int, int, int], context: int, device: torch.device) -> Callable[[Text], None]:
    """A step as the training loop makes it."""
    torch.manual_seed(0)
    settings = Settings(rate=6e-4, betas=(0.9, 0.95), weight_decay=0.1, smoothing=0.0)
    choices = GPTSettings(*size, positions=context, dropout=0.0)
    model = GPT(Sizes(VOCABULARY, VOCABULARY, True), choices).to(device).train()
    precision = autocast(device, settings)
    compiling = "full" if device.type == "cuda" else "off"
    backward = make_backward(model, TokenLoss(), World(0, 1, device), compiling, precision)
    optimizer = optim.OPTIMIZERS["adamw"](model, settings)

    def step(batch: Text) -> None:
        backward(batch, [1 / batch.asked.labels.numel()], True)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def peers(size: tuple[int, int, int], context: int, device: torch.device) -> Callable[[Text], None]:
    torch.manual_seed(0)
    model = Peer(*size, context).to(device).train()
    on_gpu = device.type == "cuda"
    forward = torch.compile(model) if on_gpu else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )

    def step(batch: Text) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = forward(batch.read.ids, batch.asked.ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size, context = ((64, 2, 4), 32) if given.quick else ((768, 12, 12), 1024)
    rows, steps = (2, 1) if given.quick else (given.rows, 5)
    ids = torch.randint(VOCABULARY, (rows, context + 1), device=device)
    label_range = torch.tensor([[0, context]] * rows, device=device)
    inputs, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    batch = Batch(Running(inputs), Tokens(labels, label_range))
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    memory: dict[str, float] = {}
    sides: dict[str, Callable[[], object]] = {}
    for name, make in (("ours", ours), ("peer", peers)):
        step = make(size, context, device)
        for _ in range(4):
            step(batch)
        wait()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            step(batch)
            wait()
            memory[name] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        sides[name] = lambda step=step: [step(batch) for _ in range(steps)]
    seconds = race(sides, given.repeats, wait)
    figures = compare(seconds["ours"], seconds["peer"], steps * rows * context)
    weights = 12 * size[0] ** 2 * size[1] + VOCABULARY * size[0]
    flops = (
        6 * weights + 6 * size[1] * size[0] * context
    )  # a token; attention's half under the mask
    peak = peak_rate(device)
    tell(
        {
            "what": f"training GPT-2 {size}, {rows}×{context} tokens a step",
            "peer_name": "a model written from nanoGPT's description, compiled",
            "unit": "tokens/s",
            **figures,
            "ours_mfu": round(figures["ours"] * flops / peak.flops, 4),
            "peak": peak.method,
            "peak_memory_gib_both_resident": memory,
            "versions": versions(),
        }
    )


if __name__ == "__main__":
    main()
