"""The shell: thin commands. What needs torch is imported inside them, so that --help is instant."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from .errors import InputError, RecipeError, RegardError

if TYPE_CHECKING:
    from .see.run import Run

app = typer.Typer(
    name="regard",
    help="Attention models of the classic lectures: train, score, use, look inside.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no rich, and so no wait
    context_settings={"help_option_names": ["-h", "--help"]},
)

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="a name (see `regard recipes`) or a .toml file")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="settings, such as train.steps=2000"),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="a run folder, made by `regard train`")
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object a line")]

OVERRIDE = re.compile(r"[a-z]+\.[a-z_]+=")


def main() -> NoReturn:
    """Run a command; a user's mistake is one line on stderr and status 2."""
    status: object = 0
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is told by number
                stream.reconfigure(errors="backslashreplace")
        status = app(standalone_mode=False, prog_name="regard")
    except typer.Abort:
        print("\nregard: interrupted.", file=sys.stderr)
        sys.exit(130)
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a disk that is full, a file that may not be read
        where = f"{error.filename}: " if error.filename else ""
        print(f"regard: {where}{error.strerror or error}.", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        say = getattr(error, "format_message", None)  # a word too many or too few
        if say is None:
            raise
        context = getattr(error, "ctx", None)
        asked = context.command_path if context is not None else "regard"
        if len(sys.argv) > 1:
            what = " ".join(say().split()).rstrip(".?")
            print(f"regard: {what}; `{asked} -h` helps.", file=sys.stderr)
        else:  # no word at all: the help is the message
            print(say())
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


@app.command()
def demo(
    run: Annotated[Path, typer.Option(help="where to keep the run")] = Path("runs/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="train anew")] = False,
) -> None:
    """The main job on the bundled corpus: train, score, translate, draw."""
    from rich.table import Table

    from . import terminal
    from .see.run import load

    console = terminal.console()
    if fresh or not (run / "README.md").is_file():
        console.print("English to French on 94,000 short sentences of Tatoeba (CC BY 2.0 FR).")
        _train("translate-tatoeba", [], run, fresh)
    else:
        console.print(f"{run} is trained already; --fresh trains it anew.")
        terminal.print_scores(console, json.loads((run / "results.json").read_text())["test"])
    trained = load(run)
    examples = trained.data("test").examples
    picked = [examples[i] for i in range(0, len(examples), max(1, len(examples) // 10))[:10]]
    answers = trained.predict([example.source for example in picked])
    table = Table(
        "English", "French by the model", "French by a person", title="Ten of the test sentences"
    )
    for example, answer in zip(picked, answers, strict=True):
        table.add_row(example.source, answer.output, example.target)
    console.print(table)
    picture = trained.see("The little cat is sleeping on my bed.").save(run / "alignment.png")
    console.print(f"\nWhat each French word looked at: {picture}", soft_wrap=True)
    regard = terminal.typed_as()
    console.print("\nWhat to type next:", style="bold")
    for line, what in (
        (f'{regard} predict {run} "I am cold."', ""),
        (f'{regard} see {run} "I am cold." --out see.html', "every layer and head, in a browser"),
        (f"{regard} evaluate {run} decode.num_beams=1", ""),
        (f"{regard} serve {run}", "the same, in a browser and for programs"),
        (f"{regard} recipes", "what else can be trained"),
    ):
        said = f"  {line:56}  # {what}" if what else f"  {line}"
        console.print(said, highlight=False, soft_wrap=True)
    if regard != "regard":
        activate = Path(regard).with_name("activate")
        console.print(f"\n`. {activate}` makes it plain `regard` in this shell.", soft_wrap=True)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="print this one whole")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="every setting, with what it means")
    ] = False,
) -> None:
    """What can be trained, a line each; one recipe printed whole."""
    from . import config

    if name is None:
        width = max(map(len, config.names()))
        for each in config.names():
            first = config.find(each).read_text(encoding="utf-8").splitlines()[0]
            print(f"{each:{width}}  {first.removeprefix('#').strip()}")
    elif everything:
        from .training.recipe import read

        print(config.write(read(name).rows("comment")), end="")
    else:
        print(config.find(name).read_text(encoding="utf-8"), end="")


@app.command()
def train(
    recipe: RecipeName,
    settings: Overrides = None,
    run: Annotated[
        Path | None,
        # torchrun would take --run for an option of its own, hence the second name.
        typer.Option("--run", "--folder", help="the run folder; default runs/<name>"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="delete what the run folder holds; start over")
    ] = False,
) -> None:
    """Train a recipe and score it; goes on where an unfinished run was left."""
    _train(recipe, settings or [], run, fresh)


@app.command()
def record(
    environment: Annotated[str, typer.Argument(help="keydoor, or a name of Gymnasium's")],
    out: Annotated[Path, typer.Option(help="the table to write, a .csv")],
    policy: Annotated[
        str, typer.Option(help="usual, random, or the folder of a run that decides")
    ] = "usual",
    episodes: Annotated[int, typer.Option(min=1, help="how many histories")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="the same seed, the same histories")] = 0,
    longest: Annotated[int, typer.Option(min=1, help="steps of a history at most")] = 1000,
) -> None:
    """Make records: let somebody decide in an environment, and write down what came of it."""
    from .data import environments
    from .tasks.task import Decides

    made = environments.make(environment)
    count = len(made.actions)
    chosen: environments.Policy | None = None
    if policy == "random":
        chosen = lambda _: [1 / count] * count  # noqa: E731
    elif policy != "usual":
        trained = _load(Path(policy), [])
        if isinstance(trained.task, Decides):
            chosen = trained.task.policy(trained.model, made.columns, made.actions)
        if chosen is None:
            raise InputError(f"--policy: {policy} is no run that decides among such actions.")
    told = environments.episodes(made, chosen, episodes, seed, longest)
    steps, gained = environments.write(out, made, told)
    print(f"{out}: {episodes:,} histories, {steps:,} steps, mean return {gained:.4f}")


