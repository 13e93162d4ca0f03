"""A run that is served: its engine, and how its task's words become requests of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from ..batch import Tokens
from ..config import Value, settle
from ..data.read import is_text
from ..decode import Settings as Decode
from ..decode.engine import Done, Engine, Request, Token
from ..errors import InputError
from ..parts.state import Cache
from ..see.run import Run
from ..tasks.translate import GREEDY
from ..tasks.writer import as_prompt, cut_at, held_back
from .limits import Limits


class BusyError(Exception):
    """Too many wait already."""


@dataclass
class Piece:
    """Some text of one answer, with the tokens that brought it; `reason` when it has ended."""

    index: int
    text: str
    tokens: list[Token]
    reason: str | None = None


class Hosted:
    """One run behind the server."""

    def __init__(self, run: Run, limits: Limits) -> None:
        self.run, self.limits, self.task = run, limits, run.task
        self.name = run.folder.resolve().name
        self.kind = run.recipe.task_kind
        self.writes_on = hasattr(run.task, "stream")
        self.translates = hasattr(run.task, "search") and not self.writes_on
        model: Any = run.model
        self.by_step = (self.writes_on or self.translates) and self._has_cache(model)
        self.engine = Engine(
            model, as_prompt if self.writes_on else None, limits.rows, limits.waiting
        )

    def _has_cache(self, model: Any) -> bool:
        """Whether its rows can join and leave: a recurrent net's are answered batch by batch."""
        device = next(model.parameters()).device
        one = torch.tensor([[self.text.eos]], device=device)
        with torch.inference_mode():
            batch = as_prompt(one) if self.writes_on else self._pairs([self.text.eos])
            state = model.start(batch)
        return isinstance(state.past, Cache)

    @property
    def text(self) -> Any:
        return self.task.text if hasattr(self.task, "text") else self.task.target

    def _pairs(self, ids: Sequence[int]) -> Any:
        return self.task.pairs([list(ids)], [[]]).to(self.run.device)

    def about(self) -> dict[str, Any]:
        """A line of /v1/models."""
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "regard",
            "task": self.kind,
            "streams": self.by_step,
            "attends": bool(self.run.model.looks),
        }

    # Writing, token by token.

    def settle(self, given: dict[str, Any]) -> Decode:
        """How an answer is searched for: the run's own way, changed by what a request says."""
        own, limits = self.run.recipe.decode, self.limits
        known = {f.name for f in fields(own)} - {"batch_tokens", "compile"}
        for name in given:
            if name not in known:
                raise InputError(f"parameters.{name}: no such setting of decode.")
        if given.get("kind") not in (None, "sample") or given.get("temperature") == 0:
            own = replace(own, **GREEDY)
        values = {k: getattr(own, k) for k in known} | given
        if values["max_new_tokens"] is not None and isinstance(values["max_new_tokens"], int):
            values["max_new_tokens"] = min(values["max_new_tokens"], limits.new_tokens)
        said = {k: Value(v, "command line", "parameters", Path()) for k, v in values.items()}
        decode = settle(Decode, "decode", said)
        if decode.num_beams > limits.beams and decode.kind == "beam":
            raise InputError(f"num_beams: at most {limits.beams}, but is {decode.num_beams}.")
        if decode.num_return_sequences > limits.answers:
            raise InputError(f"n: at most {limits.answers}, but is {decode.num_return_sequences}.")
        return decode

    def ids(self, prompt: str | list[int], number: int, decode: Decode) -> list[int]:
        """A prompt's tokens, no more than may be."""
        if isinstance(prompt, list):
            odd = [i for i in prompt if not 0 <= i < self.text.size]
            if odd:
                raise InputError(
                    f"prompt: a token must be from 0 to {self.text.size - 1}, but one is {odd[0]}."
                )
            ids = prompt or [self.text.eos]
        elif self.writes_on:
            ids = self.task.known_ids(prompt, number)
        else:
            if not is_text(prompt):
                raise InputError(f"prompt {number}: the text must be UTF-8, but is not.")
            ids = self.task.read_source([prompt])[0]
        most = self.limits.prompt
        longest: Any = self.run.model.longest
        if self.writes_on and longest is not None:
            most = min(most, longest)  # there must be room for a token more
        elif not self.writes_on:
            most = min(most, self.run.recipe.data.max_length - 1)  # its end is counted
        if len(ids) > most:
            raise InputError(f"prompt {number}: it may have {most} tokens, but has {len(ids)}.")
        return ids

    def request(self, ids: list[int], decode: Decode, others: int, tell: Any) -> Request:
        if self.writes_on:
            longest: Any = self.run.model.longest
            if longest is not None:  # what cannot be placed is not written; it ends by length
                room = min(decode.max_new_tokens, longest + 1 - len(ids))
                decode = replace(decode, max_new_tokens=room, min_new_tokens=0)
            limits = self.task.limits(self.run.model, [ids], decode)
            return Request(limits, decode, tell, None, others)
        source, limits = self.task.search_limits(self.run.model, [ids], decode)
        return Request(limits, decode, tell, source, others)

    async def write(self, ids: list[int], decode: Decode, others: int = 0) -> AsyncIterator[Piece]:
        """Text as it comes, of one answer or several; whoever leaves the loop frees its place."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Token | Done] = asyncio.Queue()

        def tell(event: Token | Done) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        request = self.request(ids, decode, others, tell)
        if not self.engine.submit(request):
            raise BusyError
        texts = [Growing(self, ids, decode.stop) for _ in range(decode.num_return_sequences)]
        told: set[int] = set()
        try:
            while True:
                event = await events.get()
                if isinstance(event, Done):
                    if event.error is not None:
                        raise event.error
                    break
                if event.copy in told:
                    continue
                piece = texts[event.copy].add(event, self.text.eos)
                if piece.text or piece.tokens or piece.reason:
                    yield replace(piece, index=event.copy)
                if piece.reason:
                    told.add(event.copy)
                    if len(told) == len(texts):
                        return
            for index, answer in enumerate(event.answers):
                if index not in told:
                    yield replace(texts[index].end(answer.ids, answer.ended), index=index)
            for index in range(len(event.answers), len(texts)):
                if index not in told:
                    yield Piece(index, "", [], "stop")
        finally:
            request.cancel()

    async def call(self, job: Callable[[], Any]) -> Any:
        """Something else with the model, in its own thread."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if ready.cancelled():
                return
            if error is not None:
                ready.set_exception(error)
            else:
                ready.set_result(result)

        def then(result: Any, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(settle, result, error)

        if not self.engine.call(job, then):
            raise BusyError
        return await ready

    async def predict(self, inputs: list[str], parameters: dict[str, Any]) -> list[dict[str, Any]]:
        """Any task's answers."""
        decode = self.settle(parameters)
        began = time.perf_counter()
        data = self.run.recipe.data

        def job() -> list[dict[str, Any]]:
            answers = self.task.predict(self.run.model, inputs, decode, data.max_length, 1)
            return [answer.json() for answer in answers]

        found: list[dict[str, Any]] = await self.call(job)
        seconds = round(time.perf_counter() - began, 6)
        return [{**answer, "seconds": seconds} for answer in found]

    def likelihood(self, ids: list[int], others: int) -> list[Token | None]:
        """Each token of a prompt after those before it; the first has nothing before it."""
        model: Any = self.run.model
        device = self.run.device
        text = torch.tensor([ids], device=device)
        if len(ids) < 2:
            return [None] * len(ids)
        counted = torch.zeros(1, 2, dtype=torch.long, device=device)
        states = model.states(Tokens(text, counted)).states
        logs = model.output(states).float().log_softmax(-1)[0]  # (T, V)
        found: list[Token | None] = [None]
        for place, token in enumerate(ids[1:]):
            top = logs[place].topk(min(max(others, 1), logs.shape[1]))
            pairs = list(zip(top.indices.tolist(), top.values.tolist(), strict=True))
            found.append(Token(0, token, float(logs[place, token]), pairs))
        return found

    def close(self, seconds: float) -> None:
        self.engine.close(seconds)


class Growing:
    """An answer's text while it grows: nothing of a stop text, and no half a character, is told."""

    def __init__(self, hosted: Hosted, prompt: list[int], stops: Sequence[str]) -> None:
        self.hosted, self.prompt, self.stops = hosted, prompt, stops
        self.ids: list[int] = []
        self.shown, self.tokens = 0, list[Token]()

    def read(self) -> str:
        if self.hosted.writes_on:
            return str(self.hosted.task.continued(self.prompt, self.ids))
        return str(self.hosted.task.target.decode([self.ids])[0])

    def add(self, token: Token, eos: int) -> Piece:
        self.tokens.append(token)
        if token.id == eos:
            return self._tell(len(self.read()), "stop")
        self.ids.append(token.id)
        text, stopped = cut_at(self.read(), self.stops)
        if stopped:
            return self._tell(len(text), "stop")
        return self._tell(len(text) - held_back(text, self.stops), None)

    def end(self, ids: list[int], properly: bool) -> Piece:
        """What is left when it is known whole; a beam comes only then."""
        self.ids = ids
        text, stopped = cut_at(self.read(), self.stops)
        return self._tell(len(text), "stop" if properly or stopped else "length")

    def _tell(self, until: int, reason: str | None) -> Piece:
        text = self.read()[self.shown : until]
        self.shown = max(self.shown, until)
        tokens, self.tokens = self.tokens, []
        return Piece(0, text, tokens, reason)
