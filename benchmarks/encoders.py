"""Pre-training and fine-tuning BERT-base against Hugging Face's, in tokens and rows a second.

    python benchmarks/encoders.py [--rows 64] [--repeats 5] [--rows-file FILE] [--only …] [--quick]

Pre-training: full rows of 512, masked words and next sentences; the peer is `BertForPreTraining`,
compiled, bfloat16 autocast, fused AdamW, no mask. Fine-tuning: the same labelled rows for an epoch;
the peer draws batches of 32 at random and pads each to its longest row, which is what its `Trainer`
does with a padding collator, in the same precision and with the same fused optimizer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from measure import compare, race, tell, versions
from torch import nn
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from regard.batch import Batch, Hidden, Ids, Label, Sizes, pad
from regard.data.order import Order
from regard.model import AnyBatch
from regard.models.bert import BERT, BERTSettings
from regard.training import optim
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import ClassLoss, MaskedLoss
from regard.training.prepare import autocast
from regard.training.settings import Settings

VOCABULARY = 30522


def hf_config(size: tuple[int, int, int], context: int, dropout: float) -> BertConfig:
    width, depth, heads = size
    return BertConfig(
        vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=depth,
        num_attention_heads=heads, intermediate_size=4 * width, max_position_embeddings=context,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=0.0, num_labels=2,
    )  # fmt: skip


def optimise(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)


def scales_of(batch: AnyBatch) -> list[float]:
    """What each part of a batch's loss is multiplied by; asked for before a GPU has to be."""
    return [1 / max(count, 1) for count in batch.counts]


