"""One request of /v1/chat/completions: a conversation, and what is said next in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from ..decode.engine import Token
from ..errors import InputError
from ..text.chat import Chat
from ..text.spelling import as_bytes
from . import schema
from .completion import Completing, check_texts
from .limits import ServerLimits
from .metrics import Metrics
from .runs import Runs, told
from .served import ServedRun, TextPiece

# Fields that mean the same in both of OpenAI's routes.
SAME = (
    "model", "temperature", "top_p", "top_k", "min_p", "n", "stream", "stream_options", "stop",
    "seed", "repetition_penalty",
)  # fmt: skip


def chat_routes(runs: Runs) -> APIRouter:
    """Conversations."""
    router = APIRouter(prefix="/v1")

    @router.post("/chat/completions")
    async def chat_completions(asked: schema.ChatCompletion, request: Request) -> Response:
        """What the assistant says next."""
        one = runs.pick(asked.model)
        made = asyncio.to_thread(Chatting, one, asked, runs.limits, runs.metrics)
        job = await runs.in_time(request, made)
        if not asked.stream:
            return await told(await runs.in_time(request, job.whole()))
        first = await runs.in_time(request, job.begin())
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(job.events(first), media_type="text/event-stream", headers=headers)

    return router


class Chatting(Completing):
    """A completion whose prompt is a conversation, and whose answers are messages."""

    def __init__(
        self,
        one: ServedRun,
        asked: schema.ChatCompletion,
        limits: ServerLimits,
        metrics: Metrics,
    ) -> None:
        if one.chat is None:
            raise InputError(
                f"model: {one.name} ({one.kind}) has no chat template, so it takes no messages; "
                "ask /v1/completions."
            )
        super().__init__(one, as_completion(asked, one.chat, one, limits), limits, metrics)
        self.id = f"chat{self.id}"

    def head(self) -> dict[str, object]:
        kind = "chat.completion.chunk" if self.asked.stream else "chat.completion"
        return {**super().head(), "object": kind}

    def choice(
        self, index: int, text: str, tokens: Sequence[Any], reason: str | None
    ) -> dict[str, object]:
        """A message, or what a stream adds to one."""
        logprobs = None if self.asked.logprobs is None else self.likely(index, tokens)
        said: dict[str, object] = {"content": text} if text or not self.asked.stream else {}
        if self.asked.stream:
            message: dict[str, object] = {"delta": said}
        else:
            message = {"message": {"role": "assistant", **said, "refusal": None}}
        return {"index": index, **message, "logprobs": logprobs, "finish_reason": reason}

    async def events(self, begun: tuple[Any, TextPiece | None, Any]) -> AsyncGenerator[str, None]:
        """Who speaks comes first, then what is said."""
        for index in range(self.asked.n):
            delta = {"role": "assistant", "content": ""}
            opening = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            yield self.event([opening])
        async for event in super().events(begun):
            yield event

    def likely(self, index: int, tokens: Sequence[Token | int]) -> dict[str, object]:
        """Tokens with their log-probabilities, and those that were likely in their place."""
        spelled, content = self.spelled[index], []
        for token in tokens:
            if not isinstance(token, Token):
                continue
            every = [(token.id, token.score), *token.others]
            names = spelled.names([number for number, _ in every])
            rows = [
                {"token": name, "logprob": score, "bytes": self.raw(number)}
                for name, (number, score) in zip(names, every, strict=True)
            ]
            content.append({**rows[0], "top_logprobs": rows[1:]})
            spelled.read(token.id)
        return {"content": content, "refusal": None}

    def raw(self, token: int) -> list[int] | None:
        """The bytes that a token stands for; none where it is no text."""
        text = self.one.text
        if token in text.specials:
            return None
        return list(as_bytes(text.tokens([token])[0], self.spelled[0].in_bytes))


def as_completion(
    asked: schema.ChatCompletion, chat: Chat, one: ServedRun, limits: ServerLimits
) -> schema.Completion:
    """The same request with the conversation's tokens as its prompt."""
    if asked.top_logprobs is not None and not asked.logprobs:
        raise InputError("top_logprobs: logprobs must be true where it is said.")
    messages = [{"role": message.role, "content": message.said} for message in asked.messages]
    check_texts("".join(message["content"] for message in messages), limits, "messages")
    most = [n for n in (asked.max_completion_tokens, asked.max_tokens) if n is not None]
    usual = min(one.run.recipe.decode.max_new_tokens, limits.new_tokens)
    same = {name: vars(asked)[name] for name in SAME}
    return schema.Completion(
        prompt=chat.ids(messages),
        max_tokens=most[0] if most else usual,
        logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
        **same,
    )
