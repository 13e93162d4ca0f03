"""Conversations: who says what in turn, or an instruction and what answers it; JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError
from ..text.chat import ROLES
from .read import Faults, is_text, kind_of, records


class Conversation(NamedTuple):
    """Messages as JSON, each with a role and what it says, and where they stand."""

    messages: str
    where: str


def read(files: Sequence[Path], faults: Faults) -> Iterator[Conversation]:
    """A conversation a line: `messages`, or `instruction` (with `input`) and `response`."""
    for path in files:
        if kind_of(path) != ".jsonl":
            raise DataError(f"{path}: conversations must be in a .jsonl file.")
        for number, record in records(path, faults):
            where = f"{path}:{number}"
            messages = messages_of(record)
            roles = [message.get("role") for message in messages]
            texts = [message.get("content") for message in messages]
            if not messages:
                faults.report(where, "there must be messages, or instruction and response")
            elif not all(role in ROLES for role in roles) or "assistant" not in roles[1:]:
                faults.report(
                    where, f"roles must be {', '.join(ROLES)}, and an assistant must answer"
                )
            elif not all(isinstance(text, str) and is_text(text) for text in texts):
                faults.report(where, "the content of a message must be text")
            else:
                both = zip(roles, texts, strict=True)
                plain = [{"role": role, "content": text} for role, text in both]
                yield Conversation(json.dumps(plain, ensure_ascii=False), where)


def messages_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a row, in whichever form it has them; none where it has neither."""
    given = record.get("messages")
    if isinstance(given, list) and all(isinstance(message, dict) for message in given):
        return given
    if "instruction" not in record or "response" not in record:
        return []
    asked = "\n\n".join(str(record[key]) for key in ("instruction", "input") if record.get(key))
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": record["response"]},
    ]
