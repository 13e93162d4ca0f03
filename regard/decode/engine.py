"""Many requests at once: each joins the running batch at the next step, and leaves when it is done.

One thread owns the model. A request's prompt is read in pieces between the others' steps, so that a
long one stalls nobody; what prompts have in common is read once. Greedy, drawn and searched answers
stand side by side in one batch, and none depends on its neighbours.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from ..parts.state import Cache, Memory, State
from .beam import Search, grow, harvest
from .rules import Rules, keep_likely
from .sample import draw, throws
from .settings import Hypothesis, Limits, Settings

PIECE = 128  # tokens of a prompt read between two steps of the others
SHARED = 16  # a common beginning of prompts is worth keeping from this many tokens on


@dataclass
class Token:
    """One token of an answer, as it comes."""

    copy: int  # of several answers, which
    id: int
    score: float  # log-probability
    others: list[tuple[int, float]] = field(default_factory=list)  # the likeliest


@dataclass
class Done:
    """A request has ended: its answers, or why there are none."""

    answers: list[Hypothesis]
    error: BaseException | None = None


class Told(Protocol):
    """Who asked is told what happens, from the engine's thread; it must not wait."""

    def __call__(self, event: Token | Done) -> None: ...


@dataclass(eq=False)
class Request:
    """What somebody wants written."""

    limits: Limits  # of one row
    settings: Settings
    tell: Told
    source: Any = None  # a batch of one row for the encoder; None: the prompt is all there is
    others: int = 0  # likeliest tokens to tell with each
    cancelled: bool = False

    def cancel(self) -> None:
        """It leaves before the next step."""
        self.cancelled = True

    @property
    def rows(self) -> int:
        s = self.settings
        return s.num_beams if s.kind == "beam" else s.num_return_sequences


