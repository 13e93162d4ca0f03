"""Many requests at once: each joins the running batch at the next step, and leaves when it is done.

One thread owns the model. A request's prompt is read in pieces between the others' steps, so that a
long one stalls nobody; what prompts have in common is read once. Greedy, drawn and searched answers
stand side by side in one batch, and none depends on its neighbours. Whatever else is done with the
model is a job between two steps, and can be stopped at every layer.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from ..model import AnyBatch, AnyState, Model, WritesOn, WritingModel
from ..parts.state import Cache
from .beam import Beam
from .graph import InPlace
from .request import Done, Group, OngoingRequest, Request, Token
from .rows import EngineRows
from .settings import Hypothesis
from .stepper import fitting

PIECE = 128  # tokens of a prompt read between two steps of the others
SHARED = 16  # a common beginning of prompts is worth keeping from this many tokens on

__all__ = ["Done", "Engine", "Job", "Request", "StoppedError", "Token"]


class StoppedError(Exception):
    """A job that nobody waits for any more."""


class Job:
    """Something to do with the model, and whom to tell; where it yields, the others have a turn."""

    def __init__(
        self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]
    ) -> None:
        self.work, self.then, self.cancelled = work, then, False
        self.turns: Iterator[object] | None = None

    def cancel(self) -> None:
        """It is not begun, or stops at the next layer."""
        self.cancelled = True

    def go_on(self) -> bool:
        """Do some of it; whether that was all."""
        if self.cancelled:
            return True
        try:
            with stopping(lambda: self.cancelled):
                if self.turns is None:
                    result = self.work()
                    if not isinstance(result, Iterator):
                        self.then(result, None)
                        return True
                    self.turns = result
                next(self.turns)
                return False
        except StopIteration as end:
            self.then(end.value, None)
        except BaseException as error:
            self.then(None, error)
        return True


@contextmanager
def stopping(asked: Callable[[], bool]) -> Iterator[None]:
    """Whatever this thread does with modules ends with an error soon after it is asked to."""
    mine = threading.get_ident()

    def look(module: torch.nn.Module, inputs: object) -> None:
        if threading.get_ident() == mine and asked():
            raise StoppedError

    handle = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()


def tell(request: Request, event: Token | Done) -> None:
    """Tell who asked; one who cannot listen any more leaves, and nobody else notices."""
    try:
        request.tell(event)
    except Exception:
        request.cancel()
        logging.getLogger(__name__).exception("a request could not be told its answer")


class Engine:
    """One model, one thread, many requests.

    `prompt` makes of ids (1, P) the batch that `start` takes, for a model without an encoder.
    """

    def __init__(
        self,
        model: Model | WritingModel,
        prompt: Callable[[Tensor], AnyBatch] | None = None,
        most_rows: int = 64,
        most_waiting: int = 256,
        most_tokens: int = 2**17,
        kept_prompts: int = 8,
    ) -> None:
        self.model, self.prompt = model, prompt
        self.most_rows, self.most_waiting = most_rows, most_waiting
        self.most_tokens, self.kept = most_tokens, kept_prompts
        self.device: torch.device = next(model.parameters()).device
        self.waiting: deque[Request] = deque()
        self.jobs: deque[Job] = deque()
        self.job: Job | None = None  # the one that is being done
        self.running: list[OngoingRequest] = []
        self.groups: list[Group] | None = None  # None: who runs has changed
        self.rows = EngineRows(self.device)
        self.step = InPlace(model)
        self.reading: tuple[Request, AnyState, int] | None = None
        self.prompts: OrderedDict[tuple[int, ...], tuple[Tensor, Tensor]] = OrderedDict()
        self.changed = threading.Condition()
        self.leaving, self.steps, self.tokens, self.reused = False, 0, 0, 0
        self.thread = threading.Thread(target=self._work, name="model", daemon=True)
        self.thread.start()

    # What others call, from any thread.

    def fits(self, request: Request) -> bool:
        """Whether there can ever be room for it."""
        rows, tokens = request.rows, self._held(request)
        return rows <= self.most_rows and rows * tokens <= self.most_tokens

    def submit(self, request: Request) -> bool:
        """Let a request wait for its turn; False where too many do, or it can never have one."""
        with self.changed:
            waiting = sum(not r.cancelled for r in self.waiting)
            if self.leaving or waiting >= self.most_waiting or not self.fits(request):
                return False
            self.waiting.append(request)
            self.changed.notify()
        return True

    def call(
        self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]
    ) -> Job | None:
        """Do something else with the model, between two steps; None where too much waits."""
        job = Job(work, then)
        with self.changed:
            if self.leaving or sum(not j.cancelled for j in self.jobs) >= self.most_waiting:
                return None
            self.jobs.append(job)
            self.changed.notify()
        return job

    @property
    def writer(self) -> WritingModel:
        """The model, where it writes; one that does not is only ever called."""
        assert isinstance(self.model, WritingModel)
        return self.model

    @property
    def writes_on(self) -> WritesOn:
        assert isinstance(self.model, WritesOn)
        return self.model

    @property
    def load(self) -> dict[str, int]:
        waits = len(self.waiting) + len(self.jobs) + (self.reading is not None)
        running = len(self.running) + (self.job is not None)
        return {"waiting": waits, "running": running, "rows": self.rows.count}

    def close(self, seconds: float = 10.0) -> None:
        """Take nothing new, finish what runs within so many seconds, then stop."""
        with self.changed:
            self.leaving = True
            self.changed.notify()
        self.thread.join(seconds)
        with self.changed:
            left: list[Request | Job | None] = [*self.waiting, *self.jobs, self.job]
            left += [running.request for running in list(self.running)]
            reading = self.reading
        for one in (*left, reading[0] if reading is not None else None):
            if one is not None:
                one.cancel()
        self.thread.join(2.0)

    # The model's thread.

    @torch.inference_mode()
    def _work(self) -> None:
        while True:
            with self.changed:
                while not (self.waiting or self.running or self.jobs or self.reading or self.job):
                    if self.leaving:
                        return
                    self.changed.wait()
            try:
                self._drop_cancelled()
                self._work_on()
                left = PIECE
                while left > 0 and (read := self._read_on(left)):
                    left -= read
                if self.running:
                    self._step()
            except BaseException as error:  # a fault of the model is told to all who wait for it
                self._fail(error)

    def _work_on(self) -> None:
        """One turn of the job that is next."""
        if self.job is None:
            with self.changed:
                self.job = self.jobs.popleft() if self.jobs else None
        if self.job is not None and self.job.go_on():
            self.job = None

    def _drop_cancelled(self) -> None:
        if self.reading is not None and self.reading[0].cancelled:
            self.reading = None
        for running in [r for r in self.running if r.request.cancelled]:
            self._leave(running, list(range(len(running.places))), None)
        with self.changed:
            self.waiting = deque(r for r in self.waiting if not r.cancelled)

    def _fail(self, error: BaseException) -> None:
        """Nobody waits for what will not come; those who still wait have their turn."""
        told = [running.request for running in self.running]
        told += [self.reading[0]] if self.reading is not None else []
        self.running, self.reading, self.groups = [], None, None
        self.rows, self.step = EngineRows(self.device), InPlace(self.model)
        for request in told:
            tell(request, Done([], error))

    # Prompts.

    def _held(self, request: Request) -> int:
        """Tokens that a row of a request holds at most; a model that slides holds what it can."""
        if request.source is not None:
            return request.tokens
        bounds = [n for n in (self.model.longest, self.model.kept) if n is not None]
        return min(request.tokens, *bounds) if bounds else request.tokens

    def _has_room(self, request: Request) -> bool:
        """Whether it may join now: not too many rows, and not too much for all in one shape."""
        rows = self.rows.count + request.rows
        longest = max(self._held(r) for r in (request, *(r.request for r in self.running)))
        return rows <= self.most_rows and rows * longest <= self.most_tokens

    def _read_on(self, most: int) -> int:
        """Begin with the request that has waited longest, or read on in its prompt.

        -> how many tokens were read; 0: there is nothing to read, or no room for it
        """
        if self.reading is None:
            with self.changed:
                if not self.waiting or not self._has_room(self.waiting[0]):
                    return 0
                request = self.waiting.popleft()
        else:
            request = self.reading[0]
        try:
            return self._read(request, most)
        except BaseException as error:  # too long a source, say, or no memory for it
            self.reading = None
            tell(request, Done([], error))
            return 1

    def _read(self, request: Request, most: int) -> int:
        if self.reading is None:
            self.reading = (request, *self._begin(request))
        _, state, done = self.reading
        count = PIECE
        ids = self._placed(request.limits.prompt) if request.source is None else None
        if ids is not None:
            end = min(done + most, ids.shape[1] - 1)
            count = max(1, end - done)
            if end > done:
                _, state = self.writes_on.extend(ids[:, done:end], state)
            if end < ids.shape[1] - 1:
                self.reading = (request, state, end)
                return count
            self._keep(ids[0].tolist(), state)
        self.reading = None
        if not request.cancelled:
            last = int(request.limits.prompt[0, -1])
            places = self.rows.add(state, last, request.rows)
            self.running.append(OngoingRequest(request, places))
            self.groups = None
        return count

    def _placed(self, ids: Tensor) -> Tensor:
        """A prompt, or the part of it that the model can place."""
        return fitting(ids, self.model.longest)

    def _begin(self, request: Request) -> tuple[AnyState, int]:
        """A state that has read the source; or what the prompt shares with one read before."""
        if request.source is not None:
            return self.writer.start(request.source), 0
        assert self.prompt is not None
        ids = self._placed(request.limits.prompt)
        state = self.writer.start(self.prompt(ids[:, :1]))
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

    def _keep(self, ids: list[int], state: AnyState) -> None:
        """Remember what a prompt was read as, for those that begin alike."""
        length = len(ids) - 1
        past = state.past
        if length < SHARED or not self.kept or not isinstance(past, Cache):
            return
        if past.held(length) < length:  # its beginning is no longer there
            return
        name = tuple(ids[:-1])
        self.prompts[name] = (
            past.keys[:, :, :, :length].clone(),
            past.values[:, :, :, :length].clone(),
        )
        self.prompts.move_to_end(name)
        while len(self.prompts) > self.kept:
            self.prompts.popitem(last=False)

    # Steps.

    def _step(self) -> None:
        """One token for every row."""
        if self.groups is None:
            by_kind: dict[Hashable, list[OngoingRequest]] = {}
            for running in self.running:
                if running.beam is None:
                    by_kind.setdefault(running.kind, []).append(running)
            self.groups = [Group(members, self.device) for members in by_kind.values()]
        self._slide()
        logits = self.step(self.rows).float()  # (R, V)
        self.steps, self.tokens = self.steps + 1, self.tokens + self.rows.count
        # All choose before anybody leaves, for then rows move.
        chosen = [(group, *group.choose(logits)) for group in self.groups]
        grown = [
            (running, running.beam, running.beam.advance(logits[running.places]))
            for running in self.running
            if running.beam is not None
        ]
        for running in self.running:
            running.length += 1
        for group, tokens, _ in chosen:
            self.rows.last[group.index] = tokens
        self._follow(grown)
        for group, _, told in chosen:
            self._tell(group, told)
        for running, beam, _ in grown:
            if beam.done:
                self._leave(running, list(range(len(running.places))), beam.answers[0])

    def _slide(self) -> None:
        """Rows that have read all that the model can place go on from the later half of it."""
        longest = self.model.longest
        if longest is None or self.prompt is None:
            return
        for running in self.running:
            for copy, place in zip(running.copies, running.places, strict=True):
                if running.beam is None and self.rows.held(place) >= longest:
                    text = torch.tensor([running.text(copy)], device=self.device)
                    text = fitting(text, longest, slide=True)
                    state = self.writer.start(self.prompt(text))
                    self.rows.put(state, int(text[0, -1]), slice(place, place + 1))

    def _tell(self, group: Group, told: list[Token]) -> None:
        """Each of a group's rows its token; answers that end leave."""
        ended: dict[OngoingRequest, list[int]] = {}
        for (running, copy), token in zip(group.rows, told, strict=True):
            tell(running.request, token)
            if running.add(copy, token.id, token.score):
                ended.setdefault(running, []).append(copy)
        for running, copies in ended.items():
            rows = [running.copies.index(copy) for copy in copies]
            whole = len(rows) == len(running.copies)
            answers = [running.answers[copy] for copy in sorted(running.answers)]
            self._leave(running, rows, answers if whole else None)

    def _follow(self, grown: list[tuple[OngoingRequest, Beam, Tensor]]) -> None:
        """Rows of beams take over from those that they go on from."""
        sources, targets = list[int](), list[int]()
        for running, beam, rows in grown:
            if not beam.done:
                sources += [running.places[row] for row in rows.tolist()]
                targets += running.places
                self.rows.last[running.places] = beam.written[:, -1]
        self.rows.copy(sources, targets)

    def _leave(
        self, running: OngoingRequest, rows: list[int], answers: list[Hypothesis] | None
    ) -> None:
        """Some rows of a request leave; with the last of them, the request does."""
        gone = [running.places[row] for row in rows]
        stay = [row for row in range(len(running.places)) if row not in rows]
        running.places = [running.places[row] for row in stay]
        running.copies = [running.copies[row] for row in stay]
        for place in sorted(gone, reverse=True):
            self._free(place)
        self.groups = None
        if not running.places:
            self.running.remove(running)
            if answers is not None:
                tell(running.request, Done(answers))

    def _free(self, place: int) -> None:
        """A row leaves; whose row was the last has it in its place now."""
        last = self.rows.remove(place)
        if last == place:
            return
        for running in self.running:
            running.places = [place if p == last else p for p in running.places]
