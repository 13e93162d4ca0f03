"""What the commands show on a terminal, and what they read from one."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from rich.console import Console


def console(stderr: bool = False) -> Console:
    """Where names and answers are shown as they are: no [markup] and no :emoji: in them."""
    return Console(stderr=stderr, markup=False, emoji=False)


def typed_as() -> str:
    """How this command is found from a shell that stands here."""
    here = Path(sys.argv[0])
    found = shutil.which("regard")
    if found is not None and here.is_file() and Path(found).samefile(here):
        return "regard"
    if here.name != "regard":  # python -m regard
        return "python -m regard"
    return os.path.relpath(here)


def json_line(row: object) -> str:
    """One line of JSON, in letters that standard output has."""
    plain = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    return json.dumps(row, ensure_ascii=plain)
