"""One contract for every task with every model that suits it: from files to a served answer."""

import asyncio
import base64
import json
import random
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image

import regard
from regard.batch import Asked, Sizes, Tensors
from regard.data.draws import Draws
from regard.data.read import Faults
from regard.model import Model, Writes, WritesOn
from regard.models import MODELS
from regard.serve.limits import ServerLimits
from regard.serve.served import ServedRun
from regard.tasks import TASKS, Prediction, Task
from regard.tasks import task as capabilities
from regard.training.loss import LOSSES
from regard.training.recipe import read, suits
from tests.toys import SMALL, sentences, translate


def lines(rows):
    return "".join(f"{row}\n" for row in rows)


def pairs(folder, part, seed):
    rows = [{"source": s, "target": translate(s)} for s in sentences(30, seed)]
    (folder / f"{part}.jsonl").write_text(lines(map(json.dumps, rows)))


def text(folder, part, seed):
    some = [f"{s[0].upper()}{s[1:]}." for s in sentences(90, seed)]
    texts = [" ".join(some[i : i + 3]) for i in range(0, 90, 3)]
    (folder / f"{part}.txt").write_text("\n\n".join(texts) + "\n")


def conversations(folder, part, seed):
    rows = [{"instruction": s, "response": translate(s)} for s in sentences(30, seed, 2)]
    (folder / f"{part}.jsonl").write_text(lines(map(json.dumps, rows)))


def labelled(folder, part, seed):
    said = sentences(40, seed)
    rows = [f"{s}\t{'colour' if 'red' in s or 'green' in s else 'none'}" for s in said]
    (folder / f"{part}.tsv").write_text(lines(["text\tlabel", *rows]))


def tagged(folder, part, seed):
    said = [s.split() for s in sentences(30, seed)]
    rows = [lines(f"{w} {'B-N' if w == 'cats' else 'O'}" for w in words) for words in said]
    (folder / f"{part}.txt").write_text("\n".join(rows))


