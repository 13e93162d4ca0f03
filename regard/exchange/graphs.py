"""What of a model becomes a graph: tensors with names in, tensors with names out.

What goes in follows from the batch that a model reads. A model that answers at once, or that looks
back at all it has written, is one graph of its whole pass; one that carries a state from word to
word gives it out and takes it in again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..batch import (
    Batch,
    Frames,
    Graphs,
    Ids,
    Label,
    Nothing,
    Permuted,
    Pixels,
    Running,
    Sizes,
    Steps,
    Story,
    Tensors,
    Tokens,
    Wide,
    Words,
    wide_fields,
)
from ..model import Model, Writes
from ..parts.state import Carried


class Port(NamedTuple):
    """A tensor that goes into a graph, or comes out of it."""

    name: str
    about: str
    example: Tensor = torch.empty(0)  # of what goes in
    axes: Sequence[str] = ()  # what is counted along each; a number: always as many

    @property
    def open(self) -> dict[int, str]:
        """The axes that may have any length."""
        return {axis: name for axis, name in enumerate(self.axes) if not name.isdecimal()}


# How the fields of what is read are called outside, what their axes count, and what they hold.
FIELDS: dict[type[Tensors], dict[str, tuple[str, str, str]]] = {
    Ids: {
        "ids": ("input_ids", "rows tokens", "entries of the vocabulary"),
        "lengths": ("attention_mask", "rows tokens", "1: a token, 0: the padding behind them"),
        "segments": ("token_type_ids", "rows tokens", "0, and 1 in a second text"),
    },
    Running: {"ids": ("input_ids", "rows tokens", "entries of the vocabulary")},
    Story: {
        "sentences": ("sentences", "rows sentences words", "entries of the vocabulary, 0: none"),
        "counts": ("counts", "rows", "how many of the sentences are real"),
        "question": ("question", "rows asked", "entries of the vocabulary, 0: none"),
    },
    Pixels: {"values": ("pixels", "rows channels height width", "bytes, 0 to 255")},
    Frames: {
        "values": ("frames", "rows frames bands", "how loud each band is, as the recipe's [sound]"),
        "lengths": ("lengths", "rows", "how many of the frames are real"),
    },
    Graphs: {
        "tags": ("tags", "rows nodes tags", "what each node is, as ids; 0: nothing"),
        "lengths": ("lengths", "rows", "how many of the nodes are real"),
        "edges": ("edges", "rows edges 2", "from which node to which; -1: none"),
        "edge_tags": ("edge_tags", "rows edges edge_tags", "what each edge is, as ids; 0: nothing"),
        "numbers": ("numbers", "rows nodes numbers", "of each node, around zero"),
        "edge_numbers": ("edge_numbers", "rows edges numbers", "of each edge, around zero"),
        "places": ("places", "rows nodes places", "where each node stands"),
        "distances": ("distances", "rows nodes nodes", "steps between nodes; -1: no way"),
        "paths": ("paths", "rows nodes nodes steps", "edges on the way between nodes; -1: none"),
    },
    Steps: {
        "numbers": ("numbers", "rows steps numbers", "what was measured, around zero; else 0"),
        "known": ("known", "rows steps numbers", "1 where it was measured, else 0"),
        "words": ("words", "rows steps columns", "what was noted, as ids; 0: nothing"),
        "states": ("states", "rows steps", "which words came together, as one id; 0: unheard of"),
        "actions": ("actions", "rows steps degrees", "what was done, as ids or as numbers"),
        "returns": ("returns", "rows steps", "what is wished for from there on; NaN: nothing"),
        "times": ("times", "rows steps", "steps since the history began"),
        "lengths": ("lengths", "rows", "how many of the steps are real"),
    },
}  # fmt: skip


def filled(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
    return torch.ones(shape, dtype=dtype)


def graphs(sizes: Sizes, rows: int, length: int) -> Graphs:
    told, edges, real = sizes.graph, length + 3, torch.float32
    assert told is not None
    square = (rows, length, length)
    return Graphs(
        filled(rows, length, 2), filled(rows) * length, filled(rows, edges, 2),
        filled(rows, edges, 3) if told.edge_tags else None,
        filled(rows, length, told.numbers, dtype=real) if told.numbers else None,
        filled(rows, edges, told.edge_numbers, dtype=real) if told.edge_numbers else None,
        filled(rows, length, told.places, dtype=real) if told.places else None,
        filled(*square, dtype=torch.int8) if told.farthest else None,
        filled(*square, told.longest, dtype=torch.int32) if told.longest else None,
    )  # fmt: skip


def histories(sizes: Sizes, rows: int, length: int) -> Steps:
    told, whole = sizes.history, (rows, length)
    assert told is not None
    ids, numbers = filled(*whole), filled(*whole, told.numbers, dtype=torch.float32)
    actions = filled(*whole, told.actions, dtype=torch.float32) if told.degrees else ids * 0
    words = filled(*whole, told.columns) * 0
    returns = filled(*whole, dtype=torch.float32)
    return Steps(numbers, numbers, words, ids, actions, returns, ids, filled(rows) * length)


def pixels(sizes: Sizes, rows: int, length: int) -> Pixels:
    (channels, *patch), grid = sizes.item, sizes.grid
    sides = [side * count for side, count in zip(patch, grid, strict=True)]
    return Pixels(filled(rows, channels, *sides, dtype=torch.uint8))


def stories(sizes: Sizes, rows: int, length: int) -> Story:
    sentences, question = filled(rows, length, length + 1), filled(rows, length + 2)
    return Story(sentences, filled(rows) * length, question)


def frames(sizes: Sizes, rows: int, length: int) -> Frames:
    length = 8 * length + 3
    values = filled(rows, length, sizes.item[0], dtype=torch.float32)
    return Frames(values, filled(rows) * length)


# Something of each kind to trace a model with: so many rows, and about so long.
EXAMPLES: dict[type[Tensors], Callable[[Sizes, int, int], Tensors]] = {
    Ids: lambda sizes, rows, length: Ids(filled(rows, length), filled(rows) * length),
    Running: lambda sizes, rows, length: Running(filled(rows, length)),
    # A text in its own order is what such a model goes on from.
    Permuted: lambda sizes, rows, length: Running(filled(rows, length)),
    Story: stories,
    Pixels: pixels,
    Frames: frames,
    Graphs: graphs,
    Steps: histories,
}


def example_of(model: Model, sizes: Sizes, rows: int = 2, length: int = 6) -> Tensors:
    read = EXAMPLES[sizes.read](sizes, rows, length)
    if isinstance(read, Ids) and vars(model.settings).get("segments", 0) > 1:
        read = replace(read, segments=torch.zeros_like(read.ids))
    return read


def ports_of(read: Tensors) -> list[Port]:
    """What goes in for what is read; what is padded may be of any length, as its fields declare."""
    kind, found = type(read), []
    wide = wide_fields(kind)
    for field, example in read.named().items():
        name, axes, about = FIELDS[kind][field]
        counted = {0, *wide.get(field, Wide(axes=())).axes}
        if kind in (Ids, Running):  # texts alone are as long as whoever calls wants
            counted = {0, 1}
        if name == "attention_mask":
            example = torch.ones_like(read.named()["ids"])
        named = zip(axes.split(), example.shape, strict=False)
        words = [word if at in counted else str(size) for at, (word, size) in enumerate(named)]
        # A tensor of its own: what stands for two things would be taken for one.
        found.append(Port(name, about, example.clone(), words))
    return found


def read_from(read: Tensors, tensors: Sequence[Tensor]) -> Tensors:
    """The same kind of thing of other tensors; a mask says how long texts are."""
    if isinstance(read, Ids):
        ids, mask, *rest = tensors
        tensors = (ids, mask.sum(1), *rest)
    return read.put(tensors)


class Graph(nn.Module):
    """Some of a model, between tensors that have names."""

    inputs: list[Port]
    outputs: list[Port]

    def __init__(self, model: Model, sizes: Sizes) -> None:
        super().__init__()
        self.model: Any = model
        self.sizes, self.read = sizes, example_of(model, sizes)
        self.inputs = ports_of(self.read)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        with LayersAsNodes():
            return self.through(tensors)

    def through(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def read_from(self, tensors: Sequence[Tensor]) -> Tensors:
        """What is read, of the tensors that go in."""
        read = read_from(self.read, tensors)
        if isinstance(read, Ids) and vars(self.model.settings).get("segments", 0) == 1:
            # All of a text is in the only segment, which has a vector too, so nobody is asked.
            read = replace(read, segments=torch.zeros_like(read.ids))
        return read


class Answer(Graph):
    """All that is read -> scores, or a vector."""

    def __init__(self, model: Model, sizes: Sizes, normalise: bool = False) -> None:
        super().__init__(model, sizes)
        self.normalise = normalise
        # One answer to each row has no places.
        self.single = sizes.asked in (Label, Nothing) or sizes.read is Story
        about = "a vector" if sizes.asked is Nothing else "before a softmax"
        self.outputs = [Port("scores", about)]

    def through(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        scores: Tensor = self.model(Batch(self.read_from(tensors), Nothing()))
        if self.normalise:
            scores = nn.functional.normalize(scores, dim=-1)
        return (scores[:, 0] if self.single else scores,)


class Writer(Graph):
    """All that is read, and all that is written -> scores of the word after each."""

    def __init__(self, model: Model, sizes: Sizes) -> None:
        super().__init__(model, sizes)
        about = "what is written so far: the entry that begins a text, and what came after it"
        written = Port("decoder_input_ids", about, filled(2, 4), ("rows", "written"))
        self.inputs.append(written)
        self.outputs = [Port("scores", "of the word after each written one, before a softmax")]
        if vars(model.settings).get("ctc"):
            self.outputs.append(Port("ctc", CTC))

    def through(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        *tensors, written = tensors
        padded = torch.cat((written, written[:, :1]), 1)  # the last column is never read
        asked = Words(padded, written.new_ones(written.shape[0]))
        out = self.model.states(Batch(self.read_from(tensors), asked))
        heard = () if out.heard is None else (self.model.ctc(out.heard.states),)
        return self.model.output(out.states), *heard


CTC = "scores of what is written at each place of what is read, the last entry for nothing (CTC)"


class Onward(Graph):
    """A piece of text, and what a net remembers -> scores of the word after each, and what it
    remembers then."""

    def __init__(self, model: Model, sizes: Sizes) -> None:
        super().__init__(model, sizes)
        self.outputs = [Port("scores", "of the word after each, before a softmax")]
        for number, vector in enumerate(self.model.begin(2)):
            about = f"zeros before the first piece, and then what was present_{number}"
            axes = ("rows", *map(str, vector.shape[1:]))
            self.inputs.append(Port(f"past_{number}", about, vector, axes))
            self.outputs.append(Port(f"present_{number}", f"for the next piece's past_{number}"))

    def through(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        ids, *past = tensors
        out = self.model.states(Batch(Running(ids), Nothing(), tuple(past)))
        return self.model.output(out.states), *out.past


class Reader(Graph):
    """All that is read -> what a writer with a state begins with."""

    def __init__(self, model: Model, sizes: Sizes) -> None:
        super().__init__(model, sizes)
        state = begun(model, self.read)
        self.outputs = [Port(name, "for decoder.onnx") for name in names_of(state)]
        if state.heard is not None:
            self.outputs += [Port("ctc", CTC), Port("ctc_lengths", "how many places are real")]

    def through(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        state = begun(self.model, self.read_from(tensors))
        return *state.tensors(), *(state.heard or ())


class Step(Graph):
    """The last word, and a state -> scores of the next, and the state after it."""

    def __init__(self, model: Model, sizes: Sizes) -> None:
        super().__init__(model, sizes)
        self.state = begun(model, self.read)
        about = "the entry that begins a text, and then the last that was written"
        self.inputs = [Port("last", about, filled(2), ("rows",))]
        self.outputs = [Port("scores", "of the next word, before a softmax")]
        other = begun(model, example_of(model, sizes, 3, 9)).tensors()
        states = zip(names_of(self.state), self.state.tensors(), other, strict=True)
        for name, tensor, longer in states:
            sides = zip(tensor.shape[1:], longer.shape[1:], strict=True)
            axes = ["rows", *(str(a) if a == b else "places" for a, b in sides)]
            present = name.replace("past", "present")
            before = "what encoder.onnx calls so"
            about = before if present == name else f"{before}, and then what was {present}"
            self.inputs.append(Port(name, about, tensor.contiguous(), axes))
            if present != name:
                self.outputs.append(Port(present, f"for the next step's {name}"))

    def through(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        last, *rest = tensors
        # Only the kind of state is taken from the example; all of its tensors are replaced.
        state = copy(self.state)
        state.past, state.memory = copy(state.past), copy(state.memory)
        state.put(rest)
        scores, state = self.model.step(last, state)
        return scores, *state.past.tensors()


def begun(model: Any, read: Tensors) -> Any:
    with torch.no_grad():
        return model.start(Batch(read, Nothing()))


def names_of(state: Any) -> list[str]:
    """What the tensors of a state are called: its own past, and what it looks at."""
    past = len(state.past.tensors())
    memory = len(state.tensors()) - past
    return [f"past_{n}" for n in range(past)] + [f"memory_{n}" for n in range(memory)]


def graphs_of(model: Model, sizes: Sizes, normalise: bool = False) -> dict[str, Graph]:
    """By the names of their files."""
    writes = sizes.asked in (Words, Tokens) and isinstance(model, Writes)
    carried = writes and isinstance(begun(model, example_of(model, sizes)).past, Carried)
    if carried and sizes.asked is Words:
        return {"encoder.onnx": Reader(model, sizes), "decoder.onnx": Step(model, sizes)}
    if carried:
        return {"model.onnx": Onward(model, sizes)}
    if sizes.asked is Words:
        return {"model.onnx": Writer(model, sizes)}
    return {"model.onnx": Answer(model, sizes, normalise)}


class Recurrence(NamedTuple):
    """How ONNX calls a recurrent layer, and which of torch's gates it has first, second, …"""

    name: str
    gates: tuple[int, ...]
    options: dict[str, int]


