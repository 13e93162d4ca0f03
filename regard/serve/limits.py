"""What the server takes at most; beyond it, every refusal names the field and the limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLimits:
    """Settings of `regard serve`, each with the one default."""

    body: int = 2**20  # bytes of a request
    file: int = 2**24  # bytes of a picture in it
    prompt: int = 16_384  # tokens of a prompt or text
    new_tokens: int = 4096  # tokens asked for
    inputs: int = 64  # texts in one request
    answers: int = 16  # answers to one text
    beams: int = 16
    stop: int = 256  # characters of a text that ends an answer
    rows: int = 64  # answers written at the same time, of one run
    tokens: int = 2**17  # tokens that all those may hold, each counted as long as the longest
    cost: int = 2**20  # tokens that one request may ask for in all, answers and beams counted
    waiting: int = 256  # requests that wait for their turn, of one run
    unread: int = 1024  # tokens of a stream that wait for their reader
    seconds: float = 120.0  # until an answer must be there
    stream: float = 600.0  # until a stream must have ended
    head: float = 10.0  # until a request's head must be there
    stalled: float = 10.0  # in which a client must have read something of what is sent
    upload: float = 30.0  # until its body must be
    connections: int = 1000  # open at the same time
    stopping: float = 10.0  # in which what runs is finished when the server is to stop
    look: int = 2_000_000  # weights in one answer of /attention
