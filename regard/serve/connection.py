"""Connections: how many there may be, and how long each may keep the server waiting.

uvicorn closes a connection that is idle after an answer; here also one that never sends a whole
request, one that does not read, and one too many.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import ServerLimits


def connection(limits: ServerLimits) -> type[H11Protocol]:
    """The protocol of a server with such limits."""

    class Connection(H11Protocol):
        waits: asyncio.TimerHandle | None = None  # for the rest of a request's head
        watch: asyncio.TimerHandle | None = None  # over what is not read
        unread = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
            else:
                self.wait_for_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self.stop_waiting()
            elif self.waits is None:  # the head of the next request has begun
                self.wait_for_head()

        def wait_for_head(self) -> None:
            self.waits = self.loop.call_later(limits.head, self.transport.abort)

        def stop_waiting(self) -> None:
            if self.waits is not None:
                self.waits.cancel()
                self.waits = None

        def on_response_complete(self) -> None:
            self.stop_waiting()
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            self.unread = self.transport.get_write_buffer_size()
            self.watch = self.loop.call_later(limits.stalled, self.look)

        def look(self) -> None:
            """Who reads slowly may go on; who does not read at all is left."""
            before, self.unread = self.unread, self.transport.get_write_buffer_size()
            if self.unread >= before:
                self.transport.abort()
            else:
                self.watch = self.loop.call_later(limits.stalled, self.look)

        def resume_writing(self) -> None:
            super().resume_writing()
            self.stop_watching()

        def stop_watching(self) -> None:
            if self.watch is not None:
                self.watch.cancel()
                self.watch = None

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_waiting()
            self.stop_watching()
            super().connection_lost(exc)

    return Connection
