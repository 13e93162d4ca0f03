"""The promises of docs/promises.md, each held here by name."""

import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.errors import RegardError
from regard.parts.packed import Packed
from regard.training import checkpoint
from regard.training.schedule import SCHEDULES
from tests.processes import torchrun
from tests.toys import sentences, translate, write_recipe

ROOT = Path(__file__).parents[1]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def assert_same(a: Path, b: Path) -> None:
    one, two = weights(a), weights(b)
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


@pytest.mark.parametrize(
    "more", [[], ["text.kind=bpe", "text.size=90", "text.bytes=false", "text.dropout=0.2"]]
)
def test_same_seed_same_weights(toy, tmp_path, more):
    for name in ("one", "two"):
        regard.train(str(toy), "train.steps=12", *more, run=tmp_path / name)
    assert_same(tmp_path / "one", tmp_path / "two")
    regard.train(str(toy), "train.steps=12", "train.seed=1", *more, run=tmp_path / "other")
    assert not torch.equal(
        weights(tmp_path / "one")["source.tokens.weight"],
        weights(tmp_path / "other")["source.tokens.weight"],
    )


# A process that trains once and forks for each command to be killed, so that a kill costs no second
# start. Such a command counts what it does to files of its run, as the interpreter tells
# (`sys.addaudithook`), and ends at one of them, or some milliseconds later, in the middle of
# whatever it does then. It ends by a signal that nothing in it can catch.
STARTED = """
import json, os, signal, sys
import regard.cli

def phase_of(event, names):
    if now["phase"] == "set-up" and "metrics.jsonl" in names[0] and names[1] == "a":
        now["phase"] = "steps"
    if os.path.isdir(f"{now['run']}/checkpoint-{now['last']}"):
        now["phase"] = "end"
    saves = now["phase"] == "steps" and any("checkpoint-" in name for name in names)
    return "saving" if saves else now["phase"]

def hook(event, values):
    if not now or event not in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"):
        return
    names = [str(value) for value in values[:2]]
    if any(now["run"] in name or "/.cache/" in name for name in names):
        phase = phase_of(event, names)
        done.append(phase)
        if phase == now["until"] and done.count(phase) == now["number"]:
            if now["delay"] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.setitimer(signal.ITIMER_REAL, now["delay"])

def run(plan):
    now.update(plan, phase="set-up")
    sys.argv = ["regard", *plan["words"], "--run", plan["run"]]
    try:
        regard.cli.main()
    except SystemExit as end:
        return end.code or 0

now, done = {}, []
out = os.dup(1)
os.dup2(2, 1)
sys.addaudithook(hook)
for line in sys.stdin:
    plan = json.loads(line)
    if not plan["until"] and not done:  # the first is not to be killed
        ended = run(plan)
        now.clear()
    else:
        child = os.fork()
        if child == 0:
            done.clear()
            os._exit(run(plan))
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(out, (json.dumps([ended, done]) + chr(10)).encode())
"""


class Starter:
    """Runs `regard …` to its end, or to a kill: in a phase, at its n-th deed, after a while."""

    def __init__(self, *words: str, last: int) -> None:
        self.words, self.last = list(map(str, words)), last
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
               "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTED], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __call__(
        self, run: Path, until: str = "", number: int = 0, delay: float = 0.0
    ) -> tuple[int, list[str]]:
        """The exit status, and the phase of each thing that the first start has done to files."""
        plan = {"words": self.words, "run": str(run), "last": self.last, "until": until}
        self.process.stdin.write(json.dumps({**plan, "number": number, "delay": delay}) + "\n")
        self.process.stdin.flush()
        ended, done = json.loads(self.process.stdout.readline())
        return ended, done

    def __enter__(self) -> "Starter":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate(timeout=60)


def of_a_stream(folder: Path) -> Path:
    """A language model that carries a state from batch to batch."""
    text = " ".join(sentences(200, seed=3))
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text(text if name == "train.txt" else text[:500])
    path = folder / "stream.toml"
    path.write_text("""
[task]
kind = "language"
cut = "stream"
context = 16

[data]
train = "train.txt"
valid = "valid.txt"

[text]
kind = "characters"

[model]
kind = "xl"
width = 16
depth = 1
heads = 2
memory = 16

[train]
batch_tokens = 128
rate = 0.01
warmup = 5
device = "cpu"
""")
    return path


