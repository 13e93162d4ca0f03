"""What the README shows is run: its recipe, its commands, its Python."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.toys import write_corpus

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The README's model on a toy corpus, for two steps.
SMALLER = ["text.kind=words", "text.size=60", "model.width=32", "model.hidden=32", "train.steps=2"]
SMALLER += ["model.depth=3"]


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.M | re.S)
    return [text for name, text in found if name == kind]


@pytest.fixture
def folder(tmp_path, main, shell):
    """A user's folder: two files a part, and the README's recipe, trained."""
    write_corpus(tmp_path, train=200)
    shutil.copy(tmp_path / "test.en", tmp_path / "new.en")
    (tmp_path / "my-recipe.toml").write_text(blocks("toml")[0], encoding="utf-8")
    main("train", "my-recipe.toml", *SMALLER)
    return tmp_path


def test_the_commands(folder, main, shell):
    commands = [
        line.partition("  #")[0].split("   ")[0].strip()
        for block in blocks("")
        for line in block.splitlines()
        if line.startswith("regard ") and "my-recipe" in line
    ]
    assert len(commands) >= 6
    for command in commands:
        if " < " in command:
            words = command.partition(" < ")[0].split()[1:]
            answers = shell(*words, stdin=(folder / "new.en").read_text()).stdout
            assert len(answers.splitlines()) == 40
            continue
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)][1:]
        if words[0] == "train":
            words += [*SMALLER, "--fresh"]
        main(*words)
    assert (folder / "see.html").is_file()


def test_the_python(folder, monkeypatch, capsys):
    shutil.move(folder / "runs/my-recipe", folder / "runs/demo")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert "torch.Size" in capsys.readouterr().out
    assert (folder / "see.html").is_file()


def test_what_it_points_to_is_there():
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.M):
        assert f"\n{target}:" in makefile


def test_the_language_model(main, tmp_path):
    """Its commands as they stand, for two steps."""
    for name in ("my.txt", "held-out.txt"):
        (tmp_path / name).write_text("To be, or not to be: that is the question.\n" * 40)
    commands = [
        line.partition("   #")[0].strip()
        for block in blocks("")
        for line in block.splitlines()
        if line.startswith("regard ") and "lm-shakespeare-cpu" in line
    ]
    assert len(commands) == 4
    for command in commands:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)][1:]
        smaller = ["train.steps=2", "model.width=32", "train.device=cpu"]
        smaller += ["decode.max_new_tokens=20"]
        found = main(*words, *(smaller if words[0] == "train" else []))
        assert found.out
    assert (tmp_path / "runs/mine/model.safetensors").is_file()


def test_the_story_is_answered_as_shown(tmp_path, main, shell):
    lines = [
        line for block in blocks("") for line in block.splitlines() if "memory-stories" in line
    ]
    train, predict = (shlex.split(line.partition("  #")[0])[1:] for line in lines)
    main(*train, "train.steps=2")
    assert shell(*predict).stdout.strip()


def test_three_commands_from_a_table_and_a_folder_and_back(tmp_path, main):
    """Labelled rows and somebody's encoder in; a scored model, and a folder, out."""
    import csv
    import json

    import transformers

    from tests.exchange.folders import bert
    from tests.toys import sentences

    bert(tmp_path / "all-MiniLM-L6-v2", transformers.BertModel, 0.02)
    for seed, (part, count) in enumerate({"train": 60, "valid": 20}.items()):
        with (tmp_path / f"{part}.csv").open("w", newline="") as file:
            rows = ([f"the {line}", "ab"["red" in line]] for line in sentences(count, seed))
            csv.writer(file).writerows([["text", "label"], *rows])
    commands = [
        line.partition("   #")[0].split()[1:]
        for block in blocks("")
        for line in block.splitlines()
        if "minilm" in line or "my-classifier" in line
    ]
    assert [words[0] for words in commands] == ["import", "train", "export"]
    for words in commands:
        smaller = ["train.steps=2", "task.context=30", "train.device=cpu"]
        main(*words, *(smaller if words[0] == "train" else []))
    scores = json.loads((tmp_path / "runs/classify/results.json").read_text())["valid"]
    assert scores["examples"] == 20 and len(scores["accuracy_interval"]) == 2
    ask = transformers.pipeline("text-classification", str(tmp_path / "my-classifier"))
    import regard

    run = regard.load(tmp_path / "runs/classify")
    for line in sentences(5, 7):
        theirs, ours = ask(line)[0], run.predict([line])[0]
        assert theirs["label"] == ours.label
        assert theirs["score"] == pytest.approx(ours.score, abs=1e-4)


@pytest.fixture
def fresh_shell(tmp_path, trained):
    """A shell that knows nothing, in a folder as `make demo` leaves it."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    shutil.copytree(trained.folder, tmp_path / "runs/demo")

    def run(lines, **more):
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        command = ["bash", "-e", "-c", lines]
        return subprocess.Popen(
            command, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, **more,
        )  # fmt: skip

    return run


def done(process):
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in out, out
    return out


def served(process, port):
    """A server that answers; it is stopped then."""
    for _ in range(600):
        try:
            assert httpx.get(f"http://127.0.0.1:{port}/health").json()["models"] == ["demo"]
            break
        except httpx.TransportError:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)


def test_what_the_readme_says_after_the_demo_works_as_typed(fresh_shell):
    (block,) = (block for block in blocks("") if block.startswith(". .venv/bin/activate"))
    assert len(done(fresh_shell(block)).splitlines()) == 1
    assert "not found" in fresh_shell("regard recipes || true").communicate()[0]


def test_what_the_demo_says_to_type_next_works_as_typed(fresh_shell):
    """Two commands are enough for all that they promise: each line in a shell of its own."""
    said = done(fresh_shell(".venv/bin/regard demo"))
    lines = [line.partition("  #")[0].strip() for line in said.splitlines()]
    typed = [line for line in lines if line.startswith(".venv/bin/regard ")]
    assert [line.split()[1] for line in typed] == ["predict", "see", "evaluate", "serve", "recipes"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for line in typed:
        if line.split()[1] == "serve":
            served(fresh_shell(f"exec {line} --port {port}"), port)
        else:
            assert done(fresh_shell(line))
    assert "`. .venv/bin/activate` makes it plain `regard`" in said
    activated = done(fresh_shell(". .venv/bin/activate; regard demo"))
    assert "  regard predict runs/demo" in activated and "plain `regard`" not in activated


def test_the_demo_brings_what_it_points_to():
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition(".venv/ready:")[2].partition("\n\n")[0]
    assert "--editable '.[serve]'" in recipe and "demo: .venv/ready\n" in makefile