@app.command()
def evaluate(
    run: RunFolder,
    settings: Overrides = None,
    on: Annotated[
        str, typer.Option(help="valid or test; default test, where there are such data")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Score a run on its test data."""
    from . import terminal

    if on not in ("", "valid", "test"):
        raise InputError(f"--on must be valid or test, but is '{on}'.")
    scores = _load(run, settings or []).evaluate(on)
    if not on and scores["on"] != "test":
        print(f"regard: the run has no data.test; scored on {scores['on']}.", file=sys.stderr)
    if as_json:
        print(terminal.json_line(scores))
    else:
        terminal.print_scores(terminal.console(), scores)


@app.command()
def predict(
    run: RunFolder,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[INPUT]...", help="inputs; decode.KEY=VALUE changes a setting"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--input", help="a file of inputs, one a line")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="a smaller run that guesses ahead (language models)")
    ] = None,
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="how likely each token of the input is, instead")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer inputs: arguments, a file, or standard input; line in, line out.

    A language model writes on as you watch; all of standard input is then one prompt.
    """
    from . import terminal
    from .tasks.task import Streams

    words = inputs or []
    overrides = [word for word in words if OVERRIDE.match(word)]
    given = [word for word in words if not OVERRIDE.match(word)]
    if given and file is not None:
        raise InputError("inputs must be arguments or --input, but both are given.")
    trained = _load(run, overrides)
    if draft is not None:
        device = [text for text in overrides if text.startswith("train.device=")]
        trained.use_draft(_load(draft, device))
    writes_on = isinstance(trained.task, Streams)
    if given:
        source: Iterator[list[str]] = iter([given])
    elif file is not None:
        from .data.read import lines

        source = terminal.chunks_of(lines(file))
    elif writes_on:
        source = iter([["\n".join(line for chunk in terminal.arriving() for line in chunk)]])
    else:
        source = terminal.arriving()
    first = 1
    for chunk in terminal.counted(source, shown=not given):
        if logprobs:
            terminal.print_logprobs(trained, chunk, as_json)
        elif writes_on and not as_json:
            terminal.write_on(trained, chunk, first)
        else:
            for answer in trained.predict(chunk, first):
                print(terminal.json_line(answer.json()) if as_json else answer.output)
                if answer.warning and not as_json:
                    print(f"regard: {answer.warning}.", file=sys.stderr)
        sys.stdout.flush()
        first += len(chunk)


SEEN = Path("see.html")


@app.command()
def see(
    run: RunFolder,
    text: Annotated[str, typer.Argument(metavar="INPUT", help="what to answer and look into")],
    settings: Overrides = None,
    target: Annotated[
        str | None, typer.Option(help="look at this answer instead of the model's own")
    ] = None,
    out: Annotated[Path, typer.Option(help="see.html, .png, .svg, .pdf or .json")] = SEEN,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="silence one head at a time, and score without it")
    ] = False,
    examples: Annotated[
        int, typer.Option(min=0, help="validation examples that each head is scored on; 0: none")
    ] = 40,
    field: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="what this token (or its number) depends on, layer by layer; .png, .svg or .json",
        ),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(
            help="this word in the sentences of the file INPUT, a line each: its vectors by layer"
        ),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="the input's tokens as points, layer by layer")
    ] = False,
    heads: Annotated[
        bool,
        typer.Option(
            "--heads",
            help="what each head looks at in the texts of the file INPUT (.conllu: with trees); "
            "with --ablate, what is lost without it",
        ),
    ] = False,
) -> None:
    """What attends to what: a page with every layer and head, or a picture."""
    from . import terminal
    from .see.save import check_kind

    trained = _load(run, settings or [])
    if word is not None:
        _see_word(trained, Path(text), word, out)
        return
    if field is not None:
        _see_field(trained, text, field, out)
        return
    if layers:
        _see_layers(trained, text, out)
        return
    if heads:
        _see_heads(trained, Path(text), examples if ablate else 0, out)
        return
    if ablate:
        from dataclasses import replace

        from .see.ablate import ablate as silence_each
        from .see.capture import WRITERS

        check_kind(out, WRITERS)
        found = silence_each(trained, text, examples)
        terminal.print_ablation(found)
        sight = replace(trained.see(text, target), ablation=found)
    else:
        sight = trained.see(text, target)
    path = sight.save(out)
    print(f"{sight.output}\n{path}")


