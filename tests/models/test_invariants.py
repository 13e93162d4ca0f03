"""What must hold for every model; a new one is covered when it has a name."""

import dataclasses

import pytest
import torch

from regard.batch import Graphs, Ids, Pixels, Steps, Story, Words
from regard.model import Solves
from regard.models import MODELS
from regard.parts.graph import EDGE_SCORES
from regard.parts.norm import NORMS, RESIDUALS
from regard.parts.pattern import PATTERNS
from regard.parts.pick import PICKS
from regard.parts.position import POSITIONS
from regard.parts.recurrent import CELLS
from regard.parts.score import SCORES
from regard.parts.window import WINDOWS
from tests.toys import SMALL, random_batch, small_model, start

pytestmark = pytest.mark.usefixtures("filled")

FAR, GRAPH_POOLS = ("all", "both"), ("mean", "sum", "scaled-sum", "max", "attention")
LONG = {"block": 2, "reach": 2, "first_places": 1, "random_blocks": 1}
KINDS = [
    *(pytest.param(kind, {}, id=kind) for kind in MODELS),
    *(
        pytest.param("transformer", {"position": name}, id=f"transformer-{name}")
        for name in POSITIONS
    ),
    *(pytest.param("transformer", {"score": name}, id=f"transformer-{name}") for name in SCORES),
    *(pytest.param("gpt", {"score": name, "key_heads": 2}, id=f"gpt-{name}") for name in SCORES),
    *(pytest.param("rnn", {"cell": cell}, id=f"rnn-{cell}") for cell in CELLS),
    *(pytest.param("gpt", {"position": name}, id=f"gpt-{name}") for name in POSITIONS),
    pytest.param("gpt", {"key_heads": 2, "norm": "rms", "feedforward": "gated-silu"}, id="llama"),
    pytest.param("xl", {"residual": "pre"}, id="xl-pre"),
    *(
        pytest.param("gpt", {"residual": place, "norm": norm}, id=f"gpt-{place}-{norm}")
        for place in RESIDUALS
        for norm in NORMS
        if (place, norm) != ("none", "none")  # through which next to nothing passes
    ),
    *(pytest.param("seq2seq", {"cell": cell, "depth": 2}, id=f"seq2seq-{cell}") for cell in CELLS),
    *(
        pytest.param("seq2seq", {"score": name, "heads": 2}, id=f"seq2seq-{name}")
        for name in SCORES
    ),
    *(
        pytest.param("seq2seq", {"window": name, "reach": 2}, id=f"seq2seq-{name}")
        for name in WINDOWS
    ),
    *(pytest.param("seq2seq", {"pick": name}, id=f"seq2seq-{name}") for name in PICKS),
    *(
        pytest.param("seq2seq", {"feed": feed, **more}, id=f"seq2seq-{feed}-{'-'.join(more)}")
        for feed in ("none", "attended", "context")
        for more in (
            {"coverage": True, "score": "additive"},
            {"attention": "separate", "heads": 4},
            {"attention": "none"},
            {"window": "predictive", "reach": 2, "coverage": True},
        )
        if (feed, more.get("attention", "")) != ("context", "none")
    ),
    pytest.param("memory", {"tie": "layerwise", "encoding": "bag"}, id="memory-layerwise"),
    pytest.param("memory", {"update": "gated"}, id="memory-gated"),
    pytest.param("seq2seq", {"bidirectional": False, "tie": "all"}, id="seq2seq-one-way"),
    pytest.param("seq2seq", {"pick": "hard", "feed": "attended"}, id="seq2seq-hard-fed"),
    *(pytest.param("bert", {"position": name}, id=f"bert-{name}") for name in POSITIONS),
    *(pytest.param("graph", {"layer": "gat", "score": s}, id=f"graph-{s}") for s in EDGE_SCORES),
    *(pytest.param("graph", {"layer": n, "bias": ["distance"]}, id=f"graph-{n}") for n in FAR),
    *(pytest.param("graph", {"pool": p, "degree": True}, id=f"graph-{p}") for p in GRAPH_POOLS),
    pytest.param("bert", {"residual": "pre", "pooler": "none", "segments": 0}, id="bert-pre"),
    pytest.param("t5", {"feedforward": "gated-gelu", "tie": False, "scaled": False}, id="t5-gated"),
    pytest.param("t5", {"head_width": 6, "decoder_depth": 1}, id="t5-wide"),
    pytest.param(
        "transformer",
        {"residual": "pre", "norm": "rms", "feedforward": "gated-silu"},
        id="transformer-pre",
    ),
    pytest.param(
        "transformer",
        {"residual": "pre", "feedforward": "silu", "convolution": 3, "scale_embedding": False},
        id="conformer",
    ),
    *(
        pytest.param(kind, {"pattern": name, **LONG}, id=f"{kind}-{name}")
        for kind in ("gpt", "bert", "transformer", "t5")
        for name in PATTERNS
    ),
    pytest.param("gpt", {"pattern": "bigbird", "position": "rotary", **LONG}, id="gpt-rotary-big"),
    pytest.param(
        "seq2seq",
        {"reader": "pyramid", "reader_depth": 3, "coverage": "location", "feed": "context"},
        id="seq2seq-pyramid",
    ),
]


# Those that write word by word.
READING = ("memory", "bert", "vit", "glimpse", "graph", "decision", "table")
WRITING = [case for case in KINDS if case.values[0] not in READING]


def pytest_generate_tests(metafunc):
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize(("kind", "more"), KINDS)
    if "writer" in metafunc.fixturenames:
        metafunc.parametrize(("writer", "more"), WRITING)


def test_every_model_has_a_small_version_to_test():
    assert set(SMALL) == set(MODELS)


