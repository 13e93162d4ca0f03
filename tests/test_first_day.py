"""What someone meets on the first day: versions, help, progress, messages, what is missing."""

import io
import json
import os
import pydoc
import signal
import socket
import subprocess
import sys
import tomllib

import pytest
import torch
from PIL import Image
from rich.console import Console

import regard
from regard.cli.answer import note_files
from regard.cli.doctor import FEATURES
from regard.progress import Work, counted, heard_by, tell
from regard.terminal.progress import Drawing
from regard.training import events
from tests.conftest import OFFLINE, ROOT
from tests.toys import sentences, translate, write_recipe

LITTLE = ("train.steps=2", "train.evaluate_every=2", "train.warmup=1")


def on_terminal(words, cwd, until="", env=None):
    """Run a command on a terminal of its own; where `until` is shown, Ctrl-C is pressed."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    own = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", **OFFLINE}
    command = [sys.executable, "-m", "regard", *map(str, words)]
    process = subprocess.Popen(
        command, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env={**own, **(env or {})}
    )
    os.close(theirs)
    seen = ""
    while True:
        try:
            piece = os.read(ours, 65536).decode(errors="replace")
        except OSError:  # the other side has hung up
            break
        seen += piece
        if until and until in seen:
            process.send_signal(signal.SIGINT)
            until = ""
        if not piece:
            break
    os.close(ours)
    return process.wait(60), seen


# Names.


def test_the_version(main):
    assert main("--version").out == f"regard {regard.__version__}\n"


def test_help_in_python_lists_what_there_is():
    said = pydoc.plain(pydoc.render_doc(regard))
    for name in regard.__all__[1:]:
        assert f"    {name:8} " in said  # a line each
        assert f"    {name}(" in said  # and the whole
    assert set(regard.__all__) <= set(dir(regard))


def test_reports_show_themselves_in_one_short_line(trained):
    seen = trained.see("two red cats and one dogs")
    every = [
        seen, seen.looks[0], trained, *trained.predict(["two cats"]), trained.layers("two cats"),
        trained.field("two cats", "cats"), trained.meaning("cats", ["two cats", "one cats"]),
    ]  # fmt: skip
    for report in every:
        assert "\n" not in repr(report) and len(repr(report)) < 200, repr(report)
    assert repr(seen).startswith("<AttentionReport 'two red cats and one dogs' → '")
    assert repr(every[3]).startswith("Prediction(input='two cats', output=")
    assert "None" not in repr(every[3])


# What is installed, and what there is.


def test_the_doctor_knows_every_extra(main):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {feature.extra for feature in FEATURES} == set(extras) - {"all", "bench", "site", "dev"}
    told = json.loads(main("doctor", "--json").out)
    assert told["regard"] == regard.__version__ and told["torch"] == torch.__version__
    assert told["device"]["auto"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert told["runs"]["folder"].endswith("runs") and told["runs"]["free_bytes"] > 0
    said = main("doctor").out
    assert "regard export --to onnx" in said and told["python"] in said


HIDDEN = ("fastapi", "onnx", "ctranslate2", "pyarrow", "tensorboard", "wandb", "soundfile", "rdkit")
SCRIPT = """
import sys
for name in {hidden}:
    sys.modules[name] = None
import regard.cli
for words in {lines}:
    sys.argv = ["regard", *words]
    try:
        regard.cli.main()
    except SystemExit as end:
        print("status", end.code or 0, file=sys.stderr, flush=True)
"""


def test_what_is_not_installed_is_told_with_what_brings_it(main, toy, tmp_path):
    """In a process where those packages cannot be imported."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "a.csv").write_text("smiles,label\nCCO,1.5\nCC,0.5\n")
    (tmp_path / "s.csv").write_text("audio,text\na.wav,one\n")
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    here = (f"data.root={tmp_path}", "data.valid=", "data.test=")
    run, columns = "r", ("task.label=label", "task.split=")
    main("train", toy.name, *LITTLE, "--run", run)
    wanted = {
        "serve": ["serve", run],
        "onnx": ["export", run, "out", "--to", "onnx"],
        "ctranslate2": ["export", run, "out", "--to", "ctranslate2"],
        "tensorboard": ["train", toy.name, "train.tensorboard=true", "--run", "t"],
        "wandb": ["train", toy.name, "train.wandb=true", "--run", "w"],
        "parquet": ["train", "classify-demo", *here, "data.train=a.parquet"],
        "molecules": ["train", "graph-esol", *here, "data.train=a.csv", *columns],
        "sound": ["train", "speech-digits", *here, "data.train=s.csv"],
    }
    lines = [*wanted.values(), ["doctor"]]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(hidden=HIDDEN, lines=lines)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **OFFLINE},
        cwd=tmp_path, capture_output=True, text=True, timeout=110, check=True,
    )  # fmt: skip
    told = done.stderr.split("status ")
    for extra, said in zip(wanted, told, strict=False):
        message = said.removeprefix("2").strip()
        assert message.count("\n") == 0 and message.startswith("regard: "), (extra, said)
        assert f"pip install 'regard[{extra}]'" in message, (extra, said)
        assert f"pip install 'regard[{extra}]'" in done.stdout.partition("packages")[2], extra
    assert told[-1].strip() == "0"  # the doctor itself is well


