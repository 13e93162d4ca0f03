"""Pages whose commands are typed as readers would: in a fresh shell, in a folder like a clone.

Every line of every block marked `sh` is typed, in order, section by section; blocks marked `python`
are run between them, and a block whose first line is a name (`# my-recipe.toml`) becomes that file.
A command in any other block is refused, so that none stands on a page that nobody has tried.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests import warm

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"^\s*(?:\$ )?(?:regard|make|pip|python|curl|docker|torchrun|\.) ", re.M)
NAME = re.compile(r"# (\S+\.\w+)$", re.M)


class Block(NamedTuple):
    """A fenced block: what it is marked, and its text."""

    language: str
    text: str


def sections(page: str) -> dict[str, list[Block]]:
    """The blocks of a page under the headings that they stand under."""
    found: dict[str, list[Block]] = {}
    heading, language, lines = "", None, []
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("```"):
            lines.append(line)
            if language is None and line.startswith("#"):
                heading = line.lstrip("#").strip()
        elif language is None:
            language, lines = line.removeprefix("```"), []
        else:
            found.setdefault(heading, []).append(Block(language, "\n".join(lines) + "\n"))
            language = None
    return found


def untried(page: str) -> list[str]:
    """Commands in blocks that are not typed."""
    blocks = [block for blocks in sections(page).values() for block in blocks]
    return [
        line for block in blocks if block.language not in ("sh", "python")
        for line in block.text.splitlines() if COMMAND.match(line)
    ]  # fmt: skip


# `regard` as it is typed here: the words, what makes training short, and a process that is warm.
SHIM = """#!{python} -SE
import json, os, sys
words = sys.argv[1:]
for start, more in json.loads({shorter!r}).items():
    if words[:len(start.split())] == start.split():
        words += more
if words[:1] == ["serve"]:  # it must be there to be ended
    os.execv({python!r}, [{python!r}, "-m", "regard", *words, "--port", {port!r}])
sys.argv = ["", {door!r}, sys.argv[0], *words]
exec({ask!r})
"""

# Where there is no curl: what the pages ask of it.
CURL = """#!{python} -E
import sys, urllib.request
address, *words = sys.argv[1:]
given = dict(zip(words[::2], words[1::2]))
headers = dict([given["-H"].split(": ", 1)])
asked = urllib.request.Request(address, given["-d"].encode(), headers)
print(urllib.request.urlopen(asked).read().decode())
"""


class Place:
    """A folder as a clone is after `make demo`, and shells that know nothing."""

    def __init__(self, folder: Path, door: Path, shorter: Mapping[str, Sequence[str]]) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder)
        venv.create(folder / ".venv", symlinks=True)
        (self.packages / "all.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        python = str(folder / ".venv/bin/python")
        words = {"python": python, "shorter": json.dumps(shorter), "port": self.port}
        self.program("regard", SHIM.format(**words, door=str(door), ask=warm.ASK))
        if shutil.which("curl") is None:
            self.program("curl", CURL.format(python=python))
        (folder / ".venv/ready").touch()

    @property
    def packages(self) -> Path:
        return next((self.folder / ".venv").glob("lib/python3*/site-packages"))

    def program(self, name: str, text: str) -> None:
        path = self.folder / ".venv/bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def read(self, blocks: Iterable[Block], elsewhere: Mapping[str, str] = {}) -> str:
        """What a reader does with the blocks of a section; files are written, the rest is typed."""
        script = []
        for block in blocks:
            if block.language == "sh":
                script += [self.line(line) for line in block.text.splitlines()
                           if command(line) not in elsewhere]  # fmt: skip
            elif block.language == "python":
                script.append(f"python - <<'END'\n{block.text}END")
            elif named := NAME.match(block.text):
                (self.folder / named[1]).write_text(block.text, encoding="utf-8")
        return self.type("\n".join(script))

    def line(self, line: str) -> str:
        line = line.replace(":8000", f":{self.port}")
        if " serve " not in line:
            return line
        health = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{self.port}/health')"
        there = f'until .venv/bin/python -c "{health}" 2> /dev/null'
        there += "; do kill -0 $server; sleep 0.1; done"
        return f"{command(line)} & server=$!\n{there}"

    def type(self, script: str) -> str:
        """The output of a shell that stops at the first line that fails."""
        ends = 'trap "kill \\$server 2> /dev/null; wait" EXIT' if "server=" in script else ""
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder), "COLUMNS": "120",
            "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8",
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", f"{ends}\n{script}"], cwd=self.folder, env=env,
            input="Hello.\n", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=110, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and "Traceback" not in done.stdout, f"{script}\n{done.stdout}"
        return done.stdout


def command(line: str) -> str:
    """A line without the comment that ends it."""
    return line.partition(" #")[0].strip()


@contextmanager
def warm_process(folder: Path) -> Iterator[Path]:
    """The door of a process that answers `regard …` at once."""
    door = folder / "door"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", "tests.warm", str(door)], env=env, cwd=ROOT)
    try:
        while not door.exists():
            assert process.poll() is None
            time.sleep(0.05)
        yield door
    finally:
        process.terminate()
        process.wait(10)
