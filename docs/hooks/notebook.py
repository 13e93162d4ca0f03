"""A notebook as Markdown with its pictures beside it; nothing of it is run."""

from __future__ import annotations

import base64
import html
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import formula

PICTURES = {"image/png": "png", "image/svg+xml": "svg"}  # the first that an output has is shown
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def read(path: Path) -> tuple[str, dict[str, bytes]]:
    """-> the page, and its pictures by name"""
    pictures: dict[str, bytes] = {}
    blocks: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(formula.drawn(source))
        elif cell["cell_type"] == "code" and source.strip():
            own = [fenced(source, "python")]
            for output in cell["outputs"]:
                own.append(shown(output, f"{path.stem}-{len(pictures)}", pictures))
            hidden = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
            blocks += [folded("Solution", own)] if hidden else own
    return "\n\n".join(block for block in blocks if block) + "\n", pictures


def folded(title: str, blocks: list[str]) -> str:
    """What is seen only when somebody opens it."""
    inside = "\n\n".join(block for block in blocks if block)
    return f'??? success "{title}"\n\n' + textwrap.indent(inside, "    ")


def shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    """An output: a picture, a piece of a page, or text."""
    data = output.get("data", {})
    for kind, ending in PICTURES.items():
        if kind in data:
            text = "".join(data[kind])
            file = f"{name}.{ending}"
            pictures[file] = base64.b64decode(text) if ending == "png" else text.encode()
            return f"![]({file})"
    if "text/html" in data:  # in a frame of its own: it may bring styles and scripts
        page = html.escape("".join(data["text/html"]), quote=True).replace("\n", "&#10;")
        return f'<iframe srcdoc="{page}" width="100%" height="480"></iframe>'
    text = data.get("text/plain", output.get("text", output.get("traceback", "")))
    plain = COLOURS.sub("", "".join(text)).rstrip()
    return fenced(plain, "text") if plain else ""


def fenced(text: str, language: str) -> str:
    """Text in a fence that is longer than any in it."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