def test_runs_are_listed(main, toy, tmp_path):
    main("train", toy.name, *LITTLE, "--run", "runs/deep/one")
    (tmp_path / "runs/two").mkdir()
    (tmp_path / "runs/two/recipe.toml").write_text(
        "[task]\nkind = 'translate'\n[train]\nsteps = 9\n"
    )
    (tmp_path / "runs/two/checkpoint-4").mkdir()
    rows = {row["run"]: row for row in map(json.loads, main("runs", "--json").out.splitlines())}
    one, two = rows["runs/deep/one"], rows["runs/two"]
    assert one["finished"] and one["step"] == 2 and one["metric"] == "bleu" and one["on"] == "test"
    assert one["bytes"] > 10_000
    assert not two["finished"] and (two["step"], two["steps"]) == (4, 9)
    said = main("runs").out
    assert "deep/one" in said and "4 of 9" in said and "transformer" in said
    (tmp_path / "empty").mkdir()
    assert main("runs", "empty").out.startswith("empty holds no runs yet")


SHELLS = {
    "bash": lambda line: {
        "_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    },
    "zsh": lambda line: {"_REGARD_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line},
    "fish": lambda line: {
        "_REGARD_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": line,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", SHELLS)
def test_the_tab_key_offers_recipes_and_runs(shell, tmp_path, monkeypatch, kind):
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/recipe.toml").write_text("")
    (tmp_path / "runs/other").mkdir()
    (tmp_path / "my.toml").write_text("")
    offered = {}
    for line in ("regard train tran", "regard train my", "regard predict ru"):
        with monkeypatch.context() as patch:
            for name, value in SHELLS[kind](line).items():
                patch.setenv(name, value)
            offered[line.split()[-1]] = shell().stdout
    assert "translate-tatoeba" in offered["tran"] and "vit-digits" not in offered["tran"]
    assert "my.toml" in offered["my"]
    assert "runs/mine" in offered["ru"] and "runs/other" not in offered["ru"]
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert f"complete_{kind}" in shell("--show-completion", kind).stdout


# How far the work is.


def test_counted_work_is_told_to_who_listens():
    told = []
    assert list(counted([1, 2], "unheard", 2)) == [1, 2]
    with heard_by(told.append):
        assert list(counted(["a", "bb"], "reading", 3, len)) == ["a", "bb"]
        tell("scoring")
    tell("unheard")
    assert told == [Work("reading", 0, 3), Work("reading", 3, 3), Work("scoring")]


def test_steps_are_told_by_the_clock(toy, tmp_path, monkeypatch):
    """Between two lines of the log too; the log itself stays as it is."""
    monkeypatch.setattr(events, "GLANCE", 0.0)
    seen = []
    settings = ("train.steps=6", "train.log_every=100", "train.evaluate_every=6")
    regard.train(str(toy), *settings, run=tmp_path / "r", on_event=seen.append)
    between = [event for event in seen if isinstance(event, events.Advanced)]
    assert [event.step for event in between] == [2, 3, 4, 5]
    assert all(event.loss > 0 and event.tokens_per_second > 0 for event in between)
    log = [json.loads(line) for line in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    assert {row["event"] for row in log} == {"step", "scored", "saved"}


def test_a_plain_log_is_silent_only_for_so_long():
    file = io.StringIO()
    for quiet, wanted in ((1000.0, ""), (0.0, "reading 5/9\n")):
        Drawing(Console(file=file), quiet=quiet).hear(Work("reading", 5, 9))
        assert file.getvalue() == wanted


def test_a_plain_log_says_how_long_it_will_take(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    file = io.StringIO()
    drawing = Drawing(Console(file=file, width=200))
    drawing(events.Begun(4, 64, 9, "9 examples", 3, 1000, "CPU"))
    now[0] += 40.0
    drawing(events.Step(24, 1.5, 4.5, 0.1, 1.0, 200.0, 40.0, 0.5))
    assert file.getvalue().splitlines()[-1].endswith("50% of peak  0:01:20 left")


def test_training_says_what_it_does_from_the_first_second(toy, tmp_path):
    status, seen = on_terminal(["train", toy.name, *LITTLE], tmp_path)
    assert status == 0, seen
    order = [
        "starting", "reading train.en, train.fr", "learning a vocabulary", "preparing train.en",
        "trying the largest batch", "parameters", "2/2", "answering", "resampling for bleu",
        "The run is in runs/toy",
    ]  # fmt: skip
    places = [seen.index(what) for what in order]
    assert places == sorted(places), seen
    assert "tokens/s" in seen and "left" in seen


def test_what_is_answered_is_not_mixed_with_the_bar(trained, tmp_path):
    """Answers go where standard output goes, though a bar is drawn on the terminal."""
    (tmp_path / "in.txt").write_text("one cats\ntwo dogs\n")
    line = f"{sys.executable} -m regard predict {trained.folder} --input in.txt > out.txt"
    script = f"import subprocess, sys; sys.exit(subprocess.call({line!r}, shell=True))"
    (tmp_path / "run.py").write_text(script)
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "run.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
    assert process.returncode == 0 and b"starting" in seen
    wanted = [answer.output for answer in trained.predict(["one cats", "two dogs"])]
    assert (tmp_path / "out.txt").read_text().splitlines() == wanted


def test_the_same_data_are_not_scored_twice(tmp_path):
    recipe = write_recipe(tmp_path, train=300)
    told = []
    with heard_by(told.append):
        run = regard.train(
            str(recipe), *LITTLE, "data.test=", "train.keep=last", run=tmp_path / "r"
        )
        passes = [work for work in told if work == Work("measuring the loss", 0, 40)]
        assert len(passes) == 1
    trained = json.loads((tmp_path / "r/results.json").read_text())["valid"]
    again = run.evaluate()
    assert trained["perplexity"] == pytest.approx(again["perplexity"], rel=1e-4)
    assert trained["bleu"] == again["bleu"]


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("starting", "nothing was trained yet; what was read of the data is kept in runs/.cache."),
        ("resampling for bleu", "the model is in runs/toy, and the same command scores it."),
    ],
)
def test_an_interrupted_training_says_what_is_kept(tmp_path, until, said):
    recipe = write_recipe(tmp_path, train=300, test=1500)
    status, seen = on_terminal(
        ["train", recipe.name, *LITTLE, "train.evaluate_examples=0"], tmp_path, until
    )
    assert status == 130 and f"regard: interrupted; {said}" in seen
    assert "Traceback" not in seen


def test_an_interrupted_evaluation_says_what_is_kept(trained, tmp_path):
    status, seen = on_terminal(["evaluate", trained.folder], tmp_path, "starting")
    assert status == 130
    assert f"regard: interrupted; {trained.folder}/results.json is as it was." in seen
    status, seen = on_terminal(["predict", trained.folder, "one cats"], tmp_path, "starting")
    assert status == 130 and "regard: interrupted; 0 inputs were answered." in seen


def test_an_interruption_ends_with_its_status_wherever_it_comes(tmp_path):
    """Also amid what an import builds from source, where Python itself would end by the signal."""
    (tmp_path / "amid.py").write_text(
        "from regard.cli.app import interruptible\n"
        "with interruptible(lambda: 'all is kept'):\n"
        "    exec('import signal; signal.raise_signal(signal.SIGINT)')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "amid"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "\nregard: interrupted; all is kept.\n")


# Tables and numbers that people read.


def test_a_comparison_fits_eighty_columns(main, toy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("a-run-of-mine", "another-one"):
        main("train", toy.name, *LITTLE, "--run", name)
    said = main("compare", "a-run-of-mine", "another-one").out
    tables = [line for line in said.splitlines() if line.startswith(("┃", "│"))]
    assert max(map(len, tables)) <= 80 and "…" not in said
    for head in (
        "bleu",
        "95 % interval",
        "parameters",
        "training tokens/s",
        "predicting /s",
        "kWh",
    ):
        assert head in said


def test_the_cost_is_told_in_units_of_people(main):
    done = main("cost", "transformer-base", "train.flops_per_second=1e12")
    assert "time                 11 days (at 1 TFLOP/s" in done.out
    assert "memory               12.4 GB" in done.out and "e+0" not in done.out
    assert done.err == (
        "regard: training transformer-base would take about 11 days on this machine; a GPU, fewer "
        "train.steps or a smaller model take less.\n"
    )
    assert main("cost", "transformer-base", "train.flops_per_second=1e16").err == ""


# Data and settings in the forms that people try.


def test_columns_are_counted_in_a_recipe_too(main, tmp_path):
    (tmp_path / "t.tsv").write_text("good film\tpos\nbad film\tneg\nlovely\tpos\nawful\tneg\n")
    recipe = (
        "[task]\nkind = 'classify'\ntext = {text}\nlabel = {label}\n[data]\ntrain = 't.tsv'\n"
        "[text]\nkind = 'words'\nsize = 30\n[model]\nkind = 'bert'\nwidth = 16\ndepth = 1\n"
        "heads = 2\n[train]\nsteps = 1\n"
    )
    (tmp_path / "counted.toml").write_text(recipe.format(text=1, label=2))
    assert "4 examples" in main("train", "counted.toml").out
    (tmp_path / "named.toml").write_text(recipe.format(text="'text'", label="'label'"))
    said = main("train", "named.toml", status=2).err
    assert "count the columns from 1 in all such settings, as in task.text=1 task.label=2." in said
    assert "4 examples" in main("train", "named.toml", "task.text=1", "task.label=2").out


def test_the_columns_of_a_text_to_text_task_are_counted_too():
    from regard.config import Value, make_settings
    from regard.tasks.text_to_text import TextToText

    given = {
        name: Value(value, "command line", "command line", ROOT)
        for name, value in {"source": 1, "target": [2, "b"]}.items()
    }
    settings = make_settings(TextToText.Settings, "task", given)
    assert settings.source == "1" and settings.target == ["2", "b"]


@pytest.mark.parametrize("head", ["English\tFrench", "en\tfr", "source\ttarget", ""])
def test_a_header_of_translations_is_no_example(main, tmp_path, toy, head):
    lines = sentences(50)
    rows = [*([head] if head else []), *(f"{line}\t{translate(line)}" for line in lines)]
    (tmp_path / "p.tsv").write_text("\n".join(rows) + "\n")
    said = main("train", toy.name, "data.train=p.tsv", *LITTLE).out
    assert " 50 examples" in said
    assert ("p.tsv:1 names the columns, and is no example" in said) == bool(head)


def test_temperature_zero_is_greedy(main, trained):
    lines = sentences(4, seed=5)
    for more in ([], ["decode.kind=sample"]):
        cold = main("predict", trained.folder, *lines, "decode.temperature=0", *more).out
        assert cold == main("predict", trained.folder, *lines, "decode.kind=greedy").out


def test_the_name_of_a_file_is_translated_but_not_in_silence(capsys, trained):
    note_files(trained, ["two red cats", "cats.txt", "what is a.txt ?", "Ends.", "data/de.tsv"])
    assert capsys.readouterr().err.splitlines() == [
        f"regard: {name} is taken as the input itself; --input {name} reads a file."
        for name in ("cats.txt", "data/de.tsv")
    ]


def test_a_folder_of_pictures_is_answered_file_by_file(main, tmp_path):
    settings = ("train.steps=1", "model.width=16", "model.depth=1", "model.heads=2", "data.test=")
    main("train", "vit-digits", *settings, "data.valid=", "train.device=cpu", "--run", "r")
    (tmp_path / "photos").mkdir()
    for name in ("b.png", "a.PNG", "c.png"):
        Image.new("L", (28, 28), 90).save(tmp_path / "photos" / name, "PNG")
    (tmp_path / "photos/notes.txt").write_text("not a picture")
    rows = [line.split("\t") for line in main("predict", "r", "photos/").out.splitlines()]
    assert [name for name, _ in rows] == ["photos/a.PNG", "photos/b.png", "photos/c.png"]
    assert all(label.strip() for _, label in rows)
    (tmp_path / "none").mkdir()
    said = main("predict", "r", "none/", status=2).err
    assert "none/: the folder must hold files that end in .jpg, " in said


def test_an_old_folder_says_how_to_go_on(main, toy):
    main("train", toy.name, *LITTLE, "--run", "r")
    said = main("train", toy.name, *LITTLE, "train.rate=0.002", "--run", "r", status=2).err
    assert said == (
        "regard: r: the finished run here has train.rate=0.01, but now it is 0.002; --fresh "
        "deletes it and starts over, --run DIR starts another.\n"
    )


def test_weights_and_biases_are_kept_here(shell, toy, tmp_path, monkeypatch):
    """A log is written into the run folder, and nobody is contacted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        shell("train", toy.name, *LITTLE, "train.wandb=true", "--run", "r")
        with pytest.raises(BlockingIOError):
            server.accept()
    (log,) = (tmp_path / "r/wandb").glob("offline-run-*/run-*.wandb")
    assert b"step/loss" in log.read_bytes()
    shell("train", toy.name, *LITTLE, "--run", "r", "--fresh")  # it is the run's own, and goes
    assert not (tmp_path / "r/wandb").exists()
