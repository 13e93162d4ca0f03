"""Before every route: who asks, by which name, and how much; after it: headers and a count."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import logging
from collections.abc import Sequence

from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import InputError
from .limits import ServerLimits
from .metrics import Metrics
from .refusal import failure, refusal
from .upload import as_json, is_upload

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; media-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
UNSENT = 0
THROWN_AWAY = 2**26  # bytes of a body too large that are still read, so that its answer is seen


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class Hosts:
    """The names that this server answers to.

    A page of another site can have its own name point here (DNS rebinding), and then read what is
    on a loopback address; but it cannot change the name that its requests carry.
    """

    def __init__(self, host: str, allowed: Sequence[str] = ()) -> None:
        self.is_local = is_loopback(host)
        self.known = {"localhost", host.lower(), *(name.lower() for name in allowed)}
        self.anywhere = host in ("0.0.0.0", "::", "")  # then every address of the machine

    def knows(self, given: bytes) -> bool:
        name = given.decode("latin-1").lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in self.known or "*" in self.known:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.anywhere


class Guard:
    """A middleware around the whole app."""

    def __init__(
        self, app: ASGIApp, limits: ServerLimits, api_key: str, hosts: Hosts, metrics: Metrics
    ) -> None:
        self.app, self.limits, self.hosts, self.metrics = app, limits, hosts, metrics
        self.key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = [UNSENT]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        headers = dict(scope["headers"])
        scope["keyed"] = self.has_key(headers)
        try:
            refused = self.refuse(scope, headers)
            body = b""
            if refused is None and scope["method"] in ("POST", "PUT", "PATCH"):
                body, refused = await self.read(receive, headers)
            if refused is None and is_upload(headers.get(b"content-type", b"")):
                body, refused = await self.as_json(scope, headers[b"content-type"], body)
            if refused is not None:
                await refused(scope, receive, guarded)
                return
            await self.app(scope, replay(body, receive), guarded)
        except ClientGoneError:
            status[0] = 499
        except Exception as error:
            if status[0] != UNSENT:  # the answer has begun; a cut connection says that it broke
                raise
            logging.getLogger("uvicorn.error").exception("%s failed", scope["path"])
            await failure(error)(scope, receive, guarded)
        finally:
            known = getattr(scope.get("route"), "path", "other")
            self.metrics.answered(known, status[0])

    def refuse(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Why a request is not even read."""
        if not self.hosts.knows(headers.get(b"host", b"")):
            return refusal(
                421, "Host: this server does not answer to that name; --allow-host lets it."
            )
        if not scope["keyed"] and scope["path"] != "/health":
            asks = {"WWW-Authenticate": 'Basic realm="regard", charset="UTF-8"'}
            return refusal(401, "an API key is needed: Authorization: Bearer …", None, asks)
        return None

    async def read(
        self, receive: Receive, headers: dict[bytes, bytes]
    ) -> tuple[bytes, Response | None]:
        """A body, or why it is none; one too large is read on for a while and thrown away, for a
        client that still sends would never see the answer."""
        body, size, limit = bytearray(), 0, self.limits.body
        stated = headers.get(b"content-length", b"0")
        large = not stated.isdigit() or int(stated) > limit
        try:
            async with asyncio.timeout(self.limits.upload):
                more = True
                while more and size < THROWN_AWAY:
                    message = await receive()
                    if message["type"] != "http.request":  # gone before it was sent
                        raise ClientGoneError
                    size += len(message.get("body", b""))
                    large = large or size > limit
                    if not large:
                        body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            said = f"body: it must be here within {self.limits.upload:g} s."
            return b"", refusal(408, said, "body", {"Connection": "close"})
        if large:
            said = f"body: at most {limit} bytes."
            return b"", refusal(413, said, "body", {"Connection": "close"})
        return bytes(body), None

    async def as_json(
        self, scope: Scope, kind: bytes, body: bytes
    ) -> tuple[bytes, Response | None]:
        """A form with files is read as the JSON that it stands for."""
        try:
            body = await asyncio.to_thread(as_json, kind, body)
        except InputError as error:
            return b"", refusal(422, str(error), "body")
        rest = [
            (k, v) for k, v in scope["headers"] if k not in (b"content-type", b"content-length")
        ]
        length = (b"content-length", str(len(body)).encode())
        scope["headers"] = [*rest, (b"content-type", b"application/json"), length]
        return body, None

    def has_key(self, headers: dict[bytes, bytes]) -> bool:
        """Whether the key was given, compared in a time that tells nothing of it."""
        if not self.key:
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


class ClientGoneError(Exception):
    """Nobody is there to be answered."""


def replay(body: bytes, receive: Receive) -> Receive:
    """What is received, with the body that has been read already."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def first_the_body() -> Message:
        return left.pop() if left else await receive()

    return first_the_body
