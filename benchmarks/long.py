"""Attention over long texts: BigBird's blocks against full attention and against `transformers`.

    python benchmarks/long.py [--device cuda] [--lengths 4096 8192 16384] [--repeats 5] [--only …]

Forward and backward of one layer of attention: 12 heads of 64, one text, blocks of 64 (3 of a
window, 2 global, 3 random). Full attention is torch's own, by cuDNN where it is there. On a GPU
both sides are captured once and played back, as steps of training are; `one_by_one` is the ratio
where Python launches every kernel. The peer in `transformers` is its BigBird's block-sparse
attention, compiled, with the same sizes; it copies what it draws from the host, cannot be captured,
and is launched, as ours is in `one_by_one`. `grow` writes token by token with a window, and tells
what the cache holds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from measure import compare, processor, race, tell, versions
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.batch import Sizes
from regard.models.gpt import GPT, GPTSettings
from regard.parts.attention import in_blocks
from regard.parts.pattern import PATTERNS, laid_out
from regard.tasks.writer import as_prompt

HEADS, WIDTH, BLOCK = 12, 64, 64


def made(length: int, device: str, kind: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (1, HEADS, length, WIDTH)
    return [torch.randn(shape, device=device, dtype=kind, requires_grad=True) for _ in range(3)]


def both_ways(work: Callable[..., Tensor], parts: list[Tensor]) -> Callable[[], None]:
    """Forward and backward."""

    def run() -> None:
        out = work(*parts)
        for part in parts:
            part.grad = None
        out.backward(torch.ones_like(out))

    return run


def captured(work: Callable[[], None], device: str) -> Callable[[], None]:
    """Played back without Python, on a GPU: as steps of training are."""
    if device != "cuda":
        return work
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if not q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
        return F.scaled_dot_product_attention(q, k, v)


def bigbird(length: int) -> Callable[..., Tensor]:
    layout = laid_out(PATTERNS["bigbird"](BLOCK, BLOCK, 0, 3), BLOCK, length, HEADS, False)
    return lambda q, k, v: in_blocks(q, k, v, WIDTH**-0.5, layout, None, None, 0.0)


def peak(work: Callable[[], None], device: str) -> float:
    """MiB beyond what was there before; only a GPU tells."""
    if device != "cuda":
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def lengths(asked: list[int], device: str, repeats: int, most: int) -> None:
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for length in asked:
        parts = made(length, device, kind)
        ours = both_ways(bigbird(length), parts)
        sides = {"ours": ours}
        if length <= most:
            sides["peer"] = both_ways(full, parts)
        launched = race(sides, repeats, wait) if device == "cuda" else {}
        seconds = race({n: captured(x, device) for n, x in sides.items()}, repeats, wait)
        row = {"work": f"forward and backward, {length} tokens", "peer_is": "full attention"}
        row |= {"device": device, "peak_mib": peak(ours, device)}
        if "peer" in seconds:
            row |= compare(seconds["ours"], seconds["peer"], length)
            if launched:
                row["one_by_one"] = compare(launched["ours"], launched["peer"], length)["ratio"]
            row["peer_peak_mib"] = peak(sides["peer"], device)
        else:
            row["ours"] = round(length / sorted(seconds["ours"])[repeats // 2], 1)
        tell({**row, "cpu": processor(), "versions": versions()})


def theirs(length: int, device: str, repeats: int) -> None:
    """`transformers`' block-sparse attention, compiled; both with the same projections."""
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import (
        BigBirdBlockSparseAttention,
        BigBirdModel,
    )

    kind = torch.bfloat16 if device == "cuda" else torch.float32
    config = BigBirdConfig(
        hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, block_size=BLOCK,
        num_random_blocks=3, max_position_embeddings=length, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    part = BigBirdBlockSparseAttention(config, seed=0).to(device, kind).train()
    mask = torch.ones(1, length, device=device, dtype=kind)
    blocked, band, before, after = BigBirdModel.create_masks_for_block_sparse_attn(mask, BLOCK)
    x = torch.randn(1, length, HEADS * WIDTH, device=device, dtype=kind, requires_grad=True)
    compiled, blocks = torch.compile(part), bigbird(length)

    def projected(layer: torch.nn.Linear) -> Tensor:
        return layer(x).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)

    def ours() -> Tensor:
        return blocks(projected(part.query), projected(part.key), projected(part.value))

    def peer() -> Tensor:
        return compiled(x, band, before, after, blocked, blocked)[0]

    def learned(work: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            out = work()
            part.zero_grad()
            x.grad = None
            out.backward(torch.ones_like(out))

        return run

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    sides = {"ours": captured(learned(ours), device), "peer": learned(peer)}
    seconds = race(sides | {"launched": learned(ours)}, repeats, wait)
    row = {"work": f"forward and backward, {length} tokens", "peer_is": "transformers' BigBird"}
    found = compare(seconds["ours"], seconds["peer"], length)
    if device == "cuda":
        row["one_by_one"] = compare(seconds["launched"], seconds["peer"], length)["ratio"]
    tell({**row, "device": device, **found, "cpu": processor(), "versions": versions()})


def grow(tokens: int, device: str) -> None:
    """A window of 256 with four first places writes on and on."""
    settings = GPTSettings(
        128, 2, 4, position="rotary", pattern="window", reach=256, first_places=4, dropout=0.0
    )
    model = GPT(Sizes(256, 256, True), settings).to(device).eval()
    last = torch.zeros(1, dtype=torch.long, device=device)
    with torch.inference_mode():
        state = model.start(as_prompt(last[:, None]))
        for number in range(1, tokens + 1):
            logits, state = model.step(last, state)
            last = logits.argmax(-1)
            if number in (1000, tokens // 10, tokens):
                held = state.past.keys.numel() * state.past.keys.element_size() * 2
                row = {"work": f"written {number} tokens", "cache_kib": held // 1024}
                tell({**row, "places": state.past.keys.shape[3], "device": device})


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--lengths", type=int, nargs="+", default=[4096, 8192])
    asked.add_argument("--most", type=int, default=2**17, help="longest for full attention")
    asked.add_argument("--repeats", type=int, default=5)
    asked.add_argument("--tokens", type=int, default=20_000)
    asked.add_argument("--only", choices=("full", "transformers", "grow"), default=None)
    given = asked.parse_args()
    if given.only in (None, "full"):
        lengths(given.lengths, given.device, given.repeats, given.most)
    if given.only in (None, "transformers"):
        theirs(4096, given.device, given.repeats)
    if given.only in (None, "grow"):
        grow(given.tokens, given.device)


if __name__ == "__main__":
    main()
