"""The HTTP app: an async front before each run's one model thread."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import struct
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import __version__
from ..errors import InputError, RegardError
from ..see.ablate import ablate
from . import schema
from .hosted import BusyError, Hosted, Piece
from .limits import Limits
from .metrics import Metrics

PAGE = Path(__file__).parent / "page"
SHARED = Path(__file__).parents[1] / "see/page"  # what the standalone page is made of too
SHOWN = {
    "style.css": (SHARED, "text/css"),
    "views.js": (SHARED, "text/javascript"),
    "playground.js": (PAGE, "text/javascript"),
}
GUARDS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def make_app(
    hosted: Sequence[Hosted], limits: Limits, api_key: str = "", origins: Sequence[str] = ()
) -> FastAPI:
    """All routes over some runs."""
    metrics, stopping = Metrics(), asyncio.Event()
    by_name = {one.name: one for one in hosted}

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        stopping.set()
        for one in hosted:
            await asyncio.to_thread(one.close, limits.stopping)

    app = FastAPI(
        title="regard",
        version=__version__,
        description="Attention models over HTTP: OpenAI's routes, any task, and a look inside.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    app.add_middleware(Guard, limits=limits, api_key=api_key, metrics=metrics)
    if origins:
        from starlette.middleware.cors import CORSMiddleware

        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )  # fmt: skip

    def pick(name: str | None) -> Hosted:
        if name is None and len(hosted) == 1:
            return hosted[0]
        if name not in by_name:
            known = ", ".join(by_name)
            what = "must be said where several runs are served" if name is None else f"no '{name}'"
            raise HTTPException(404, f"model: {what}; there are {known}.")
        return by_name[name]

    async def in_time(request: Request, work: Awaitable[Any]) -> Any:
        """An answer within its time; a client that goes away ends the work."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(request))
        try:
            done, _ = await asyncio.wait(
                {task, gone}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if task in done:
                return task.result()
            if gone in done:
                raise HTTPException(499, "the client went away.")
            raise HTTPException(
                503, f"no answer within {limits.seconds:g} s, the server's limit.", RETRY
            )
        finally:
            for one in (task, gone):
                one.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "stopping" if stopping.is_set() else "ok", "models": list(by_name)}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counted() -> str:
        return metrics.text({one.name: one.engine.load for one in hosted})

    @app.get("/", response_class=HTMLResponse)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in SHOWN:
            raise HTTPException(404, "no such part of the page.")
        folder, kind = SHOWN[name]
        return FileResponse(folder / name, media_type=kind)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [one.about() for one in hosted]}

    @app.post("/v1/completions")
    async def completions(asked: schema.Completion, request: Request) -> Response:
        """How a text goes on, or what it is in another language."""
        one = pick(asked.model)
        if not one.by_step:
            raise InputError(f"model: {one.name} ({one.kind}) does not write; ask /predict.")
        job = Completing(one, asked, limits, metrics)
        if asked.stream:
            first = await in_time(request, job.begin())
            return StreamingResponse(
                job.events(first),
                media_type="text/event-stream",
                headers={"X-Accel-Buffering": "no"},
            )
        return JSONResponse(await in_time(request, job.whole()))

    @app.post("/v1/embeddings")
    async def embeddings(asked: schema.Embedding, request: Request) -> dict[str, Any]:
        """A vector for each text."""
        one = pick(asked.model)
        if one.kind != "embed":
            raise InputError(
                f"model: {one.name} ({one.kind}) makes no vectors; a run of embed does."
            )
        texts = checked_inputs(asked.input, limits, "input")
        found = await in_time(request, one.predict(texts, {}))
        rows = []
        for index, answer in enumerate(found):
            vector: Any = list(answer["vector"])
            if asked.encoding_format == "base64":
                packed = struct.pack(f"<{len(vector)}f", *vector)
                vector = base64.b64encode(packed).decode()
            rows.append({"object": "embedding", "index": index, "embedding": vector})
        count = sum(map(len, one.task.text.encode(texts)))
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "model": one.name, "data": rows, "usage": usage}

    @app.post("/predict")
    async def predict(asked: schema.Prediction, request: Request) -> Any:
        """Any task's answer: one for one input, a list for a list."""
        one = pick(asked.model)
        texts = checked_inputs(asked.inputs, limits, "inputs")
        found = await in_time(request, one.predict(texts, asked.parameters))
        return found[0] if isinstance(asked.inputs, str) else found

    @app.post("/attention")
    async def attention(asked: schema.Attention, request: Request) -> dict[str, Any]:
        """Tokens and weights of every attention, or of those asked for."""
        one = pick(asked.model)
        checked_inputs(asked.input, limits, "input")

        def job() -> dict[str, Any]:
            sight = one.run.see(asked.input, asked.target, asked.layers, asked.heads, limits.look)
            if asked.ablate:
                sight = replace(sight, ablation=ablate(one.run, asked.input, examples=0))
            return sight.data()

        found: dict[str, Any] = await in_time(request, one.call(job))
        return {"model": one.name, **found}

    refuse_in_one_sentence(app, limits, stopping)
    return app


