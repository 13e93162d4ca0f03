"""The reference: every setting, command, route, recipe and class, written from the code itself."""

from __future__ import annotations

import ast
import itertools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

os.environ.setdefault("NO_MKDOCS_2_WARNING", "true")

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import regard
from regard import config as recipes
from regard import decode
from regard.cli import app
from regard.data.settings import Settings as DataSettings
from regard.models import MODELS
from regard.serve.app import make_app
from regard.serve.limits import ServerLimits
from regard.tasks import TASKS
from regard.training.settings import Settings as TrainSettings

PACKAGE = Path(regard.__file__).parent
# The rooms in the order of docs/house.md, and what each is called in the menu.
ROOMS = {
    "config": "Settings files", "batch": "Batches", "text": "Text", "parts": "Parts",
    "score": "Scores", "model": "The contract of models", "data": "Data", "models": "Models",
    "decode": "Decoding", "tasks": "Tasks", "training": "Training", "exchange": "Exchange",
    "see": "Seeing", "serve": "Serving", "errors": "Errors",
}  # fmt: skip


def on_config(config: MkDocsConfig) -> None:
    """The menu's entry "Reference" gets a line for each page."""
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = menu()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """A page for each line of the menu."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def menu() -> list[dict[str, Any]]:
    settings = [{f"[{section}]": f"reference/settings/{section}.md"} for section in sections()]
    python = [
        {title: [{path.stem: page_of(path)} for path in paths]} for title, paths in rooms().items()
    ]
    return [
        {"Commands": "reference/commands.md"},
        {"Recipes": "reference/recipes.md"},
        {"Settings": settings},
        {"Routes": "reference/routes.md"},
        {"Python": ["reference/python/regard.md", *python]},
    ]


def pages() -> dict[str, str]:
    whole = {
        "reference/commands.md": commands(),
        "reference/recipes.md": shipped(),
        "reference/routes.md": routes(),
    }
    for section, kinds in sections().items():
        whole[f"reference/settings/{section}.md"] = settings(section, kinds)
    whole["reference/python/regard.md"] = FRONT
    for path in itertools.chain(*rooms().values()):
        whole[page_of(path)] = python(path)
    return whole


# Settings.


def sections() -> dict[str, dict[str, type]]:
    """The sections of a recipe, and of each the settings by `kind`; "" where there is no choice."""
    own = {name: {"": kind} for task in TASKS.values() for name, kind in task.sections.items()}
    return {
        "task": {name: task.Settings for name, task in TASKS.items()},
        "data": {"": DataSettings},
        **own,
        "model": {name: model.Settings for name, model in MODELS.items()},
        "train": {"": TrainSettings},
        "decode": {"": decode.Settings},
    }


def settings(section: str, kinds: Mapping[str, type]) -> str:
    """One section: a table for each of its kinds."""
    lines = [*ranked(2.0), f"# Settings: [{section}]", ""]
    for kind, owner in kinds.items():
        if kind:
            lines += [f"## {section}.kind = {kind}", "", sentence(owner), ""]
        notes = recipes.comments(owner)
        hints = get_type_hints(owner, include_extras=True)
        rows = [
            (code(f"{section}.{field.name}"), shown(hints[field.name]), default(field),
             notes[field.name])
            for field in fields(owner)
        ]  # fmt: skip
        lines += [*table(("setting", "type and bounds", "default", "what it is"), rows), ""]
    return "\n".join(lines)


def ranked(weight: float) -> list[str]:
    """How far up among what a search finds: settings stand before the code that has them."""
    return ["---", "search:", f"  boost: {weight}", "---", ""]


def shown(hint: object) -> str:
    """A type and its bounds, as a user would write them."""
    kind, *extras = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    said = [named(kind)]
    for extra in extras:
        if isinstance(extra, Mapping):
            said = ["one of " + ", ".join(map(code, extra))]
        elif extra is Path:
            said = ["path" if kind is str else "paths"]
        elif not isinstance(extra, str):
            said += [f"{sign} {number(vars_of(extra)[name])}" for name, sign in SIGNS.items()
                     if name in vars_of(extra)]  # fmt: skip
    return ", ".join(said)


SIGNS = {
    "gt": ">",
    "ge": "≥",
    "lt": "<",
    "le": "≤",
    "min_length": "length ≥",
    "max_length": "length ≤",
}


def vars_of(bound: object) -> dict[str, Any]:
    return {name: getattr(bound, name) for name in SIGNS if getattr(bound, name, None) is not None}


def number(value: float) -> str:
    whole = isinstance(value, int) and value > 10**6 and value & (value - 1) == 0
    return f"2^{value.bit_length() - 1}" if whole else f"{value}"


def named(kind: Any) -> str:
    """int, text, one of these, a list of those."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(code(str(value)) for value in get_args(kind))
    if hasattr(kind, "__metadata__"):
        return shown(kind)
    inner = [named(part) for part in get_args(kind) if part not in (type(None), ...)]
    if get_origin(kind) in (list, tuple):
        return "[" + ", ".join(inner) + (", …]" if ... in get_args(kind) else "]")
    if inner:
        return " or ".join(inner)
    return {"str": "text", "bool": "true or false"}.get(kind.__name__, kind.__name__)


