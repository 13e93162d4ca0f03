"""Small things that tests share: a language made of numbers, and tiny models."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from regard.batch import (
    Batch,
    Choices,
    Graphs,
    GraphSizes,
    Hidden,
    HistorySizes,
    Ids,
    Label,
    Nothing,
    Pixels,
    Running,
    Sizes,
    Steps,
    Story,
    Tokens,
    Words,
)
from regard.models import MODELS

WORDS = {
    "one": "un", "two": "deux", "three": "trois", "four": "quatre", "five": "cinq",
    "six": "six", "seven": "sept", "eight": "huit", "nine": "neuf", "ten": "dix",
    "red": "rouge", "green": "vert", "cats": "chats", "dogs": "chiens", "and": "et",
}  # fmt: skip


def translate(line: str) -> str:
    """Word for word, but colours go after their noun: a reordering to be learned."""
    words = line.split()
    for i in range(len(words) - 1):
        if words[i] in ("red", "green") and words[i + 1] in ("cats", "dogs"):
            words[i], words[i + 1] = words[i + 1], words[i]
    return " ".join(WORDS[word] for word in words)


def sentences(count: int, seed: int = 0, longest: int = 6) -> list[str]:
    chance = random.Random(seed)
    numbers, colours, nouns = list(WORDS)[:10], ["red", "green"], ["cats", "dogs"]
    lines = []
    for _ in range(count):
        phrase: list[str] = []
        while len(phrase) < chance.randint(2, longest):
            phrase += [
                chance.choice(numbers),
                *([chance.choice(colours)] * chance.randint(0, 1)),
                chance.choice(nouns),
            ]
            phrase += ["and"] if chance.random() < 0.3 else []
        lines.append(" ".join(phrase).removesuffix(" and"))
    return lines


def write_corpus(folder: Path, train: int = 600, valid: int = 40, test: int = 40) -> Path:
    """Aligned files `train.en`, `train.fr`, … of the toy language."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (part, count) in enumerate({"train": train, "valid": valid, "test": test}.items()):
        lines = sentences(count, seed)
        (folder / f"{part}.en").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{part}.fr").write_text("".join(f"{translate(line)}\n" for line in lines))
    return folder


RECIPE = """
[task]
kind = "translate"
source = "en"
target = "fr"

[data]
train = ["train.en", "train.fr"]
valid = ["valid.en", "valid.fr"]
test = ["test.en", "test.fr"]

[text]
kind = "words"
size = 60

[model]
kind = "transformer"
width = 32
depth = 1
heads = 2
hidden = 64
dropout = 0.1
residual = "pre"

[train]
steps = 40
batch_tokens = 256
rate = 0.01
schedule = "linear"
warmup = 10
smoothing = 0.0
save_every = 10
evaluate_every = 20
evaluate_examples = 10
log_every = 5
device = "cpu"

[decode]
num_beams = 3
"""


def write_recipe(folder: Path, name: str = "toy", **corpus: int) -> Path:
    """A corpus and a recipe for it that trains in seconds."""
    write_corpus(folder, **corpus)
    path = folder / f"{name}.toml"
    path.write_text(RECIPE)
    return path


SMALL = {
    "transformer": {"width": 16, "depth": 2, "heads": 4, "hidden": 32, "dropout": 0.0},
    "seq2seq": {"width": 16, "depth": 1, "hidden": 20, "dropout": 0.0},
    "memory": {"width": 16, "hops": 2, "noise": 0.0, "ages": 80},
    "rnn": {"width": 16, "depth": 2, "hidden": 20},
    "gpt": {"width": 16, "depth": 2, "heads": 4, "hidden": 32, "dropout": 0.0},
    "xl": {"width": 16, "depth": 2, "heads": 4, "hidden": 32, "dropout": 0.0, "memory": 6},
    "xlnet": {"width": 16, "depth": 2, "heads": 4, "hidden": 32, "dropout": 0.0, "memory": 6},
    "bert": {"width": 16, "depth": 2, "heads": 4, "dropout": 0.0, "attention_dropout": 0.0},
    "vit": {"width": 16, "depth": 2, "heads": 4, "dropout": 0.0},
    "glimpse": {"width": 16, "hidden": 16, "glimpses": 3, "size": 4, "scales": 2},
    "graph": {"width": 16, "depth": 2, "heads": 4},
    "decision": {"width": 16, "depth": 2, "heads": 4, "dropout": 0.0, "positions": 20},
    "table": {},
    "t5": {"width": 16, "depth": 2, "heads": 4, "hidden": 32, "dropout": 0.0, "farthest": 20},
}


