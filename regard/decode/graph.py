"""Steps on a GPU replayed as one graph: starting kernels one by one takes longer than running them.

A captured step reads and writes fixed places in memory. So a state is fixed before its step is
captured (room for more tokens, nothing moves), and a later state of the same shapes is copied into
those places and uses the same graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..model import AnyBatch, AnyState, Model, Writes, WritingModel
from ..parts.block import compiled_steps
from .rows import CacheRows, EngineRows, power_of_two
from .settings import Settings

PATIENCE = 3  # plain steps before a capture, which costs about five: short answers need none
ROOM = 64  # tokens more that a fixed state has room for; then it grows and is captured again
MOST = 8  # graphs kept
MOST_IN_PLACE = 64  # graphs kept of rows that stay: by number of rows and by length


@dataclass
class Graph:
    """A captured step and the places that it works on."""

    replay: torch.cuda.CUDAGraph
    last: Tensor  # (B,)
    logits: Tensor  # (B, V)
    tensors: list[Tensor]


class Captured:
    """A model with the same `start` and `step`; steps that repeat are replayed.

    It serves one decoding at a time: the state that it steps is the one that it last started.
    """

    def __init__(self, model: WritingModel, compiled: bool = False) -> None:
        self.model = model
        # What is captured may be compiled first: fewer and larger kernels, after some seconds.
        self.compiled = compiled
        self.graphs: dict[tuple[object, ...], Graph] = {}
        self.graph: Graph | None = None  # the one that the current state's places belong to
        self.plain = self.left = self.length = 0

    def start(self, batch: AnyBatch) -> AnyState:
        self.graph, self.plain = None, 0
        return self.model.start(batch)

    def step(self, last: Tensor, state: AnyState) -> tuple[Tensor, AnyState]:
        if self.graph is None and self.plain < PATIENCE:
            self.plain += 1
            logits, state = self.model.step(last, state)
            self.length = state.length
            return logits, state
        if self.graph is None or self.left == 0 or len(last) != len(self.graph.last):
            self.graph = self.find_graph(last, state)
        self.left, self.length = self.left - 1, self.length + 1
        self.graph.last.copy_(last)
        self.graph.replay.replay()
        return self.graph.logits, state

    def find_graph(self, last: Tensor, state: AnyState) -> Graph:
        """Fix the state with some room, and find or make the graph for its shapes."""
        places = -(-(self.length + ROOM // 2) // ROOM) * ROOM
        self.left = places - self.length
        state.fix(places)
        own = state.tensors()
        # Weights that have moved or been cast are read elsewhere.
        weight = next(self.model.parameters())
        shapes = (
            *(tensor.shape for tensor in (last, *own)),
            (weight.data_ptr(), weight.dtype, torch.is_autocast_enabled("cuda")),
        )
        if shapes not in self.graphs:
            if len(self.graphs) >= MOST:
                self.graphs.clear()
            self.graphs[shapes] = self.capture(last, state)
        graph = self.graphs[shapes]
        for mine, theirs in zip(graph.tensors, own, strict=True):
            if mine is not theirs:
                mine.copy_(theirs)
        state.put(list(graph.tensors))
        return graph

    def capture(self, last: Tensor, state: AnyState) -> Graph:
        """Record one step; what it changes is put back, so that the first replay is the step."""
        kept, last = [tensor.clone() for tensor in state.tensors()], last.clone()
        places = state.tensors()
        with capturing() as record:
            self.one(last, state, places)
            graph = torch.cuda.CUDAGraph()
            with record(graph):
                logits = self.one(last, state, places)
        for place, before in zip(places, kept, strict=True):
            place.copy_(before)
        return Graph(graph, last, logits, places)

    def one(self, last: Tensor, state: AnyState, places: list[Tensor]) -> Tensor:
        """A step whose new state ends up in the places of the old."""
        with compiled_steps(self.model.modules()) if self.compiled else nullcontext():
            logits, after = self.model.step(last, state)
        for place, tensor in zip(places, after.tensors(), strict=True):
            if place is not tensor:
                place.copy_(tensor)
        after.put(list(places))
        return logits


class InPlace:
    """Steps of rows that join and leave; on a GPU captured, once for each shape that comes often.

    Rows stay where they are, so a graph needs nothing but the shapes: a few rows more than there
    are go through, as many as the next power of two.
    """

    def __init__(self, model: Model | WritingModel) -> None:
        self.writer = model if isinstance(model, WritingModel) else None
        self.met: Counter[tuple[object, ...]] = Counter()
        self.graphs: dict[tuple[object, ...], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.pool: object = None

    def __call__(self, rows: EngineRows) -> Tensor:
        """One token more for every row.  -> logits (R, V), to be read before the next call"""
        whole = rows.device.type == "cuda" and isinstance(rows.past, CacheRows)
        state = rows.view(power_of_two(rows.count) if whole else rows.count)
        last = rows.last[: state.past.rows]
        logits = self.replayed(last, state) if whole else self.plain(last, state)
        rows.advance(state)
        return logits[: rows.count]

    def plain(self, last: Tensor, state: AnyState) -> Tensor:
        assert self.writer is not None
        return self.writer.step(last, state)[0]

    def replayed(self, last: Tensor, state: AnyState) -> Tensor:
        # Addresses come again when rows have moved, so how the tensors lie there counts too.
        shapes = tuple((t.data_ptr(), t.shape, t.stride()) for t in (last, *state.tensors()))
        self.met[shapes] += 1
        if len(self.met) > 16 * MOST_IN_PLACE:
            self.met.clear()
        if shapes not in self.graphs:
            if self.met[shapes] < PATIENCE:
                return self.plain(last, state)
            if len(self.graphs) >= MOST_IN_PLACE:
                self.graphs.clear()
                self.met.clear()
            self.graphs[shapes] = self.capture(last, state)
        graph, logits = self.graphs[shapes]
        graph.replay()
        return logits

    def capture(self, last: Tensor, state: AnyState) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A step writes the same each time until rows have advanced, so it may be made twice."""
        lengths = state.past.lengths
        with capturing() as record:
            self.plain(last, state)
            state.past.lengths = lengths
            graph = torch.cuda.CUDAGraph()
            with record(graph, self.pool):
                logits = self.plain(last, state)
        self.pool = self.pool or graph.pool()
        return graph, logits


