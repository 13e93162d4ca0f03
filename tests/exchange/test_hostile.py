"""Folders that ask for more than they hold, or are not what they seem: one line, quickly, and
nothing left of them."""

import json
import os
import resource
import shutil
import struct
import time
import zipfile
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from regard.errors import RegardError, RunError
from regard.exchange.hf import read
from regard.text import Text
from tests.exchange.folders import bert, gpt2, marian, t5

ROOM = 2**31  # bytes that a refusal may ask for


@pytest.fixture
def little_memory():
    """More than a little memory is not to be had, so that a mistake fails and harms nobody."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def edit(folder, **more):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def config(**more):
    return lambda folder: edit(folder, **more)


def written(name, text):
    def change(folder):
        (folder / name).write_text(text)

    return change


def instead(name, make):
    """Something else where a file was."""

    def change(folder):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return change


def linked(name, target):
    return instead(name, lambda path: path.symlink_to(target))


def tokenizer(**more):
    """A tokenizer.json of the folder's own words, changed."""

    def change(folder):
        words = (folder / "vocab.txt").read_text().splitlines()
        whole = {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None, "decoder": None,
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(words)},
            },
        }  # fmt: skip
        for key, value in more.items():
            whole[key] = value(whole[key]) if callable(value) else value
        (folder / "tokenizer.json").write_text(whole if isinstance(whole, str) else dumps(whole))

    return change


def dumps(whole):
    """JSON of any depth: what is nested too deep for Python is written by hand."""
    if isinstance(whole["normalizer"], int):
        depth, whole["normalizer"] = whole["normalizer"], None
        nest = '{"type": "Sequence", "normalizers": [' * depth + "]}" * depth
        return json.dumps(whole).replace('"normalizer": null', f'"normalizer": {nest}')
    return json.dumps(whole)


def numbered(number):
    return tokenizer(model=lambda model: model | {"vocab": model["vocab"] | {"dog": number}})


def weights(change):
    """Other tensors in model.safetensors."""

    def apply(folder):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return apply


def old(change):
    """Other tensors, in pytorch_model.bin."""

    def apply(folder):
        tensors = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        change(tensors)
        torch.save(tensors, folder / "pytorch_model.bin")

    return apply


def expand(tensors):
    tensors["bert.embeddings.word_embeddings.weight"] = torch.zeros(1).expand(10**5, 10**6)


def expand_as_asked(folder):
    """As large as the config says, and still only a number that is repeated."""
    edit(folder, max_position_embeddings=2**20, hidden_size=2**16, num_hidden_layers=1)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    name = "bert.embeddings.position_embeddings.weight"
    tensors[name] = torch.zeros(1).expand(2**20, 2**16)
    torch.save(tensors, folder / "pytorch_model.bin")


def pack(folder):
    """A file that unpacks to a thousand times its size."""
    old(lambda tensors: tensors.update(zeros=torch.zeros(2**25)))(folder)
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as plain:
        parts = {name: plain.read(name) for name in plain.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in parts.items():
            packed.writestr(name, data)


def as_integers(tensors):
    name = "bert.embeddings.word_embeddings.weight"
    tensors[name] = tensors[name].to(torch.int32)


def shards(file):
    def change(folder):
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        index = {"weight_map": {"a": file.format(folder.parent)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return change


def header(shape):
    """A safetensors file whose header says more than the file has."""

    def change(folder):
        count = 4
        for size in shape:
            count *= size
        told = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, count]}}
        said = json.dumps(told).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(said)) + said)

    return change


def unnamed(count):
    """So many classes, none of which has a name."""

    def change(folder):
        edit(folder, num_labels=count, architectures=[CLASSES], id2label=None)

    return change