def small_model(kind: str, seed: int = 0, size: int = 24, **more):
    """A model of each kind, with random weights, ready to be asked."""
    torch.manual_seed(seed)
    settings = MODELS[kind].Settings(**{**SMALL[kind], **more})
    sizes = Sizes(size, size, True)
    if kind in ("vit", "glimpse"):
        sizes = Sizes(0, 0, False, 5, Pixels, Label, (3, 4, 4), (3, 3))
    if kind == "graph":
        sizes = Sizes(9, 0, False, 5, Graphs, Label, graph=GraphSizes(4, farthest=2))
    if kind in ("decision", "table"):
        told = HistorySizes(*((3, 2, 7, 0, 5) if kind == "decision" else (0, 1, 7, 7, 5)))
        sizes = Sizes(0, 0, False, 5, Steps, Choices, history=told)
    model = MODELS[kind](sizes, settings).eval()
    if kind == "table":
        torch.nn.init.normal_(model.counts)
    return model


def random_batch(kind: str, rows: int = 4, longest: int = 9, seed: int = 0, size: int = 24):
    """A batch such as a model of that kind reads."""
    if kind in ("transformer", "seq2seq", "t5"):
        return random_pairs(rows, longest, seed, size)
    if kind == "bert":
        return random_texts(rows, longest, seed, size)
    if kind == "memory":
        return random_stories(rows, longest, seed, size)
    if kind in ("vit", "glimpse"):
        return random_pictures(rows, seed)
    if kind == "graph":
        return random_graphs(rows, longest, seed)
    if kind in ("decision", "table"):
        return random_histories(rows, longest, seed)
    dice = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, size, (rows, longest + 1), generator=dice)
    return tokens(ids, torch.tensor([[0, longest]] * rows))


def pairs(source, source_lengths, target, target_lengths) -> Batch[Ids, Words]:
    """Sources and targets `bos y1 … yn eos`, of which `target_lengths` labels are real."""
    return Batch(Ids(source, source_lengths), Words(target, target_lengths))


def tokens(ids, label_range, documents=None, past=()) -> Batch[Running, Tokens]:
    """Running text, of which all but the last token are read and all but the first asked for."""
    return Batch(Running(ids[:, :-1], documents), Tokens(ids[:, 1:], label_range), tuple(past))


def texts(ids, lengths, segments=None) -> Batch[Ids, Nothing]:
    """Texts of which nothing is asked."""
    return Batch(Ids(ids, lengths, segments), Nothing())


def random_texts(
    rows: int = 4, longest: int = 9, seed: int = 0, size: int = 24
) -> Batch[Ids, Hidden]:
    """Padded texts of random words, some of which are asked for."""
    dice = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, size, (rows, longest), generator=dice)
    lengths = torch.randint(4, longest + 1, (rows,), generator=dice)
    lengths[0] = longest
    ids[torch.arange(longest) >= lengths[:, None]] = 0
    segments = (torch.arange(longest) > 2).long().expand(rows, -1).contiguous()
    places = torch.tensor([[0, 2, 3]] * rows)
    counts, follows = torch.full((rows,), 3), torch.arange(rows) % 2
    words = ids.gather(1, places)
    return Batch(Ids(ids, lengths, segments), Hidden(places, words, counts, follows))