def asked(folder, part, seed):
    paragraphs = []
    for number, sentence in enumerate(sentences(20, seed)):
        word = sentence.split()[-1]
        answer = {"text": word, "answer_start": sentence.rindex(word)}
        question = {"id": f"{number}", "question": "What is last?", "answers": [answer]}
        paragraphs.append({"context": sentence, "qas": [question]})
    (folder / f"{part}.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


def stories(folder, part, seed):
    rows = []
    for place in ("garden", "kitchen", "office") * 4:
        rows += ["1 Mary went to the hall.", f"2 Mary went to the {place}."]
        rows += [f"3 Where is Mary?\t{place}\t2"]
    (folder / f"{part}_{seed}.txt").write_text(lines(rows))
    return f"{part}_{seed}.txt"


def pictures(folder, part, seed):
    """Red and green squares on noise."""
    dice = np.random.default_rng(seed)
    for number in range(24):
        name = ("red", "green")[number % 2]
        pixels = dice.integers(0, 90, (9, 11, 3), np.uint8)
        pixels[2:6, 3:7, number % 2] = 250
        path = folder / part / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


def captions(folder, part, seed):
    """The same, of which something is said."""
    pictures(folder, part, seed)
    said = {"red": ["a red square", "red on noise"], "green": ["a green square", "green on noise"]}
    found = sorted((folder / part).rglob("*.png"))
    rows = [{"image": str(p.relative_to(folder)), "caption": said[p.parent.name]} for p in found]
    (folder / f"{part}.jsonl").write_text(lines(map(json.dumps, rows)))


def graphs(folder, part, seed):
    """Rings and chains, with tags and numbers on nodes and edges."""
    dice, rows = random.Random(seed), []
    for number in range(24):
        count = dice.randrange(3, 7)
        nodes = [[dice.choice("abc"), dice.random()] for _ in range(count)]
        edges = [[i, i + 1, dice.choice("xy")] for i in range(count - 1)]
        edges += [[count - 1, 0, "x"]] if number % 2 else []
        rows.append({"nodes": nodes, "edges": edges, "label": ("chain", "ring")[number % 2]})
    (folder / f"{part}.jsonl").write_text(lines(map(json.dumps, rows)))


def nodes(folder, part, seed):
    """The same, of whose nodes the first letter is asked."""
    graphs(folder, part, seed)
    path = folder / f"{part}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["label"] = ["first" if node[0] == "a" else "other" for node in row["nodes"]]
    path.write_text(lines(map(json.dumps, rows)))


def histories(folder, part, seed):
    """Wards in which one of two things helps."""
    dice, rows = random.Random(seed), ["episode,step,ward,action,reward,probability"]
    for number in range(24):
        for step in range(dice.randrange(1, 5)):
            ward, action = dice.choice(["north", "south"]), dice.choice(["give", "wait"])
            helped = int((ward == "north") == (action == "give"))
            rows.append(f"{number},{step},{ward},{action},{helped},0.5")
    (folder / f"{part}.csv").write_text(lines(rows))


def sounds(folder, part, seed):
    """High and low tones, one after the other."""
    dice, rows = np.random.default_rng(seed), ["audio\ttext\tspeaker"]
    (folder / part).mkdir()
    for number in range(24):
        names = dice.choice(["high", "low"], dice.integers(1, 4))
        hertz = np.repeat([900 if name == "high" else 300 for name in names], 800)
        wave = np.sin(2 * np.pi * hertz * np.arange(len(hertz)) / 4000)
        samples = (wave * 0.4 + 0.01 * dice.standard_normal(len(wave))).astype(np.float32)
        soundfile.write(folder / part / f"{number}.wav", samples, 4000)
        rows.append(f"{part}/{number}.wav\t{' '.join(names)}\t{number % 3}")
    (folder / f"{part}.tsv").write_text(lines(rows))


GRAPH = {"nodes": [["a", 0.5], ["b", 0.1], ["c", 0.9]], "edges": [[0, 1, "x"], [1, 2, "y"]]}

STAY = [{"ward": "north", "action": "give", "reward": 1}, {"ward": "south"}]


# How its files are written and named, what its recipe says beside that, and what it is asked.
TOYS = {
    "translate": (pairs, "{}.jsonl", {}, "two cats"),
    "text-to-text": (pairs, "{}.jsonl", {"metric": "accuracy"}, "two cats"),
    "spans": (text, "{}.txt", {"context": 24}, "Two <extra_id_0> cats."),
    "language": (text, "{}.txt", {"context": 16}, "Two cats"),
    "chat": (conversations, "{}.jsonl", {"context": 60}, "Two cats"),
    "permute": (text, "{}.txt", {"context": 16}, "Two cats"),
    "masked": (text, "{}.txt", {"context": 24}, "Two <mask> cats."),
    "story": (stories, "{}_*.txt", {}, "Mary went to the hall. Where is Mary?"),
    "classify": (labelled, "{}.tsv", {"context": 24}, "two red cats"),
    "tag": (tagged, "{}.txt", {"context": 24}, "two red cats"),
    "answer": (asked, "{}.json", {"context": 32}, "What is last?\ttwo red cats"),
    "picture": (pictures, "{}", {}, "{folder}/test/red/0.png"),
    "patches": (pictures, "{}", {}, "{folder}/test/red/0.png"),
    "caption": (captions, "{}.jsonl", {}, "{folder}/test/red/0.png"),
    "speech": (sounds, "{}.tsv", {"speaker": "speaker"}, "{folder}/test/0.wav"),
    "graph": (graphs, "{}.jsonl", {}, json.dumps(GRAPH)),
    "node": (nodes, "{}.jsonl", {}, json.dumps({**GRAPH, "node": 1})),
    "decide": (histories, "{}.csv", {"learner": "one-step", "context": 3}, json.dumps(STAY)),
}


def sizes(task):
    batch = TASKS[task].sample_batch(TASKS[task].Settings(), 1)
    return Sizes(9, 9, True, 2, type(batch.read), type(batch.asked))


def word_for(run):
    """What it is asked, as it is typed."""
    return TOYS[run.recipe.task_kind][3].replace("{folder}", str(run.folder.parent))


def sent_for(run):
    """The same as it is sent."""
    word = word_for(run)
    kinds = {"picture": ("image", "image/png"), "sound": ("audio", "audio/wav")}
    if run.task.gives.kind not in kinds:
        return word
    name, kind = kinds[run.task.gives.kind]
    content = base64.b64encode(Path(word).read_bytes()).decode()
    return {name: f"data:{kind};base64,{content}"}


ALL = [(task, model) for task in TOYS for model in MODELS if suits(MODELS[model], sizes(task))]


def toml(values):
    return lines(f"{key} = {json.dumps(value)}" for key, value in values.items())


def write_recipe(folder, task, model):
    write, name, more, _ = TOYS[task]
    for seed, part in enumerate(("train", "valid", "test")):
        write(folder, part, seed)
    known = {field.name for field in fields(MODELS[model].Settings)}
    shape = {**SMALL[model], **({"positions": 64} if "positions" in known else {})}
    sections = {
        "task": {"kind": task, **more},
        "data": {part: name.format(part) for part in ("train", "valid", "test")},
        "picture": {"size": 12, "patch": 4, "shift": 1, "flip": 0.5, "erase": 0.2},
        "sound": {
            "rate": 4000, "bands": 12, "window": 0.064, "hop": 0.04, "normalise": "speaker",
            "speeds": [0.9, 1.1], "time_masks": 1, "time_mask": 2, "band_masks": 1, "band_mask": 3,
        },
        "graph": {"position": "laplacian", "places": 3, "farthest": 3, "longest": 2},
        "text": {"size": 200, **({} if task == "story" else {"kind": "bpe", "lowercase": False})},
        "model": {"kind": model, **shape},
        "train": {
            "steps": 4, "batch_tokens": 64, "warmup": 2, "rate": 0.01, "save_every": 2,
            "evaluate_every": 2, "evaluate_examples": 4, "device": "cpu",
        },
        "decode": {"max_new_tokens": 4},
    }  # fmt: skip
    own = TASKS[task].sections
    sections = {
        k: v
        for k, v in sections.items()
        if k not in ("text", "picture", "sound", "graph") or k in own
    }
    path = folder / "toy.toml"
    path.write_text(lines(f"[{name}]\n{toml(keys)}" for name, keys in sections.items()))
    return str(path)


def test_every_task_and_every_model_is_tried():
    assert {task for task, _ in ALL} | {"embed"} == set(TASKS)  # which is only ever imported
    assert {model for _, model in ALL} == set(MODELS)


def test_the_dictionaries_hold_what_their_types_say():
    for name, kind in TASKS.items():
        assert Task in kind.__mro__, name
        assert all(isinstance(n, str) for n in (*kind.sections, *kind.keeps))
    for name, kind in MODELS.items():
        assert issubclass(kind, Model) and kind.answers, name
        assert all(issubclass(asked, Asked) for asked in kind.answers)


@pytest.fixture(scope="module", params=ALL, ids=lambda pair: "-".join(pair))
def made(request, tmp_path_factory):
    """A run of a task with a model, trained for four steps through the front door."""
    task, model = request.param
    folder = tmp_path_factory.mktemp(f"{task}-{model}")
    recipe = write_recipe(folder, task, model)
    return regard.train(recipe, run=folder / "run"), recipe


def test_what_is_learned_is_kept_and_comes_back(made):
    run, recipe = made
    settings = read(recipe)
    cache = run.folder.parent / ".cache"
    kind = TASKS[settings.task_kind]
    examples = kind.examples(settings.task, settings.data.files("train"), cache, Faults())
    learned = kind.learn(settings.task, settings.sections, examples)
    kept = {name: (run.folder / name).read_text(encoding="utf-8") for name in run.task.artefacts()}
    assert learned.artefacts() == kept == run.task.artefacts()
    assert set(kept) <= set(kind.keeps) and learned.sizes == run.task.sizes


def test_batches_are_planned_cut_and_counted(made):
    run, _ = made
    data = run.data("train")
    plan = run.task.plan(data.store, 64, 0)
    rows = plan.epoch(0)[0]
    assert len(plan.epoch(0)) == plan.batches
    rng = Draws(0, 0, range(len(rows))) if run.task.draws else None
    whole = run.task.batch(data.store, rows, rng)
    assert type(whole.read) is run.task.sizes.read and type(whole.asked) is run.task.sizes.asked
    assert len(whole) == len(rows)
    shards = []
    for rank in range(2):
        own = None if rng is None else Draws(0, 0, range(len(rows))[rank::2])
        shards.append(run.task.batch(data.store, rows[rank::2], own))
    assert [sum(counts) for counts in zip(*(s.counts for s in shards), strict=True)] == list(
        whole.counts
    )
    wider = whole.pad_to_multiple(8)
    assert wider.counts == whole.counts and len(wider.repeat(2)) == 2 * len(whole)
    loss = LOSSES[run.task.loss]()
    model = run.model
    with torch.no_grad():
        alone = loss(model, whole).nll.double()
        assert torch.allclose(loss(model, wider).nll.double(), alone, rtol=1e-3, atol=1e-3)
        pieces = sum(loss(model, shard).nll.double() for shard in shards)
        assert torch.allclose(pieces, alone, rtol=1e-3, atol=1e-3)


def test_it_answers_is_judged_and_looked_into(made):
    run, _ = made
    word = word_for(run)
    form = run.task.gives
    assert form.show(form.parse(word)) == word
    (answer,) = run.predict([word])
    assert isinstance(answer, Prediction) and answer.input == word
    assert answer.output == run.predict(word)[0].output  # the same again, and one as itself
    results = json.loads((run.folder / "results.json").read_text())["test"]
    assert np.isfinite(results[results["headline"]])
    assert run.task.example(run.data("test").examples)
    if run.model.looks and isinstance(run.task, capabilities.Traces):
        report = run.see(word)
        assert report.looks and all(
            np.allclose(look.weights.sum(-1), 1, atol=1e-4) for look in report.looks
        )
    if isinstance(run.task, capabilities.WritesText):
        assert isinstance(run.model, Writes)
        assert isinstance(run.model, WritesOn) == run.task.writes_on
    if isinstance(run.task, capabilities.Streams):
        assert "".join(run.stream(word)) == run.predict([word])[0].output


def test_it_is_served(made):
    run, _ = made
    word = word_for(run)
    one = ServedRun(run, ServerLimits())
    try:
        sent = sent_for(run)
        (told,) = asyncio.run(one.predict([sent], {"seed": 1} if one.writes else {}))
        mine = regard.load(run.folder, *(["decode.seed=1"] if one.writes else []), device="cpu")
        assert told["output"] == mine.predict([word])[0].output
        about = one.about()
        assert about["gives"]["kind"] == run.task.gives.kind and about["gets"] == run.task.gets
        told_by = {"label": "label", "tags": "tags", "span": "answer"}  # the field that has it
        assert told_by.get(run.task.gets, "output") in told
    finally:
        one.close(0.2)


def test_what_is_read_and_asked_follows_from_its_fields():
    """No kind of batch writes its own moving, cutting, repeating or padding."""
    kinds = [*Tensors.__subclasses__(), *Asked.__subclasses__()]
    for kind in kinds:
        same = {"tensors", "put", "to", "pin", "shard", "repeat", "pad_to_multiple"}
        assert not (own := same & set(vars(kind))), f"{kind.__name__} has its own {own}"


def test_nobody_lists_tasks_by_name():
    """Rooms beside `tasks` choose by form or capability, never by a task's name."""
    root = Path(regard.__file__).parent
    words = {
        "language",
        "answer",
        "story",
        "picture",
        "patches",
        "graph",
        "node",
        "chat",
    }  # mean other things too
    names = [name for name in TASKS if name not in {*LOSSES, *words}]
    for room in ("see", "serve", "training", "decode", "data", "models"):
        for path in (root / room).rglob("*.py"):
            said = path.read_text(encoding="utf-8")
            found = [name for name in names if f'"{name}"' in said]
            assert not found, f"{path}: {found}"
    for path in (root / "serve/page").glob("*.js"):
        page = path.read_text(encoding="utf-8")
        found = [name for name in names if f'"{name}"' in page or f"{name}:" in page]
        assert not found, f"{path}: {found}"
