"""Training an LSTM translator with additive attention, against a plain per-step loop.

    python benchmarks/attention_family.py [--device cpu|cuda] [--repeats 5] [--quick]

The loop is what tutorials write, as their best readers would: keys are projected once, for every
word of the target it looks at the source and steps an LSTM cell, and the vocabulary's scores are
made for all words at once; on a GPU a step is compiled. It has our weights, and the two losses are
compared before anything is timed. A second table gives each score's speed and memory.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from measure import compare, processor, race, tell, versions
from torch import Tensor, nn

from regard.batch import Batch, Ids, Sizes, Words
from regard.models.seq2seq import Seq2Seq, Seq2SeqSettings
from regard.parts.score import SCORES
from regard.training import optim
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import TokenLoss
from regard.training.prepare import autocast
from regard.training.settings import Settings

Pairs = Batch[Ids, Words]


class PlainLoop(nn.Module):
    """The same model, word by word; what does not hang on the word before is computed at once."""

    def __init__(self, ours: Seq2Seq) -> None:
        super().__init__()
        s = ours.settings
        self.feed = s.feed
        self.source, self.target = (
            nn.Embedding.from_pretrained(ours.source.tokens.weight.detach().clone(), freeze=False),
            nn.Embedding.from_pretrained(ours.target.weight.detach().clone(), freeze=False),
        )
        self.encoder = nn.LSTM(s.width, s.hidden // 2, batch_first=True, bidirectional=True)
        for way, end in zip(ours.reader.layers[0], ("", "_reverse"), strict=True):  # type: ignore[arg-type]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(self.encoder, f"{name}_l0{end}").data.copy_(getattr(way, f"{name}_l0"))
        self.bridge = nn.Linear(s.hidden, 2 * s.hidden)
        self.bridge.load_state_dict(ours.bridge[0].state_dict())
        layer = ours.decoder.layers[0]
        self.cell = nn.LSTMCell(layer.input_size, s.hidden)  # type: ignore[arg-type]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(self.cell, name).data.copy_(getattr(layer, f"{name}_l0"))
        score = ours.align.attend.score  # type: ignore[union-attr]
        self.query, self.key = (nn.Linear(s.hidden, s.hidden, bias=False) for _ in range(2))
        self.query.weight.data.copy_(score.query[0].T)
        self.key.weight.data.copy_(score.key[0].T)
        self.value = nn.Parameter(score.value[0, :, 0].detach().clone())
        self.join = nn.Linear(2 * s.hidden, s.width)
        self.join.load_state_dict(ours.join.state_dict())

    def look(self, query: Tensor, keys: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        scores = (self.query(query)[:, None] + keys).tanh() @ self.value
        return (scores.masked_fill(~mask, float("-inf")).softmax(-1)[:, None] @ states)[:, 0]

    def step(
        self, x: Tensor, h: Tensor, c: Tensor, keys: Tensor, states: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.feed == "context":
            context = self.look(h, keys, states, mask)
            x = torch.cat((x, context), -1)
        h, c = self.cell(x, (h, c))
        if self.feed == "none":
            context = self.look(h, keys, states, mask)
        return self.join(torch.cat((context, h), -1)).tanh(), h, c

    def forward(self, batch: Pairs) -> Tensor:
        read, asked = batch.read, batch.asked
        packed = nn.utils.rnn.pack_padded_sequence(
            self.source(read.ids), read.lengths.cpu(), True, enforce_sorted=False
        )
        states, (last, _) = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, True)
        h, c = self.bridge(torch.cat((last[0], last[1]), -1)).tanh().chunk(2, -1)
        mask = torch.arange(states.shape[1], device=h.device) < read.lengths[:, None]
        keys, written = self.key(states), []
        for x in self.target(asked.inputs).unbind(1):
            out, h, c = self.step(x, h, c, keys, states, mask)
            written.append(out)
        scores = F.linear(torch.stack(written, 1), self.target.weight)
        labels = asked.labels.masked_fill(~asked.real, -100)
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)


def some_batch(rows: int, words: int, size: int, device: torch.device) -> Pairs:
    """Sentences of mixed lengths, the longest of `words`."""
    dice = torch.Generator().manual_seed(0)
    lengths = torch.randint(words // 2, words + 1, (rows,), generator=dice)
    lengths[0] = words
    ids = torch.randint(4, size, (rows, words + 1), generator=dice)
    return Batch(Ids(ids[:, 1:], lengths), Words(ids, lengths)).to(device)


def race_feed(feed: str, device: torch.device, repeats: int, quick: bool) -> None:
    torch.manual_seed(0)
    width, hidden, size = (32, 64, 300) if quick else (256, 512, 10_000)
    rows, words = (4, 8) if quick else (64, 24)
    settings = Seq2SeqSettings(
        width=width,
        hidden=hidden,
        score="additive",
        feed=feed,
        dropout=0.0,  # type: ignore[arg-type]
    )
    model = Seq2Seq(Sizes(size, size, True), settings).to(device).train()
    plain = PlainLoop(model).to(device).train()
    if device.type == "cuda":
        plain.step = torch.compile(plain.step)  # type: ignore[method-assign]
    batch = some_batch(rows, words, size, device)
    train = Settings(smoothing=0.0, rate=1e-4)
    backward = make_backward(
        model, TokenLoss(), World(0, 1, device), "auto", autocast(device, train)
    )
    tokens = batch.tokens
    with torch.no_grad():
        ours, theirs = TokenLoss()(model, batch).total / tokens, plain(batch)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    optimizer = optim.OPTIMIZERS["adamw"](model, train)
    other = torch.optim.AdamW(plain.parameters(), 1e-4, fused=device.type == "cuda")
    on_gpu = device.type == "cuda"

    def our_step() -> None:
        backward(batch, [1 / tokens], True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def their_step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = plain(batch)
        loss.backward()
        other.step()
        other.zero_grad()

    wait = torch.cuda.synchronize if on_gpu else lambda: None
    for _ in range(3):
        our_step()
        their_step()
    steps = 10 if on_gpu else 1
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: [our_step() for _ in range(steps)],
        "peer": lambda: [their_step() for _ in range(steps)],
    }
    seconds = race(sides, repeats, wait)
    tell(
        {
            "what": f"training LSTM + additive attention, {width}/{hidden}, vocabulary {size}, "
            f"{rows}×{words}, feed {feed}",
            "peer_name": "a per-step loop with the same weights, keys projected once",
            "unit": "target tokens/s",
            "machine": torch.cuda.get_device_name() if on_gpu else processor(),
            "versions": versions(),
            **compare(seconds["ours"], seconds["peer"], steps * tokens),
        }
    )


def time_scores(device: torch.device, repeats: int, quick: bool) -> None:
    """Forward and backward of each score, and the most memory that it took on a GPU."""
    rows, heads, words, width = (2, 2, 8, 8) if quick else (32, 8, 128, 64)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    sides: dict[str, Callable[[], object]] = {}
    memory: dict[str, float] = {}
    for name, make in SCORES.items():
        torch.manual_seed(0)
        part = make(width, heads).to(device)
        shape = (rows, heads, words, width)
        q, k = (torch.randn(shape, device=device, requires_grad=True) for _ in range(2))
        sides[name] = lambda part=part, q=q, k=k: part(q, k).softmax(-1).square().sum().backward()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            sides[name]()
            memory[name] = round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)
    seconds = race(sides, repeats, wait)
    for name, times in seconds.items():
        tell(
            {
                "what": f"score {name}, {rows}×{heads} heads of {width}, {words} × {words}",
                "milliseconds": round(median(times) * 1000, 2),
                "times_dot": round(median(times) / median(seconds["dot"]), 2),
                "memory_mib": memory.get(name),
            }
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    given = parser.parse_args()
    device = torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    for feed in ("none", "context"):
        race_feed(feed, device, given.repeats, given.quick)
    time_scores(device, given.repeats, given.quick)


if __name__ == "__main__":
    main()