@pytest.mark.parametrize("kind", ["best", "average", "stream"])
def test_killed_at_any_moment_ends_in_the_same_weights(toy, tmp_path, kind):
    """Killed in set-up, between steps, while saving and at the end; then left to finish.

    REGARD_SEED=n repeats what was drawn.
    """
    seed = int(os.environ.get("REGARD_SEED", time.time_ns() % 10**6))
    print(f"REGARD_SEED={seed}")  # pytest shows it where the test fails
    chance = random.Random(seed)
    recipe = of_a_stream(tmp_path) if kind == "stream" else toy
    whole, run = tmp_path / "whole", tmp_path / "killed"
    settings = [
        "train.steps=24", "train.save_every=3", "train.evaluate_every=6", "train.log_every=1",
        "train.evaluate_examples=2", f"train.keep={'average' if kind == 'average' else 'best'}",
        "train.average=3",
    ]  # fmt: skip
    with Starter("train", recipe, *settings, last=24) as start:
        ended, done = start(whole)
        assert ended == 0
        shutil.rmtree(tmp_path / ".cache")
        # Each start goes on from where the last was killed: no kill may use up what is left.
        for phase, part in (("set-up", 1), ("steps", 8), ("saving", 8), ("end", 2)):
            for again in range(2 if phase == "steps" else 3):
                most = 4 if again and phase == "set-up" else done.count(phase) // part
                number = chance.randint(1, most)
                delay = chance.choice([0.0, chance.uniform(0.0001, 0.01)])
                ended, _ = start(run, phase, number, delay)
                print(phase, number, delay, ended)
                if ended == 0 and phase == "end" and again:
                    break
                assert ended in (-signal.SIGKILL, -signal.SIGALRM), "it was to be killed"
        if not (run / "README.md").is_file():
            assert start(run)[0] == 0
    assert_same(tmp_path / "whole", tmp_path / "killed")
    log = (tmp_path / "killed/metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in log if '"event": "step"' in line]
    assert steps == list(range(1, 25)), "each step is logged, and once"
    names = [{path.name for path in (tmp_path / run).iterdir()} for run in ("whole", "killed")]
    assert names[0] == names[1], "nothing is left behind"


def assert_near(a: Path, b: Path) -> None:
    """Equal up to rounding. A bias of keys moves all scores of a query alike, so its gradient is
    rounding alone, which Adam makes as large as any; it means nothing, and is left out."""
    one, two = weights(a), weights(b)
    for name, value in one.items():
        kept = slice(len(value) // 2, None) if name.endswith("memory.bias") else slice(None)
        torch.testing.assert_close(two[name][kept], value[kept], atol=2e-3, rtol=1e-2)


def test_two_ranks_start_and_one_finishes(toy, tmp_path):
    """A run started on two ranks resumes on one; only one rank writes."""
    settings = ["train.steps=20", "train.save_every=5", "model.dropout=0.0", "train.rate=0.001"]
    regard.train(str(toy), *settings, run=tmp_path / "alone")
    pair = tmp_path / "pair"
    torchrun(2, ["-m", "regard", "train", str(toy), *settings, "--folder", str(pair)])
    assert [path.name for path in sorted(pair.glob("checkpoint-*"))] == [
        "checkpoint-15",
        "checkpoint-20",
    ]
    assert_near(tmp_path / "alone", pair)
    for name in ("model.safetensors", "README.md"):  # as if stopped after step 15
        (pair / name).unlink()
    shutil.rmtree(pair / "checkpoint-20")
    again = regard.train(str(toy), *settings, run=pair)
    assert_near(tmp_path / "alone", again.folder)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A run whose matrices are so large that they are packed for answering."""
    folder = tmp_path_factory.mktemp("wide")
    recipe = write_recipe(folder, train=300)
    sizes = ("model.width=256", "model.hidden=1024", "model.dropout=0.0")
    fast = ("train.steps=100", "train.rate=0.002", "train.evaluate_every=100",
            "train.save_every=100", "decode.num_beams=1")  # fmt: skip
    regard.train(str(recipe), *sizes, *fast, run=folder / "run")
    return folder / "run"


@pytest.mark.parametrize("size", ["small", "packed"])
@pytest.mark.parametrize("decode", ["decode.kind=greedy", "decode.num_beams=4"])
def test_a_translation_does_not_depend_on_its_neighbours(request, decode, size):
    folder = request.getfixturevalue("trained").folder if size == "small" else (
        request.getfixturevalue("wide")
    )  # fmt: skip
    run = regard.load(folder, decode)
    packed = [part for part in run.model.modules() if isinstance(part.forward, Packed)]
    assert bool(packed) == (size == "packed")
    lines = sentences(64, seed=9)
    together = [(answer.output, answer.score) for answer in run.predict(lines)]
    alone = [(answer.output, answer.score) for line in lines for answer in run.predict([line])]
    assert len({output for output, _ in alone}) > 20
    assert [output for output, _ in together] == [output for output, _ in alone]
    scores = [[score for _, score in answers] for answers in (together, alone)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)  # up to rounding
    giant = " and ".join(sentences(60, seed=10))
    assert len(giant.split()) > 200
    data = run.recipe.data
    object.__setattr__(data, "max_length", 1000)
    beside = [answer.output for answer in run.predict([giant, *lines])]
    object.__setattr__(data, "max_length", 256)
    assert beside[1:] == [output for output, _ in alone]


def test_nothing_pickled_is_written_or_read(trained):
    allowed = {".toml", ".json", ".jsonl", ".safetensors", ".md", ".png"}
    files = [path for path in trained.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= allowed
    for path in files:
        head = path.read_bytes()[:4]
        assert not head.startswith(
            (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
        ), path
    source = "\n".join(path.read_text() for path in (ROOT / "regard").rglob("*.py"))
    # Other people's weights may be in such a file; tensors alone are taken out of it.
    source, count = re.subn(r"torch\.load\(path, map_location=\S+, weights_only=True\)", "", source)
    assert count == 1
    for word in (
        "pickle",
        "torch.load",
        "torch.save",
        "joblib",
        "marshal",
        "shelve",
        "allow_pickle",
    ):
        assert word not in source, word


# Everything a user does, in one process; the server in a child, asked over loopback.
OFFLINE = """
import json, os, signal, socket, sys, time, urllib.request
import regard.cli

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may ignore it

def run(*words, status=0):
    sys.argv = ["regard", *words]
    try:
        regard.cli.main()
    except SystemExit as end:
        assert (end.code or 0) == status, (words, end.code)

try:
    socket.create_connection(("192.0.2.1", 80), 1)
    raise AssertionError("there is a network")
except OSError as error:
    print("no network:", error)
server = os.fork()
small = ("train.steps=4", "train.evaluate_every=4", "train.save_every=2")
if server == 0:
    while not os.path.isfile("runs/toy/README.md"):
        time.sleep(0.05)
    run("serve", "runs/toy", "--port", sys.argv[1], status=130)  # ended by Ctrl-C
    os._exit(0)
port = sys.argv[1]
run("train", "toy.toml", *small)
run("evaluate", "runs/toy", "--json")
run("predict", "runs/toy", "one cats")
run("see", "runs/toy", "one cats", "--out", "see.html")
run("recipes")
body = json.dumps({"input": "one cats"}).encode()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for _ in range(600):
    try:
        with opener.open(f"http://127.0.0.1:{port}/v1/models") as answer:
            assert json.load(answer)["data"]
        break
    except OSError:
        time.sleep(0.05)
else:
    raise AssertionError("the server does not answer")
with opener.open(f"http://127.0.0.1:{port}/") as page:
    assert b"<html" in page.read()
os.kill(server, signal.SIGINT)
assert os.waitpid(server, 0)[1] == 0
print("all done")
"""

# Where a process may not have a network of its own: whatever leads outside is refused in Python.
REFUSING = """
import socket

def guarded(name):
    whole = getattr(socket.socket, name)
    def call(self, *values):
        address = values[-1]
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(101, f"refused: {name} {address}")
        return whole(self, *values)
    setattr(socket.socket, name, call)

for name in ("connect", "connect_ex", "sendto"):
    guarded(name)
look_up = socket.getaddrinfo
def getaddrinfo(host, *values, **more):
    if host not in ("127.0.0.1", "::1", "localhost", None):
        raise socket.gaierror(-3, f"refused: {host}")
    return look_up(host, *values, **more)
socket.getaddrinfo = getaddrinfo
"""


def test_works_with_no_network(toy, tmp_path):
    """Train, score, answer, look and serve, where there is no network at all but loopback."""
    (tmp_path / "offline.py").write_text(OFFLINE)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        command = [sys.executable, "offline.py", str(free.getsockname()[1])]
    alone = ["unshare", "--map-root-user", "--net"]
    up = "ip link set lo up && exec "
    may = shutil.which("unshare") and shutil.which("ip")
    if (
        may
        and not subprocess.run([*alone, "sh", "-c", f"{up} true"], capture_output=True).returncode
    ):
        way = "in a network namespace of its own"
        command = [*alone, "sh", "-c", f'{up} "$@"', "sh", *command]
    else:
        way = "with what leads outside refused in Python"
        (tmp_path / "refusing").mkdir()
        (tmp_path / "refusing/sitecustomize.py").write_text(REFUSING)
        env["PYTHONPATH"] = f"{tmp_path / 'refusing'}{os.pathsep}{ROOT}"
    print("tried", way)
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all done" in done.stdout and "Traceback" not in done.stderr


def test_the_toy_language_is_learned(trained):
    lines = sentences(50, seed=11)
    right = [
        answer.output == translate(line)
        for line, answer in zip(lines, trained.predict(lines), strict=True)
    ]
    assert sum(right) >= 45
    assert trained.evaluate("test")["bleu"] > 90


@pytest.mark.parametrize(
    ("what", "at", "jump"),
    [
        ("step 30: the loss is not a number", 25, 1e25),  # for the weights are too large
        ("step 30: the weights are not numbers", 30, 1e45),  # and the loss before them was one
    ],
)
def test_what_is_no_number_stops_the_run_and_a_good_checkpoint_stays(
    toy, tmp_path, monkeypatch, what, at, jump
):
    """All is well for some steps; then one is far too long."""
    monkeypatch.setitem(
        SCHEDULES, "jump", lambda step, *rest: 1.0 if step < at else jump
    )  # a schedule like any other
    bad = tmp_path / "bad"
    settings = ("train.schedule=jump", "train.save_every=10", "train.log_every=100")
    with pytest.raises(RegardError, match=f"{what} any more; what was saved before is good: try"):
        regard.train(str(toy), *settings, "train.evaluate_every=40", run=bad)
    assert [path.name for path in checkpoint.all_in(bad)] == ["checkpoint-10", "checkpoint-20"]
    for folder in checkpoint.all_in(bad):
        tensors, _ = checkpoint.load(folder)
        assert all(bool(value.isfinite().all()) for value in tensors["model"].values())
    assert not (bad / "model.safetensors").exists()
    answer = regard.load(bad, "decode.num_beams=1").predict(["one cats and two dogs"])[0]
    assert answer.output and math.isfinite(answer.score)


def test_a_rate_that_no_weight_survives_leaves_no_checkpoint(main, toy, tmp_path):
    said = main("train", toy.name, "train.rate=1e39", "train.save_every=1", status=2).err
    assert said.startswith("regard: step 1: the weights are not numbers any more; ")
    assert said.count("\n") == 1
    assert checkpoint.all_in(tmp_path / "runs/toy") == []


def space(tmp_path: Path, size: int) -> Path | None:
    """A file system of so many bytes, where one may be made."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    made = shutil.which("mount") and not subprocess.run(mount, capture_output=True).returncode
    return place if made else None


def roomier(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)


LIMITED = """
import resource, signal, sys
import regard.cli
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["regard", *sys.argv[2:]]
regard.cli.main()
"""


@pytest.mark.parametrize("kilobytes", [12, 100, 300, 700])
def test_a_full_disk_leaves_what_is_good_and_is_gone_on_from(main, toy, tmp_path, kilobytes):
    """Full in set-up, at the first checkpoint, at a later one: one line, and nothing by halves."""
    words = ("train", toy.name, "train.steps=12", "train.save_every=2", "train.evaluate_every=4")
    words = (*words, "train.evaluate_examples=2")
    main(*words, "--run", "whole")
    place = space(tmp_path, kilobytes * 1024)
    print("tried on", "a small tmpfs" if place else "files of limited size")
    run = place or tmp_path / "disk"
    try:
        if place:
            said = main(*words, "--run", "disk", status=2).err
        else:
            env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", LIMITED, str(kilobytes * 200), *words, "--run", "disk"]
            done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
            said = done.stderr
            assert done.returncode == 2, said
        assert said.startswith("regard: ") and said.count("\n") == 1, said
        assert "No space left on device" in said or "File too large" in said
        assert [path for path in run.rglob("*") if path.name.endswith(".part")] == []
        for folder in run.glob("checkpoint-*"):
            checkpoint.load(folder)
        if place:
            roomier(place)
        main(*words, "--run", "disk")
        assert_same(tmp_path / "whole", run)
    finally:
        if place:
            subprocess.run(["umount", str(place)], check=True)


SHORT_OF_MEMORY = """
import resource, sys
import regard.see.run, regard.cli
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 300 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.argv = ["regard", *sys.argv[1:]]
regard.cli.main()
"""


def test_a_batch_that_does_not_fit_into_memory_is_told_before_the_first_step(tmp_path):
    recipe = write_recipe(tmp_path, train=20000)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = ["train", recipe.name, "train.batch_tokens=200000", "--run", "r"]
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, *words],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("regard: the largest batch (")
    assert "does not fit into memory; halve train.batch_tokens (200000), or set" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_tensorboard_reads_what_is_logged(toy, tmp_path):
    """By its own reader: the losses of metrics.jsonl, and the scores of its validations."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    small = ("train.steps=6", "train.evaluate_every=3", "train.log_every=1")
    run = regard.train(str(toy), *small, "train.tensorboard=true", run=tmp_path / "run")
    (path,) = (run.folder / "tensorboard").iterdir()
    board = EventAccumulator(str(path)).Reload()
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    for kind, name in (("step", "loss"), ("step", "rate"), ("scored", "bleu")):
        wanted = {row["step"]: row.get("scores", row)[name] for row in rows if row["event"] == kind}
        found = {event.step: event.value for event in board.Scalars(f"{kind}/{name}")}
        assert found.keys() == wanted.keys() and found
        assert found == pytest.approx(wanted, rel=1e-6)
    regard.train(str(toy), *small, run=run.folder, fresh=True)  # the board is a run's own
    assert not (run.folder / "tensorboard").exists()


@pytest.mark.parametrize("readable", [False, True])
def test_energy_is_measured_by_codecarbon_or_estimated(toy, tmp_path, monkeypatch, readable):
    """The real tracker. Where no counter can be read, its own guess stands in for one here."""
    from regard.training import cost

    tracker = cost._tracker()
    if tracker is not None:
        tracker.stop()
    counted = tracker is not None
    if readable and not counted:
        monkeypatch.setattr(cost, "_is_rapl", lambda part: True)
    small = ("train.steps=6", "train.evaluate_every=6")
    run = regard.train(str(toy), *small, run=tmp_path / "run")
    bill = json.loads((run.folder / "cost.json").read_text())
    method = "measured by codecarbon" if readable or counted else "estimated from"
    assert bill["kwh_method"].startswith(method)
    assert 0 < bill["kwh"] < 0.01
    assert bill["co2e_grams"] == pytest.approx(bill["kwh"] * 445)


def test_what_a_killed_library_left_is_no_obstacle(toy, tmp_path):
    """The weights' library writes beside its file, under a name of its own."""
    from regard.training.folder import is_ours

    assert is_ours(tmp_path / ".tmp5aE6TX") and not is_ours(tmp_path / ".tmp5aE6TXY.txt")
    small = ("train.steps=4", "train.save_every=2", "train.evaluate_every=2")
    seen = []
    regard.train(str(toy), *small, run=tmp_path / "run", on_event=seen.append,
                 stop=lambda: len(seen) > 1)  # fmt: skip
    (tmp_path / "run/.tmp5aE6TX").write_bytes(b"half")
    run = regard.train(str(toy), *small, run=tmp_path / "run")
    assert (run.folder / "model.safetensors").is_file()
    assert not (run.folder / ".tmp5aE6TX").exists()
