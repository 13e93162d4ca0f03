"""Translation against its peers: training and beam search, in target tokens a second.

python benchmarks/translate.py [--device cpu|cuda] [--only train|decode] [--repeats N] [--quick]
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from measure import apart, compare, processor, race, tell, versions
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from regard.batch import Batch, Ids, Sizes, Words, pad
from regard.data.order import Order
from regard.decode import Limits, with_cuda_graphs, write
from regard.decode import Settings as Decode
from regard.models.transformer import Transformer
from regard.parts import mask as masks
from regard.parts.packed import PRODUCTS, pack
from regard.text import BOS, EOS, PAD, SPECIALS, UNK
from regard.training import optim
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import TokenLoss
from regard.training.prepare import autocast
from regard.training.settings import Settings as Train
from tests.marian import copy_marian

SMOOTHING = 0.1
BEAMS = 4
Pairs = Batch[Ids, Words]

# What a precision of ours is held against; CTranslate2 has no bfloat16 on processors without AMX.
THEIRS = {"float32": "float32", "bfloat16": "float32", "int8": "int8_float32"}

# One step: forward, loss, backward, clip, update. (batch, its real target tokens)
Step = Callable[[Pairs, int], None]
# Sentences to the ids of their best translations.
Translate = Callable[[], list[list[int]]]


@dataclass(frozen=True)
class Shape:
    """The sizes that ours and a peer have in common."""

    width: int
    depth: int
    heads: int
    hidden: int
    vocabulary: int

    def __str__(self) -> str:
        return f"{self.depth}+{self.depth}×{self.width}, vocabulary {self.vocabulary}"


BASE = Shape(512, 6, 8, 2048, 37000)
SMALL = Shape(128, 4, 4, 256, 10000)
TINY = Shape(32, 1, 2, 64, 500)


@dataclass(frozen=True)
class Bench:
    """Where and how often to measure."""

    device: torch.device
    repeats: int
    quick: bool

    @property
    def shape(self) -> Shape:
        return TINY if self.quick else BASE

    def race(self, sides: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        """On a GPU the device is waited for; on a CPU idle threads are let go to sleep."""
        if self.device.type == "cuda":
            return race(sides, self.repeats, torch.cuda.synchronize)
        return race(sides, self.repeats, pause=0.3)

    def label(self, what: str, peer: str) -> dict[str, Any]:
        threads = f"{processor()}, {torch.get_num_threads()} threads"
        on_gpu = self.device.type == "cuda"
        return {
            "what": f"smoke test, no figure: {what}" if self.quick else what,
            "peer_name": peer,
            "unit": "target tokens/s",
            "machine": torch.cuda.get_device_name(self.device) if on_gpu else threads,
            "versions": versions(),
        }


@contextmanager
def guarded(label: dict[str, Any]) -> Iterator[None]:
    """What goes wrong with one peer is said in its line, and the others have their turn."""
    try:
        yield
    except Exception as error:
        tell({**label, "error": f"{type(error).__name__}: {error}"[:500]})
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--only", choices=("train", "decode"))
    parser.add_argument("--repeats", type=int, default=5, help="rounds that are timed")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    args = parser.parse_args()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    transformers.logging.set_verbosity_error()
    bench = Bench(device, 2 if args.quick else args.repeats, args.quick)
    if args.only != "decode":
        (train_on_gpu if device.type == "cuda" else train_on_cpu)(bench)
    if args.only != "train":
        decode(bench)


# Training.


def train_on_gpu(bench: Bench) -> None:
    """The base model on one batch of full rows, again and again, in bfloat16."""
    shape, rows, length, steps = (TINY, 8, 16, 4) if bench.quick else (BASE, 390, 64, 10)
    what = f"training, {shape}, {rows}×{length} target tokens a step, bfloat16"
    batch = full_batch(shape, rows, length).to(bench.device)
    work = [(batch, rows * length)] * steps

    ours: dict[str, Callable[[], object]] = {}
    for compiling in ("graph", "full"):
        with guarded(bench.label(what, f"ours with train.compile={compiling}")):
            side = repeatedly(our_step(shape, 0.1, bench.device, compiling), work)
            side()  # a way that fails or compiles does so here, and costs the other way nothing
            ours[compiling] = side
    peers = {
        "transformers MarianMTModel, compiled": marian_step,
        "torch.nn.Transformer, compiled": torch_step,
    }
    for name, make in peers.items():
        label = bench.label(what, name)
        with guarded(label):
            peer = repeatedly(make(shape, 0.1, bench.device, compiled=True), work)
            seconds = bench.race({**ours, name: peer})
            best = min(ours, key=lambda kind: float(np.median(seconds[kind])))
            figures = compare(seconds[best], seconds[name], steps * rows * length)
            tell({**label, **figures, "ours_compile": best})


def train_on_cpu(bench: Bench) -> None:
    """The small model on batches of many lengths, cut by our own order; both sides pad alike."""
    shape, count = (TINY, 2) if bench.quick else (SMALL, 12)
    work = bucketed_batches(shape, budget=200 if bench.quick else 2000, count=count)
    tokens = sum(real for _, real in work)
    what = f"training, {shape}, {tokens // count} target tokens a step, padding not counted"
    label = bench.label(what, "transformers MarianMTModel")
    with guarded(label):
        sides: dict[str, Callable[[], object]] = {
            "ours": repeatedly(our_step(shape, 0.3, bench.device, "off"), work),
            "peer": repeatedly(marian_step(shape, 0.3, bench.device, compiled=False), work),
        }
        seconds = bench.race(sides)
        tell({**label, **compare(seconds["ours"], seconds["peer"], tokens)})


def repeatedly(step: Step, work: Sequence[tuple[Pairs, int]]) -> Callable[[], None]:
    def run() -> None:
        for batch, tokens in work:
            step(batch, tokens)

    return run


def our_step(shape: Shape, dropout: float, device: torch.device, compiling: str) -> Step:
    """A step as the training loop makes it."""
    torch.manual_seed(0)
    settings = Train()
    sizes = Sizes(shape.vocabulary, shape.vocabulary, shared=True)
    choices = Transformer.Settings(
        width=shape.width,
        depth=shape.depth,
        heads=shape.heads,
        hidden=shape.hidden,
        dropout=dropout,
    )
    model = Transformer(sizes, choices).to(device).train()
    precision = autocast(device, settings)
    world = World(0, 1, device)
    backward = make_backward(model, TokenLoss(SMOOTHING), world, compiling, precision)
    optimizer = optim.OPTIMIZERS["adamw"](model, settings)

    def step(batch: Pairs, tokens: int) -> None:
        backward(batch, [1 / tokens], True)
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)  # captured graphs write to the same memory again

    return step


def peer_step(model: nn.Module, logits: Callable[[Pairs], Tensor], compiled: bool) -> Step:
    """The same step around another's model; its loss is compiled with it, which is quicker."""
    settings = Train()
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )

    def loss(batch: Pairs) -> Tensor:
        scores, labels = logits(batch).flatten(0, 1), batch.asked.labels.flatten()
        return F.cross_entropy(scores, labels, ignore_index=PAD, label_smoothing=SMOOTHING)

    forward = torch.compile(loss) if compiled else loss
    on_gpu = device.type == "cuda"

    def step(batch: Pairs, tokens: int) -> None:
        with torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext():
            total = forward(batch)
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def marian_step(shape: Shape, dropout: float, device: torch.device, compiled: bool) -> Step:
    model = marian(shape, dropout).to(device).train()
    if compiled:
        # In training both stacks draw for each layer whether to skip it, though they never do, and
        # that cuts the graph there. Whole, it is quicker; all it lacks is dropout on embeddings.
        model.model.encoder.training = model.model.decoder.training = False

    def logits(batch: Pairs) -> Tensor:
        real = masks.padding(batch.read.lengths, batch.read.ids.shape[1])[:, 0, 0]  # (B, S)
        out: Tensor = model(
            input_ids=batch.read.ids,
            attention_mask=real.long(),
            decoder_input_ids=batch.asked.inputs,
            use_cache=False,
        ).logits
        return out

    return peer_step(model, logits, compiled)