def our_trainer(
    model: BERT, loss: MaskedLoss | ClassLoss, device: torch.device, compiling: str
) -> Callable[[AnyBatch, Sequence[float]], None]:
    """A step as the training loop makes it."""
    settings = Settings(rate=1e-4, weight_decay=0.01, smoothing=0.0)
    precision = autocast(device, settings)
    backward = make_backward(model, loss, World(0, 1, device), compiling, precision)
    optimizer = optim.OPTIMIZERS["adamw"](model, settings)

    def step(batch: AnyBatch, scales: Sequence[float]) -> None:
        backward(batch, scales, True)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def pretraining(size: tuple[int, int, int], rows: int, context: int, given: argparse.Namespace,
                device: torch.device) -> None:  # fmt: skip
    on_gpu = device.type == "cuda"
    torch.manual_seed(0)
    ids = torch.randint(1000, VOCABULARY, (rows, context), device=device)
    count = round(0.15 * context)
    places = torch.rand(rows, context, device=device).argsort(1)[:, :count].sort(1).values
    words = ids.gather(1, places)
    hidden = ids.scatter(1, places, 103)
    segments = (torch.arange(context, device=device) > context // 2).long().expand(rows, -1)
    follows = torch.randint(2, (rows,), device=device)
    full = torch.full((rows,), context, device=device)
    counts = torch.full((rows,), count, device=device)
    read = Ids(hidden, full, segments.contiguous(), full=True)
    batch = Batch(read, Hidden(places, words, counts, follows))
    scales = scales_of(batch)
    width, depth, heads = size
    choices = BERTSettings(width, depth, heads, positions=context, attention_dropout=0.0)
    mine = BERT(Sizes(VOCABULARY, VOCABULARY, True, asked=Hidden), choices).to(device).train()
    step = our_trainer(mine, MaskedLoss(), device, "full" if on_gpu else "off")

    theirs = BertForPreTraining(hf_config(size, context, 0.1)).to(device).train()
    forward = torch.compile(theirs) if on_gpu else theirs
    optimizer = optimise(theirs)
    labels = torch.full_like(ids, -100).scatter(1, places, words)

    def their_step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = forward(
                input_ids=hidden, token_type_ids=segments, labels=labels,
                next_sentence_label=follows,
            ).loss  # fmt: skip
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    steps = 1 if given.quick else 5
    for _ in range(4):
        step(batch, scales)
        their_step()
    sides = {
        "ours": lambda: [step(batch, scales) for _ in range(steps)],
        "peer": lambda: [their_step() for _ in range(steps)],
    }
    seconds = race(sides, given.repeats, torch.cuda.synchronize if on_gpu else lambda: None)
    tell(
        {
            "what": f"pre-training BERT {size}, {rows}×{context} tokens a step",
            "peer_name": "transformers BertForPreTraining, compiled",
            "unit": "tokens/s",
            **compare(seconds["ours"], seconds["peer"], steps * rows * context),
            "versions": versions(),
        }
    )


def fine_tuning(
    size: tuple[int, int, int], lengths: np.ndarray, given: argparse.Namespace, device: torch.device
) -> None:
    on_gpu = device.type == "cuda"
    dice = np.random.default_rng(0)
    texts = [dice.integers(1000, VOCABULARY, length).tolist() for length in lengths]
    label = torch.from_numpy(dice.integers(2, size=len(texts)))
    budget = int(32 * lengths.mean())  # as many rows a step as the peer, in the mean
    order = Order(lengths[:, None].astype(np.int32), budget, 0)
    width, depth, heads = size
    choices = BERTSettings(width, depth, heads, attention_dropout=0.0)
    mine = BERT(Sizes(VOCABULARY, VOCABULARY, True, 2, asked=Label), choices).to(device).train()
    step = our_trainer(mine, ClassLoss(), device, "graph" if on_gpu else "off")

    def gather(rows: np.ndarray) -> Batch[Ids, Label]:
        ids = pad([texts[i] for i in rows])
        read = Ids(ids, torch.from_numpy(lengths[rows]), torch.zeros_like(ids))
        return Batch(read, Label(label[rows], torch.ones(len(rows))))

    def epoch() -> None:
        for rows in order.epoch(0):
            batch = gather(rows)
            scales = scales_of(batch)
            step(batch.pad_to_multiple(8).pin().to(device) if on_gpu else batch, scales)

    theirs = BertForSequenceClassification(hf_config(size, 512, 0.1)).to(device).train()
    forward = torch.compile(theirs, dynamic=True) if on_gpu else theirs
    optimizer = optimise(theirs)

    def their_epoch() -> None:
        # As with `group_by_length`: rows of about one length, in batches drawn at random.
        grouped = np.array_split(np.argsort(lengths, kind="stable"), len(texts) // 32)
        for number in np.random.default_rng(1).permutation(len(grouped)):
            rows = grouped[number]
            wide = -lengths[rows].max() % 8  # what tensor cores like, and few shapes
            ids = nn.functional.pad(pad([texts[i] for i in rows]), (0, int(wide)))
            mask = (torch.arange(ids.shape[1]) < torch.from_numpy(lengths[rows])[:, None]).long()
            ids, mask, right = (x.to(device, non_blocking=True) for x in (ids, mask, label[rows]))
            with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
                loss = forward(input_ids=ids, attention_mask=mask, labels=right).loss
            loss.backward()
            nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    sides = {"ours": epoch, "peer": their_epoch}
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    for _ in range(2):  # shapes are captured when they come a second time
        epoch()
        their_epoch()
    seconds = race(sides, given.repeats, wait)
    tell(
        {
            "what": f"fine-tuning BERT {size}, {len(texts)} rows of {lengths.mean():.1f} tokens",
            "peer_name": "transformers, compiled, batches of 32 rows of about one length",
            "unit": "rows/s",
            **compare(seconds["ours"], seconds["peer"], len(texts)),
            "versions": versions(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows-file", help="SST-2's train.tsv.gz; else lengths are drawn")
    parser.add_argument("--only", choices=("pretraining", "fine-tuning"), default="")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size, context = ((64, 2, 4), 32) if given.quick else ((768, 12, 12), 512)
    if given.only != "fine-tuning":
        pretraining(size, 2 if given.quick else given.rows, context, given, device)
    if given.only == "pretraining":
        return
    # Drawn as SST-2's are: many phrases, few sentences.
    lengths = np.random.default_rng(0).gamma(1.6, 7.0, 64 if given.quick else 6400).astype(int) + 3
    if given.rows_file:
        from regard.data.read import lines

        rows = list(lines(Path(given.rows_file)))[1 : len(lengths) + 1]
        lengths = np.array([len(row.split()) + 1 for row in rows])
    fine_tuning(size, lengths.clip(3, 128).astype(np.int64), given, device)


if __name__ == "__main__":
    main()
