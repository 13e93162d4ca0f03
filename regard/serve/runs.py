"""The runs that a server has, and what every route does with them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from .limits import ServerLimits
from .metrics import Metrics
from .refusal import RETRY
from .served import ServedRun


class Runs:
    """The runs that are served, and how long each may take to answer."""

    def __init__(
        self, hosted: Sequence[ServedRun], limits: ServerLimits, private: bool = True
    ) -> None:
        """`private`: only this machine, or who has the key, may ask."""
        self.hosted, self.limits, self.metrics = list(hosted), limits, Metrics()
        self.private = private
        self.by_name = {one.name: one for one in hosted}
        self.stopping = threading.Event()  # set by the signal that ends the server

    def pick(self, name: str | None) -> ServedRun:
        if name is None and len(self.hosted) == 1:
            return self.hosted[0]
        if name not in self.by_name:
            known = ", ".join(self.by_name)
            what = "must be said where several runs are served" if name is None else f"no '{name}'"
            raise HTTPException(404, f"model: {what}; there are {known}.")
        return self.by_name[name]

    async def in_time(self, request: Request, work: Awaitable[object]) -> Any:
        """An answer within its time; a client that goes away ends the work."""
        task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
        seconds = self.limits.seconds
        try:
            done, _ = await asyncio.wait(
                {task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if task in done:
                return task.result()
            if gone in done:
                raise HTTPException(499, "the client went away.")
            raise HTTPException(503, f"no answer within {seconds:g} s, the server's limit.", RETRY)
        finally:
            for one in (task, gone):
                one.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)


async def told(found: object) -> Response:
    """An answer as JSON, written beside the loop: it may be large."""
    body = await asyncio.to_thread(json.dumps, found, ensure_ascii=False, allow_nan=False)
    return Response(body, media_type="application/json")
