"""The commands as a user types them: what they print, what they leave, what they say when it is wrong."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import OFFLINE, ROOT
from tests.toys import sentences, translate, write_recipe

COMMANDS = ("demo", "recipes", "train", "evaluate", "predict", "see", "cost")


def test_help_is_instant_and_names_every_command():
    """Under 0.3 s, so torch cannot have been imported; the best of five, for the machine's moods."""
    command = [sys.executable, "-m", "regard", "--help"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    took = []
    for _ in range(5):
        began = time.perf_counter()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.3
    for name in COMMANDS:
        assert name in done.stdout


def test_train_evaluate_predict_see(shell, main, toy, tmp_path):
    """The whole path in one folder, and everything INTERFACE promises of a run folder."""
    said = shell("train", toy.name).stdout
    assert "The run is in runs/toy" in said
    assert "bleu" in said
    run = tmp_path / "runs/toy"
    for name in (
        "recipe.toml", "tokenizer.json", "model.safetensors", "config.json",
        "metrics.jsonl", "results.json", "cost.json", "README.md", "attention.png",
    ):  # fmt: skip
        assert (run / name).stat().st_size > 0, name
    recipe = (run / "recipe.toml").read_text()
    assert "steps = 40  # recipe" in recipe and "clip = 1.0  # default" in recipe
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {event["event"] for event in events} == {"step", "scored", "saved"}
    bill = json.loads((run / "cost.json").read_text())
    assert bill["steps"] == 40 and bill["flops"] > 0 and bill["kwh"] > 0
    assert bill["kwh_method"].startswith(("measured", "estimated from"))

    scores = json.loads(main("evaluate", "runs/toy", "--json").out)
    assert scores["examples"] == 40
    assert scores["bleu_interval"][0] <= scores["bleu"] <= scores["bleu_interval"][1]
    assert scores["bleu_signature"].startswith(
        "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a"
    )
    assert {"chrf", "ter", "perplexity", "perplexity_unit", "seconds"} <= scores.keys()
    other = main("evaluate", "runs/toy", "task.bleu_tokenize=none", "--on", "valid", "--json").out
    assert "tok:none" in json.loads(other)["bleu_signature"]
    names = {"test", "valid task.bleu_tokenize=none"}
    assert set(json.loads((run / "results.json").read_text())) == names

    answer = json.loads(shell("predict", "runs/toy", "two cats", "--json").stdout)
    assert answer["input"] == "two cats"
    assert {"output", "score", "seconds"} <= answer.keys()
    several = main("predict", "runs/toy", "two cats", "decode.num_return_sequences=3", "--json").out
    nbest = json.loads(several)["nbest"]
    assert len(nbest) == 3 and nbest[0]["score"] >= nbest[-1]["score"]

    main("see", "runs/toy", "two cats", "--target", "deux chats", "--out", "see.json")
    forced = json.loads((tmp_path / "see.json").read_text())
    assert forced["looks"][-1]["rows"] == ["▁deux", "▁chats", "<eos>"]


def test_predict_answers_line_by_line(shell, trained, tmp_path):
    lines = ["one cats", "", "two red dogs", "three cats and four dogs"]
    wanted = [trained.predict([line])[0].output for line in lines]
    assert wanted[1] == ""
    piped = shell("predict", trained.folder, stdin="\n".join(lines) + "\n").stdout
    assert piped.splitlines() == wanted
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    assert shell("predict", trained.folder, "--input", "in.txt.gz").stdout.splitlines() == wanted
    assert shell(
        "predict", trained.folder, *[line for line in lines if line]
    ).stdout.splitlines() == [w for w in wanted if w]


def test_predict_answers_before_the_input_ends(trained):
    """A program that writes a line and waits gets its answer."""
    command = [sys.executable, "-m", "regard", "predict", str(trained.folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **OFFLINE}
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in ("one cats", "two dogs"):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == trained.predict([line])[0].output
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_finished_run_is_not_overwritten(main, toy):
    main("train", toy.name, "train.steps=2", "--run", "r")
    said = main("train", toy.name, "train.steps=2", "--run", "r", status=2).err
    assert said == (
        "regard: r: this run is finished; train.steps=N with more than 2 goes on from its end, "
        "--fresh deletes it and starts over, --run DIR starts another.\n"
    )
    main("train", toy.name, "train.steps=3", "--run", "r", "--fresh")


LONGER = ("train.steps=60", "train.save_every=60", "train.log_every=1")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The weights of `toy` where nobody interrupts, with one thread as below."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    command = [sys.executable, "-m", "regard", "train", write_recipe(folder, train=300).name]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, *LONGER], env=env, cwd=folder, capture_output=True, check=True)
    return load_file(folder / "runs/toy/model.safetensors")


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_saves_and_goes_on(toy, tmp_path, main, kind, uninterrupted):
    """And ends, when the same command is given again, in the weights of who was not interrupted."""
    command = [sys.executable, "-m", "regard", "train", toy.name, *LONGER]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if line.startswith("step     10"):
                process.send_signal(kind)
                break
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + kind
    assert "saved in runs/toy; the same command goes on from there." in errors
    (checkpoint,) = (tmp_path / "runs/toy").glob("checkpoint-*")
    step = int(checkpoint.name.removeprefix("checkpoint-"))
    assert 10 <= step < 60
    said = main("predict", "runs/toy", "one cats").out
    assert said.endswith("\n")
    refused = main("train", toy.name, "train.steps=7", status=2).err
    assert (
        "the unfinished run here has train.steps=60, but now it is 7; the command it was begun "
        "with goes on with it" in refused
    )
    again = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert f"; going on from step {step}\n" in again.stdout
    assert "The run is in runs/toy" in again.stdout
    found = load_file(tmp_path / "runs/toy/model.safetensors")
    assert found.keys() == uninterrupted.keys()
    for name, value in uninterrupted.items():
        assert torch.equal(found[name], value), name


NAME = "[/red] :smile: [bold]"


def test_names_are_shown_as_they_are(main, toy, monkeypatch):
    """What looks like markup in a name, an input or a label is none."""
    monkeypatch.setenv("COLUMNS", "300")
    small = ("train.steps=2", "train.evaluate_every=2")
    assert f"The run is in {NAME}\n" in main("train", toy.name, *small, "--run", NAME).out
    assert "this run is finished" in main("train", toy.name, *small, "--run", NAME, status=2).err
    assert main("predict", NAME, "one [/red] cats").out
    assert "bleu" in main("evaluate", NAME).out
    main("train", toy.name, *small, "train.seed=1", "--run", "other")
    said = main("compare", NAME, "other").out
    assert "red] :smile: [bold]" in said
    said = main("see", NAME, "one [/red] cats", "--ablate", "--examples", "2", "--out", "[x].json")
    assert said.out.endswith("[x].json\n")


def test_scores_of_any_label_are_shown(capsys):
    from regard.terminal import console, tables

    scores = {"on": "test", "examples": 3, "f1": {"[/red]": 0.5, ":smile:": 1.0}}
    tables.print_scores(console(), scores)
    said = capsys.readouterr().out
    assert "f1: [/red]" in said and "f1: :smile:" in said


def test_a_terminal_of_few_letters_ends_no_command(toy, tmp_path):
    """In ASCII, what cannot be shown is shown by its number; JSON stays JSON."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
           "PYTHONIOENCODING": "ascii", "COLUMNS": "120"}  # fmt: skip
    for part in ("train", "valid", "test"):
        path = tmp_path / f"{part}.fr"
        path.write_text(path.read_text().replace("chats", "chätš"))
    script = (
        "import sys, regard.cli\n"
        "for words in {}:\n"
        "    sys.argv = ['regard', *words]\n"
        "    try:\n"
        "        regard.cli.main()\n"
        "    except SystemExit as end:\n"
        "        print('status', end.code or 0, flush=True)\n"
    )
    few = ["train.steps=60", "train.evaluate_every=60"]
    lines = [
        ["train", toy.name, *few, "--run", "é→"],
        ["predict", "é→", "one cats", "two cats"],
        ["predict", "é→", "one cats", "--json"],
        ["evaluate", "é→"],
        ["evaluate", "é→", "--json"],
        ["recipes"],
        ["recipes", "translate-tatoeba", "--all"],
        ["predict", "nö", "x"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", script.format(lines)],
        env=env, cwd=tmp_path, capture_output=True, timeout=110, check=True,
    )  # fmt: skip
    said = done.stdout.decode("ascii").split("status ")
    assert [part[0] for part in said[1:]] == ["0"] * 7 + ["2"], done.stderr
    assert "Traceback" not in done.stderr.decode("ascii")
    assert "The run is in \\xe9\\u2192" in said[0]
    assert "ch\\xe4t\\u0161" in said[1]
    assert "chätš" in json.loads(said[2].partition("\n")[2])["output"]
    assert json.loads(said[4].partition("\n")[2])["on"] == "test"
    assert "n\\xf6: a run folder is needed" in done.stderr.decode("ascii")


WRONG = {
    "unknown setting": (
        ["train", "{toy}", "model.widht=3"],
        "command line: no setting 'model.widht'; did you mean 'width'?",
    ),
    "unknown section": (
        ["train", "{toy}", "modle.width=3"],
        "command line: no section 'modle'; did you mean 'model'? There are task, data, text, model, train, decode.",
    ),
    "a setting without its section": (
        ["train", "{toy}", "steps=5"],
        "command line: 'steps=5' must say its section; write train.steps=5.",
    ),
    "a setting of two sections": (
        ["train", "{toy}", "temperature=0.5"],
        "command line: 'temperature=0.5' must say its section; write decode.temperature=0.5 or train.temperature=0.5.",
    ),
    "a setting after a prompt": (
        ["predict", "{run}", "one cats", "temperature=0.5"],
        "'temperature=0.5' must say its section where it is a setting; write decode.temperature=0.5, or give an input that begins so by --input or on standard input.",
    ),
    "an unknown section after a prompt": (
        ["predict", "{run}", "one cats", "decoder.num_beams=2"],
        "command line: no section 'decoder'; did you mean 'decode'? There are task, data, text, model, train, decode.",
    ),
    "a list without quotes": (
        ["train", "{toy}", "data.train=[a.en, a.fr]"],
        """command line: data.train: texts in a list must stand in quotes, but are [a.en, a.fr]; write data.train='["a.en", "a.fr"]'.""",
    ),
    "a text for a list": (
        ["predict", "{run}", "one cats", "decode.stop=the"],
        """command line: decode.stop must be a list, but is "the"; write decode.stop='["the"]'.""",
    ),
    "a number for a list": (
        ["train", "{toy}", "train.betas=0.9"],
        "command line: train.betas must be a list, but is 0.9; write train.betas='[0.9]'.",
    ),
    "a folder for a text": (
        ["predict", "{run}", "{tmp}"],
        "{tmp}: this run reads a text, and no folder of files; give it as an argument, or many in a file, one a line, by --input.",
    ),
    "no runs": (
        ["runs", "nowhere"],
        "nowhere: no such folder; `regard train` makes runs in runs/.",
    ),
    "ill-typed": (
        ["train", "{toy}", "train.steps=many"],
        'command line: train.steps must be a valid integer, but is "many".',
    ),
    "out of range": (
        ["train", "{toy}", "model.dropout=1.5"],
        "command line: model.dropout must be less than 1, but is 1.5.",
    ),
    "no such choice": (
        ["train", "{toy}", "model.position=rotory"],
        "command line: model.position must be one of sinusoid, halves, learned, rotary, none, but is 'rotory'; did you mean 'rotary'?",
    ),
    "no such model": (
        ["train", "{toy}", "model.kind=transfomer"],
        "command line: model.kind must be one of transformer, seq2seq, memory, rnn, gpt, xl, xlnet, bert, t5, vit, glimpse, graph, decision, table, but is 'transfomer'; did you mean 'transformer'?",
    ),
    "a model of another task": (
        ["train", "{toy}", "model.kind=gpt"],
        "[model]: gpt cannot tell Words of Ids, which the task translate asks for; choose transformer or seq2seq or t5.",
    ),
    "heads that do not fit": (
        ["train", "{toy}", "model.heads=5"],
        "[model]: 5 heads cannot share a width of 32.",
    ),
    "no equals": (
        ["train", "{toy}", "train.steps"],
        "command line: 'train.steps' must look like section.key=value, such as train.steps=100.",
    ),
    "no recipe": (
        ["train", "translate-tatoba"],
        "no recipe 'translate-tatoba'; did you mean 'translate-tatoeba'? `regard recipes` lists them all; a file of your own must end in .toml.",
    ),
    "no recipe file": (["train", "no.toml"], "no.toml: no such recipe file."),
    "missing data": (
        ["train", "{toy}", 'data.train=["no.en","no.fr"]'],
        "{tmp}/no.en: no such file, though data.train names it; check data.root and the name.",
    ),
    "data to be got": (
        ["train", "translate-multi30k-en-de"],
        "data/multi30k/train.en.gz: no such file, though data.train names it; get the raw text of github.com/multi30k/dataset (task 1) and set data.root=FOLDER.",
    ),
    "too long for a batch": (
        ["train", "{toy}", "train.batch_tokens=3"],
        "train.batch_tokens is 3, but the longest line has",
    ),
    "no GPU": (
        ["train", "{toy}", "train.device=cuda"],
        "train.device is 'cuda', but no such GPU can be used here; leave it at auto, or say cpu.",
    ),
    "no such device": (
        ["train", "{toy}", "train.device=tpu9"],
        "train.device must be auto, cpu, mps, cuda or cuda:N, but is 'tpu9'.",
    ),
    "no run": (
        ["predict", "runs/none", "hello"],
        "runs/none: a run folder is needed, but this one is not there; `regard train` makes one.",
    ),
    "not a run": (
        ["predict", ".", "hello"],
        "a run folder is needed, but this one holds no recipe.toml",
    ),
    "settled by training": (
        ["predict", "{run}", "x", "model.width=8"],
        "command line: 'model.width' was settled by training; it cannot change now.",
    ),
    "bad part": (
        ["evaluate", "{run}", "--on", "train"],
        "--on must be valid or test, but is 'train'.",
    ),
    "bad picture": (
        ["see", "{run}", "one cats", "--out", "see.gif"],
        "see.gif: the file must end in .html, .json, .png, .svg, .pdf, but ends in '.gif'.",
    ),
    "empty see": (
        ["see", "{run}", ""],
        "input: there must be something to look at, but the line is empty.",
    ),
    "two inputs": (
        ["predict", "{run}", "x", "--input", "y"],
        "inputs must be arguments or --input, but both are given.",
    ),
    "no input file": (["predict", "{run}", "--input", "none.txt"], "none.txt: no such file."),
    "too long to translate": (
        ["predict", "{run}", "one" + " one" * 399],
        "input 1: a line may have 256 tokens with its end (data.max_length), but has 401; split it into sentences.",
    ),
    "sampling without drawing": (
        ["predict", "{run}", "x", "decode.top_k=3"],
        "decode.top_k only matters when drawing; add decode.kind=sample.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(main, toy, trained, tmp_path, case):
    words, said = WRONG[case]
    fill = {"toy": str(toy), "run": str(trained.folder), "tmp": str(tmp_path)}
    before = sorted(tmp_path.rglob("*"))
    done = main(*(_fill(word, fill) for word in words), status=2)
    assert done.err.startswith("regard: ")
    assert done.err.count("\n") == 1, done.err
    assert _fill(said, fill) in done.err
    assert done.out == ""
    # The cache of tokenised data is whole and may stay; everything else must go.
    left = [path for path in sorted(tmp_path.rglob("*")) if path not in before]
    assert [path for path in left if ".cache" not in path.parts and path.name != "runs"] == []


def _fill(text, names):
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


def test_fresh_takes_nothing_away_before_it_can_begin(main, toy, tmp_path):
    main("train", toy.name, "train.steps=2", "--run", "r")
    before = (tmp_path / "r/model.safetensors").read_bytes()
    (tmp_path / "bad.en").write_bytes(b"\xff\n")
    (tmp_path / "bad.fr").write_text("x\n")
    for wrong in ("model.heads=5", 'data.train=["bad.en","bad.fr"]', "text.dropout=0.5"):
        main("train", toy.name, wrong, "--run", "r", "--fresh", status=2)
        assert (tmp_path / "r/model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.glob(".*replaced")] == []


def test_nothing_that_is_not_ours_is_touched(main, toy, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "recipe.toml").write_text(toy.read_text().replace("train.en", "../bad.en"))
    (mine / "thesis.txt").write_text("years of work")
    (tmp_path / "bad.en").write_bytes(b"\xff\n")
    for more in ([], ["--fresh"]):
        said = main("train", toy.name, "--run", "mine", *more, status=2).err
        assert "a run needs a folder of its own, but this one holds 'thesis.txt'" in said
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_a_run_whose_files_disagree_is_refused(main, toy, tmp_path):
    main("train", toy.name, "train.steps=2", "--run", "r")
    recipe = tmp_path / "r/recipe.toml"
    recipe.write_text(recipe.read_text().replace("heads = 2", "heads = 4"))
    assert "there model.heads is 4, here 2" in main("predict", "r", "one", status=2).err


def test_broken_standard_input_is_told(shell, trained):
    done = shell_bytes(trained, b"one cats\ntwo dogs\n\xff\xfe\nthree cats\n")
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == b"regard: standard input:3: the text must be UTF-8, but is not.\n"
    assert shell_bytes(trained, b"").stdout == b""


def shell_bytes(trained, data):
    command = [sys.executable, "-m", "regard", "predict", str(trained.folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, input=data, capture_output=True, timeout=60)


def test_not_toml(main, tmp_path):
    (tmp_path / "bad.toml").write_text("[task\n")
    assert "bad.toml: not valid TOML: Expected ']'" in main("train", "bad.toml", status=2).err
    (tmp_path / "bad.toml").write_text("steps = 3\n")
    assert "bad.toml: 'steps' stands in no section" in main("train", "bad.toml", status=2).err
    (tmp_path / "bad.toml").write_text("[task]\nkind = 'translate'\n")
    assert (
        "the recipe must set model.kind, to one of transformer, seq2seq, memory, rnn, gpt, xl, xlnet, bert, t5, vit, glimpse, graph, decision, table."
        in main("train", "bad.toml", status=2).err
    )


def test_a_truncated_or_edited_checkpoint_is_not_loaded(main, toy, tmp_path):
    main("train", toy.name, "train.steps=10", "--run", "r")
    for name in ("model.safetensors", "README.md"):  # as if it had been killed at the end
        (tmp_path / "r" / name).unlink()
    weights = tmp_path / "r/checkpoint-10/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    said = main("train", toy.name, "train.steps=10", "--run", "r", status=2).err
    assert "this part of the checkpoint has been changed or cut short since it was written" in said


def test_a_run_folder_of_another_model(main, toy, tmp_path):
    main("train", toy.name, "train.steps=2", "--run", "a")
    main("train", toy.name, "train.steps=2", "model.width=16", "--run", "b")
    (tmp_path / "a/model.safetensors").write_bytes((tmp_path / "b/model.safetensors").read_bytes())
    said = main("predict", "a", "one", status=2).err
    assert (
        "the weights must fit the model of config.json, but 'source.tokens.weight' has shape"
        in said
    )


@pytest.mark.parametrize("part", ["en", "fr"])
def test_data_faults_leave_nothing_half_done(main, toy, tmp_path, part):
    path = tmp_path / f"train.{part}"
    path.write_bytes(path.read_bytes() + b"\xff\n")
    other = tmp_path / f"train.{'fr' if part == 'en' else 'en'}"
    other.write_text(other.read_text() + "x\n")
    said = main("train", toy.name, status=2).err
    assert f"train.{part}:301: the file must be UTF-8, but byte 1 of this line is 0xff" in said
    path.write_bytes(path.read_bytes().replace(b"\xff", b"one"))
    main("train", toy.name, "train.steps=2")


def test_bad_lines_are_counted_when_they_may_be_skipped(main, toy, tmp_path):
    for part in ("en", "fr"):
        path = tmp_path / f"train.{part}"
        path.write_text(path.read_text() + ("\n" if part == "en" else "vide\n"))
    assert (
        "train.en:301: both sides must have text, but one is empty"
        in main("train", toy.name, status=2).err
    )
    said = main("train", toy.name, "train.steps=2", "data.skip_bad=true").out
    assert "left out: " in said and "train.en:301" in said


def test_start_from_another_run(main, toy, trained):
    said = main(
        "train", toy.name, f"model.from={trained.folder}", "train.steps=1", "train.rate=1e-9"
    ).out
    assert "bleu" in said
    lines = sentences(5, seed=11)
    outputs = main("predict", "runs/toy", *lines).out.splitlines()
    assert outputs == [trained.predict([line])[0].output for line in lines]
    assert translate(lines[0]) in outputs


def test_recipes(main):
    listed = main("recipes").out
    assert "translate-tatoeba" in listed and "transformer-big" in listed
    assert main("recipes", "translate-tatoeba").out.startswith("# ")
    everything = main("recipes", "translate-tatoeba", "--all").out
    assert "warmup = 100  # steps in which the rate rises from zero" in everything
    assert "num_beams = 4  # hypotheses kept at each step (beam)" in everything


def test_cost(main):
    bill = json.loads(main("cost", "transformer-base", "--json").out)
    assert bill["parameters"] == 63_082_496
    # Six FLOPs a weight and token, and what attention adds; embeddings are looked up, not multiplied.
    tokens, encoder, rest = 25000 // 32 * 32, 18_914_304, 44_168_192
    assert bill["flops_per_step"] == pytest.approx(6 * tokens * (encoder + rest), rel=0.05)
    assert "kwh_method" in bill and "flops" in main("cost", "translate-tatoeba").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train"], "regard: Missing argument 'RECIPE'; `regard train -h` helps.\n"),
        (
            ["predict", "run", "--bogus"],
            "regard: No such option: --bogus; `regard predict -h` helps.\n",
        ),
        (["trian"], "regard: No such command 'trian'."),
    ],
)
def test_a_word_too_many_or_too_few_is_said_in_one_line(main, words, said):
    found = main(*words, status=2)
    assert found.err.startswith(said) and found.err.count("\n") == 1
