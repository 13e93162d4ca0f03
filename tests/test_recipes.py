"""Every shipped recipe is complete, says what it is for, and runs for two steps."""

import asyncio
import base64
import gzip
import io
import json
import re
import struct
import tarfile
import tomllib
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

import regard
from regard import config
from regard.corpora.stories import generate
from regard.data.read import lines, whole_lines
from regard.serve import look, schema
from regard.serve.completion import Completing
from regard.serve.limits import ServerLimits
from regard.serve.metrics import Metrics
from regard.serve.served import ServedRun
from regard.training.recipe import read
from tests.toys import sentences, translate

NAMES = config.names()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_strictly_and_says_what_it_is(name):
    recipe = read(name)
    first, second = config.find(name).read_text(encoding="utf-8").splitlines()[:2]
    assert first.startswith("# ") and len(first) <= 100
    assert re.match(r"# .*\d+.* (BLEU|steps)", second), "line 2: what it reaches, where, how long"
    assert recipe.name == name


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_whole_can_be_read_back(name, tmp_path):
    recipe = read(name)
    path = tmp_path / f"{name}.toml"
    path.write_text(config.write(recipe.rows("comment")), encoding="utf-8")
    again = read(str(path))
    assert again.rows("comment") == recipe.rows("comment")
    assert tomllib.loads(path.read_text(encoding="utf-8"))["train"]["steps"] == recipe.train.steps


def shrunk(name, folder):
    """What makes two quick steps of a recipe; the files that it needs are written."""
    recipe = read(name)
    overrides = ["train.steps=2", "train.device=cpu", "train.evaluate_examples=2"]
    overrides += ["decode.max_new_tokens=16", "train.accumulate=1"]
    overrides += ["model.from="] if recipe.model_from else []
    if "corpora" not in recipe.data.root or recipe.task_kind == "translate":  # the walk reads it
        overrides += [f"data.root={folder}", *WRITE[recipe.task_kind](recipe, folder)]
    overrides += ["model.width=32"] if hasattr(recipe.model, "width") else []
    overrides += ["model.hidden=32"] if hasattr(recipe.model, "hidden") else []
    overrides += ["model.heads=4"] if hasattr(recipe.model, "heads") else []
    overrides += ["model.depth=2"] if recipe.model_kind == "gpt" else []
    overrides += ["data.test="] if recipe.task_kind == "text-to-text" else []
    if recipe.train.teacher:
        more = [o.replace("depth=2", "depth=4") for o in overrides]
        regard.train("lm-shakespeare", *more, "data.valid=", "data.test=", run=folder / "teacher")
        overrides += [f"train.teacher={folder / 'teacher'}"]
    if recipe.train.encoder:
        eye = [f"data.root={folder / 'eye'}", *write_pictures(read("eye-cifar10"), folder / "eye")]
        eye += [o for o in overrides if o.startswith(("train.steps", "train.device", "model."))]
        regard.train("eye-cifar10", *eye, "data.test=", run=folder / "eye-run")
        overrides += [f"train.encoder={folder / 'eye-run'}"]
    return overrides


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_for_two_steps(name, tmp_path):
    """On its own data where they are shipped; else on toy files; always with a smaller model."""
    recipe, overrides = read(name), shrunk(name, tmp_path)
    run = regard.train(name, *overrides, run=tmp_path / "run")
    asked = ASKED.get(recipe.task_kind, "two")
    if run.task.gives.kind == "picture":
        asked = str(tmp_path / "asked.png")
        Image.new("RGB", (20, 10), "red").save(asked)
    elif run.task.gives.kind == "sound":
        asked = str(tmp_path / "asked.wav")
        soundfile.write(asked, tone(3), 8000)
    elif run.task.gives.kind == "history":
        asked = run.task.example(run.examples("test"))
    asked += "\ttwo cats" if getattr(recipe.task, "pair", "") else ""
    assert run.predict([asked])[0].input == asked
    assert (Path(run.folder) / "results.json").is_file()
    asyncio.run(is_served(run, asked))