@app.command()
def probe(
    run: RunFolder,
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="whose labels: its [task] and [data] count")
    ],
    settings: Overrides = None,
    examples: Annotated[int, typer.Option(min=20, help="of each part, the first so many")] = 1000,
    on: Annotated[str, typer.Option(help="valid or test; default valid")] = "",
    out: Annotated[Path, typer.Option(help="probe.png, .svg, .pdf or .json")] = Path("probe.png"),
) -> None:
    """Read tags or classes off a run's vectors, layer by layer, by a linear classifier."""
    from . import terminal
    from .see.probe import WRITERS
    from .see.save import check_kind

    check_kind(out, WRITERS)
    found = _load(run, []).probe(recipe, *(settings or []), examples=examples, on=on)
    terminal.print_probed(found)
    print(found.save(out))


@app.command()
def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders")],
    host: Annotated[str, typer.Option(help="the address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="the port to listen at")] = 8000,
    api_key: Annotated[
        str, typer.Option(envvar="REGARD_API_KEY", help="a key that every request must bring")
    ] = "",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    origin: Annotated[
        list[str] | None, typer.Option(help="a web site that may ask from a browser (CORS)")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="a name that the server answers to, beside localhost and --host"),
    ] = None,
    max_body: Annotated[int, typer.Option(help="bytes of a request")] = 2**20,
    max_prompt: Annotated[int, typer.Option(help="tokens of a prompt")] = 16384,
    max_tokens: Annotated[int, typer.Option(help="tokens asked for")] = 4096,
    max_batch: Annotated[int, typer.Option(help="answers written at the same time")] = 64,
    max_queue: Annotated[int, typer.Option(help="requests that may wait")] = 256,
    max_seconds: Annotated[float, typer.Option(help="until an answer must be there")] = 120.0,
    max_connections: Annotated[int, typer.Option(help="open at the same time")] = 1000,
) -> None:
    """HTTP API and web page: OpenAI's routes, any task, what attends to what."""
    try:
        from .serve.limits import ServerLimits
        from .serve.server import allow_files, is_loopback
        from .serve.server import serve as listen
    except ImportError as error:
        raise InputError(
            f"regard serve needs {error.name}; pip install 'regard[serve]'."
        ) from error

    limits = ServerLimits(
        body=max_body, prompt=max_prompt, new_tokens=max_tokens, rows=max_batch,
        waiting=max_queue, seconds=max_seconds, connections=max_connections,
    )  # fmt: skip
    for name, value in vars(limits).items():
        if not value > 0:
            raise InputError(f"every limit must be above 0, but {name} is {value}.")
    allow_files(limits.connections + 64)
    if not is_loopback(host) and not api_key:
        print(
            f"regard: {host} can be reached by others, and there is no --api-key: anybody may ask.",
            file=sys.stderr,
        )
    print(f"http://{host}:{port}  ({', '.join(str(run) for run in runs)}); Ctrl-C ends", flush=True)
    listen(runs, host, port, api_key, limits, device, origin or [], allow_host or [])


