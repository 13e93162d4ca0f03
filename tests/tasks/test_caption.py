"""Captions: readers, drawn captions, scores, the shuffled control."""

import gzip
import io
import json
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.batch import Batch, Pixels, Sizes, Words
from regard.data.draws import Draws
from regard.data.pictures import read_captions
from regard.data.read import Faults
from regard.errors import DataError, RecipeError, RunError
from regard.models.seq2seq import Seq2Seq, Seq2SeqSettings
from regard.score.bleu import several_references
from regard.score.cider import cider
from tests.data.test_pictures import content, picture
from tests.tasks.test_pictures import RECIPE as CLASSES
from tests.tasks.test_pictures import write_set as write_classes

SAID = {c: [f"a {c} square on noise", f"something {c} can be seen"] for c in ("red", "green")}


def write_set(folder, count=16):
    rows = []
    for number in range(count):
        name = ("red", "green")[number % 2]
        pixels = np.random.default_rng(number).integers(0, 90, (12, 12, 3), np.uint8)
        pixels[:, :, number % 2] += 140
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
        rows.append({"image": f"{number:02}.png", "caption": SAID[name]})
    (folder / "set.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


RECIPE = """
[task]
kind = "caption"
[picture]
size = 12
patch = 4
[text]
kind = "words"
size = 60
[data]
train = "set.jsonl"
valid = "set.jsonl"
[model]
kind = "seq2seq"
reader = "none"
score = "additive"
width = 32
hidden = 32
dropout = 0.0
doubly = 0.5
[train]
steps = 150
batch_tokens = 200
rate = 0.01
warmup = 5
smoothing = 0.0
evaluate_every = 75
evaluate_examples = 8
device = "cpu"
[decode]
num_beams = 2
max_new_tokens = 8
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    write_set(folder)
    (folder / "p.toml").write_text(RECIPE)
    return regard.train(str(folder / "p.toml"), run=folder / "run")


def test_it_learns_and_is_better_than_with_other_pictures(run):
    results = json.loads((run.folder / "results.json").read_text())["valid"]
    assert results["bleu"] > 90 > results["bleu_shuffled"]
    assert results["bleu_signature"].startswith("nrefs:2|") and results["cider"] > 0
    card = (run.folder / "README.md").read_text()
    assert "in “00.png”, of which it says “" in card and "attention.png" in card
    folder = run.folder.parent
    for number in (0, 1):
        (answer,) = run.predict([str(folder / f"{number:02}.png")])
        assert answer.output in SAID[("red", "green")[number]]
    report = run.see(str(folder / "01.png"))
    (look,) = report.looks
    assert look.columns[:2] == ["1,1", "1,2"] and look.column_shape == (3, 3)
    assert look.rows[-1] == "<eos>" and report.picture.startswith(b"\x89PNG")


def test_each_epoch_draws_one_of_a_pictures_captions(run):
    store, rows = run.data("train").store, np.arange(16)
    seen = set()
    for step in range(12):
        whole = run.task.batch(store, rows, Draws(0, step, range(16)))
        part = run.task.batch(store, rows[3:7], Draws(0, step, range(3, 7)))
        width = part.asked.labels.shape[1]
        assert torch.equal(part.asked.labels, whole.asked.labels[3:7, :width])
        seen.add(tuple(whole.asked.labels[0].tolist()))
    assert len(seen) == 2
    batches = list(run.task.evaluation_batches(store, 100))
    assert sum(map(len, batches)) == 32  # every caption once


def test_captions_stand_in_rows_lists_and_tars(tmp_path):
    write_set(tmp_path, 3)
    lists = list(read_captions([tmp_path / "set.jsonl"], "image", "caption", Faults()))
    assert [one.captions for one in lists] == [SAID["red"], SAID["green"], SAID["red"]]
    table = "".join(
        f"{one.name}\t{n}\t{text}\n" for one in lists for n, text in enumerate(one.captions)
    )
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(table.encode()))
    rows = list(read_captions([tmp_path / "t.tsv.gz"], "1", "3", Faults()))
    assert [row[:3] for row in rows] == [one[:3] for one in lists]
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as tar:
        for one in lists:
            about = tarfile.TarInfo(f"deep/{one.name}")
            about.size = len(one.content)
            tar.addfile(about, io.BytesIO(one.content))
    both = [tmp_path / "t.tsv.gz", tmp_path / "p.tar.gz"]
    packed = list(read_captions(both, "1", "3", Faults()))
    assert [row[:3] for row in packed] == [one[:3] for one in lists]


def test_what_cannot_be_is_told(tmp_path):
    (tmp_path / "a.png").write_bytes(content(picture()))
    with pytest.raises(DataError, match="captions must be in a .tsv, .csv or .jsonl file"):
        list(read_captions([tmp_path / "a.png"], "image", "caption", Faults()))
    (tmp_path / "t.jsonl").write_text('{"image": "b.png", "caption": "a b"}\n')
    with pytest.raises(DataError, match=r"b.png: the picture cannot be read \(No such file"):
        list(read_captions([tmp_path / "t.jsonl"], "image", "caption", Faults()))
    (tmp_path / "u.jsonl").write_text('{"image": "a.png", "caption": [1]}\n')
    with pytest.raises(DataError, match="u.jsonl:1: there must be a picture's name and texts"):
        list(read_captions([tmp_path / "u.jsonl"], "image", "caption", Faults()))
    write_set(tmp_path)
    (tmp_path / "p.toml").write_text(RECIPE.replace("patch = 4", "patch = 4\nmixup = 1.0"))
    with pytest.raises(RecipeError, match="captions have none"):
        regard.train(str(tmp_path / "p.toml"), run=tmp_path / "run")


def test_bleu_of_several_references_is_sacrebleus():
    outputs = ["A dog runs .", "two cats sit on a mat"]
    references = [["a dog runs .", "the dog is running ."], ["two cats sit on the mat"]]
    assert several_references(outputs, references, False)["bleu"] > 60
    exact = several_references(["a dog runs today ."], [["no .", "A dog runs today ."]], False)
    assert exact["bleu"] == 100.0


def test_cider_of_a_worked_example():
    """Two pictures, one reference each: what both have weighs nothing, log(2/2) = 0."""
    references = [["a red dog"], ["a blue cat"]]
    # The right words in the right order: cosine 1 for one to three words; none has four.
    assert cider(["a red dog", "a blue cat"], references) == pytest.approx(10 * 3 / 4)
    assert cider(["a blue cat", "a red dog"], references) == pytest.approx(0.0)
    # One word of two that count: cosine 1/√2 of single words, 1/√2 of pairs ("a red", not "red
    # dog"), none of three words.
    half = cider(["a red cow", "a blue cat"], references)
    one = (2**-0.5 * 2**-0.5 * 2**0.5 / 2**0.5 + 0.5) / 4
    assert half == pytest.approx(10 * (one + 3 / 4) / 2, rel=0.02)
    longer = cider(["a red dog and then some more words", "a blue cat"], references)
    assert longer < cider(["a red dog then", "a blue cat"], references)


def test_looking_everywhere_once_costs_nothing():
    sizes = Sizes(0, 30, False, 0, Pixels, Words, (3, 4, 4), (2, 2))
    settings = Seq2SeqSettings(width=16, hidden=16, reader="none", doubly=2.0)
    model = Seq2Seq(sizes, settings).train()
    asked = Words(torch.ones(2, 6).long(), torch.tensor([4, 2]))
    weights = torch.full((2, 1, 5, 4), 0.25)  # four words look evenly at four places
    # The first row has looked at each place once in all; the second half as often.
    found = model.once_in_all(weights, asked)
    assert float(found) == pytest.approx(2.0 * 4 * 0.5**2 / 6)
    batch = Batch(Pixels(torch.randn(2, 3, 8, 8)), asked)
    assert model.states(batch).penalty > 0
    assert model.eval().states(batch).penalty is None


@pytest.mark.parametrize(("kind", "frozen"), [("seq2seq", True), ("transformer", False)])
def test_an_encoder_learned_of_classes_reads_for_captions(kind, frozen, tmp_path):
    write_classes(tmp_path / "set")
    (tmp_path / "p.toml").write_text(CLASSES.replace("size = 8", "size = 12"))
    more = ("train.steps=2", "train.warmup=0", "model.width=32")
    first = regard.train(str(tmp_path / "p.toml"), *more, run=tmp_path / "first")
    write_set(tmp_path)
    text = RECIPE
    if kind == "transformer":
        i, j = text.index("[model]"), text.index("[train]")
        shape = (
            'width = 32\ndepth = 1\nheads = 2\nhidden = 128\nresidual = "pre"\nfeedforward = "gelu"'
        )
        text = f'{text[:i]}[model]\nkind = "transformer"\n{shape}\n{text[j:]}'
    (tmp_path / "q.toml").write_text(text)
    more = ("train.steps=3", "train.warmup=0", f"train.encoder={tmp_path / 'first'}",
            f"train.freeze_encoder={str(frozen).lower()}", "train.rate=1e-9")  # fmt: skip
    if frozen:
        more = (*more[:-1], "train.rate=0.01")
    second = regard.train(str(tmp_path / "q.toml"), *more, run=tmp_path / "second")
    old, new = (dict(run.model.named_parameters()) for run in (first, second))
    torch.testing.assert_close(new["source.cut.weight"], old["embedding.cut.weight"])
    if kind == "transformer":
        name = "0.attention.query.weight"
        torch.testing.assert_close(new[f"encoder.{name}"], old[f"blocks.{name}"])
    with pytest.raises(RunError, match="nothing of it fits"):
        other = (
            "model.width=16",
            "model.hidden=16",
            "train.steps=1",
            f"train.encoder={tmp_path / 'first'}",
        )
        regard.train(str(tmp_path / "q.toml"), *other, run=tmp_path / "third")