RECURRENT: dict[object, Recurrence] = {
    torch.lstm: Recurrence("LSTM", (0, 3, 1, 2), {}),
    torch.gru: Recurrence("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    torch.rnn_tanh: Recurrence("RNN", (0,), {}),
}


class LayersAsNodes(TorchFunctionMode):
    """While this lasts, a recurrent layer is one node, for texts of any length; torch's own
    exporter would write its steps out, as many as the example has."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        layer = RECURRENT.get(func)
        if layer is None:
            return func(*args, **(kwargs or {}))
        x, past, weights = args[:3]
        past = past if isinstance(past, list | tuple) else [past]  # (1, B, W) each
        ordered = (torch.cat([w.chunk(len(layer.gates))[i] for i in layer.gates]) for w in weights)
        read, carry, *biases = ordered
        rows, steps, size = x.shape[0], x.shape[1], past[0].shape[-1]
        given = (x.transpose(0, 1), read[None], carry[None], torch.cat(biases)[None], None, *past)
        shapes = [(steps, 1, rows, size), *[(1, rows, size)] * len(past)]
        out, *last = torch.onnx.ops.symbolic_multi_out(
            layer.name, given, {"hidden_size": size, **layer.options},
            dtypes=[x.dtype] * len(shapes), shapes=shapes, version=18,
        )  # fmt: skip
        return out[:, 0].transpose(0, 1), *last  # (B, T, W)