def random_histories(rows: int = 4, longest: int = 9, seed: int = 0) -> Batch[Steps, Choices]:
    """Random numbers and words, of which some were not recorded; random actions and rewards."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, longest + 1, (rows,), generator=dice)
    lengths[0] = longest
    shape = (rows, longest)
    known = (torch.rand(*shape, 3, generator=dice) < 0.7).float()
    real = (torch.arange(longest) < lengths[:, None]).long()
    words = torch.randint(7, (*shape, 2), generator=dice) * real[..., None]
    actions = torch.randint(5, shape, generator=dice) * real
    wished = torch.randn(shape, generator=dice)
    wished[1] = float("nan")  # nothing
    steps = Steps(
        torch.randn(*shape, 3, generator=dice) * known, known, words, words[..., 0], actions,
        wished, torch.arange(longest).expand(rows, -1).contiguous(),
        lengths,
    )  # fmt: skip
    rewards, returns = (torch.randn(shape, generator=dice) for _ in range(2))
    ends = (torch.arange(longest) == lengths[:, None] - 1).float()
    return Batch(
        steps, Choices(actions, torch.zeros_like(lengths), lengths, rewards, returns, ends)
    )


def random_graphs(rows: int = 4, longest: int = 9, seed: int = 0) -> Batch[Graphs, Label]:
    """Random edges between random tags, each graph with a class."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, longest + 1, (rows,), generator=dice)
    lengths[0] = longest
    tags = torch.randint(1, 9, (rows, longest, 2), generator=dice)
    tags[torch.arange(longest) >= lengths[:, None]] = 0
    edges = torch.stack([torch.randint(0, int(n), (11, 2), generator=dice) for n in lengths])
    edges[1:2, 7:] = -1
    told = torch.randint(1, 4, (rows, 11, 1), generator=dice)
    told[1:2, 7:] = 0
    distances = torch.randint(-1, 4, (rows, longest, longest), generator=dice)
    read = Graphs(tags, lengths, edges, told, distances=distances)
    return Batch(read, Label(torch.arange(rows) % 5, torch.ones(rows)))


def random_pictures(rows: int = 4, seed: int = 0) -> Batch[Pixels, Label]:
    """Noise of 12 × 12 pixels, each with a class."""
    dice = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, 3, 12, 12, generator=dice)
    return Batch(Pixels(values), Label(torch.arange(rows) % 5, torch.ones(rows)))


def random_stories(rows: int = 4, longest: int = 9, seed: int = 0, size: int = 24):
    """Padded stories of random words."""
    dice = torch.Generator().manual_seed(seed)
    sentences = torch.randint(4, size, (rows, longest, 6), generator=dice)
    counts = torch.randint(1, longest + 1, (rows,), generator=dice)
    counts[0] = longest
    sentences[:, :, 4:] = 0
    sentences[torch.arange(longest) >= counts[:, None]] = 0
    question = torch.randint(4, size, (rows, 5), generator=dice)
    asked = Tokens(question[:, :1], torch.tensor([[0, 1]] * rows))
    return Batch(Story(sentences, counts, question), asked)


def start(model, batch):
    """A state before the first step."""
    if isinstance(batch.asked, Words):
        return model.start(batch)
    return model.start(tokens(batch.read.ids[:, :1], batch.asked.label_range))


def random_pairs(rows: int = 4, longest: int = 9, seed: int = 0, size: int = 24):
    """Padded pairs of random ids."""
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (2, rows), generator=dice)
    lengths[:, 0] = longest
    source = torch.randint(4, size, (rows, longest), generator=dice)
    target = torch.randint(4, size, (rows, longest + 1), generator=dice)
    target[:, 0] = 1
    columns = torch.arange(longest + 1)
    source[columns[:-1] >= lengths[0, :, None]] = 0
    target[columns > lengths[1, :, None]] = 0
    return pairs(source, lengths[0], target, lengths[1])
