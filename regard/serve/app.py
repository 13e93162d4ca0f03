"""The HTTP app: an async front before each run's one model thread."""

from __future__ import annotations

import asyncio
import base64
import gc
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, StreamingResponse

from .. import __version__
from ..errors import InputError
from ..tasks.task import Embeds
from . import about, look, schema, transcription
from .chat import chat_routes
from .completion import Completing, check_inputs, check_texts
from .guard import Guard, Hosts
from .limits import ServerLimits
from .refusal import refuse_in_one_sentence
from .runs import Runs, told
from .served import ServedRun

PAGE = Path(__file__).parent / "page"
SHARED = Path(__file__).parents[1] / "see/page"  # what the standalone page is made of too
KINDS = {".css": "text/css", ".js": "text/javascript"}
# All that may be asked for, by name: nothing else in these folders can be.
SHOWN = {
    path.name: path
    for folder in (SHARED, PAGE)
    for path in folder.iterdir()
    if path.suffix in KINDS
}


def make_app(
    hosted: Sequence[ServedRun],
    limits: ServerLimits,
    api_key: str = "",
    origins: Sequence[str] = (),
    hosts: Hosts | None = None,
) -> FastAPI:
    """All routes over some runs."""
    if any(one.task.gives.from_file for one in hosted):
        # Written as base64 three bytes are four, and something is said beside them.
        limits = replace(limits, body=limits.body + limits.file * 4 // 3)
    runs = Runs(hosted, limits, bool(api_key) or hosts is None or hosts.is_local)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        # Models and libraries stay: were they gone through whenever a large request makes Python
        # look for garbage, everybody would wait for it.
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()
        # Who asked has been answered by now, or has had the time for it.
        for one in hosted:
            await asyncio.to_thread(one.close, 0.2)

    app = FastAPI(
        title="regard",
        version=__version__,
        description="Attention models over HTTP: OpenAI's routes, any task, and a look inside.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    hosts = hosts or Hosts("127.0.0.1")
    app.add_middleware(Guard, limits=limits, api_key=api_key, hosts=hosts, metrics=runs.metrics)
    if origins:
        from starlette.middleware.cors import CORSMiddleware

        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )  # fmt: skip
    for routes in (state_routes, page_routes, openai_routes, chat_routes, task_routes):
        app.include_router(routes(runs))
    refuse_in_one_sentence(app, limits, runs.stopping)
    app.state.stopping = runs.stopping
    return app


def state_routes(runs: Runs) -> APIRouter:
    """How the server is."""
    router = APIRouter()

    @router.get("/health")
    async def health(request: Request) -> dict[str, Any]:
        """Whether the server is well, and which runs it serves."""
        status = {"status": "stopping" if runs.stopping.is_set() else "ok"}
        # What is served is told to those who have the key.
        return {**status, "models": list(runs.by_name)} if request.scope["keyed"] else status

    @router.get("/metrics", response_class=PlainTextResponse)
    async def counted() -> str:
        """Counts for Prometheus: requests, and what each run has to do."""
        return runs.metrics.text({one.name: one.engine.load for one in runs.hosted})

    return router


def page_routes(runs: Runs) -> APIRouter:
    """The page and its parts, and what it shows of a run beside its answers."""
    router = APIRouter()
    offered: dict[str, list[dict[str, object]]] = {}  # by run; reading its data takes a while

    @router.get("/", response_class=HTMLResponse)
    async def page() -> Response:
        """The page."""
        return FileResponse(PAGE / "index.html", media_type="text/html")

    @router.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in SHOWN:
            raise HTTPException(404, "no such part of the page.")
        return FileResponse(SHOWN[name], media_type=KINDS[SHOWN[name].suffix])

    @router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(PAGE / "docs.html", media_type="text/html")

    @router.get("/examples")
    async def examples(request: Request, model: str | None = None) -> Response:
        """Up to three inputs of the run's own data, in the form it takes; none where anybody may
        ask."""
        one = runs.pick(model)
        if not runs.private:
            offered[one.name] = []
        if one.name not in offered:
            reading = asyncio.to_thread(about.examples, one.run)
            offered[one.name] = await runs.in_time(request, reading)
        return await told({"model": one.name, "examples": offered[one.name]})

    @router.get("/training")
    async def training(model: str | None = None) -> Response:
        """How the run was trained: its losses and scores by step."""
        one = runs.pick(model)
        curves = await asyncio.to_thread(about.training, one.run.folder)
        return await told({"model": one.name, **curves})

    return router


def openai_routes(runs: Runs) -> APIRouter:
    """OpenAI's routes."""
    router, limits = APIRouter(prefix="/v1"), runs.limits

    @router.get("/models")
    async def models() -> dict[str, object]:
        """The runs: what each is, what it is given, what it answers with."""
        return {"object": "list", "data": [one.about() for one in runs.hosted]}

    @router.post("/completions")
    async def completions(asked: schema.Completion, request: Request) -> Response:
        """How a text goes on, or what it is in another language."""
        one = runs.pick(asked.model)
        if not one.writes:
            raise InputError(f"model: {one.name} ({one.kind}) does not write; ask /predict.")
        made = asyncio.to_thread(Completing, one, asked, limits, runs.metrics)
        job = await runs.in_time(request, made)
        if not asked.stream:
            return await told(await runs.in_time(request, job.whole()))
        first = await runs.in_time(request, job.begin())
        headers = {"X-Accel-Buffering": "no"}
        kind = "text/event-stream"
        return StreamingResponse(job.events(first), media_type=kind, headers=headers)

    @router.post("/audio/transcriptions")
    async def transcriptions(asked: schema.Transcription, request: Request) -> Response:
        """What is said in an uploaded sound."""
        one = runs.pick(asked.model)
        found: Response = await runs.in_time(request, transcription.answer(one, asked))
        return found

    @router.post("/embeddings")
    async def embeddings(asked: schema.Embedding, request: Request) -> Response:
        """A vector for each text."""
        one = runs.pick(asked.model)
        task = one.task
        if not isinstance(task, Embeds):
            raise InputError(
                f"model: {one.name} ({one.kind}) makes no vectors; a run of embed does."
            )
        texts = check_texts(asked.input, limits, "input")
        found = await runs.in_time(request, one.predict(texts, {}))
        rows = []
        for index, answer in enumerate(found):
            vector: Any = list(answer["vector"])
            if asked.encoding_format == "base64":
                packed = struct.pack(f"<{len(vector)}f", *vector)
                vector = base64.b64encode(packed).decode()
            rows.append({"object": "embedding", "index": index, "embedding": vector})
        (text,) = task.texts.values()
        count = sum(len(ids) for ids in await asyncio.to_thread(text.encode, texts))
        usage = {"prompt_tokens": count, "total_tokens": count}
        return await told({"object": "list", "model": one.name, "data": rows, "usage": usage})

    return router


def task_routes(runs: Runs) -> APIRouter:
    """Any task's answers, and what they look at."""
    router, limits = APIRouter(), runs.limits

    @router.post("/predict")
    async def predict(asked: schema.Prediction, request: Request) -> Response:
        """Any task's answer: one for one input, a list for a list."""
        one = runs.pick(asked.model)
        given: object = asked.inputs
        many = given if isinstance(given, list) else [given]
        inputs = check_inputs(many, limits, "inputs", one.task.gives.from_file)
        found = await runs.in_time(request, one.predict(inputs, asked.parameters))
        return await told(found if isinstance(given, list) else found[0])

    @router.post("/attention")
    async def attention(asked: schema.Attention, request: Request) -> Response:
        """Tokens and weights of every attention, or of those asked for."""
        one = runs.pick(asked.model)
        check_inputs([asked.input], limits, "input", one.task.gives.from_file)
        check_texts(asked.target or "", limits, "target")
        return await told(await runs.in_time(request, look.into(one, asked, limits)))

    @router.post("/inspect")
    async def inspect(asked: schema.Inspection, request: Request) -> Response:
        """A deeper look, with its picture: a receptive field, layers, a word's senses, heads."""
        one = runs.pick(asked.model)
        check_inputs(asked.inputs, limits, "inputs", one.task.gives.from_file)
        check_texts(asked.token, limits, "token")
        return await told(await runs.in_time(request, look.deeper(one, asked)))

    return router