async def is_served(run, asked):
    """Whatever `predict` answers, a server answers too, and the same."""
    hosted = ServedRun(run, ServerLimits())
    try:
        sent = asked
        if run.task.gives.from_file:
            content = base64.b64encode(Path(asked).read_bytes()).decode()
            name = "image" if run.task.gives.kind == "picture" else "audio"
            sent = {name: f"data:{name}/file;base64,{content}"}
        fixed = {"seed": 3, "kind": "sample"} if run.recipe.decode.kind == "sample" else {}
        (told,) = await hosted.predict([sent], fixed)
        own = regard.load(run.folder, *(f"decode.{k}={v}" for k, v in fixed.items()))
        assert told["output"] == own.predict([asked])[0].output
        if run.task.gives.kind == "pair":  # two texts may come apart too
            (again,) = await hosted.predict([asked.split("\t")], fixed)
            assert (again["input"], again["output"]) == (asked, told["output"])
        if hosted.writes and sent is asked:
            said = schema.Completion(prompt=asked, max_tokens=5, seed=3 if fixed else None)
            whole = await Completing(hosted, said, ServerLimits(), Metrics()).whole()
            assert whole["choices"][0]["finish_reason"] in ("stop", "length")
        if run.model.looks:
            looked = schema.Attention(input=sent, parameters=fixed)
            assert (await look.into(hosted, looked, ServerLimits()))["looks"]
    finally:
        hosted.close(1)


ASKED = {
    "story": "Ada ran. Where is Ada?",
    "answer": "How many?\tThere are two cats.",
    "masked": "two <mask> cats",
    "graph": json.dumps({"nodes": ["0", "1", "0"], "edges": [[0, 1], [1, 2]]}),
    "node": "3",
}


def put(path, text):
    raw = text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_pairs(recipe, folder):
    for part, count in (("train", 400), ("valid", 10), ("test", 10)):
        for file, say in zip(getattr(recipe.data, part), (str, translate), strict=True):
            put(folder / file, "".join(f"{say(line)}\n" for line in sentences(count)))
    return ["text.size=60", "text.bytes=false", "train.batch_tokens=256"]


def write_text(recipe, folder):
    for part, count in (("train", 1500), ("valid", 60), ("test", 60)):
        if named := getattr(recipe.data, part):
            file = folder / named
            file = file if "." in named else file / "a.txt"
            put(file, "".join(f"{line}\n" for line in sentences(count)))
    size = ["text.size=300"] if recipe.sections["text"].kind == "byte-bpe" else []
    context = min(recipe.task.context, 64)
    return [*size, f"task.context={context}", f"train.batch_tokens={4 * context}"]


def write_stories(recipe, folder):
    for part in ("train", "test"):
        put(
            folder / getattr(recipe.data, part).replace("*", "a"),
            generate.text("one-fact", "valid"),
        )
    return ["train.batch_tokens=8"]


def write_labelled(recipe, folder):
    """The columns that the recipe names, in a table with a header or without."""
    s = recipe.task
    names, named = [s.text, *([s.pair] if s.pair else []), s.label], []
    parts = [("train", 60), ("valid", 8), *([("test", 8)] if recipe.data.test else [])]
    for part, count in parts:
        rows = []
        for i, line in enumerate(sentences(count)):
            label = f"{i % 5}.0" if s.predicts == "number" else str(i % 2)
            label = "entailment" if s.positive and i % 2 else label
            cells = dict(zip(names, [line, *([line[::-1]] if s.pair else []), label], strict=True))
            if names[0].isdecimal():
                rows.append([cells.get(str(c + 1), "") for c in range(max(map(int, names)))])
            else:
                rows.append([cells[name] for name in names])
        header = [] if names[0].isdecimal() else [names]
        # A file named without a folder is relative to where the test runs.
        file = folder / Path(getattr(recipe.data, part)).name
        between = "," if file.suffix == ".csv" else "\t"
        put(file, "".join(between.join(row) + "\n" for row in [*header, *rows]))
        named.append(f"data.{part}={file.name}")
    return ["text.size=60", "train.batch_tokens=256", *named]