def torch_step(shape: Shape, dropout: float, device: torch.device, compiled: bool) -> Step:
    model = TorchTransformer(shape, dropout).to(device).train()
    return peer_step(model, model, compiled)


def marian(shape: Shape, dropout: float = 0.0) -> MarianMTModel:
    """Marian of these sizes with random weights, large enough that attention is not even."""
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        encoder_layers=shape.depth,
        decoder_layers=shape.depth,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.hidden,
        decoder_ffn_dim=shape.hidden,
        max_position_embeddings=128,
        activation_function="relu",
        dropout=dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        init_std=shape.width**-0.5,
    )
    return MarianMTModel(config)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with an embedding and a head, and without what ours does not do."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = math.sqrt(shape.width)
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.tokens.weight, std=1 / self.scale)
        # What the table of positions holds does not matter to speed.
        self.register_buffer("places", torch.randn(128, shape.width), persistent=False)
        self.dropout = nn.Dropout(dropout)
        self.core = nn.Transformer(
            shape.width,
            shape.heads,
            shape.depth,
            shape.depth,
            shape.hidden,
            dropout,
            batch_first=True,
        )
        self.core.encoder.norm = self.core.decoder.norm = None
        for layer in (*self.core.encoder.layers, *self.core.decoder.layers):
            layer.dropout.p = 0.0  # inside the feed-forward
        for part in self.core.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0  # on attention weights

    def embed(self, ids: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.tokens(ids) * self.scale + self.places[: ids.shape[1]])
        return out

    def forward(self, batch: Pairs) -> Tensor:
        padding = ~masks.padding(batch.read.lengths, batch.read.ids.shape[1])[:, 0, 0]  # (B, S)
        length = batch.asked.inputs.shape[1]
        hidden = self.core(
            self.embed(batch.read.ids),
            self.embed(batch.asked.inputs),
            tgt_mask=~masks.causal(length, length, batch.read.ids.device)[0, 0],
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.tokens.weight)  # (B, T, V)