@contextmanager
def capturing() -> Iterator[Callable[..., Any]]:
    """What comes first sets libraries up on a stream beside; what is then recorded is captured."""
    side, before = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(before)
    cached = torch.is_autocast_cache_enabled()

    @contextmanager
    def record(graph: torch.cuda.CUDAGraph, pool: Any = None) -> Iterator[None]:
        torch.cuda.set_stream(before)
        before.wait_stream(side)
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield

    torch.cuda.set_stream(side)
    torch.set_autocast_cache_enabled(False)  # a captured graph must make its own casts
    torch.clear_autocast_cache()
    try:
        yield record
    finally:
        torch.cuda.set_stream(before)
        torch.set_autocast_cache_enabled(cached)


def with_cuda_graphs(model: Model | WritingModel, settings: Settings) -> Writes:
    """The model with its steps captured where that can be: on a GPU, while nobody watches.

    What is captured is kept with the model, so that the next batch of those shapes finds it.
    """
    assert isinstance(model, WritingModel), "only what writes can be decoded"
    off = settings.compile == "off" or next(model.parameters()).device.type != "cuda"
    if off or _watched(model):
        return model
    kept = vars(model).setdefault("captured", {})
    if settings.compile not in kept:
        kept[settings.compile] = Captured(model, settings.compile == "full")
    captured: Captured = kept[settings.compile]
    return captured


def _watched(model: WritingModel) -> bool:
    return any(part._forward_hooks for part in model.modules())