def change(batch, read=None, asked=None):
    """The same batch with some of what is read or asked replaced."""
    return dataclasses.replace(
        batch,
        read=dataclasses.replace(batch.read, **read or {}),
        asked=dataclasses.replace(batch.asked, **asked or {}),
    )


def inputs(batch):
    """The tokens that a model reads one after the other."""
    return batch.asked.inputs if isinstance(batch.asked, Words) else batch.read.ids


def test_padding_changes_nothing(kind, more):
    model, batch = small_model(kind, **more), random_batch(kind)
    pad, read, asked = torch.nn.functional.pad, batch.read, batch.asked
    if isinstance(asked, Words):
        wider = change(batch, {"ids": pad(read.ids, (0, 5))}, {"ids": pad(asked.ids, (0, 3))})
    elif isinstance(read, Story):
        more_words, question = pad(read.sentences, (0, 3, 0, 2)), pad(read.question, (0, 4))
        wider = change(batch, {"sentences": more_words, "question": question})
    elif isinstance(read, Ids):
        segments = pad(read.segments, (0, 5))
        wider = change(batch, {"ids": pad(read.ids, (0, 5)), "segments": segments})
    elif isinstance(read, Graphs):
        wider = batch.pad_to_multiple(16)
        assert wider.read.tags.shape[1] == wider.read.edges.shape[1] == 16
    elif isinstance(read, Steps):
        wider = batch.pad_to_multiple(16)
        assert wider.read.numbers.shape[1] == wider.read.actions.shape[1] == 16
    elif isinstance(read, Pixels):  # pictures are of one size, and are never padded
        assert all(map(torch.equal, batch.pad_to_multiple(8).tensors(), batch.tensors()))
        return
    else:
        wider = change(batch, {"ids": pad(read.ids, (0, 3))}, {"ids": pad(asked.ids, (0, 3))})
    torch.testing.assert_close(model(wider)[:, :9], model(batch), atol=1e-5, rtol=1e-5)


def test_neighbours_change_nothing(kind, more):
    model, batch = small_model(kind, **more), random_batch(kind)
    together = model(batch)
    for row in range(len(batch)):
        alone = batch.shard(row, len(batch))
        torch.testing.assert_close(model(alone)[0], together[row], atol=1e-5, rtol=1e-5)


def test_the_future_changes_nothing(writer, more):
    model, batch = small_model(writer, **more), random_batch(writer)
    side = "asked" if isinstance(batch.asked, Words) else "read"
    ids = getattr(batch, side).ids.clone()
    ids[:, 5:] = 7
    before, after = model(batch), model(change(batch, **{side: {"ids": ids}}))
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_step_by_step_equals_one_pass(writer, more):
    model, batch = small_model(writer, **more), random_batch(writer)
    with torch.no_grad():
        whole = model(batch)
        state = start(model, batch)
        for t in range(inputs(batch).shape[1]):
            logits, state = model.step(inputs(batch)[:, t], state)
            torch.testing.assert_close(logits, whole[:, t], atol=1e-5, rtol=1e-5)


def test_rows_can_be_repeated_and_selected(writer, more):
    """Copies of each row, shuffled in their groups, then fewer groups, then single rows."""
    model, batch = small_model(writer, **more), random_batch(writer)
    with torch.no_grad():
        whole = model(batch)
        state = start(model, batch).repeat(3)
        rows = torch.arange(4).repeat_interleave(3)
        for t, picked in enumerate(
            [
                torch.tensor([2, 0, 1, 3, 3, 5, 8, 7, 6, 9, 10, 11]),
                torch.tensor([0, 1, 2, 6, 7, 8, 9, 10, 11]),
                torch.tensor([1, 4, 5]),
                torch.tensor([2, 0]),
            ]
        ):
            logits, state = model.step(inputs(batch)[rows, t], state)
            torch.testing.assert_close(logits, whole[rows, t], atol=1e-5, rtol=1e-5)
            rows, state = rows[picked], state.select(picked)
        logits, state = model.step(inputs(batch)[rows, 4], state)
        torch.testing.assert_close(logits, whole[rows, 4], atol=1e-5, rtol=1e-5)


def test_many_steps_outgrow_the_first_allocation(writer, more):
    model, batch = small_model(writer, **more), random_batch(writer, 2, longest=70)
    with torch.no_grad():
        whole, state = model(batch), start(model, batch)
        for t in range(70):
            logits, state = model.step(inputs(batch)[:, t], state)
        torch.testing.assert_close(logits, whole[:, 69], atol=1e-5, rtol=1e-5)


def test_states_through_the_output_are_the_logits(kind, more):
    model, batch = small_model(kind, **more), random_batch(kind)
    torch.testing.assert_close(model.output(model.states(batch).states), model(batch))


def test_every_weight_learns(kind, more):
    model, batch = small_model(kind, **more).train(), random_batch(kind)
    if isinstance(model, Solves):  # worked out, and never stepped towards
        assert not any(weight.requires_grad for weight in model.parameters())
        return
    passed = model.states(batch)
    loss = model.output(passed.states).square().mean()
    for beside in (passed.penalty, passed.follows):
        loss = loss if beside is None else loss + beside.square().mean()
    loss.backward()
    idle = [
        name
        for name, weight in model.named_parameters()
        if weight.grad is None or not weight.grad.any()
    ]
    assert idle == []


@pytest.mark.parametrize("name", MODELS)
def test_what_a_model_looks_at_is_named(name):
    """Every attention has a line in `looks`, so that `see` can label its rows and columns."""
    import re

    from regard.parts.watch import attentions

    model = small_model(name)
    assert {re.sub(r"\d+", "*", part) for part in attentions(model)} == set(model.looks)
