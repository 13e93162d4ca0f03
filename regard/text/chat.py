"""Conversations as text: a template of Jinja's, and ids in which only the template has a say.

A template is somebody else's program. It runs in Jinja's sandbox, which gives it values and no way
out to Python, and both it and what it writes may only be so long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError, RunError
from .text import Text

Message = Mapping[str, str]  # a role, and what it says

FILE = "chat.json"
ROLES = ("system", "developer", "user", "assistant", "tool")
LONGEST_TEMPLATE = 2**17  # characters
LONGEST_CHAT = 2**22
PRIVATE = range(0xE000, 0xF8FF)  # characters that mean nothing in any text
# What a template may end in, beside Jinja's own errors.
FAULTS = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class ChatFormat:
    """What a run keeps of how it was taught to converse."""

    template: str
    controls: list[str]  # entries of the vocabulary that a template may use, and no text becomes
    bos: str
    eos: str

    def __post_init__(self) -> None:
        if len(self.template) > LONGEST_TEMPLATE:
            raise RunError(
                f"a chat template may have {LONGEST_TEMPLATE:,} characters, but has "
                f"{len(self.template):,}."
            )

    @classmethod
    def load(cls, folder: Path) -> ChatFormat | None:
        """Of a run folder; None where the run was not taught to converse."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            texts = (kept["template"], kept["bos"], kept["eos"], *kept["controls"])
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("all it holds must be text")
            return cls(**kept)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise RunError(f"{path}: not a readable chat template ({error}).") from error

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


class Chat:
    """Messages to ids, as the template has it."""

    def __init__(self, chat_format: ChatFormat, text: Text) -> None:
        self.format, self.text = chat_format, text

    def ids(self, messages: Sequence[Message], answered: bool = False) -> list[int]:
        """The conversation up to where the answer begins; if `answered`, up to its end.

        What a message says is never a control token, even where it spells one: there each such
        spelling is marked before the template sees it, and only what is not marked is looked up.
        """
        check_messages(messages)
        controls = self.text.controls
        if not controls:
            return self.text.encode([self.render(messages, not answered)])[0]
        every = "".join(message["content"] for message in messages)
        mark = next((chr(code) for code in PRIVATE if chr(code) not in every), "")
        if not mark:
            raise InputError(
                "messages: they must leave one private character (U+E000 to U+F8FE) unused, but "
                "use all."
            )
        shielded = [{**m, "content": self.spellings.sub(rf"\1{mark}", m["content"])}
                    for m in messages]  # fmt: skip
        parts = self.names.split(self.render(shielded, not answered))
        # Every second part is the name of a control token.
        plain = iter(self.text.encode([part.replace(mark, "") for part in parts[::2]]))
        ids = next(plain)
        for name, more in zip(parts[1::2], plain, strict=True):
            ids = [*ids, controls[name], *more]
        return ids

    def recent(self, messages: Sequence[Message], room: float) -> list[Message]:
        """The last turns, as many as have room, behind what the system said at first."""
        first = [message for message in messages[:1] if message["role"] == "system"]
        turns = list(messages[len(first) :])
        while len(self.ids([*first, *turns])) > room:
            users = [i for i, message in enumerate(turns) if i and message["role"] == "user"]
            if not users:
                break
            turns = turns[users[0] :]
        return [*first, *turns]

    def render(self, messages: Sequence[Message], prompt: bool = True) -> str:
        """The conversation as text; with `prompt`, up to where the answer begins."""
        program = self.program
        from jinja2 import TemplateError

        written, size = [], 0
        try:
            for part in program.generate(
                messages=messages,
                add_generation_prompt=prompt,
                bos_token=self.format.bos,
                eos_token=self.format.eos,
                tools=None,
                documents=None,
            ):
                size += len(part)
                if size > LONGEST_CHAT:
                    raise InputError(
                        f"messages: as a text they may have {LONGEST_CHAT:,} characters, but the "
                        "chat template writes more."
                    )
                written.append(part)
        except (TemplateError, *FAULTS) as error:
            raise InputError(f"messages: the chat template refuses them ({error}).") from error
        return "".join(written)

    @cached_property
    def program(self) -> Any:
        """The template, ready to run in its sandbox with the helpers that templates count on."""
        sandbox = sandboxed()
        from jinja2 import TemplateError

        sandbox.filters["tojson"] = as_json
        sandbox.globals |= {"raise_exception": refuse, "strftime_now": now}
        del sandbox.globals["lipsum"]  # writes as much as it is asked for
        try:
            return sandbox.from_string(self.format.template)
        except (TemplateError, *FAULTS) as error:
            raise RunError(f"the chat template is no template of Jinja's ({error}).") from error

    @cached_property
    def names(self) -> re.Pattern[str]:
        """A control token's name, the longest that fits."""
        ordered = sorted(self.text.controls, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, ordered))})")

    @cached_property
    def spellings(self) -> re.Pattern[str]:
        """The first letter of a control token's name, or of as much of one as ends a message."""
        return re.compile(f"(?=(?:{'|'.join(map(begun, self.text.controls))}))(.)", re.DOTALL)


def sandboxed() -> Any:
    """Jinja's sandbox; texts and lists are not multiplied in it, nor large powers taken."""
    try:
        import jinja2  # noqa: F401
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise InputError("a chat needs jinja2; pip install 'regard[chat]'.") from error

    class Bounded(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            numbers = isinstance(left, int | float) and isinstance(right, int | float)
            if not numbers or (operator == "**" and abs(right) > 64):
                raise ValueError(f"'{operator}' is for small numbers")
            return super().call_binop(context, operator, left, right)

    return Bounded(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])


def begun(name: str) -> str:
    """A pattern of a whole name, and of its beginning where the text then ends."""
    pattern = re.escape(name[-1])
    for letter in reversed(name[:-1]):
        pattern = f"{re.escape(letter)}(?:{pattern}|\\s*\\Z)"
    return pattern


def check_messages(messages: Sequence[Message]) -> None:
    if not messages:
        raise InputError("messages: there must be one at least, but there is none.")
    for number, message in enumerate(messages, 1):
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise InputError(
                f"message {number}: its role must be one of {', '.join(ROLES)}, but is {role!r}."
            )
        if not isinstance(content, str):
            raise InputError(f"message {number}: its content must be a text.")


def as_json(value: object, indent: int | None = None) -> str:
    """JSON as templates want it: letters as they are, and nothing escaped for a web page."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def refuse(reason: object) -> NoReturn:
    raise InputError(f"messages: {str(reason).rstrip('.')}.")


def now(pattern: str) -> str:
    """The time, for templates that tell a model what day it is."""
    from datetime import datetime

    return datetime.now().strftime(pattern)