def write_tags(recipe, folder):
    for part, count in (("train", 60), ("valid", 8)):
        rows = ("\n".join(f"{w} x O I-{w[0]}" for w in line.split()) for line in sentences(count))
        put(folder / getattr(recipe.data, part), "\n\n".join(rows) + "\n")
    return ["text.size=60", "train.batch_tokens=256"]


def write_questions(recipe, folder):
    asked = []
    for i, line in enumerate(sentences(20)):
        answer = {"text": line.split()[0], "answer_start": 0}
        asked.append({"id": str(i), "question": "how many?", "answers": [answer]})
    told = [{"context": line, "qas": [q]} for line, q in zip(sentences(20), asked, strict=True)]
    named = recipe.data
    for file in [*named.train, named.valid]:
        put(folder / file, json.dumps({"data": [{"paragraphs": told}]}))
    return ["text.size=50", "task.context=48", "task.stride=16", "train.batch_tokens=256"]


def write_documents(recipe, folder):
    for part, count in (("train", 1500), ("valid", 60)):
        rows = (f"{line} .\n" + "\n = A title = \n" * (i % 9 == 0)
                for i, line in enumerate(sentences(count)))  # fmt: skip
        put(folder / getattr(recipe.data, part), "".join(rows))
    size = 125 if recipe.task_kind == "spans" else 60
    return [f"text.size={size}", "text.bytes=false", "task.context=32", "train.batch_tokens=128"]


def write_pictures(recipe, folder):
    """Red and green pictures, as a tar of classes or as MNIST has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        named = getattr(recipe.data, part)
        made = [(red_or_green(i, recipe.sections["picture"]), i % 2) for i in range(24)]
        if isinstance(named, str):
            with tarfile.open(folder / named, "w:gz") as tar:
                for number, (pixels, label) in enumerate(made):
                    add_picture(tar, f"{part}/{('red', 'green')[label]}/{number}.png", pixels)
            continue
        images = np.stack([pixels[0] for pixels, _ in made])
        labels = np.array([label for _, label in made], np.uint8)
        for name, array in zip(named, (images, labels), strict=True):
            head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
            (folder / name).write_bytes(gzip.compress(head + array.tobytes()))
    return ["train.batch_tokens=1024"]


def write_captions(recipe, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        table, packed = getattr(recipe.data, part)
        rows = []
        with tarfile.open(folder / packed, "w:gz") as tar:
            for i in range(12):
                add_picture(tar, f"{part}/{i}.png", red_or_green(i, recipe.sections["picture"]))
                what = ("red", "green")[i % 2]
                rows += [f"{i}.png\t{n}\tA {what} picture {n} ." for n in range(2)]
        put(folder / table, "".join(f"{row}\n" for row in rows))
    return ["text.size=60", "train.batch_tokens=640"]


def red_or_green(number, picture):
    shape = (picture.channels, picture.size, picture.size)
    pixels = np.random.default_rng(number).integers(0, 90, shape, np.uint8)
    pixels[number % 2 if picture.channels == 3 else 0] += 120 if number % 2 else 30
    return pixels


def add_picture(tar, name, pixels):
    file = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(file, "PNG")
    about = tarfile.TarInfo(name)
    about.size = file.tell()
    file.seek(0)
    tar.addfile(about, file)


def tone(number):
    """A third of a second, higher with every number."""
    return (0.3 * np.sin(np.arange(2700) * (0.2 + 0.15 * number))).astype(np.float32)


def write_sounds(recipe, folder):
    """Tones, in a tar with a table inside."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{recipe.task.audio}\t{recipe.task.speaker}\t{recipe.task.text}"]
    for part in ("train", "test"):
        with tarfile.open(folder / getattr(recipe.data, part), "w:xz") as tar:
            rows = [f"{part}/{i}.wav\tsomebody\tTONE {'ABCD'[i % 4]} UP" for i in range(12)]
            files = [(f"{part}/{part}.tsv", "".join(f"{row}\n" for row in names + rows).encode())]
            for i in range(12):
                file = io.BytesIO()
                soundfile.write(file, tone(i % 4), 8000, format="WAV")
                files.append((f"{part}/{i}.wav", file.getvalue()))
            for name, content in files:
                about = tarfile.TarInfo(name)
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
    return ["train.batch_tokens=160", "text.size=40"]


