"""Recipes: TOML and key=value, strictly checked into frozen settings, one section to each who
needs it.

A section's settings are a frozen dataclass beside the code that uses them. Its fields say all there
is to say: type and bounds, the one default, and in `Annotated` the one comment, as a string, and
where it picks from a dictionary, that dictionary.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from .errors import RecipeError, UnknownNameError

SECTIONS = ("task", "data", "model", "train", "decode")  # and those that a task has of its own
RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Value:
    """One given setting and where it was given."""

    value: object
    origin: str  # "recipe" or "command line"
    where: str  # for messages: the file's name, or "command line"
    folder: Path  # what a path in it is relative to


T = TypeVar("T")
Given = dict[str, dict[str, Value]]


def find(recipe: str) -> Path:
    """A recipe's file: a path to a .toml, or the name of one that is shipped."""
    path = Path(recipe)
    if path.suffix == ".toml":
        if not path.is_file():
            raise RecipeError(f"{path}: no such recipe file.")
        return path
    shipped = RECIPES / f"{recipe}.toml"
    if not shipped.is_file():
        raise RecipeError(
            f"no recipe '{recipe}'{_nearest(recipe, names())} `regard recipes` lists them all; "
            "a file of your own must end in .toml."
        )
    return shipped


def names() -> list[str]:
    """The names of all shipped recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def read(path: Path, overrides: Sequence[str] = ()) -> Given:
    """What a recipe and the command line say, before anything is checked but its form."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{path.name}: not valid TOML: {error}.") from error
    return by_section(tables, path.name, lambda value: _home(path, value), overrides)


def by_section(
    tables: Mapping[str, Any],
    where: str,
    home: Callable[[object], Path],
    overrides: Sequence[str] = (),
) -> Given:
    """The same of tables; `home` says what a path among their values is relative to."""
    given: Given = {section: {} for section in SECTIONS}
    for section, table in tables.items():
        if not isinstance(table, Mapping):
            raise RecipeError(
                f"{where}: '{section}' stands in no section; put it under one, such as [train]."
            )
        given.setdefault(section, {})
        for key, value in table.items():
            given[section][key] = Value(value, "recipe", where, home(value))
    for text in overrides:
        section, key, value = parse_override(text)
        said = Value(value, "command line", "command line", Path.cwd())
        given.setdefault(section, {})[key] = said
    return given


def _home(path: Path, value: object) -> Path:
    """What a path in a recipe is relative to: the recipe.

    In a shipped one only the bundled corpora, ../corpora/…, are; all else is the user's to bring,
    and relative to the current folder.
    """
    shipped = path.parent.resolve() == RECIPES.resolve()
    bundled = isinstance(value, str) and value.startswith("../")
    return Path.cwd() if shipped and not bundled else path.parent.resolve()


def parse_override(text: str) -> tuple[str, str, object]:
    """`section.key=value`; the value as in TOML, a bare word being a string."""
    name, equals, literal = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and key):
        raise RecipeError(
            f"command line: '{text}' must look like section.key=value, such as train.steps=100."
        )
    try:
        value = tomllib.loads(f"value = {literal}")["value"]
    except tomllib.TOMLDecodeError as error:
        value = literal.strip()
        if value[:1] + value[-1:] == "[]":
            items = [item.strip(" '\"") for item in value[1:-1].split(",")]
            raise RecipeError(
                f"command line: {section}.{key}: texts in a list must stand in quotes, but are "
                f"{value}; write {_typed(section, key, items)}."
            ) from error
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"command line: {section}.{key} cannot be read ({error}).") from error
    return section, key, value


def _typed(section: str, key: str, value: object) -> str:
    """How a list is typed in a shell, which would take its quotes away."""
    return f"{section}.{key}='{json.dumps(value, ensure_ascii=False)}'"


def make_settings(
    kind: type[T], section: str, given: Mapping[str, Value], ignore: Iterable[str] = ()
) -> T:
    """A section's values as its settings: unknown keys refused with the nearest, types checked."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for key, value in given.items():
        if key in ignore:
            continue
        if key not in fields:
            known = [*fields, *ignore]
            raise RecipeError(f"{value.where}: no setting '{section}.{key}'{_nearest(key, known)}")
        values[key] = _check(kind, section, key, value)
    missing = [
        n for n, f in fields.items() if n not in values and _default(f) is dataclasses.MISSING
    ]
    if missing:
        raise RecipeError(f"the recipe must set {section}.{missing[0]}, but does not.")
    return kind(**values)


def choose(section: str, given: Mapping[str, Value], known: Iterable[str]) -> str:
    """The section's `kind`, which picks a name in a dictionary."""
    known = list(known)
    if "kind" not in given:
        raise RecipeError(f"the recipe must set {section}.kind, to one of {', '.join(known)}.")
    kind = given["kind"]
    if kind.value not in known:
        near = _nearest(str(kind.value), known)
        raise UnknownNameError(
            f"{kind.where}: {section}.kind must be one of {', '.join(known)}, but is "
            f"'{kind.value}'{near}",
            f"{section}.kind",
            kind.value,
            kind.origin,
        )
    return str(kind.value)


