"""The wheel works where the repository is not; the image would be made of the same versions."""

import fnmatch
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile

import pytest

from regard import __version__
from tests.pages import ROOT
from tests.toys import write_corpus

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# A user's small program, to be checked strictly against the package as it is installed;
# what torch says of itself takes long to read, and is not what is asked.
CHECKS = "[mypy]\nstrict = true\n[mypy-torch.*,numpy.*,matplotlib.*]\nfollow_imports = skip\n"
PROGRAM = """
import regard

run = regard.load("runs/demo")
print(run.predict(["I am hungry."])[0].output.upper())
weights = run.model.output.weight
mixed = regard.attend(weights, weights, weights)[0]
"""


def call(*words, **more):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in words]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=110, **more)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built by the backend that is here, or by the one that pip fetches from the index."""
    folder = tmp_path_factory.mktemp("dist")
    here = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", *here, "--wheel-dir", folder, ROOT]
    call(sys.executable, *build, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment: the wheel, beside what it needs, which is taken from this one."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / ".venv", symlinks=True)
    python = folder / ".venv/bin/python"
    install = ["install", "--quiet", "--no-deps", wheel]
    call(sys.executable, "-m", "pip", "--python", python, *install)
    (packages,) = (folder / ".venv").glob("lib/python3*/site-packages")
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def test_the_wheel_holds_what_it_needs_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name == f"regard-{__version__}-py3-none-any.whl"
    for pattern in ("regard/py.typed", "regard/recipes/translate-tatoeba.toml",
                    "regard/corpora/tatoeba-en-fr/train.en.gz", "regard/serve/page/index.html",
                    "regard/see/page/views.js", "regard-*.dist-info/licenses/LICENSE",
                    "regard-*.dist-info/entry_points.txt"):  # fmt: skip
        assert fnmatch.filter(names, pattern), pattern
    here = [path.relative_to(ROOT) for path in (ROOT / "regard").rglob("*") if path.is_file()]
    here = {path.as_posix() for path in here if "__pycache__" not in path.parts}
    assert {name for name in names if name.startswith("regard/")} == here
    assert {name.split("/")[0] for name in names} == {"regard", f"regard-{__version__}.dist-info"}


def test_a_wheel_works_outside_the_repository(installed):
    """The demo's recipe for two steps, then the demo on that run, by the command as installed."""
    write_corpus(installed / "toy", train=200)
    files = [f'data.{part}=["{part}.en", "{part}.fr"]' for part in ("train", "valid", "test")]
    small = ["train.steps=2", "text.size=60", "text.bytes=false", "data.root=toy", *files]
    small += ["model.width=32", "model.hidden=32", "decode.max_new_tokens=8", "decode.num_beams=1"]
    regard = installed / ".venv/bin/regard"
    place = call(installed / ".venv/bin/python", "-c", "import regard; print(regard.__file__)",
                 cwd=installed)  # fmt: skip
    assert place.startswith(str(installed))
    call(regard, "train", "translate-tatoeba", *small, "--run", "runs/demo", cwd=installed)
    said = call(regard, "demo", cwd=installed)
    assert "Ten of the test sentences" in said
    assert (installed / "runs/demo/alignment.png").is_file()


def test_a_users_program_is_checked_strictly(installed):
    (installed / "program.py").write_text(PROGRAM)
    (installed / "mypy.ini").write_text(CHECKS)
    check = ["-m", "mypy", "--python-executable", installed / ".venv/bin/python", "program.py"]
    assert "Success" in call(sys.executable, *check, cwd=installed)
    (installed / "program.py").write_text(PROGRAM.replace(".output.upper()", ".output + 1"))
    with pytest.raises(AssertionError, match="Unsupported operand types"):
        call(sys.executable, *check, cwd=installed)


def test_every_extra_that_is_named_is_there():
    """What pages and messages tell to install is what the package offers."""
    named = set()
    for path in [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "regard").rglob("*.py"),
    ]:
        for extras in re.findall(
            r"pip install '(?:\.|regard)\[([a-z0-9,]+)\]'", path.read_text("utf-8")
        ):
            named.update(extras.split(","))
    assert {"serve", "gguf", "chat", "sound"} <= named <= set(PROJECT["optional-dependencies"])


# The image. Nothing is built here, for that needs docker: what its steps rest on is looked at, so
# one that fails for a reason of the base system or of the index would not be noticed.
DOCKERFILE = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
STEPS = [line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if line and line[0].isupper()]


def steps(kind):
    return [rest for name, rest in STEPS if name == kind]


def test_the_image_is_made_of_what_is_here():
    version = re.fullmatch(r"python:(3\.\d+)-slim", steps("FROM")[0])[1]
    needed = PROJECT["requires-python"].removeprefix(">=")
    assert tuple(map(int, version.split("."))) >= tuple(map(int, needed.split(".")))
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    for rest in steps("COPY"):
        for source in rest.split()[:-1]:
            assert (ROOT / source).exists() and f"!{source}" in sent, source
    assert {PROJECT["readme"], *PROJECT["license-files"]} <= set(" ".join(steps("COPY")).split())


def test_the_image_has_the_versions_of_the_tests():
    installs = [rest for rest in steps("RUN") if "pip install" in rest]
    assert len(installs) == 2
    for rest in installs:
        assert "--constraint constraints.txt" in rest
    extras = re.search(r"'\.\[([a-z,]+)\]'", installs[1])[1].split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"])


def test_the_image_serves_as_somebody_who_may_little(installed):
    assert PROJECT["scripts"] == {"regard": "regard.cli:main"}
    assert json.loads(steps("ENTRYPOINT")[0]) == ["regard"]
    assert steps("USER") == ["regard"] and "useradd" in DOCKERFILE
    told = call(installed / ".venv/bin/regard", *json.loads(steps("CMD")[0])[:1], "--help")
    assert set(json.loads(steps("CMD")[0])[2:]) & {"--host"} and "--host" in told
    health = steps("HEALTHCHECK")[0].partition("CMD ")[2]
    python, flag, program = shlex.split(health)
    assert (python, flag) == ("python", "-c") and "127.0.0.1:8000/health" in program
    compile(program, "HEALTHCHECK", "exec")
