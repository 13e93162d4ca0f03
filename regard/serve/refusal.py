"""Whatever goes wrong, told in one sentence and in OpenAI's form."""

from __future__ import annotations

import threading

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from ..errors import RegardError
from .limits import ServerLimits
from .served import BusyError, UnreadError

RETRY = {"Retry-After": "1"}
KINDS = {401: "authentication_error", 429: "rate_limit_error"}
# How torch says on a CPU and on a GPU that memory is short.
SHORT = ("out of memory", "can't allocate memory", "not enough memory")


def refusal(
    status: int, message: str, field: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """OpenAI's form of an error."""
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    told = message.encode("utf-8", "replace").decode()  # a client may have sent half a character
    error = {"message": told, "type": kind, "param": field, "code": None}
    return JSONResponse({"error": error}, status, headers)


def refuse_in_one_sentence(app: FastAPI, limits: ServerLimits, stopping: threading.Event) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] in ("json_invalid", "model_attributes_type"):
            what = "body: it must be a JSON object, sent with Content-Type: application/json."
            return refusal(422, what, "body")
        # Which of several forms a field could have had is the library's own business.
        named = (str(part) for part in first["loc"] if part != "body")
        where = ".".join(part for part in named if part.isidentifier() or part.isdecimal())
        where = where.split(".literal")[0].encode("utf-8", "replace").decode() or "body"
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
        if error.status_code == 400:  # nested too deeply, say
            return refusal(422, "body: it must be readable JSON, but is not.", "body")
        message = str(error.detail)
        field = "model" if message.startswith("model:") else None
        return refusal(error.status_code, message, field, dict(error.headers or {}))

    @app.exception_handler(UnreadError)
    async def unread(request: Request, error: UnreadError) -> Response:
        return refusal(503, "the server was too busy to take its own answer.", headers=RETRY)

    @app.exception_handler(MemoryError)
    async def too_large(request: Request, error: MemoryError) -> Response:
        return failure(error)


def failure(error: Exception) -> Response:
    """A fault that is not the client's: memory is short, or we are wrong."""
    short = isinstance(error, MemoryError) or any(word in str(error).lower() for word in SHORT)
    if short:
        return refusal(503, "there is not enough memory for this request.", headers=RETRY)
    return refusal(500, "the server failed at this request; its log says how.")