def full_batch(shape: Shape, rows: int, length: int) -> Pairs:
    """Random words, every row full; a target row has one column more, for its shift."""
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(len(SPECIALS), shape.vocabulary, (rows, 2 * length + 1), generator=chance)
    lengths = torch.full((rows,), length)
    source, target = ids.split((length, length + 1), 1)
    return Batch(Ids(source.contiguous(), lengths), Words(target.contiguous(), lengths))


def bucketed_batches(shape: Shape, budget: int, count: int) -> list[tuple[Pairs, int]]:
    """Random words in sentences as long as captions are, in the first batches of an epoch."""
    chance = np.random.default_rng(0)
    source = chance.normal(14, 4.5, 4000)
    both = np.stack((source, source + chance.normal(0.5, 2.5, 4000)), 1)
    lengths = both.round().clip(6, 35).astype(np.int32)  # with their ends

    def words(count: int) -> list[int]:
        ids: list[int] = chance.integers(len(SPECIALS), shape.vocabulary, count - 1).tolist()
        return ids

    batches = []
    for rows in Order(lengths, budget, seed=0).epoch(0)[:count]:
        sources = pad([[*words(length), EOS] for length in lengths[rows, 0]])
        targets = pad([[BOS, *words(length), EOS] for length in lengths[rows, 1]])
        read, written = torch.from_numpy(lengths[rows]).long().unbind(1)
        batch = Batch(Ids(sources, read), Words(targets, written))
        batches.append((batch, batch.tokens))
    return batches


# Decoding.


def decode(bench: Bench) -> None:
    """Beam search with the same weights on both sides, for exactly so many tokens."""
    on_gpu = bench.device.type == "cuda"
    shape = bench.shape
    rows, length, calls = (4, 8, 1) if bench.quick else (64, 32, 3) if on_gpu else (32, 32, 1)
    precision = "bfloat16" if on_gpu else "float32"
    what = f"beam {BEAMS}, {shape}, {rows} sentences × {length} tokens, {precision}"
    theirs = marian(shape).eval().to(bench.device)
    ours = copy_marian(theirs).to(bench.device)
    if not on_gpu:
        pack(ours)  # as every run that is loaded to answer on a CPU
    batch = full_batch(shape, rows, length).to(bench.device)
    ours_now, theirs_now = our_search(ours, batch, length), marian_beam(theirs, batch, length)

    name = "transformers generate"
    label = bench.label(what, name)
    with guarded(label):
        more = {}
        if on_gpu:
            # bfloat16 rounds near equals to either side; float32 says whether the search agrees.
            torch.backends.cuda.matmul.allow_tf32 = False
            more["agree_float32"] = agreement(ours_now(), theirs_now())
            ours.bfloat16()
            theirs.bfloat16()
        more["agree"] = agreement(ours_now(), theirs_now())
        seconds = bench.race({"ours": times(calls, ours_now), "peer": times(calls, theirs_now)})
        tell({**label, **compare(seconds["ours"], seconds["peer"], calls * rows * length), **more})
    if not on_gpu:
        with tempfile.TemporaryDirectory() as folder:
            against_ctranslate2(bench, theirs, batch, length, Path(folder))