def default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        value = field.default
    elif field.default_factory is not MISSING:
        value = field.default_factory()
    else:
        return "must be set"
    return "none" if value is None else code(json.dumps(value, ensure_ascii=False))


# Commands, recipes, routes.


def commands() -> str:
    """What `regard COMMAND -h` says, of all of them."""
    lines = ["# Commands", ""]
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        context = typer.Context(command, info_name=f"regard {name}")
        lines += [f"## regard {name}", "", command.help or "", "", "```text"]
        lines += [command.get_usage(context).removeprefix("Usage: "), "```", ""]
        records = (param.get_help_record(context) for param in command.params)
        rows = [(code(record[0]), record[1]) for record in records if record is not None]
        lines += [*table(("argument or option", "what it is"), rows), ""]
    return "\n".join(lines)


def shipped() -> str:
    """The first two lines of each recipe."""
    lines = [
        "# Recipes",
        "",
        "`regard recipes NAME` prints one; `--all` prints its defaults too.",
        "",
    ]
    rows = []
    for name in recipes.names():
        heads = recipes.find(name).read_text(encoding="utf-8").splitlines()[:2]
        rows.append((code(name), *(head.removeprefix("#").strip() for head in heads)))
    return "\n".join([*lines, *table(("recipe", "what it is", "what it reaches"), rows), ""])


def routes() -> str:
    """What /openapi.json says."""
    told = make_app([], ServerLimits()).openapi()
    lines = ["# Routes", "", "A server describes itself at `/openapi.json`; this is the same.", ""]
    for path, methods in told["paths"].items():
        for method, route in methods.items():
            lines += [f"## {method.upper()} {path}", "", route.get("description", ""), ""]
            body = route.get("requestBody", {}).get("content", {})
            for kind, content in body.items():
                schema = told["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
                needed = schema.get("required", ())
                rows = [
                    (code(name), value_type(value),
                     "must be given" if name in needed else code(repr(value.get("default"))),
                     value.get("description", ""))
                    for name, value in schema["properties"].items()
                ]  # fmt: skip
                lines += [f"Body: `{kind}`.", ""]
                lines += [*table(("field", "type", "default", "what it is"), rows), ""]
    return "\n".join(lines)


def value_type(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(value_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if schema.get("type") == "array":
        return f"[{value_type(schema.get('items', {}))}, …]"
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(
            code(f"{value}") for value in schema.get("enum", [schema.get("const")])
        )
    bounds = [f"{sign} {schema[name]:g}" for name, sign in BOUNDS.items() if name in schema]
    return ", ".join([schema.get("type", "any value"), *bounds])


BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


# Classes.


def rooms() -> dict[str, list[Path]]:
    """The files of each room that have something public to show."""
    found = {}
    # A test of the site shows two rooms: all of them take half a minute.
    only = os.environ.get("REGARD_SITE_ROOMS", " ".join(ROOMS)).split()
    for room, title in ROOMS.items():
        if room not in only:
            continue
        place = PACKAGE / room
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        found[title] = [path for path in files if any(map(is_public, nodes(path)))]
    return found


def nodes(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def is_public(node: ast.stmt) -> bool:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return isinstance(node, kinds) and not node.name.startswith("_")


def page_of(path: Path) -> str:
    return f"reference/python/{path.relative_to(PACKAGE).with_suffix('.md').as_posix()}"


def python(path: Path) -> str:
    """What a file has to offer, and the file itself."""
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    text = path.read_text(encoding="utf-8")
    lines = [
        *ranked(0.3),
        f"# {module}",
        "",
        f"::: {module}",
        "",
        "## The file { data-search-exclude }",
        "",
        "```python",
        text,
        "```",
        "",
    ]
    return "\n".join(lines)


FRONT = f"""# regard

What `import regard` offers. A run, as `load` and `train` give it, stands below.

::: regard
    options: {{members: [{", ".join(name for name in regard.__all__ if name[0] != "_")}]}}

::: regard.see.run.Run
    options: {{inherited_members: true}}
"""


# Markdown.


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in lines
    ]


def code(text: str) -> str:
    return f"`{text}`" if text and "`" not in text else text


def sentence(owner: type) -> str:
    return (owner.__doc__ or "").strip().partition("\n")[0]