def write_histories(recipe, folder):
    """Stays of a few states each, in which anything may be done."""
    dice = np.random.default_rng(0)
    for name in (recipe.data.train, recipe.data.valid, recipe.data.test):
        rows = ["episode,step,state,action,reward,probability"]
        for number in range(30):
            steps = int(dice.integers(1, 6))
            for step in range(steps):
                state, action, lives = dice.integers(4), dice.integers(3), int(step == steps - 1)
                rows.append(f"{number},{step},{state},{action},{lives},0.333")
        put(folder / name, "".join(f"{row}\n" for row in rows))
    return []


def write_graphs(recipe, folder):
    """Chains and rings in whichever format the recipe names, all parts in one file."""
    named = recipe.data.train
    if named.endswith(".txt.gz"):
        rows = []
        for number in range(24):
            size = 4 + number % 3
            around = [[(i - 1) % size, (i + 1) % size] for i in range(size)]
            rows += [f"{size} {number % 2}", *(f"{number % 2} 2 {a} {b}" for a, b in around)]
        put(folder / named, "".join(f"{row}\n" for row in ["24", *rows]))
    else:
        head = f"id,smiles,{recipe.task.label},split"
        parts = ("train", "train", "val", "test")
        rows = [f"{n},C{'C' * (n % 5)}O,{n % 5}.5,{parts[n % 4]}" for n in range(24)]
        put(folder / named, "".join(f"{row}\n" for row in [head, *rows]))
    return ["train.batch_tokens=64"]


def write_nodes(recipe, folder):
    nodes, edges = recipe.data.train
    parts = ("train", "val", "test", "none")
    rows = [f"{n}\t{n % 2}\t{parts[n // 2 % 4]}\t{n % 2} {n % 7}" for n in range(40)]
    put(folder / nodes, "".join(f"{row}\n" for row in ["node\tlabel\tsplit\tword_ids", *rows]))
    put(folder / edges, "".join(f"{n}\t{(n + 2) % 40}\n" for n in range(40)))
    return []


WRITE = {
    "speech": write_sounds,
    "graph": write_graphs,
    "decide": write_histories,
    "node": write_nodes,
    "picture": write_pictures,
    "patches": write_pictures,
    "caption": write_captions,
    "classify": write_labelled,
    "tag": write_tags,
    "answer": write_questions,
    "masked": write_documents,
    "spans": write_documents,
    "translate": write_pairs,
    "language": write_text,
    "permute": write_text,
    "story": write_stories,
}


def test_the_shipped_text_is_whole():
    folder = Path(regard.__file__).parent / "corpora/shakespeare"
    train, valid = ("".join(whole_lines(folder / f"{p}.txt.gz")) for p in ("train", "valid"))
    assert len(train) + len(valid) == 1_115_394 and len(train) == 1_115_394 * 9 // 10
    assert "Public domain" in (folder / "README.md").read_text(encoding="utf-8")


def test_the_shipped_corpus_is_small_and_credited():
    folder = Path(regard.__file__).parent / "corpora"
    pairs = folder / "tatoeba-en-fr"
    assert sum(path.stat().st_size for path in pairs.rglob("*.gz")) <= 1_500_000
    assert "CC BY 2.0 FR" in (folder / "tatoeba-en-fr/README.md").read_text(encoding="utf-8")
    parts = {}
    for part in ("train", "valid", "test"):
        english, french = (
            list(lines(folder / f"tatoeba-en-fr/{part}.{side}.gz")) for side in ("en", "fr")
        )
        assert len(english) == len(french)
        parts[part] = set(english)
    assert not parts["train"] & parts["test"] and not parts["train"] & parts["valid"]
    assert not parts["valid"] & parts["test"]
