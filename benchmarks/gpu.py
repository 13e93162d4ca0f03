"""What only a GPU can show: each fast path gives what the plain one gives.

python benchmarks/gpu.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from regard.batch import Pairs, Sizes, Tokens
from regard.decode import DECODERS, Limits, quickest
from regard.decode import Settings as Decode
from regard.models.transformer import Transformer, TransformerSettings
from regard.text import BOS, EOS
from regard.train import kernel, loss
from regard.train.backward import make_backward
from regard.train.distributed import World
from regard.train.loss import TokenLoss
from tests.toys import small_model

GPU = torch.device("cuda")


def check_kernel() -> str:
    """The loss kernel against its written-out form, whole and padded rows, both precisions."""
    worst = 0.0
    for dtype, size in ((torch.float32, 50257), (torch.bfloat16, 10007), (torch.float32, 7)):
        scores = (torch.randn(33, size, device=GPU) * 3).to(dtype)
        labels = torch.randint(size, (33,), device=GPU)
        real = torch.rand(33, device=GPU) > 0.2
        for smoothing in (0.0, 0.1):
            a, b = scores.clone(), torch.empty(33, -(-size // 64) * 64, device=GPU, dtype=dtype)
            b = b[:, :size].copy_(scores)
            plain = loss.score_chunk(a, labels, real, smoothing, True)
            fast = kernel.score_chunk(b, labels, real, smoothing, True)
            torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(b, a, rtol=1e-2, atol=1e-3)
            worst = max(worst, float((a.float() - b.float()).abs().max()))
    return f"largest difference in a gradient {worst:.2g}"


def check_training() -> str:
    """The gradient plain, captured and compiled; a captured step draws as a plain one does."""
    ids = torch.randint(4, 500, (24, 41), generator=torch.Generator().manual_seed(0))
    lengths = torch.randint(5, 21, (24,), generator=torch.Generator().manual_seed(1))
    batch = Pairs(ids[:, :20], lengths, ids[:, 20:], lengths).to(GPU)

    def gradients(compiling: str, dropout: float) -> torch.Tensor:
        torch.manual_seed(0)
        settings = TransformerSettings(64, 3, heads=4, hidden=128, dropout=dropout)
        model = Transformer(Sizes(500, 500, True), settings).to(GPU).train()
        backward = make_backward(model, TokenLoss(0.1), World(0, 1, GPU), compiling)
        for _ in range(3):  # the third is a replay
            torch.manual_seed(5)
            model.zero_grad(set_to_none=False)
            backward(batch, 1 / batch.tokens, True)
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    plain = gradients("off", 0.0)
    apart = {
        kind: float((gradients(kind, 0.0) - plain).norm() / plain.norm())
        for kind in ("graph", "full")
    }
    apart["graph, dropout"] = float(
        (gradients("graph", 0.3) - gradients("off", 0.3)).norm() / plain.norm()
    )
    assert max(apart.values()) < 1e-3, apart
    return f"relative distance {apart}"


def check_decoding() -> str:
    """Captured steps against plain ones: the same sequences, beam, greedy and sampled."""
    torch.manual_seed(0)
    settings = TransformerSettings(64, 2, heads=4, hidden=128)
    model = Transformer(Sizes(300, 300, True), settings).to(GPU).eval()
    for part in model.parameters():
        part.data *= 1.5
    checked = 0
    for rows, width in ((7, 9), (32, 20), (7, 9)):
        ids = torch.randint(4, 300, (rows, width), device=GPU)
        lengths = torch.randint(2, width + 1, (rows,), device=GPU)
        batch = Pairs(ids, lengths, ids[:, :1], lengths * 0)
        limits = Limits.begin(BOS, EOS, lengths * 8 + 5)
        for kind in ("beam", "greedy", "sample"):
            search = Decode(kind=kind, num_beams=4, max_new_tokens=200)
            plain = DECODERS[kind](model, batch, limits, search)
            fast = DECODERS[kind](quickest(model, search), batch, limits, search)
            same = sum(a[0].ids == b[0].ids for a, b in zip(plain, fast, strict=True))
            assert same >= rows - 1, (kind, same, rows)  # a near tie may fall the other way
            checked += same
            with torch.autocast("cuda", torch.bfloat16):  # as a run predicts; many near ties
                DECODERS[kind](quickest(model, search), batch, limits, search)
    assert model.captured["auto"].graphs, "nothing was captured"
    return f"{checked} sequences alike"


def check_language() -> str:
    """Every language model, captured and compiled, writes what it writes plainly."""
    found = {}
    for kind in ("gpt", "rnn", "xl", "xlnet"):
        model = small_model(kind, size=300, width=64).to(GPU)
        ids = torch.randint(4, 300, (5, 9), device=GPU)
        limits = Limits(ids, EOS, torch.full((5,), 100, device=GPU))
        batch = Tokens(ids, torch.zeros(5, 2, dtype=torch.long, device=GPU))
        for way in ("beam", "sample"):
            for compiling in ("auto", "full") if (kind, way) == ("gpt", "sample") else ("auto",):
                search = Decode(kind=way, num_beams=3, max_new_tokens=100, compile=compiling)
                plain = DECODERS[way](model, batch, limits, search)
                fast = DECODERS[way](quickest(model, search), batch, limits, search)
                same = sum(a[0].ids == b[0].ids for a, b in zip(plain, fast, strict=True))
                assert same >= 4, (kind, way, compiling, same)
                found[f"{kind} {way} {compiling}"] = same
    for feed in ("none", "attended", "context"):
        model = small_model("seq2seq", size=300, feed=feed, coverage=feed == "attended").to(GPU)
        ids = torch.randint(4, 300, (5, 9), device=GPU)
        lengths = torch.full((5,), 9, device=GPU)
        batch, limits = (
            Pairs(ids, lengths, ids[:, :1], lengths * 0),
            Limits.begin(BOS, EOS, lengths * 8),
        )
        search = Decode(kind="beam", num_beams=3, max_new_tokens=100)
        plain = DECODERS["beam"](model, batch, limits, search)
        fast = DECODERS["beam"](quickest(model, search), batch, limits, search)
        found[f"seq2seq {feed}"] = same = sum(
            a[0].ids == b[0].ids for a, b in zip(plain, fast, strict=True)
        )
        assert same >= 4, (feed, same)
    return f"of 5 alike: {found}"


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    failed = 0
    for check in (check_decoding, check_language, check_kernel, check_training):
        try:
            print(check.__name__, "ok:", check(), flush=True)
        except Exception as error:
            failed += 1
            print(check.__name__, "FAILED:", type(error).__name__, str(error)[:1500], flush=True)
    sys.exit(failed)