def comments(kind: type) -> dict[str, str]:
    """Each setting's one comment line."""
    return {
        name: next((extra for extra in get_args(hint)[1:] if isinstance(extra, str)), "")
        for name, hint in _hints(kind).items()
    }


def write(sections: Mapping[str, Sequence[tuple[str, object, str]]]) -> str:
    """TOML of (key, value, comment) by section; None is left out."""
    blocks = []
    for section, rows in sections.items():
        lines = [
            f"{key} = {literal(value)}" + (f"  # {note}" if note else "")
            for key, value, note in rows
            if value is not None
        ]
        blocks.append("\n".join([f"[{section}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def literal(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, (str, Path)):
        # JSON's escapes are TOML's but for one: TOML has no escaped slash, and JSON makes none.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _check(kind: type, section: str, key: str, given: Value) -> object:
    hint = _hints(kind)[key]
    said = _as_name(hint, given.value)
    try:
        # Through JSON, so that a TOML array fits a tuple while strictness keeps "3" from being 3.
        value = TypeAdapter(hint).validate_json(json.dumps(said), strict=True)
    except (ValidationError, TypeError, ValueError) as error:
        reason, advice = "a text, a number, true or false, or a list", ""
        if isinstance(error, ValidationError):
            # The last alternative of a union says least; the first is the usual one.
            first = error.errors()[0]
            reason = first["msg"].removeprefix("Input should be ").removeprefix("Value ")
            if first["type"] in ("list_type", "tuple_type"):
                reason, typed = "a list", given.origin == "command line"
                form = _typed(section, key, [said]) if typed else f"{key} = {literal([said])}"
                advice = f"; write {form}"
        raise RecipeError(
            f"{given.where}: {section}.{key} must be {reason}, but is "
            f"{textwrap.shorten(json.dumps(given.value, default=str), 200)}{advice}."
        ) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"{given.where}: {section}.{key} must be finite, but is {value}.")
    for extra in get_args(hint)[1:]:  # a dictionary: the setting is one of its names
        if isinstance(extra, Mapping) and value not in extra:
            raise UnknownNameError(
                f"{given.where}: {section}.{key} must be one of {', '.join(extra)}, but is "
                f"'{value}'{_nearest(str(value), extra)}",
                f"{section}.{key}",
                value,
                given.origin,
            )
    if Path in get_args(hint)[1:]:  # it names files: relative to the recipe, or, if typed, to here
        return anchor(value, given.folder)
    return value


def _as_name(hint: Any, said: object) -> object:
    """Columns may be counted where they have no names: a number for a text is its digits."""
    taken = get_args(hint)[:1]
    names = get_args(taken[0]) if taken else ()
    if type(said) is int and (taken == (str,) or str in names):
        return str(said)
    if isinstance(said, list) and list[str] in names:
        return [str(item) if type(item) is int else item for item in said]
    return said


def anchor(value: Any, folder: Path) -> Any:
    """A path, or a list of them, made absolute; an empty one stays empty."""
    if isinstance(value, (list, tuple)):
        return type(value)(anchor(item, folder) for item in value)
    try:
        return str((folder / Path(value).expanduser()).absolute()) if value else value
    except RuntimeError as error:
        raise RecipeError(f"'{value}': {error}") from error


def check_sections(given: Given, own: Iterable[str], name: str) -> None:
    """What a section says must be heard by somebody: the house, or the task."""
    known = [*SECTIONS[:2], *own, *SECTIONS[2:]]
    for section, keys in given.items():
        if section not in known:
            where = next((value.where for value in keys.values()), name)
            raise RecipeError(
                f"{where}: no section '{section}'{_nearest(section, known)} There are "
                f"{', '.join(known)}."
            )


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else "."


def _default(field: dataclasses.Field[object]) -> object:
    return (
        field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    )


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
