"""The standalone page: one file that works offline, with the numbers inside it."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

PAGE = Path(__file__).parent / "page"


def dump(data: dict[str, object]) -> str:
    return json.dumps(data, ensure_ascii=False) + "\n"


IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|const|let|class) (\w+))", re.M)


def bundle(*names: str) -> str:
    """Modules with all that they import, as one script: each in a scope of its own, in the order in
    which they need each other."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        source = (PAGE / f"{name}.js").read_text(encoding="utf-8")
        for _, needed in IMPORT.findall(source):
            if needed not in done:
                add(needed)
        given = ", ".join(EXPORT.findall(source))
        body = EXPORT.sub("", IMPORT.sub(r"const \1 = $\2;\n", source))
        done[name] = f"const ${name} = (() => {{\n{body}return {{ {given} }};\n}})();\n"

    for name in names:
        add(name)
    return "".join(done.values())


def standalone(data: dict[str, object]) -> str:
    """The page with its data; nothing in the data can close the script element that holds it."""
    safe = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    safe = safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    whole = (PAGE / "see.html").read_text(encoding="utf-8")
    whole = whole.replace("{{style}}", (PAGE / "style.css").read_text(encoding="utf-8"))
    whole = whole.replace("{{views}}", bundle("views", "theme"))
    return whole.replace("{{data}}", safe)  # last: what is in the data is not looked into


def inline(data: dict[str, object]) -> str:
    """The same page in a frame, for a notebook."""
    style = "width:100%;height:640px;border:0"
    return f'<iframe style="{style}" srcdoc="{html.escape(standalone(data))}"></iframe>'
