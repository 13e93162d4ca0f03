"""A run that is served: its engine, and how its task's words become requests of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from ..batch import Batch, Running, Tokens
from ..config import Value, make_settings
from ..decode import Hypothesis
from ..decode import Settings as Decode
from ..decode.engine import Done, Engine, Request, Token
from ..errors import InputError
from ..see.run import Run
from ..tasks.growing import Growing
from ..tasks.task import Chats, TakesTurns, WritesText
from ..tasks.writer import as_prompt
from ..tasks.writing import GREEDY
from ..text import Text
from .limits import ServerLimits

TOGETHER = 8  # inputs of a task that does not write that are answered between two steps
ROWS = 256  # tokens whose likeliest are looked for at a time
T = TypeVar("T")


class BusyError(Exception):
    """Too many wait already."""


class UnreadError(Exception):
    """Nobody reads what is written."""


@dataclass
class TextPiece:
    """Some text of one answer, with the tokens that brought it; `reason` when it has ended."""

    index: int
    text: str
    tokens: list[Token]
    reason: str | None = None
    count: int = 0  # tokens of the answer that come only now, whole: a beam's


class ServedRun:
    """One run behind the server."""

    def __init__(self, run: Run, limits: ServerLimits) -> None:
        self.run, self.limits, self.task = run, limits, run.task
        self.name = run.folder.resolve().name
        self.kind = run.recipe.task_kind
        self.writer = run.task if isinstance(run.task, WritesText) else None
        self.writes_on = self.writer is not None and self.writer.writes_on
        self.chat = run.task.chat if isinstance(run.task, Chats) else None
        self.engine = Engine(
            run.model,
            as_prompt if self.writes_on else None,
            limits.rows,
            limits.waiting,
            limits.tokens,
        )

    @property
    def writes(self) -> bool:
        return self.writer is not None

    @property
    def text(self) -> Text:
        """The vocabulary that answers are written in."""
        assert self.writer is not None
        return self.writer.written

    def about(self) -> dict[str, object]:
        """A line of /v1/models."""
        own = self.run.recipe.decode
        own = replace(own, max_new_tokens=min(own.max_new_tokens, self.limits.new_tokens))
        names = ("kind", "num_beams", "temperature", "top_k", "top_p", "max_new_tokens")
        said = vars(self.task.settings)
        languages = [said[side] for side in ("source", "target") if isinstance(said.get(side), str)]
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "regard",
            "task": self.kind,
            "architecture": self.run.recipe.model_kind,
            "parameters": sum(weight.numel() for weight in self.run.model.parameters()),
            "languages": languages if len(languages) == 2 else None,
            "gives": {"kind": self.task.gives.kind, "labels": list(self.task.gives.labels)},
            "gets": self.task.gets,
            "continues": self.writes_on,
            "chat": self.chat is not None,
            "streams": self.writes and not self.task.gives.from_file,
            "attends": bool(self.run.model.looks),
            "explains": bool(self.run.model.looks) and self.task.looks_at_answer,
            "decode": {name: vars(own)[name] for name in names} if self.writes else None,
        }

    # How an answer is searched for.

    def decode_settings(self, given: dict[str, object]) -> Decode:
        """The run's own way, changed by what a request says; drawn by a seed that is new unless it
        is given."""
        own, limits = self.run.recipe.decode, self.limits
        known = {f.name for f in fields(own)} - {"batch_tokens", "compile", "fusion", "precision"}
        for name, value in given.items():
            if name not in known:
                raise InputError(f"parameters.{name}: no such setting of decode.")
            if isinstance(value, str | list | dict) and len(value) > limits.stop:
                raise InputError(f"parameters.{name}: at most {limits.stop} long.")
        given = dict(given)
        if given.get("temperature") == 0 and given["temperature"] is not False:
            given = {k: v for k, v in given.items() if k != "temperature"} | {"kind": "greedy"}
        values = {k: vars(own)[k] for k in known}
        values["max_new_tokens"] = min(own.max_new_tokens, limits.new_tokens)
        kind = given.get("kind", own.kind)
        if kind != "sample":  # what the recipe says of drawing is put aside
            values |= GREEDY if own.kind == "sample" or kind == "greedy" else {}
        elif given.get("seed") is None:
            given["seed"] = secrets.randbelow(2**40)
        values |= {"kind": kind, **given}
        asked = given.get("max_new_tokens")
        if isinstance(asked, int) and asked > limits.new_tokens:
            raise InputError(f"max_new_tokens: at most {limits.new_tokens}, but is {asked}.")
        said = {k: Value(v, "command line", "parameters", Path()) for k, v in values.items()}
        decode = make_settings(Decode, "decode", said)
        most = min(limits.beams, limits.rows)
        if decode.num_beams > most and decode.kind == "beam":
            raise InputError(f"num_beams: at most {most}, but is {decode.num_beams}.")
        most = min(limits.answers, limits.rows)
        if decode.num_return_sequences > most:
            raise InputError(f"n: at most {most}, but is {decode.num_return_sequences}.")
        if len(decode.stop) > 16 or any(len(stop) > limits.stop for stop in decode.stop):
            raise InputError(f"stop: at most 16 texts of {limits.stop} characters each.")
        return decode

    def ids(self, prompt: str | list[int], number: int) -> list[int]:
        """A prompt's tokens, no more than may be."""
        if self.task.gives.from_file and isinstance(prompt, list):
            raise InputError("prompt: this run reads files, not tokens; ask /predict.")
        if isinstance(prompt, list):
            odd = [i for i in prompt if not 0 <= i < self.text.size]
            if odd:
                raise InputError(
                    f"prompt: a token must be from 0 to {self.text.size - 1}, but one is {odd[0]}."
                )
            ids = prompt or [self.text.eos]
        else:
            assert self.writer is not None
            ids = self.writer.read_ids(self.task.gives.accept(prompt, number), number)
        most = self.limits.prompt
        longest = self.run.model.longest
        if self.writes_on and longest is not None:
            most = min(most, longest)  # there must be room for a token more
        elif not self.writes_on:
            most = min(most, self.run.longest - 1)  # its end is counted
        if len(ids) > most:
            raise InputError(f"prompt {number}: it may have {most} tokens, but has {len(ids)}.")
        return ids

    def read_inputs(
        self, writer: WritesText, inputs: Sequence[object], decode: Decode
    ) -> list[list[int]]:
        """The tokens of what /predict is given: as in the shell, and no more than may be."""
        found = [
            writer.read_input(self.run.model, given, decode, self.run.longest, number)
            for number, given in enumerate(inputs, 1)
        ]
        for number, ids in enumerate(found, 1):
            if len(ids) > self.limits.prompt:
                raise InputError(
                    f"input {number}: it may have {self.limits.prompt} tokens, but has {len(ids)}."
                )
        return found

    # Writing, token by token.

    def request(self, ids: list[int], decode: Decode, others: int, tell: Any) -> Request:
        assert self.writer is not None
        if not self.writes_on:
            source, limits = self.writer.begin(self.run.model, [ids], decode)
            return Request(limits, decode, tell, source, others)
        longest = self.run.model.longest
        slides = decode.overflow == "slide" and decode.kind != "beam"
        if longest is not None and not slides:  # what cannot be placed is not written
            room = longest + 1 - len(ids)
            if room < 1:
                raise InputError(f"prompt: it may have {longest} tokens, but has {len(ids)}.")
            decode = replace(decode, max_new_tokens=min(decode.max_new_tokens, room))
        _, limits = self.writer.begin(self.run.model, [ids], decode)
        return Request(limits, decode, tell, None, others)

    def check_cost(self, rows: Sequence[list[int]], decode: Decode) -> None:
        """What would take too long or too much room is refused before it begins."""
        whole = 0
        for ids in rows:
            request = self.request(ids, decode, 0, None)
            if not self.engine.fits(request):
                raise InputError(
                    f"max_tokens: {request.rows} answers or beams of up to {request.tokens} tokens "
                    f"are more than {self.limits.tokens} tokens in all; ask for fewer or shorter."
                )
            whole += request.rows * request.tokens
        if whole > self.limits.cost:
            raise InputError(
                f"inputs: at most {self.limits.cost} tokens in all may be asked for, answers and "
                f"beams counted, but these may take {whole}; ask for fewer or shorter."
            )

    async def events(
        self, ids: list[int], decode: Decode, others: int = 0
    ) -> AsyncGenerator[Token | Done, None]:
        """What the engine tells of one request; whoever leaves the loop frees its place.

        Where nobody reads, no more is kept than `limits.unread`, and the request is given up.
        """
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[Token | Done] = asyncio.Queue()
        given_up = False

        def put(event: Token | Done) -> None:
            nonlocal given_up
            if given_up:
                return
            if inbox.qsize() >= self.limits.unread * request.rows:
                given_up, event = True, Done([], UnreadError())
                request.cancel()
            inbox.put_nowait(event)

        def tell(event: Token | Done) -> None:
            loop.call_soon_threadsafe(put, event)

        request = await asyncio.to_thread(self.request, ids, decode, others, tell)
        if not self.engine.submit(request):
            raise BusyError
        try:
            while True:
                event = await inbox.get()
                if isinstance(event, Done) and event.error is not None:
                    raise event.error
                yield event
                if isinstance(event, Done):
                    return
        finally:
            request.cancel()

    async def write(
        self, ids: list[int], decode: Decode, others: int = 0
    ) -> AsyncGenerator[TextPiece, None]:
        """Text as it comes, of one answer or several."""
        count = decode.num_return_sequences
        if not ids:  # an empty line has an empty translation
            for index in range(count):
                yield TextPiece(index, "", [], "stop")
            return
        before = ids if self.writes_on else []
        texts = [Growing(self.text, before, decode.stop) for _ in range(count)]
        found = list[Hypothesis]()
        async with aclosing(self.events(ids, decode, others)) as events:
            async for event in events:
                if isinstance(event, Done):
                    found = event.answers
                    break
                text = texts[event.copy]
                if text.ended:
                    continue
                shown = text.add(event.id, event.score)
                yield TextPiece(event.copy, shown, [event], "stop" if text.ended else None)
                if all(text.ended for text in texts):
                    return
        for index in [i for i, text in enumerate(texts) if not text.ended]:
            if index >= len(found):  # every continuation was forbidden
                yield TextPiece(index, "", [], "stop")
                continue
            answer = found[index]
            text, new = texts[index], answer.ids if decode.kind == "beam" else []
            shown = "".join(text.add(token) for token in new) + text.finish()
            reason = "stop" if answer.ended or text.stopped else "length"
            yield TextPiece(index, shown, [], reason, len(new) + (answer.ended and bool(new)))

    async def answers(self, ids: list[int], decode: Decode) -> list[Hypothesis]:
        """What is written in the end."""
        count = decode.num_return_sequences
        before = ids if self.writes_on else []
        texts = [Growing(self.text, before, decode.stop) for _ in range(count)]
        async with aclosing(self.events(ids, decode)) as events:
            async for event in events:
                if isinstance(event, Done):
                    both = zip(texts, event.answers, strict=False)
                    return [text.hypothesis if text.stopped else whole for text, whole in both]
                if decode.stop:
                    texts[event.copy].add(event.id, event.score)
                    if all(text.ended for text in texts):
                        break
        return [text.hypothesis for text in texts]

    # Answers of any task.

    async def predict(
        self, inputs: Sequence[object], parameters: dict[str, object]
    ) -> list[dict[str, Any]]:
        """An answer to each input: written among the others' where the task writes, else as jobs
        between their steps."""
        began = time.perf_counter()
        decode, accept = self.decode_settings(parameters), self.task.gives.accept
        # A picture takes a while to decode, in which others are answered.
        given = await asyncio.to_thread(
            lambda: [accept(one, number) for number, one in enumerate(inputs, 1)]
        )
        if self.writer is None:
            found = await self._told(given, decode)
        else:
            found = await self._written(self.writer, given, decode)
        seconds = round(time.perf_counter() - began, 6)
        more = {"seed": decode.seed} if self.writes and decode.kind == "sample" else {}
        return [{**answer, "seconds": seconds, **more} for answer in found]

    async def _written(
        self, writer: WritesText, inputs: Sequence[Any], decode: Decode
    ) -> list[dict[str, object]]:
        def read() -> list[list[int]]:
            found = self.read_inputs(writer, inputs, decode)
            self.check_cost(found, decode)
            return found

        rows = await asyncio.to_thread(read)
        asked = [i for i, ids in enumerate(rows) if ids]  # an empty line has an empty answer
        given = await together([self.answers(rows[i], decode) for i in asked])
        hypotheses: list[list[Hypothesis]] = [[Hypothesis([], 0.0, True)] for _ in rows]
        for i, one in zip(asked, given, strict=True):
            hypotheses[i] = one
        told = []
        for line, ids, some in zip(inputs, rows, hypotheses, strict=True):
            told.append(writer.answer(line, ids, some, decode, 0.0).json())
        return told

    async def _told(self, inputs: Sequence[object], decode: Decode) -> list[dict[str, object]]:
        longest = self.run.longest

        def work() -> Iterator[None]:
            for first in range(0, len(inputs), TOGETHER):
                some = inputs[first : first + TOGETHER]
                if isinstance(self.task, TakesTurns):
                    found = yield from self.task.turns(self.run.model, some, decode)
                else:
                    found = self.task.predict(self.run.model, some, decode, longest, first + 1)
                answers.extend(answer.json() for answer in found)
                yield

        answers: list[dict[str, object]] = []
        await self.call(work)
        return answers

    async def call(self, work: Callable[[], object]) -> Any:
        """Something else with the model, in its own thread; it ends when nobody waits for it.

        Work that yields lets the others' steps go on where it does.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[object] = loop.create_future()

        def resolve(result: object, error: BaseException | None) -> None:
            if ready.done():
                return
            if error is not None:
                ready.set_exception(error)
            else:
                ready.set_result(result)

        def then(result: object, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(resolve, result, error)

        job = self.engine.call(work, then)
        if job is None:
            raise BusyError
        try:
            return await ready
        finally:
            job.cancel()

    def likelihood(self, ids: list[int], others: int) -> list[Token | None]:
        """Each token of a prompt after those before it; the first has nothing before it."""
        model, device = self.run.model, self.run.device
        text = torch.tensor([ids], device=device)
        if len(ids) < 2:
            return [None] * len(ids)
        label_range = torch.zeros(1, 2, dtype=torch.long, device=device)
        batch = Batch(Running(text[:, :-1]), Tokens(text[:, 1:], label_range))
        states = model.states(batch).states[0]  # (T, D)
        found: list[Token | None] = [None]
        for first in range(0, len(states), ROWS):
            logs = model.output(states[first : first + ROWS]).float().log_softmax(-1)  # (n, V)
            top = logs.topk(min(others, logs.shape[1]), -1)
            labels = text[0, first + 1 : first + 1 + len(logs)]
            own = logs.gather(1, labels[:, None])[:, 0].tolist()
            rows = zip(labels.tolist(), own, top.indices.tolist(), top.values.tolist(), strict=True)
            for token, score, names, scores in rows:
                found.append(Token(0, token, score, list(zip(names, scores, strict=True))))
        return found

    def close(self, seconds: float) -> None:
        self.engine.close(seconds)


async def together(work: Sequence[Awaitable[T]]) -> list[T]:
    """All at once; where one fails, the others end."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
