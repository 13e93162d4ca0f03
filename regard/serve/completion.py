"""One request of /v1/completions: prompts, several answers to each, whole or as they come."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ..decode import DRAWING
from ..decode.engine import Token
from ..errors import InputError, RegardError
from ..text.spelling import KEPT, Spelling
from . import schema
from .limits import ServerLimits
from .metrics import Metrics
from .served import ServedRun, TextPiece, UnreadError

T = TypeVar("T")

READ_AHEAD = 64  # pieces that wait for their reader beside those of the engine
DRAWN = ("temperature", *(name for name in DRAWING if name in schema.Completion.model_fields))


def check_texts(given: str | Sequence[str], limits: ServerLimits, name: str) -> list[str]:
    """No more texts than may be, and none too long."""
    return check_inputs([given] if isinstance(given, str) else list(given), limits, name)


def check_inputs(given: list[T], limits: ServerLimits, name: str, files: bool = False) -> list[T]:
    """No more inputs of any kind than may be, and none too long."""
    if not 0 < len(given) <= limits.inputs:
        raise InputError(f"{name}: from 1 to {limits.inputs} inputs, but there are {len(given)}.")
    # Characters: a token is seldom longer than 16, and three bytes are four of base64.
    most = limits.file * 4 // 3 + 100 if files else 16 * limits.prompt
    for number, one in enumerate(given, 1):
        if (size := characters(one)) > most:
            raise InputError(f"{name} {number}: at most {most} characters, but has {size}.")
    return given


def characters(sent: object) -> int:
    """Of all the texts in an input, however it is put together."""
    if isinstance(sent, str):
        return len(sent)
    inside = sent.values() if isinstance(sent, dict) else sent if isinstance(sent, list) else ()
    return sum(map(characters, inside))


def as_parameters(
    asked: schema.Completion, limits: ServerLimits, writes_on: bool
) -> dict[str, object]:
    """OpenAI's fields as settings of decode; what is not said is as the run has it."""
    if asked.max_tokens is not None and asked.max_tokens > limits.new_tokens:
        raise InputError(f"max_tokens: at most {limits.new_tokens}, but is {asked.max_tokens}.")
    if asked.best_of is not None and asked.best_of != asked.n:
        raise InputError("best_of: must be n where it is said.")
    if asked.n > 1 and asked.temperature == 0:
        raise InputError("n: temperature 0 has one answer; leave n at 1.")
    said: dict[str, object] = {"num_return_sequences": asked.n}
    usual = 16 if writes_on else None  # OpenAI's
    tokens = asked.max_tokens if asked.max_tokens is not None else usual
    if tokens is not None:
        said["max_new_tokens"] = max(1, tokens)
    for name in ("length_penalty", "repetition_penalty"):
        if (value := vars(asked)[name]) is not None:
            said[name] = value
    if asked.stop is not None:
        said["stop"] = [asked.stop] if isinstance(asked.stop, str) else asked.stop
    drawn = {n: v for n in (*DRAWN, "seed") if (v := vars(asked)[n]) is not None}
    if asked.num_beams is not None and asked.num_beams > 1:
        odd = [name for name, value in drawn.items() if not (name == "temperature" and value == 0)]
        if odd:
            raise InputError(f"{odd[0]}: a beam draws nothing; leave it out, or num_beams.")
        said |= {"kind": "beam", "num_beams": asked.num_beams}
    elif asked.temperature == 0 or (asked.num_beams == 1 and asked.temperature is None):
        said["kind"] = "greedy"
    elif drawn:
        said |= {"kind": "sample", **drawn}
    return said