def against_ctranslate2(
    bench: Bench, theirs: MarianMTModel, batch: Pairs, length: int, folder: Path
) -> None:
    """Every precision of ours against the same of CTranslate2, searched and greedy."""
    rows = len(batch.read.ids)
    names = save_for_ctranslate2(theirs, folder)
    for precision in PRODUCTS:
        ours = copy_marian(theirs)
        why = pack(ours, precision)
        for beams in (BEAMS, 1):
            what = f"{bench.shape}, {rows} sentences × {length} tokens, {precision}"
            way, theirs_is = f"beam {beams}" if beams > 1 else "greedy", THEIRS[precision]
            label = bench.label(f"{way}, {what}", f"CTranslate2 {theirs_is}")
            with guarded(label):
                assert not why, why
                ours_now = our_search(ours, batch, length, beams)
                asked = names, batch.read.ids.tolist(), length, folder, theirs_is, beams
                with apart(ctranslate2_search, torch.get_num_threads(), *asked) as peer_now:
                    agree = agreement(ours_now(), peer_now())
                    seconds = bench.race({"ours": ours_now, "peer": peer_now})
                figures = compare(seconds["ours"], seconds["peer"], rows * length)
                tell({**label, **figures, "agree": agree})


def times(calls: int, work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(calls):
            work()

    return run


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """The part of the sentences with the same translation, token for token."""
    return round(sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours), 4)


def our_search(model: Transformer, batch: Pairs, length: int, beams: int = BEAMS) -> Translate:
    limits = Limits.begin(BOS, EOS, torch.full_like(batch.read.lengths, length))
    settings = Decode(
        "beam" if beams > 1 else "greedy", beams, min_new_tokens=length, max_new_tokens=length
    )

    def translate() -> list[list[int]]:
        answers = write(with_cuda_graphs(model, settings), batch, limits, settings)
        return [best[0].ids for best in answers]

    return translate


def marian_beam(model: MarianMTModel, batch: Pairs, length: int) -> Translate:
    real = torch.ones_like(batch.read.ids)

    def translate() -> list[list[int]]:
        out = model.generate(
            input_ids=batch.read.ids,
            attention_mask=real,
            num_beams=BEAMS,
            do_sample=False,
            min_new_tokens=length,
            max_new_tokens=length,
        )
        ids: list[list[int]] = out[:, 1:].tolist()  # the first is where decoding starts
        return ids

    return translate


def save_for_ctranslate2(model: MarianMTModel, folder: Path) -> list[str]:
    """The same weights in CTranslate2's form.  -> the vocabulary"""
    from ctranslate2.converters.transformers import BartLoader

    # Its Marian loader drops the last word and starts from a zero vector, as published Marians do;
    # the one that it builds on leaves the weights as they are.
    model.config.normalize_before = model.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(model)
    names = [*SPECIALS, *map(str, range(len(SPECIALS), model.config.vocab_size))]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = SPECIALS[BOS]
    spec.config.eos_token, spec.config.unk_token = SPECIALS[EOS], SPECIALS[UNK]
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    return names


def ctranslate2_search(
    threads: int, names: list[str], ids: list[list[int]], length: int, folder: Path,
    precision: str, beams: int,
) -> Translate:  # fmt: skip
    """CTranslate2 with as many threads as torch has here, in the precision that is asked for."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder),
        device="cpu",
        compute_type=precision,
        inter_threads=1,
        intra_threads=threads,
    )
    assert translator.compute_type == precision, translator.compute_type
    source = [[names[i] for i in row] for row in ids]
    places = {name: place for place, name in enumerate(names)}

    def translate() -> list[list[int]]:
        answers = translator.translate_batch(
            source, beam_size=beams, min_decoding_length=length, max_decoding_length=length
        )
        return [[places[name] for name in one.hypotheses[0]] for one in answers]

    return translate


if __name__ == "__main__":
    main()
