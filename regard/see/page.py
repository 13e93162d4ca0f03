"""The standalone page: one file that works offline, with the numbers inside it."""

from __future__ import annotations

import html
import json
from pathlib import Path

PAGE = Path(__file__).parent / "page"


def dump(data: dict[str, object]) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"


def standalone(data: dict[str, object]) -> str:
    """The page with its data; nothing in the data can close the script element that holds it."""
    safe = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    safe = safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    whole = (PAGE / "see.html").read_text(encoding="utf-8")
    for name, file in (("style", "style.css"), ("views", "views.js")):
        whole = whole.replace(f"{{{{{name}}}}}", (PAGE / file).read_text(encoding="utf-8"))
    return whole.replace("{{data}}", safe)  # last: what is in the data is not looked into


def inline(data: dict[str, object]) -> str:
    """The same page in a frame, for a notebook."""
    style = "width:100%;height:640px;border:0"
    return f'<iframe style="{style}" srcdoc="{html.escape(standalone(data))}"></iframe>'