class Completing:
    """Made and checked in a thread of its own: reading prompts takes as long as they are."""

    def __init__(
        self, one: ServedRun, asked: schema.Completion, limits: ServerLimits, metrics: Metrics
    ) -> None:
        self.one, self.asked, self.limits, self.metrics = one, asked, limits, metrics
        self.began, self.id = time.perf_counter(), f"cmpl-{uuid.uuid4().hex}"
        self.created, self.written = int(time.time()), 0
        if asked.echo and not one.writes_on:
            raise InputError("echo: a translator's prompt is not part of its answer.")
        self.decode = one.decode_settings(as_parameters(asked, limits, one.writes_on))
        prompts = self.prompts()
        if not 0 < len(prompts) <= limits.inputs:
            raise InputError(
                f"prompt: from 1 to {limits.inputs} texts, but there are {len(prompts)}."
            )
        for number, prompt in enumerate(prompts, 1):
            if isinstance(prompt, str):
                check_texts(prompt, limits, f"prompt {number}")
        self.ids = [one.ids(prompt, i) for i, prompt in enumerate(prompts, 1)]
        self.texts = [p if isinstance(p, str) else one.text.decode([p])[0] for p in prompts]
        one.check_cost(self.ids, self.decode)
        count = len(self.ids) * asked.n
        self.spelled = [Spelling(one.text) for _ in range(count)]
        # Drawn again by its seed, an answer is the same.
        self.seed = {"seed": self.decode.seed} if self.decode.kind == "sample" else {}

    def prompts(self) -> list[Any]:
        given: Any = self.asked.prompt
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            return [given]
        return list(given)

    @property
    def whole_only(self) -> bool:
        """A beam changes its mind until the end: its answer comes in one piece."""
        return self.decode.kind == "beam"

    async def pieces(self) -> AsyncGenerator[TextPiece, None]:
        """All prompts' answers as they come, numbered through."""
        if self.asked.max_tokens == 0:
            for index in range(len(self.ids) * self.asked.n):
                yield TextPiece(index, "", [], "length")
            return
        queue: asyncio.Queue[TextPiece | BaseException | None] = asyncio.Queue(READ_AHEAD)

        async def one(number: int, ids: list[int]) -> None:
            first, last, count = None, self.began, 0
            try:
                written = self.one.write(ids, self.decode, self.asked.logprobs or 0)
                async with aclosing(written) as pieces:
                    async for piece in pieces:
                        now = time.perf_counter()
                        if piece.tokens and first is None:
                            first = now - self.began
                        count, last = count + len(piece.tokens) + piece.count, now
                        await queue.put(replace(piece, index=piece.index + number * self.asked.n))
                each = (last - self.began - first) / (count - 1) if first and count > 1 else None
                self.metrics.timed(first, each)
                self.metrics.wrote("completion", count)
            except Exception as error:
                await queue.put(error)
            else:
                await queue.put(None)

        self.metrics.wrote("prompt", sum(map(len, self.ids)))
        tasks = [asyncio.ensure_future(one(i, ids)) for i, ids in enumerate(self.ids)]
        left = len(tasks)
        try:
            while left:
                found = await queue.get()
                if found is None:
                    left -= 1
                elif isinstance(found, BaseException):
                    raise found
                else:
                    self.written += len(found.tokens) + found.count
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def echoed(self) -> list[tuple[str, list[Any]]]:
        """Each prompt and, where asked for, how likely its tokens are."""
        if not self.asked.echo:
            return [("", [])] * len(self.ids)
        found = []
        for text, ids in zip(self.texts, self.ids, strict=True):
            tokens: list[object] = []
            if self.asked.logprobs is not None:
                job = partial(self.one.likelihood, ids, self.asked.logprobs or 0)
                tokens = await self.one.call(job)
                tokens = [token or ids[0] for token in tokens]
            found.append((text, tokens))
        return found

    async def whole(self) -> dict[str, object]:
        echoed = await self.echoed()
        count = len(self.ids) * self.asked.n
        texts = [echoed[i // self.asked.n][0] for i in range(count)]
        tokens = [list(echoed[i // self.asked.n][1]) for i in range(count)]
        reasons: list[str | None] = [None] * count
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                texts[piece.index] += piece.text
                tokens[piece.index] += piece.tokens
                reasons[piece.index] = piece.reason or reasons[piece.index]
        choices = [
            self.choice(i, texts[i], tokens[i], reasons[i] or "length") for i in range(count)
        ]
        return {**self.head(), "choices": choices, "usage": self.usage(), **self.seed}

    async def begin(self) -> tuple[object, TextPiece | None, list[tuple[str, list[object]]]]:
        """The first piece, so that what is wrong has a status and not a broken stream."""
        echoed = await self.echoed()
        pieces = self.pieces()
        try:
            return pieces, await anext(pieces), echoed
        except StopAsyncIteration:
            return pieces, None, echoed

    async def events(self, begun: tuple[Any, TextPiece | None, Any]) -> AsyncGenerator[str, None]:
        """Server-sent events, until the answer or the time for it has ended."""
        pieces, first, echoed = begun
        ends = self.began + self.limits.stream
        try:
            if self.whole_only:  # a comment, which clients pass over
                yield ": a beam's answer comes whole, when the search has ended\n\n"
            for index in range(len(echoed) * self.asked.n):
                text, tokens = echoed[index // self.asked.n]
                if text:
                    yield self.event([self.choice(index, text, tokens, None)])
            piece = first
            while piece is not None:
                yield self.event([self.told(piece)])
                async with asyncio.timeout(ends - time.perf_counter()):
                    piece = await anext(pieces, None)
            if (self.asked.stream_options or {}).get("include_usage"):
                yield self.event([], self.usage())
            yield "data: [DONE]\n\n"
        except Exception as error:
            yield f"data: {json.dumps({'error': {'message': self.say(error)}})}\n\n"
        finally:
            await pieces.aclose()

    def say(self, error: Exception) -> str:
        """What has ended a stream before its end."""
        if isinstance(error, TimeoutError):
            return f"a stream may take {self.limits.stream:g} s, the server's limit."
        if isinstance(error, UnreadError):
            return f"the stream was not read; at most {self.limits.unread} tokens wait."
        return str(error) if isinstance(error, RegardError) else "the model failed."

    def event(self, choices: list[object], usage: object = None) -> str:
        body = {**self.head(), "choices": choices, **({"usage": usage} if usage else {})}
        return f"data: {json.dumps({**body, **self.seed}, ensure_ascii=False)}\n\n"

    def told(self, piece: TextPiece) -> dict[str, object]:
        return self.choice(piece.index, piece.text, piece.tokens, piece.reason)

    def head(self) -> dict[str, object]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.one.name,
        }

    def usage(self) -> dict[str, int]:
        read = sum(map(len, self.ids))
        written = self.written
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}

    def choice(
        self, index: int, text: str, tokens: Sequence[Any], reason: str | None
    ) -> dict[str, object]:
        logprobs = None
        if self.asked.logprobs is not None:
            logprobs = self.likely(index, tokens)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def likely(self, index: int, tokens: Sequence[Token | int]) -> dict[str, object]:
        """Tokens as text with their log-probabilities; a bare id has none, being the first."""
        spelled = self.spelled[index]
        if not self.asked.echo and self.one.writes_on and not spelled.before:
            # What the answer goes on from decides what its first token adds.
            spelled.before = self.ids[index // self.asked.n][-KEPT:]
        names, logs, tops, places = [], [], [], []
        for token in tokens:
            known = isinstance(token, Token)
            number, others = (token.id, token.others) if isinstance(token, Token) else (token, [])
            name, *rest = spelled.names([number, *(other for other, _ in others)])
            names.append(name)
            places.append(spelled.place)
            logs.append(token.score if isinstance(token, Token) else None)
            scores = (score for _, score in others)
            tops.append(dict(zip(rest, scores, strict=True)) if known else None)
            spelled.read(number)
        return {
            "tokens": names,
            "token_logprobs": logs,
            "top_logprobs": tops,
            "text_offset": places,
        }
