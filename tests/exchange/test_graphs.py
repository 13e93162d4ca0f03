"""Every kind of model as an ONNX graph says what the model says, for any number of rows and any
length, with padding."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

import regard
from regard import config
from regard.batch import (
    Batch,
    Choices,
    Frames,
    Graphs,
    GraphSizes,
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
from regard.errors import RunError
from regard.exchange import WRITERS
from regard.exchange.graphs import EXAMPLES, FIELDS, begun, graphs_of
from regard.exchange.onnx import ready, trace
from regard.models import MODELS
from regard.training.recipe import read
from tests.test_contract import write_recipe
from tests.toys import SMALL, random_batch, random_graphs, random_histories, random_stories

WORDS = Sizes(24, 24, True)
PICTURES = {"item": (3, 4, 4), "grid": (3, 3)}
SOUNDS = Sizes(0, 24, False, 0, Frames, Words, (8,), stem="conv")


def texts(rows, longest, seed):
    return random_batch("bert", rows, longest, seed).read


def running(rows, longest, seed):
    dice = torch.Generator().manual_seed(seed)
    return Running(torch.randint(4, 24, (rows, longest), generator=dice))


def pictures(rows, longest, seed):
    dice = torch.Generator().manual_seed(seed)
    return Pixels(torch.randint(0, 256, (rows, 3, 12, 12), generator=dice).to(torch.uint8))


def sounds(rows, longest, seed):
    dice = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 4 * longest + 1, (rows,), generator=dice)
    lengths[0] = 4 * longest
    values = torch.randn(rows, 4 * longest, 8, generator=dice)
    return Frames(values * (torch.arange(4 * longest) < lengths[:, None])[..., None], lengths)


def graphs(rows, longest, seed):
    read = random_graphs(rows, longest, seed).read
    return Graphs(**{**read.named(), "distances": read.distances.to(torch.int8)})


def wards(rows, longest, seed):
    read = random_histories(max(rows, 2), longest, seed).read  # of which the second wishes nothing
    return read.put([tensor[:rows] for tensor in read.tensors()])


def stories(rows, longest, seed):
    return random_stories(rows, longest, seed).read


# What is asked of what, the settings beside small ones, and how it is read.
CASES = {
    "bert": (Sizes(24, 24, True, 5, Ids, Label), {
        "pattern": "bigbird", "block": 2, "random_blocks": 1, "pool": "mean", "residual": "pre",
    }, texts),
    "gpt": (Sizes(24, 24, True, 0, Running, Tokens), {
        "position": "rotary", "bias": False, "norm": "rms", "feedforward": "gated-silu",
        "key_heads": 2, "pattern": "window", "block": 2, "reach": 3,
    }, running),
    "rnn": (Sizes(24, 24, True, 0, Running, Tokens), {}, running),
    "xl": (Sizes(24, 24, True, 0, Running, Tokens), {}, running),
    "xlnet": (Sizes(24, 24, True, 0, Running, Tokens), {}, running),
    "t5": (WORDS, {"pattern": "longformer", "block": 2, "reach": 2, "first_places": 1}, texts),
    "transformer": (SOUNDS, {"ctc": True, "convolution": 3, "position": "rotary"}, sounds),
    "seq2seq": (WORDS, {
        "score": "additive", "feed": "context", "coverage": True, "cell": "gru",
    }, texts),
    "seq2seq of pictures": (Sizes(0, 24, False, 0, Pixels, Words, **PICTURES), {
        "reader": "none", "pick": "hard", "feed": "attended", "cell": "rnn",
    }, pictures),
    "seq2seq of sounds": (SOUNDS, {
        "reader": "pyramid", "ctc": True, "coverage": "location", "depth": 2, "reader_depth": 2,
    }, sounds),
    "seq2seq without attention": (WORDS, {"attention": "none", "heads": 1}, texts),
    "memory": (Sizes(24, 24, True, 0, Story, Tokens), {}, stories),
    "vit": (Sizes(0, 0, False, 5, Pixels, Label, **PICTURES), {"pool": "sequence"}, pictures),
    "glimpse": (Sizes(0, 0, False, 5, Pixels, Label, **PICTURES), {}, pictures),
    "graph": (Sizes(9, 0, False, 5, Graphs, Label, graph=GraphSizes(4, farthest=2)), {
        "layer": "both", "bias": ["distance"], "degree": True,
    }, graphs),
    "decision": (Sizes(0, 0, False, 5, Steps, Choices, history=HistorySizes(3, 2, 7, 0, 5)), {},
                 wards),
    "table": (Sizes(0, 0, False, 5, Steps, Choices, history=HistorySizes(3, 2, 7, 7, 5)), {},
              wards),
}  # fmt: skip


def model_of(name):
    kind = name.split()[0]
    sizes, more, read = CASES[name]
    torch.manual_seed(0)
    model = MODELS[kind](sizes, MODELS[kind].Settings(**{**SMALL[kind], "depth": 1, **more}
                         if kind in DEEP else {**SMALL[kind], **more})).eval()  # fmt: skip
    if kind == "table":
        torch.nn.init.normal_(model.counts)
    return model, sizes, read


DEEP = {name for name, settings in SMALL.items() if "depth" in settings}


def fed(read):
    """What is read, under the names that a graph has for it."""
    named = dict(read.named())
    if isinstance(read, Ids):
        named["lengths"] = (torch.arange(read.width) < read.lengths[:, None]).long()
    fields = FIELDS[type(read)]
    return {fields[field][0]: tensor for field, tensor in named.items()}


def asked_of(session, tensors):
    """Tensors by name, of which a graph takes those that it knows."""
    names = {port.name for port in session.get_inputs()}
    given = {n: np.asarray(t.detach().numpy()) for n, t in tensors.items() if n in names}
    outputs = [port.name for port in session.get_outputs()]
    return {n: torch.from_numpy(x) for n, x in zip(outputs, session.run(None, given), strict=True)}


def near(given, wanted):
    torch.testing.assert_close(given, wanted, atol=1e-4, rtol=1e-4, check_dtype=False)


def check_pass(sessions, model, read):
    wanted = model(Batch(read, Nothing()))
    scores = asked_of(sessions["model.onnx"], fed(read))["scores"]
    wanted = wanted[:, 0] if scores.dim() == 2 else wanted
    if isinstance(read, Graphs | Ids | Steps) and scores.dim() == 3:
        real = torch.arange(scores.shape[1]) < read.lengths[:, None]
        scores, wanted = scores[real], wanted[real]
    near(scores, wanted)


def check_pieces(sessions, model, read):
    """A text in two pieces, of which the second goes on from the first."""
    whole = model(Batch(read, Nothing()))
    half = len(read.ids[0]) // 2
    past = {f"past_{n}": vector for n, vector in enumerate(model.begin(len(read.ids)))}
    found = []
    for ids in (read.ids[:, :half], read.ids[:, half:]):
        out = asked_of(sessions["model.onnx"], {"input_ids": ids, **past})
        found.append(out.pop("scores"))
        past = {name.replace("present", "past"): vector for name, vector in out.items()}
    near(torch.cat(found, 1), whole)


def check_written(sessions, model, read):
    written = torch.randint(4, 24, (len(read), 5))
    padded = torch.nn.functional.pad(written, (0, 1))
    out = model.states(Batch(read, Words(padded, torch.ones(len(read)))))
    given = asked_of(sessions["model.onnx"], {**fed(read), "decoder_input_ids": written})
    near(given["scores"], model.output(out.states))
    if out.heard is not None:
        near(given["ctc"], model.ctc(out.heard.states))


def check_steps(sessions, model, read):
    state = begun(model, read)
    out = asked_of(sessions["encoder.onnx"], fed(read))
    if state.heard is not None:
        near(out["ctc"], state.heard[0])
        near(out["ctc_lengths"], state.heard[1])
    for _ in range(3):
        last = torch.randint(4, 24, (len(read),))
        wanted, state = model.step(last, state)
        after = asked_of(sessions["decoder.onnx"], {"last": last, **out})
        near(after.pop("scores"), wanted)
        out |= {name.replace("present", "past"): vector for name, vector in after.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_graph_says_what_the_model_says(name, tmp_path):
    model, sizes, make = model_of(name)
    with ready(model, 64):
        made = graphs_of(model, sizes)
        for file, graph in made.items():
            trace(graph.eval(), tmp_path / file, None)
    sessions = {file: onnxruntime.InferenceSession(str(tmp_path / file)) for file in made}
    inputs = {port.name for graph in made.values() for port in graph.inputs}
    check = (
        check_steps if "last" in inputs
        else check_written if "decoder_input_ids" in inputs
        else check_pieces if "past_0" in inputs
        else check_pass
    )  # fmt: skip
    with torch.no_grad():
        for rows, longest in ((3, 7), (1, 10), (5, 8)):
            check(sessions, model, make(rows, longest, seed=rows))
    assert all(port.axes[0] == "rows" for graph in made.values() for port in graph.inputs)


def test_every_kind_of_model_is_tried():
    assert {name.split()[0] for name in CASES} == set(MODELS)


@pytest.mark.parametrize("name", config.names())
def test_whatever_a_recipe_reads_has_a_name_in_a_graph(name):
    kind = read(name).usual_sizes().read
    assert kind in EXAMPLES
    example = EXAMPLES[kind](read(name).usual_sizes(), 2, 6)
    assert set(example.named()) <= set(FIELDS[type(example)])


def test_a_translator_with_a_state_is_used_as_its_page_says(tmp_path):
    run = regard.train(write_recipe(tmp_path, "translate", "seq2seq"), run=tmp_path / "run")
    said = WRITERS["onnx"](run, tmp_path / "out")
    assert said == (
        "encoder.onnx (input_ids, attention_mask -> past_…, memory_…), "
        "decoder.onnx (last, past_…, memory_… -> scores, present_…)"
    )
    about = json.loads((tmp_path / "out/regard.json").read_text())
    assert about["graphs"]["encoder.onnx"]["inputs"]["input_ids"]["shape"] == ["rows", "tokens"]
    page = (tmp_path / "out/README.md").read_text()
    assert "| in `last` | rows |" in page and "decoder.onnx" in page
    run = regard.load(run.folder, "decode.kind=greedy", "decode.max_new_tokens=6")
    wanted = run.predict(["two red cats", "one dog"])
    sessions = {
        name: onnxruntime.InferenceSession(str(tmp_path / "out" / name)) for name in about["graphs"]
    }
    read_ids = run.task.read_source(["two red cats", "one dog"])
    batch = run.task.pairs(read_ids, [[], []]).read
    state = asked_of(sessions["encoder.onnx"], fed(batch))
    last, rows = torch.full((2,), about["bos"]), [[], []]
    for _ in range(6):
        out = asked_of(sessions["decoder.onnx"], {"last": last, **state})
        scores = out.pop("scores")
        scores[:, [i for i in run.task.never_written if i != about["eos"]]] = -torch.inf
        last = scores.argmax(-1)
        for row, word in zip(rows, last.tolist(), strict=True):
            row.append(word)
        state |= {name.replace("present", "past"): tensor for name, tensor in out.items()}
    texts = [row[: row.index(about["eos"])] if about["eos"] in row else row for row in rows]
    assert run.task.written.decode(texts) == [answer.output for answer in wanted]


def test_what_cannot_be_traced_is_refused_with_a_way_out(trained, tmp_path):
    class Draws(torch.nn.Module):
        def forward(self, x):
            return x if float(x.sum()) > 0 else -x

    run = regard.load(trained.folder)
    run.model.output = Draws()
    with pytest.raises(RunError, match="use it from Python .regard.load. or over HTTP"):
        WRITERS["onnx"](run, tmp_path / "out")