CLASSES = "BertForSequenceClassification"
DEEP = "[" * 100_000 + "]" * 100_000
CASES = {
    "classes without end": (
        unnamed(10**12),
        "num_labels must be how many classes the tensors have rows for, but is 1000000000000",
    ),
    "classes that are no number": (
        unnamed("many"),
        "num_labels must be how many classes the tensors have rows for, but is 'many'",
    ),
    "a class twice": (
        config(architectures=[CLASSES], id2label={"0": "a", "1": "a"}),
        "id2label must name each class in its own way",
    ),
    "a kind of problem that is a list": (
        config(architectures=[CLASSES], problem_type=["regression"]),
        "problem_type must be None or 'single_label_classification'",
    ),
    "width": (config(hidden_size=20000), "has shape (25, 24) where the model has (25, 20000)"),
    "depth": (config(num_hidden_layers=900), "each of 900 blocks must have tensors, but there are"),
    "depth beyond sense": (config(num_hidden_layers=10**15), "model.depth"),
    "half a block": (config(num_hidden_layers=2.5), "model.depth"),
    "no heads": (config(num_attention_heads=0), "model.heads"),
    "a size that is a list": (config(hidden_size=[24]), "hidden_size must be a number"),
    "a size that is none": (config(hidden_size=float("nan")), "model.width must be a valid"),
    "a vocabulary without end": (config(vocab_size=10**12), "the vocabulary must have as many"),
    "an architecture that is a list": (config(model_type=["bert"]), "the architecture ['bert'] is"),
    "an architecture that is a novel": (config(model_type="x" * 10**6), "xxx… is not known here"),
    "architectures that are a number": (config(architectures=7), "must name one of"),
    "a number too high": (numbered(10**10), "an entry must have a number below"),
    "a number that fits": (numbered(2**32 - 2), "an entry must have a number below"),
    "a negative number": (numbered(-1), "an entry must have a number below"),
    "a number that is a word": (numbered("7"), "an entry must have a number below"),
    "normalisers in normalisers": (tokenizer(normalizer=10_000), "not a readable vocabulary"),
    "normalisers that Python reads": (tokenizer(normalizer=200), "nested more than 100 deep"),
    "no model": (tokenizer(model=None), "not a readable vocabulary"),
    "an added entry far out": (
        tokenizer(added_tokens=[{"id": 2**31, "content": "x", "special": True}]),
        "an entry must have a number below",
    ),
    "a special that is not there": (
        tokenizer(post_processor={
            "type": "TemplateProcessing", "pair": [], "special_tokens": {},
            "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}],
        }),
        "not a readable vocabulary",
    ),
    "a special beyond the vocabulary": (
        tokenizer(post_processor={
            "type": "BertProcessing", "sep": ["[SEP]", 10**6], "cls": ["[CLS]", 2],
        }),
        "an entry must have a number below",
    ),
    "a tokenizer that is a list": (written("tokenizer.json", "[1]"), "not a readable vocabulary"),
    "an expanded tensor": (old(expand), "the tensors must lie in their files"),
    "an expanded tensor, as asked": (expand_as_asked, "the tensors must lie in their files"),
    "a packed file": (pack, "it is packed to be larger than it is"),
    "a tensor of nothing": (
        old(lambda tensors: tensors.update(a=torch.empty(10**6, 10**6, device="meta"))),
        "the tensors must lie in their files",
    ),
    "a sparse tensor": (
        old(lambda tensors: tensors.update(a=torch.zeros(3, 3).to_sparse())),
        "it must hold named tensors and nothing else",
    ),
    "a header that lies": (header([10**6, 10**6]), "not a whole safetensors file"),
    "integers": (weights(as_integers), "is in int32, a form for counting; only float64, float32"),
    "config: a list": (written("config.json", "[1]"), "there must be one JSON object"),
    "config: a text": (written("config.json", '"bert"'), "there must be one JSON object"),
    "config: a number": (written("config.json", "7"), "there must be one JSON object"),
    "config: too deep": (written("config.json", DEEP), "not readable JSON"),
    "config: no text": (
        lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "not readable JSON"
    ),
    "config: a number of many digits": (
        written("config.json", '{"hidden_size": ' + "9" * 10_000 + "}"), "not readable JSON"
    ),
    "config: a folder": (instead("config.json", Path.mkdir), "there must be a plain file"),
    "config: a pipe": (instead("config.json", os.mkfifo), "there must be a plain file"),
    "config: a device": (linked("config.json", "/dev/zero"), "a link must stay in its folder"),
    "config: a link out": (linked("config.json", "/etc/hostname"), "a link must stay in its"),
    "config: a link to itself": (linked("config.json", "config.json"), "a link must lead to a"),
    "weights: a pipe": (instead("model.safetensors", os.mkfifo), "there must be a plain file"),
    "weights: a link out": (
        lambda folder: (
            (folder / "model.safetensors").rename(folder.parent / "far.safetensors"),
            linked("model.safetensors", "../far.safetensors")(folder),
        ),
        "a link must stay in its folder",
    ),
    "vocabulary: a pipe": (instead("vocab.txt", os.mkfifo), "there must be a plain file"),
    "shards outside": (shards("../outside.safetensors"), "a shard must lie in the folder itself"),
    "shards anywhere": (shards("{}/outside.safetensors"), "a shard must lie in the folder itself"),
    "shards nowhere": (shards(".."), "a file that it names must lie in it"),
    "shards that are no text": (
        lambda folder: (
            (folder / "model.safetensors").unlink(),
            (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": 7}}'),
        ),
        "'weight_map' must say which file each tensor is in",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "in"
    bert(folder)
    return folder


def refused(folder, run, wanted):
    began = time.perf_counter()
    with pytest.raises(RegardError) as told:
        read(folder, run)
    assert time.perf_counter() - began < 2
    assert wanted in str(told.value), str(told.value)
    assert "\n" not in str(told.value) and len(str(told.value)) < 1000
    assert not run.exists()


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_folder(name, sound, tmp_path, little_memory):
    change, wanted = CASES[name]
    shutil.copytree(sound, tmp_path / "in")
    change(tmp_path / "in")
    refused(tmp_path / "in", tmp_path / "run", wanted)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("../../etc", "a file that it names must lie in it"),
        ("/etc", "a file that it names must lie in it"),
        (7, "not a readable list of modules"),
        (None, "not a readable list of modules"),
    ],
)
def test_modules_stay_in_their_folder(path, wanted, tmp_path):
    bert(tmp_path / "in", hf.BertModel)
    modules = [{"type": "sentence_transformers.models.Pooling", "path": path}]
    (tmp_path / "in/modules.json").write_text(json.dumps(modules))
    refused(tmp_path / "in", tmp_path / "run", wanted)


def test_numbers_of_two_files(tmp_path, little_memory):
    for make in (gpt2, marian):
        folder = tmp_path / make.__name__
        make(folder)
        ids = json.loads((folder / "vocab.json").read_text())
        ids[next(iter(ids))] = 10**10
        (folder / "vocab.json").write_text(json.dumps(ids))
        refused(folder, tmp_path / "run", "an entry must have a number below")


def test_a_run_folder_that_was_there_and_empty_stays_so(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "in")
    edit(tmp_path / "in", hidden_size=48)
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError):
        read(tmp_path / "in", tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())


