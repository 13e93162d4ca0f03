"""What the server takes at most; beyond it, every refusal names the field and the limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Settings of `regard serve`, each with the one default."""

    body: int = 2**20  # bytes of a request
    prompt: int = 16_384  # tokens of a prompt or text
    new_tokens: int = 4096  # tokens asked for
    inputs: int = 64  # texts in one request
    answers: int = 16  # answers to one text
    beams: int = 16
    rows: int = 64  # answers written at the same time, of one run
    waiting: int = 256  # requests that wait for their turn, of one run
    seconds: float = 120.0  # until an answer must be there
    stopping: float = 10.0  # in which what runs is finished when the server is to stop
    look: int = 2_000_000  # weights in one answer of /attention