@app.command()
def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="run folders; with --recipes, recipes")
    ],
    recipes: Annotated[
        bool, typer.Option("--recipes", help="the names are recipes; train what is missing first")
    ] = False,
    on: Annotated[str, typer.Option(help="valid or test")] = "test",
    out: Annotated[
        Path | None, typer.Option(help="compare.html, .md, .json, .png, .svg or .pdf")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Quality, size, speed and cost of runs side by side; settings go to what is trained."""
    from rich.table import Table

    from . import terminal
    from .see.compare import WRITERS
    from .see.compare import compare as side_by_side
    from .see.save import check_kind

    if on not in ("valid", "test"):
        raise InputError(f"--on must be valid or test, but is '{on}'.")
    if out is not None:
        check_kind(out, WRITERS)  # before anything is trained
    settings = [word for word in runs if OVERRIDE.match(word)]
    folders = [Path(word) for word in runs if not OVERRIDE.match(word)]
    if settings and not recipes:
        raise InputError(f"'{settings[0]}': a run is settled; settings need --recipes.")
    if recipes:
        names, folders = [str(folder) for folder in folders], []
        for name in names:
            folders.append(Path("runs") / Path(name).stem)
            if not (folders[-1] / "results.json").is_file():
                _train(name, settings, folders[-1], fresh=False, to_stderr=as_json)
            else:
                _check_same(name, settings, folders[-1])
    found = side_by_side(folders, on)
    if as_json:
        for row in found.rows():
            print(terminal.json_line(row))
    else:
        heads = [head for head, _ in found.columns()]
        for rows in ([heads, *found.cells()], found.lengths()):
            if rows:
                table = Table(*rows[0])
                for cells in rows[1:]:
                    table.add_row(*cells)
                terminal.console().print(table)
        for note in found.notes():
            terminal.console().print(note, highlight=False)
    if out is not None:
        print(found.save(out), file=sys.stderr if as_json else sys.stdout)


@app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a Hugging Face folder")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder to make")],
) -> None:
    """A Hugging Face folder as a run: to answer, to look into, or to train on from."""
    from .exchange import hf

    print(f"{hf.read(folder, run)}: {run}")


@app.command()
def export(
    run: RunFolder,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder to make")],
    to: Annotated[str, typer.Option(help="hf, ctranslate2 or onnx")] = "hf",
) -> None:
    """A run as a folder that other programs read."""
    from .exchange import WRITERS

    if to not in WRITERS:
        raise InputError(f"--to must be one of {', '.join(WRITERS)}, but is '{to}'.")
    print(f"{WRITERS[to](_load(run, ['train.device=cpu']), folder)}: {folder}")


@app.command()
def cost(recipe: RecipeName, settings: Overrides = None, as_json: AsJson = False) -> None:
    """Parameters, FLOPs, memory, time, kWh and CO2e before training."""
    import torch

    from .tasks import TASKS
    from .training.cost import estimate, shown_share
    from .training.distil import make_loss
    from .training.recipe import read

    whole = read(recipe, settings or [])
    task = TASKS[whole.task_kind]
    batch = task.sample_batch(whole.task, whole.train.batch_tokens, whole.sections)
    loss = make_loss(task.loss, whole.train, torch.device("meta"))
    bill = estimate(whole.build, whole.usual_sizes(), whole.train, batch, loss)
    if as_json:
        print(json.dumps(bill))
        return
    every = bill.pop("everyday")
    assert isinstance(every, dict)
    for name, value in bill.items():
        shown = (
            f"{value:,}"
            if isinstance(value, int)
            else f"{value:.4g}"
            if isinstance(value, float)
            else value
        )
        print(f"{name:24} {shown}")
    for name, share in every.items():
        print(f"{'CO2e of ' + shown_share(share):24} {name}")


def _see_word(trained: Run, path: Path, word: str, out: Path) -> None:
    """One word in the sentences of a file."""
    from . import terminal
    from .data.read import lines
    from .see.meaning import WRITERS
    from .see.save import check_kind

    out = Path("word.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.meaning(word, [line for line in lines(path) if line.strip()])
    terminal.print_meaning(found)
    print(found.save(out))


def _see_field(trained: Run, text: str, token: str, out: Path) -> None:
    """What a token depends on."""
    from . import terminal
    from .see.field import WRITERS
    from .see.save import check_kind

    out = Path("field.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.field(text, token)
    terminal.print_field(found)
    print(found.save(out))


def _see_layers(trained: Run, text: str, out: Path) -> None:
    """An input's tokens, layer by layer."""
    from . import terminal
    from .see.layers import WRITERS
    from .see.save import check_kind

    out = Path("layers.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.layers(text)
    terminal.print_layers(found)
    print(found.save(out))


def _see_heads(trained: Run, path: Path, examples: int, out: Path) -> None:
    """What each head looks at in the texts of a file."""
    from . import terminal
    from .data.trees import read
    from .see.heads import WRITERS
    from .see.save import check_kind

    out = Path("heads.png") if out == SEEN else out
    check_kind(out, WRITERS)
    found = trained.heads(list(read(path)), examples)
    terminal.print_heads(found)
    print(found.save(out))


# What several commands share.


def _load(run: Path, overrides: Sequence[str]) -> Run:
    """A run, answering as the command line says; what training fixed cannot be changed."""
    from .see.run import load

    device = "auto"
    kept = []
    for text in overrides:
        free = text.startswith(("task.", "data.", "decode.", "train.device="))
        if not free:
            raise RecipeError(
                f"command line: '{text.partition('=')[0]}' was settled by training; it "
                f"cannot change now."
            )
        if text.startswith("train.device="):
            device = text.partition("=")[2]
        kept.append(text)
    return load(run, *kept, device=device)


def _check_same(name: str, settings: Sequence[str], folder: Path) -> None:
    """A run that is there must be what the recipe and the settings ask for."""
    from .training.recipe import read, read_run

    asked, there = read(name, settings), read_run(folder)
    sides = [
        {"task": r.task, **r.sections, "model": r.model, "train": r.train} for r in (asked, there)
    ]
    other = [f"[{section}]" for section in sides[0] if sides[0][section] != sides[1].get(section)]
    if asked.model_from != there.model_from:
        other.append("model.from")
    for part in ("train", "valid", "test"):
        if asked.data.named(part) != there.data.named(part):
            other.append(f"data.{part}")
    if other:
        raise InputError(
            f"{folder}: the run must be what {name} with these settings asks for, but its "
            f"{other[0]} is another; compare it by its folder, or move it away."
        )


def _train(
    recipe: str,
    settings: Sequence[str],
    run: Path | None,
    fresh: bool,
    to_stderr: bool = False,
) -> None:
    """Train with the progress drawn; Ctrl-C saves first."""
    import os

    from . import terminal
    from .see.run import train as start

    console = terminal.console(stderr=to_stderr)
    asked: list[int] = []
    leads = os.environ.get("RANK", "0") == "0"
    drawing = terminal.Drawing(console) if leads else None

    def interrupt(number: int, frame: object) -> None:
        if asked or (drawing is not None and not drawing.training):  # there is nothing to save
            raise KeyboardInterrupt
        asked.append(number)
        print("\nsaving; again to leave at once", file=sys.stderr)

    before = {kind: signal.signal(kind, interrupt) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        trained = start(
            recipe,
            *settings,
            run=run,
            fresh=fresh,
            on_event=drawing or (lambda event: None),
            stop=lambda: bool(asked),
        )
    finally:
        if drawing is not None:
            drawing.close()
        for kind, handler in before.items():
            signal.signal(kind, handler)
    if not leads:
        return
    if asked and not (trained.folder / "model.safetensors").is_file():
        print(f"saved in {trained.folder}; the same command goes on from there.", file=sys.stderr)
        sys.exit(128 + asked[0])  # 130 for Ctrl-C, 143 for what a batch system sends
    results = trained.folder / "results.json"
    if results.is_file():
        for scores in json.loads(results.read_text()).values():
            terminal.print_scores(console, scores)
    console.print(f"The run is in {trained.folder}", soft_wrap=True, highlight=False)