def test_what_cannot_be_written_is_taken_away(tmp_path):
    """A name that is no text is found out late."""
    names = {"0": "a", "1": "\ud800"}
    bert(tmp_path / "in", hf.BertForSequenceClassification)
    edit(tmp_path / "in", id2label=names)
    refused(tmp_path / "in", tmp_path / "run", "the run could not be written")


def test_a_file_where_the_run_is_to_be(sound, tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(RunError, match="a run needs a folder of its own"):
        read(sound, tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


def test_their_cache_is_made_of_links(sound, tmp_path):
    """A snapshot's files are links into the blobs beside it."""
    home = tmp_path / "hub/models--a--b"
    (home / "snapshots/123").mkdir(parents=True)
    (home / "blobs").mkdir()
    for path in sound.iterdir():
        shutil.copy(path, home / "blobs" / f"of-{path.name}")
        (home / "snapshots/123" / path.name).symlink_to(f"../../blobs/of-{path.name}")
    read(home / "snapshots/123", tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").is_file()


def test_a_tied_output_may_be_said_twice_and_in_two_ways(tmp_path):
    """Shapes alone do not tell; what is read then does."""
    t5(tmp_path / "in")
    path = tmp_path / "in/model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["shared.weight"].clone()
    save_file(tensors, path)
    read(tmp_path / "in", tmp_path / "same")
    assert "output.weight" not in load_file(tmp_path / "same/model.safetensors")
    tensors["lm_head.weight"] += 1
    save_file(tensors, path)
    read(tmp_path / "in", tmp_path / "other")
    assert "output.weight" in load_file(tmp_path / "other/model.safetensors")


def test_a_vocabulary_of_a_run_that_breaks_the_library(tmp_path, sound, little_memory):
    read(sound, tmp_path / "run")
    path = tmp_path / "run/tokenizer.json"
    whole = json.loads(path.read_text())
    broken = {
        "deep": dumps(whole | {"normalizer": 10_000}),
        "far": json.dumps(whole | {"model": whole["model"] | {
            "vocab": whole["model"]["vocab"] | {"dog": 2**32 - 2}
        }}),
        "torn": path.read_text()[:200],
        "empty": "",
        "other": "7",
    }  # fmt: skip
    for said in broken.values():
        path.write_text(said)
        with pytest.raises(RunError, match="not a readable tokenizer file") as told:
            Text.load(path)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "rules",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {"post_processor": {
            "type": "TemplateProcessing", "pair": [], "special_tokens": {},
            "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}],
        }},
    ],
)  # fmt: skip
def test_a_panic_of_the_library_is_told(rules, tmp_path, sound):
    """Where it gives itself up, when it reads its file or when a text is first framed."""
    read(sound, tmp_path / "run")
    path = tmp_path / "run/tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | rules))
    with pytest.raises(RunError, match="not a readable tokenizer file") as told:
        Text.load(path)
    assert type(told.value.__cause__).__name__ == "PanicException"
    shutil.copytree(sound, tmp_path / "in")
    shutil.copy(path, tmp_path / "in")
    refused(tmp_path / "in", tmp_path / "again", "not a readable vocabulary")