RETRY = {"Retry-After": "1"}


def refuse_in_one_sentence(app: FastAPI, limits: Limits, stopping: asyncio.Event) -> None:
    """Whatever goes wrong, in OpenAI's form of an error."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        return refusal(422, f"{where}: {first['msg']}.", where)

    @app.exception_handler(RegardError)
    async def wrong(request: Request, error: RegardError) -> Response:
        return refusal(422, str(error))

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        text = f"too many requests wait already; at most {limits.waiting} may."
        return refusal(503 if stopping.is_set() else 429, text, headers=RETRY)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 400:  # nested too deeply, say
            return refusal(422, "body: it must be readable JSON, but is not.", "body")
        return refusal(error.status_code, str(error.detail), headers=headers)

    @app.exception_handler(MemoryError)
    async def too_large(request: Request, error: MemoryError) -> Response:
        return refusal(503, "there is not enough memory for this request.", headers=RETRY)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        if "out of memory" in str(error).lower():
            return refusal(503, "there is not enough memory for this request.", headers=RETRY)
        return refusal(500, "the server failed at this request; its log says how.")


def refusal(
    status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """OpenAI's form of an error."""
    kinds = {401: "authentication_error", 429: "rate_limit_error", 503: "server_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": kind, "param": field, "code": None}
    return JSONResponse({"error": error}, status, headers)


def checked_inputs(given: str | list[str], limits: Limits, name: str) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not 0 < len(texts) <= limits.inputs:
        raise InputError(f"{name}: from 1 to {limits.inputs} texts, but there are {len(texts)}.")
    most = 16 * limits.prompt  # characters: a token is seldom longer
    for number, text in enumerate(texts, 1):
        if len(text) > most:
            raise InputError(f"{name} {number}: at most {most} characters, but has {len(text)}.")
    return texts


async def _gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)