class Rows:
    """The states of all running rows in tensors that stay; rows move, tensors do not.

    A row that leaves is overwritten by the last, so that the first `count` are always in use.
    """

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self.cache: Cache | None = None
        self.memory: Memory | None = None

    def add(self, state: State[Cache], copies: int) -> list[int]:
        """Copies of a state of one row; where they are now."""
        self._make_room(state)
        assert self.cache is not None and self.count + copies <= self.most
        places = list(range(self.count, self.count + copies))
        past, length = state.past, int(state.past.lengths[0])
        for place in places:
            self.cache.keys[:, place, :, :length] = past.keys[:, 0, :, :length]
            self.cache.values[:, place, :, :length] = past.values[:, 0, :, :length]
            self.cache.lengths[place] = length
            if self.memory is not None and state.memory is not None:
                width = state.memory.mask.shape[-1]
                for mine, other in zip(self.memory.keys, state.memory.keys, strict=True):
                    mine[place, :, :width] = other[0]
                for mine, other in zip(self.memory.values, state.memory.values, strict=True):
                    mine[place, :, :width] = other[0]
                self.memory.mask[place] = False
                self.memory.mask[place, ..., :width] = state.memory.mask[0]
        self.count += copies
        return places

    def _make_room(self, state: State[Cache]) -> None:
        past = state.past
        if self.cache is None:
            layers, _, heads, _, width = past.keys.shape
            self.cache = Cache.empty(layers, self.most, heads, width, past.keys)
            self.cache.used, self.cache.even = None, False
            if state.memory is not None:
                shapes = [(self.most, k.shape[1], 0, k.shape[3]) for k in state.memory.keys]
                self.memory = Memory(
                    [past.keys.new_zeros(shape) for shape in shapes],
                    [past.keys.new_zeros(shape) for shape in shapes],
                    torch.zeros(self.most, 1, 1, 0, dtype=torch.bool, device=past.keys.device),
                )
        self.cache.reserve(int(past.lengths[0]) + 1)
        if self.memory is not None and state.memory is not None:
            missing = state.memory.mask.shape[-1] - self.memory.mask.shape[-1]
            if missing > 0:
                wider = torch.nn.functional.pad
                self.memory.keys = [wider(k, (0, 0, 0, missing)) for k in self.memory.keys]
                self.memory.values = [wider(v, (0, 0, 0, missing)) for v in self.memory.values]
                self.memory.mask = wider(self.memory.mask, (0, missing))

    def view(self) -> State[Cache]:
        """The rows in use as a state; steps write through it."""
        assert self.cache is not None
        n, cache = self.count, self.cache
        most = int(cache.lengths[:n].max()) + 1
        if most > cache.keys.shape[3]:
            cache.reserve(max(most, cache.keys.shape[3] * 5 // 4))
        keys, values = cache.keys[:, :n, :, :most], cache.values[:, :n, :, :most]
        past = Cache(keys, values, cache.lengths[:n], None, False)
        memory = None
        if self.memory is not None:
            width = int(self.memory.mask[:n].sum(-1).max())
            memory = Memory(
                [k[:n, :, :width] for k in self.memory.keys],
                [v[:n, :, :width] for v in self.memory.values],
                self.memory.mask[:n, ..., :width],
            )
        return State(past, memory)

    def advance(self) -> None:
        assert self.cache is not None
        self.cache.lengths[: self.count] += 1

    def copy(self, sources: list[int], targets: list[int]) -> None:
        """Rows take over what others have: beams that go on from another."""
        if sources == targets:
            return
        assert self.cache is not None
        most = int(self.cache.lengths[: self.count].max())
        for tensor in (self.cache.keys, self.cache.values):
            tensor[:, targets, :, :most] = tensor[:, sources][:, :, :, :most]
        self.cache.lengths[targets] = self.cache.lengths[sources]

    def remove(self, place: int) -> int:
        """Free a row; the place of the row that took it over, which may be itself."""
        last = self.count - 1
        if place != last:
            assert self.cache is not None
            self.copy([last], [place])
            if self.memory is not None:
                for tensor in (*self.memory.keys, *self.memory.values, self.memory.mask):
                    tensor[place] = tensor[last]
        self.count = last
        return last


class Running:
    """A request in the batch: its rows, and what each has written."""

    def __init__(self, request: Request, places: list[int]) -> None:
        self.request, self.places = request, places
        self.limits, self.settings = request.limits, request.settings
        device = self.limits.prompt.device
        self.obey = Rules(self.limits, self.settings)
        self.most, self.length = int(self.limits.longest[0]), 0
        self.search: Search | None = None
        if self.settings.kind == "beam":
            self.search = Search.begin(self.limits, self.settings.num_beams)
        copies = len(places)
        self.written = self.limits.prompt.repeat(copies, 1)  # (R, t)
        self.totals = [0.0] * copies
        self.answers: dict[int, Hypothesis] = {}  # by copy
        self.copies = list(range(copies))  # which copy each of `places` is
        if self.settings.kind == "sample":
            every = [throws(self.settings.seed, copy, self.most) for copy in range(copies)]
            self.thrown = torch.stack(every).to(device)

    @property
    def last(self) -> Tensor:
        """The newest token of each row.  -> (R,)"""
        if self.search is not None:
            return self.search.written[0, :, -1]
        return self.written[:, -1]


class Engine:
    """One model, one thread, many requests.

    `prompt` makes of ids (1, P) the batch that `start` takes, for a model without an encoder.
    """

    def __init__(
        self,
        model: Any,
        prompt: Callable[[Tensor], Any] | None = None,
        most_rows: int = 64,
        most_waiting: int = 256,
        kept_prompts: int = 8,
    ) -> None:
        self.model, self.prompt = model, prompt
        self.most_rows, self.most_waiting, self.kept = most_rows, most_waiting, kept_prompts
        self.waiting: deque[Request] = deque()
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]]
        self.jobs = deque()
        self.running: list[Running] = []
        self.rows = Rows(most_rows)
        self.reading: tuple[Request, State[Cache], int] | None = None
        self.prompts: OrderedDict[tuple[int, ...], tuple[Tensor, Tensor]] = OrderedDict()
        self.changed = threading.Condition()
        self.leaving, self.steps, self.tokens, self.reused = False, 0, 0, 0
        self.thread = threading.Thread(target=self._work, name="model", daemon=True)
        self.thread.start()

    # What others call, from any thread.

    def submit(self, request: Request) -> bool:
        """Let a request wait for its turn; False where too many do."""
        with self.changed:
            waiting = sum(not r.cancelled for r in self.waiting)
            if self.leaving or waiting >= self.most_waiting:
                return False
            self.waiting.append(request)
            self.changed.notify()
        return True

    def call(
        self, job: Callable[[], Any], then: Callable[[Any, BaseException | None], None]
    ) -> bool:
        """Run something else with the model, between two steps."""
        with self.changed:
            if self.leaving or len(self.jobs) >= self.most_waiting:
                return False
            self.jobs.append((job, then))
            self.changed.notify()
        return True

    @property
    def load(self) -> dict[str, int]:
        waits = len(self.waiting) + len(self.jobs) + (self.reading is not None)
        return {"waiting": waits, "running": len(self.running), "rows": self.rows.count}

    def close(self, seconds: float = 10.0) -> None:
        """Take nothing new, finish what runs within so many seconds, then stop."""
        with self.changed:
            self.leaving = True
            self.changed.notify()
        self.thread.join(seconds)
        for request in (*self.waiting, *(r.request for r in self.running)):
            request.cancel()
        self.thread.join(1.0)

    # The model's thread.

    @torch.inference_mode()
    def _work(self) -> None:
        while True:
            with self.changed:
                while not (self.waiting or self.running or self.jobs or self.reading):
                    if self.leaving:
                        return
                    self.changed.wait()
            try:
                self._drop_cancelled()
                if self.jobs:
                    self._do(*self.jobs.popleft())
                left = PIECE
                while left > 0 and (read := self._read_on(left)):
                    left -= read
                if self.running:
                    self._step()
            except BaseException as error:  # a fault of the model is told to all who wait for it
                self._fail(error)

    def _do(
        self, job: Callable[[], Any], then: Callable[[Any, BaseException | None], None]
    ) -> None:
        try:
            result = job()
        except BaseException as error:
            then(None, error)
        else:
            then(result, None)

    def _drop_cancelled(self) -> None:
        if self.reading is not None and self.reading[0].cancelled:
            self.reading = None
        for running in [r for r in self.running if r.request.cancelled]:
            for place in sorted(running.places, reverse=True):
                self._free(place)
            running.places = []
            self.running.remove(running)
        with self.changed:
            kept = deque(r for r in self.waiting if not r.cancelled)
            self.waiting = kept

    def _fail(self, error: BaseException) -> None:
        """Nobody waits for what will not come; those who still wait have their turn."""
        told = [running.request for running in self.running]
        told += [self.reading[0]] if self.reading is not None else []
        self.running, self.reading, self.rows = [], None, Rows(self.most_rows)
        for request in told:
            request.tell(Done([], error))

    def _read_on(self, most: int) -> int:
        """Begin with the request that has waited longest, or read on in its prompt.

        -> how many tokens were read; 0: there is nothing to read, or no room for it
        """
        if self.reading is None:
            with self.changed:
                if not self.waiting or self.rows.count + self.waiting[0].rows > self.most_rows:
                    return 0
                request = self.waiting.popleft()
            try:
                self.reading = (request, *self._begin(request))
            except BaseException as error:  # too long a source, say, or no memory for it
                request.tell(Done([], error))
                return 1
        request, state, done = self.reading
        ids = request.limits.prompt
        count = PIECE if request.source is not None else 1
        if request.source is None:
            end = min(done + most, ids.shape[1] - 1)
            count = max(1, end - done)
            if end > done:
                try:
                    _, state = self.model.extend(ids[:, done:end], state)
                except BaseException as error:
                    self.reading = None
                    request.tell(Done([], error))
                    return count
            if end < ids.shape[1] - 1:
                self.reading = (request, state, end)
                return count
            self._keep(ids[0].tolist(), state)
        self.reading = None
        self.running.append(Running(request, self.rows.add(state, request.rows)))
        return count

    def _begin(self, request: Request) -> tuple[State[Cache], int]:
        """A state that has read the source; or what the prompt shares with one read before."""
        if request.source is not None:
            return self.model.start(request.source), 0
        assert self.prompt is not None
        ids = request.limits.prompt
        state: State[Cache] = self.model.start(self.prompt(ids[:, :1]))
        best, found = 0, None
        text = ids[0, :-1].tolist()
        for known, kept in self.prompts.items():
            pairs = zip(known, text, strict=False)
            common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            if common > best:
                best, found = common, (known, kept)
        if found is None or best < SHARED:
            return state, 0
        known, (keys, values) = found
        self.prompts.move_to_end(known)
        state.past.reserve(best)
        state.past.keys[:, :, :, :best] = keys[:, :, :, :best]
        state.past.values[:, :, :, :best] = values[:, :, :, :best]
        state.past.advance(best)
        self.reused += best
        return state, best

    def _keep(self, ids: list[int], state: State[Cache]) -> None:
        """Remember what a prompt was read as, for those that begin alike."""
        length = len(ids) - 1
        if length < SHARED or not self.kept:
            return
        past = state.past
        name = tuple(ids[:-1])
        self.prompts[name] = (
            past.keys[:, :, :, :length].clone(),
            past.values[:, :, :, :length].clone(),
        )
        self.prompts.move_to_end(name)
        while len(self.prompts) > self.kept:
            self.prompts.popitem(last=False)

    def _step(self) -> None:
        """One token for every row."""
        last = torch.zeros(self.rows.count, dtype=torch.long, device=self._device)
        for running in self.running:
            last[running.places] = running.last
        logits, _ = self.model.step(last, self.rows.view())
        self.rows.advance()
        self.steps, self.tokens = self.steps + 1, self.tokens + self.rows.count
        logits = logits.float()
        # Taken before anybody leaves, for then rows move.
        for running, own in [(r, logits[r.places]) for r in self.running]:
            if running.search is not None:
                self._search(running, own)
            else:
                self._choose(running, own)

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    def _choose(self, running: Running, logits: Tensor) -> None:
        """The next token of each of a request's answers; those that end leave."""
        request, settings = running.request, running.settings
        scores = running.obey(logits, running.written)
        if settings.kind == "greedy":
            chosen = scores.argmax(-1)
        else:
            thrown = running.thrown[running.copies, running.length]
            chosen = draw(keep_likely(scores, settings), thrown)
        logs = scores.log_softmax(-1)
        gains = logs.gather(1, chosen[:, None])[:, 0].tolist()
        tops = logs.topk(min(request.others, logs.shape[1]), -1) if request.others else None
        running.written = torch.cat((running.written, chosen[:, None]), 1)
        running.length += 1
        ended: list[int] = []
        prompt = running.limits.prompt.shape[1]
        for row, (token, gain) in enumerate(zip(chosen.tolist(), gains, strict=True)):
            copy = running.copies[row]
            running.totals[copy] += gain
            others: list[tuple[int, float]] = []
            if tops is not None:
                pairs = (tops.indices[row].tolist(), tops.values[row].tolist())
                others = list(zip(*pairs, strict=True))
            request.tell(Token(copy, token, gain, others))
            properly = token == running.limits.eos
            if properly or running.length >= running.most:
                ids = running.written[row, prompt:].tolist()
                ids = ids[:-1] if properly else ids
                running.answers[copy] = Hypothesis(ids, running.totals[copy], properly)
                ended.append(row)
        if ended:
            self._leave(running, ended)

    def _leave(self, running: Running, ended: list[int]) -> None:
        stay = [row for row in range(len(running.places)) if row not in ended]
        gone = [running.places[row] for row in ended]
        running.places = [running.places[row] for row in stay]
        running.copies = [running.copies[row] for row in stay]
        running.written = running.written[stay]
        for place in sorted(gone, reverse=True):
            self._free(place)
        if not running.places:
            self.running.remove(running)
            found = [running.answers[copy] for copy in sorted(running.answers)]
            running.request.tell(Done(found))

    def _search(self, running: Running, logits: Tensor) -> None:
        """One step of a beam; its rows take over from those that they go on from."""
        search, limits = running.search, running.limits
        assert search is not None
        running.length += 1
        scores = running.obey(logits, search.written.flatten(0, 1))
        at_limit = running.length >= running.most
        parents, done = grow(search, scores, limits.eos, running.length, running.settings, at_limit)
        if bool(done[0]):
            answers: list[list[Hypothesis]] = [[]]
            count = running.settings.num_return_sequences
            harvest(search, done, answers, count, limits.prompt.shape[1])
            for place in sorted(running.places, reverse=True):
                self._free(place)
            running.places = []
            self.running.remove(running)
            running.request.tell(Done(answers[0]))
            return
        sources = [running.places[parent] for parent in parents[0].tolist()]
        self.rows.copy(sources, running.places)

    def _free(self, place: int) -> None:
        """A row leaves; whose row was the last has it in its place now."""
        last = self.rows.remove(place)
        if last == place:
            return
        for running in self.running:
            running.places = [place if p == last else p for p in running.places]


def wait_for(engine: Engine, request: Request, seconds: float = 60.0) -> Done:
    """Submit and wait: for tests, and for who has nothing else to do."""
    ready, kept = threading.Event(), list[Done]()
    tell = request.tell

    def listen(event: Token | Done) -> None:
        tell(event)
        if isinstance(event, Done):
            kept.append(event)
            ready.set()

    request.tell = listen
    began = time.perf_counter()
    if not engine.submit(request) or not ready.wait(seconds):
        request.cancel()
        raise TimeoutError(f"no answer after {time.perf_counter() - began:.0f} s")
    return kept[0]
