"""What must be told of an architecture of Hugging Face folders, so that it goes both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..batch import Asked
from ..errors import RunError
from .rules import Rule

Config = dict[str, Any]

# What their activations are called here; of two names of one, the first is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class Architecture(NamedTuple):
    """One `model_type` of theirs."""

    model: str  # our model's kind
    prefix: str  # what the body's names begin with where the file holds an output layer too
    settings: Callable[[Config, set[str]], object]  # their config and tensor names -> our settings
    config: Callable[[Any], Config]  # our settings -> their config, or a refusal
    body: Callable[[Any, str], Iterable[Rule]]  # settings, prefix -> names
    head: Callable[[Any, type[Asked], str], Iterable[Rule]]  # settings, asked, prefix -> names
    classes: dict[str, str]  # their class -> our task; the first of a task is written
    repeats: tuple[str, ...] = ()  # endings of tensors that say again what another says, or nothing
    # What the task's own sections of a recipe say, by name, and [task] itself.
    sections: Callable[[Config], dict[str, dict[str, object]]] = lambda config: {"text": {}}
    task: Callable[[Config], dict[str, object]] = lambda config: {}
    spelled: tuple[tuple[str, str], ...] = ()  # patterns of names, and how they were spelled before


def shown(value: object) -> str:
    """What a file says, as it can be said in a line."""
    said = f"'{value}'" if isinstance(value, str) and value.isprintable() else repr(value)
    return said if len(said) < 80 else f"{said[:76]}…"


def wanted(config: Config, key: str, *values: object) -> Any:
    """A key that we know how to follow only where it has one of these values."""
    found = config.get(key, values[0])
    if found not in values:
        known = " or ".join(repr(value) for value in values)
        raise RunError(
            f"config.json: {key} must be {known} to be imported, but is {shown(found)}; nothing "
            "is guessed."
        )
    return found


def number(config: Config, key: str, default: float | None = None) -> Any:
    value = config.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RunError(f"config.json: {key} must be a number, but is {shown(value)}.")
    return value


def activation(config: Config, key: str, default: str) -> str:
    return ACTIVATIONS[wanted(config, key, default, *ACTIVATIONS)]


def their_activation(ours: str) -> str:
    found = [theirs for theirs, mine in ACTIVATIONS.items() if mine == ours]
    must(bool(found), f"model.feedforward={ours}")
    return found[0]


AS_IT_IS = "--to onnx takes it as it is"  # the way out for whatever has no counterpart


def must(ok: bool, what: str, instead: str = "") -> None:
    """Refuse what is otherwise there; `instead` is what would have a counterpart."""
    if not ok:
        trained = f", and one trained with {instead} goes out so" if instead else ""
        raise RunError(
            f"a model with {what} has no counterpart there, so it cannot be exported; "
            f"{AS_IT_IS}{trained}."
        )


def looks_at_all(settings: object) -> None:
    """Other kits know no patterns, or others."""
    if "pattern" in vars(settings):
        must_be(settings, pattern="full")


def must_be(settings: object, **values: object) -> None:
    """Settings that have no counterpart unless they are these."""
    for key, value in values.items():
        found = vars(settings)[key]
        must(found == value, f"model.{key}={found!r}", f"model.{key}={value!r}")