class Completing:
    """One request of /v1/completions: several prompts, several answers to each."""

    def __init__(
        self, one: Hosted, asked: schema.Completion, limits: Limits, metrics: Metrics
    ) -> None:
        self.one, self.asked, self.limits, self.metrics = one, asked, limits, metrics
        self.began, self.id = time.perf_counter(), f"cmpl-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.decode = one.settle(self.parameters())
        prompts = self.prompts()
        if not 0 < len(prompts) <= limits.inputs:
            raise InputError(
                f"prompt: from 1 to {limits.inputs} texts, but there are {len(prompts)}."
            )
        for number, prompt in enumerate(prompts, 1):
            if isinstance(prompt, str):
                checked_inputs(prompt, limits, f"prompt {number}")
        self.ids = [one.ids(prompt, i, self.decode) for i, prompt in enumerate(prompts, 1)]
        self.texts = [p if isinstance(p, str) else one.text.decode([p])[0] for p in prompts]
        self.written = 0
        if asked.echo and not one.writes_on:
            raise InputError("echo: a translator's prompt is not part of its answer.")

    def prompts(self) -> list[Any]:
        given: Any = self.asked.prompt
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            return [given]
        return list(given)

    def parameters(self) -> dict[str, Any]:
        a = self.asked
        if a.max_tokens is not None and a.max_tokens > self.limits.new_tokens:
            raise InputError(
                f"max_tokens: at most {self.limits.new_tokens}, but is {a.max_tokens}."
            )
        if a.best_of is not None and a.best_of != a.n:
            raise InputError("best_of: must be n where it is said.")
        said: dict[str, Any] = {"num_return_sequences": a.n}
        usual = 16 if self.one.writes_on else None
        tokens = a.max_tokens if a.max_tokens is not None else usual
        if tokens is not None:
            said["max_new_tokens"] = max(1, tokens)
        for name in ("top_p", "top_k", "min_p", "seed", "length_penalty", "repetition_penalty"):
            if (value := getattr(a, name)) is not None:
                said[name] = value
        if a.stop is not None:
            said["stop"] = [a.stop] if isinstance(a.stop, str) else a.stop
        if a.num_beams is not None and a.num_beams > 1:
            said |= {"kind": "beam", "num_beams": a.num_beams}
        elif a.temperature == 0 or (a.num_beams == 1 and a.temperature is None):
            said["kind"] = "greedy"
        elif a.temperature is not None or self.one.writes_on:
            said["kind"] = "sample"
            said["temperature"] = 1.0 if a.temperature is None else a.temperature
        if said.get("kind") in ("greedy", "beam"):
            for name in ("top_p", "top_k", "min_p", "seed"):
                said.pop(name, None)
        if a.n > 1 and said.get("kind") == "greedy":
            raise InputError("n: temperature 0 has one answer; leave n at 1.")
        return said

    async def pieces(self) -> AsyncIterator[Piece]:
        """All prompts' answers as they come, numbered through."""
        if self.asked.max_tokens == 0:
            for index in range(len(self.ids) * self.asked.n):
                yield Piece(index, "", [], "length")
            return
        queue: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()

        async def one(number: int, ids: list[int]) -> None:
            first, last, count = None, self.began, 0
            try:
                async for piece in self.one.write(ids, self.decode, self.asked.logprobs or 0):
                    now = time.perf_counter()
                    if piece.tokens and first is None:
                        first = now - self.began
                    count, last = count + len(piece.tokens), now
                    piece.index += number * self.asked.n
                    await queue.put(piece)
                each = (last - self.began - first) / (count - 1) if first and count > 1 else None
                self.metrics.timed(first, each)
                self.metrics.wrote("completion", count)
            except BaseException as error:
                await queue.put(error)
                raise
            finally:
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
                    self.written += len(found.tokens)
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
            tokens: list[Any] = []
            if self.asked.logprobs is not None:
                job = partial(self.one.likelihood, ids, self.asked.logprobs or 0)
                tokens = await self.one.call(job)
                tokens = [token or ids[0] for token in tokens]
            found.append((text, tokens))
        return found

    async def whole(self) -> dict[str, Any]:
        echoed = await self.echoed()
        count = len(self.ids) * self.asked.n
        texts = [echoed[i // self.asked.n][0] for i in range(count)]
        tokens = [list(echoed[i // self.asked.n][1]) for i in range(count)]
        reasons: list[str | None] = [None] * count
        async for piece in self.pieces():
            texts[piece.index] += piece.text
            tokens[piece.index] += piece.tokens
            reasons[piece.index] = piece.reason or reasons[piece.index]
        choices = [
            self.choice(i, texts[i], tokens[i], reasons[i] or "length") for i in range(count)
        ]
        return {**self.head(), "choices": choices, "usage": self.usage()}

    async def begin(self) -> tuple[Any, Piece | None, list[tuple[str, list[Any]]]]:
        """The first piece, so that what is wrong has a status and not a broken stream."""
        echoed = await self.echoed()
        pieces = self.pieces()
        try:
            return pieces, await anext(pieces), echoed
        except StopAsyncIteration:
            return pieces, None, echoed

    async def events(self, begun: tuple[Any, Piece | None, Any]) -> AsyncIterator[str]:
        """Server-sent events."""
        pieces, first, echoed = begun
        try:
            for index, (text, tokens) in enumerate(echoed):
                if text:
                    yield self.event([self.choice(index * self.asked.n, text, tokens, None)])
            if first is not None:
                yield self.event([self.told(first)])
            async for piece in pieces:
                yield self.event([self.told(piece)])
            if (self.asked.stream_options or {}).get("include_usage"):
                yield self.event([], self.usage())
            yield "data: [DONE]\n\n"
        except Exception as error:
            message = str(error) if isinstance(error, RegardError) else "the model failed."
            yield f"data: {json.dumps({'error': {'message': message}})}\n\n"
        finally:
            await pieces.aclose()

    def event(self, choices: list[Any], usage: Any = None) -> str:
        body = {**self.head(), "choices": choices, **({"usage": usage} if usage else {})}
        return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"

    def told(self, piece: Piece) -> dict[str, Any]:
        return self.choice(piece.index, piece.text, piece.tokens, piece.reason)

    def head(self) -> dict[str, Any]:
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
    ) -> dict[str, Any]:
        logprobs = None
        if self.asked.logprobs is not None:
            logprobs = self.likely(tokens)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def likely(self, tokens: Sequence[Any]) -> dict[str, Any]:
        """Tokens as text with their log-probabilities; a bare id has none, being the first."""
        text = self.one.text
        names, logs, tops, offsets, place = [], [], [], [], 0
        for token in tokens:
            known = not isinstance(token, int)
            name = text.tokens([token.id if known else token])[0]
            name = name.replace("▁", " ").replace("Ġ", " ").replace("Ċ", "\n")
            names.append(name)
            offsets.append(place)
            place += len(name)
            logs.append(token.score if known else None)
            pairs = {text.tokens([i])[0]: score for i, score in token.others} if known else None
            tops.append(pairs)
        return {
            "tokens": names,
            "token_logprobs": logs,
            "top_logprobs": tops,
            "text_offset": offsets,
        }


class Guard:
    """Before every route: the key, the body's size; after it: headers and a count."""

    def __init__(self, app: ASGIApp, limits: Limits, api_key: str, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        status = [500]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                extra = [(k.lower().encode(), v.encode()) for k, v in GUARDS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            if not self.may(scope["path"], headers):
                asks = {"WWW-Authenticate": 'Basic realm="regard", charset="UTF-8"'}
                answer = refusal(401, "an API key is needed: Authorization: Bearer …", None, asks)
                await answer(scope, receive, guarded)
                return
            size = headers.get(b"content-length", b"0")
            if size.isdigit() and int(size) > self.limits.body:
                await self.too_large()(scope, receive, guarded)
                return
            body, whole = b"", False
            while scope["method"] in ("POST", "PUT", "PATCH") and not whole:
                message = await receive()
                if message["type"] != "http.request":  # gone before it was sent
                    return
                body += message.get("body", b"")
                if len(body) > self.limits.body:
                    await self.too_large()(scope, receive, guarded)
                    return
                whole = not message.get("more_body", False)

            replayed = [whole]

            async def replay() -> Message:
                if replayed[0]:
                    replayed[0] = False
                    return {"type": "http.request", "body": body, "more_body": False}
                return await receive()

            await self.app(scope, replay, guarded)
        finally:
            known = getattr(scope.get("route"), "path", "other")
            self.metrics.answered(known, status[0])

    def may(self, path: str, headers: dict[bytes, bytes]) -> bool:
        """Whether the key was given, compared in a time that tells nothing of it."""
        if not self.key or path == "/health":
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except ValueError:
                given = b""
        elif scheme.lower() != b"bearer":
            given = headers.get(b"x-api-key", b"")
        return hmac.compare_digest(given.strip(), self.key)

    def too_large(self) -> Response:
        return refusal(413, f"body: at most {self.limits.body} bytes.", "body")
