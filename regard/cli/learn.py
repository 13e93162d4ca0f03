"""From a recipe to a run: what there is to train, what it costs, training, and records."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..training.files import RESULTS, is_finished, is_trained, said
from .app import AsJson, Overrides, RecipeName, app, interruptible, load_run

if TYPE_CHECKING:
    from rich.console import Console


@app.command()
def demo(
    run: Annotated[Path, typer.Option(help="where to keep the run")] = Path("runs/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="train anew")] = False,
) -> None:
    """Train on the bundled corpus, score, translate, draw."""
    from rich.table import Table

    from .. import terminal

    console = terminal.console()
    if fresh or not is_finished(run):
        console.print("English to French on 94,000 short sentences of Tatoeba (CC BY 2.0 FR).")
        train_shown("translate-tatoeba", [], run, fresh)
    else:
        console.print(f"{run} is trained already; --fresh trains it anew.")
        show_results(console, run)
    from ..see.run import load

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
        (f'{regard} predict {run} "I am hungry."', ""),
        (f'{regard} see {run} "I am hungry." --out see.html', "every layer and head, in a browser"),
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
    from .. import config

    if name is None:
        width = max(map(len, config.names()))
        for each in config.names():
            first = config.find(each).read_text(encoding="utf-8").splitlines()[0]
            print(f"{each:{width}}  {first.removeprefix('#').strip()}")
    elif everything:
        from ..training.recipe import read

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
    seeds: Annotated[
        int, typer.Option(min=1, help="so many runs, each in a folder of its own, and their means")
    ] = 1,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B", help="a run for each value, or each combination"),
    ] = None,
) -> None:
    """Train a recipe and score it, from where it was left.

    A finished run goes on from its end where train.steps asks for more.
    """
    if seeds > 1 or sweep:
        from .several import train_several

        train_several(recipe, settings or [], run, fresh, seeds, sweep or [])
    else:
        train_shown(recipe, settings or [], run, fresh)


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
    """Let somebody decide in an environment; write it down."""
    from ..data import environments
    from ..tasks.task import Decides

    made = environments.make(environment)
    count = len(made.actions)
    chosen: environments.Policy | None = None
    if policy == "random":
        chosen = lambda _: [1 / count] * count  # noqa: E731
    elif policy != "usual":
        trained = load_run(Path(policy), [])
        if isinstance(trained.task, Decides):
            chosen = trained.task.policy(trained.model, made.columns, made.actions)
        if chosen is None:
            raise InputError(f"--policy: {policy} is no run that decides among such actions.")
    told = environments.episodes(made, chosen, episodes, seed, longest)
    steps, gained = environments.write(out, made, told)
    print(f"{out}: {episodes:,} histories, {steps:,} steps, mean return {gained:.4f}")


@app.command()
def cost(recipe: RecipeName, settings: Overrides = None, as_json: AsJson = False) -> None:
    """What training would take: memory, time, energy."""
    import torch

    from ..tasks import TASKS
    from ..training.cost import duration, estimate
    from ..training.distil import make_loss
    from ..training.recipe import read

    whole = read(recipe, settings or [])
    task = TASKS[whole.task_kind]
    batch = task.sample_batch(whole.task, whole.train.batch_tokens, whole.sections)
    loss = make_loss(task.loss, whole.train, torch.device("meta"))
    bill = estimate(whole.build, whole.usual_sizes(), whole.train, batch, loss)
    if as_json:
        print(json.dumps(bill))
        return
    for name, shown in cost_rows(bill):
        print(f"{name:20} {shown}")
    seconds = bill["seconds"]
    if isinstance(seconds, float) and seconds > LONG:
        print(
            f"regard: training {recipe} would take about {duration(seconds)} on this machine; a "
            "GPU, fewer train.steps or a smaller model take less.",
            file=sys.stderr,
        )


LONG = 3600  # seconds of training that one should know of beforehand


def cost_rows(bill: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What training takes, in the units that people think in."""
    from ..training.cost import duration, memory, shown_share

    yield "parameters", f"{bill['parameters']:,}"
    yield "flops", f"{bill['flops']:.3g}, {bill['flops_per_step']:.3g} a step"
    yield "memory", f"{memory(bill['memory_bytes'])} ({bill['memory_method']})"
    yield "time", f"{duration(bill['seconds'])} ({bill['seconds_method']})"
    kwh = bill["kwh"]
    used = f"{kwh:,.0f}" if kwh >= 100 else f"{kwh:.3g}"
    yield "energy", f"{used} kWh ({bill['kwh_method']})"
    grams = bill["co2e_grams"]
    yield "CO2e", f"{grams / 1000:,.3g} kg" if grams >= 1000 else f"{grams:.3g} g"
    for name, share in bill["everyday"].items():
        yield "", f"{shown_share(share)} {name}"
    if "price" in bill:
        yield "price", f"{bill['price']:,.2f}"
    yield "a batch", f"{bill['batch_rows']:,} × {bill['batch_columns']:,}"


def train_shown(
    recipe: str,
    settings: Sequence[str],
    run: Path | None,
    fresh: bool,
    to_stderr: bool = False,
    on: str = "",
) -> None:
    """Train with the progress drawn; Ctrl-C saves first."""
    from .. import terminal
    from ..progress import Work, heard_by
    from ..terminal.progress import Drawing

    console = terminal.console(stderr=to_stderr)
    asked: list[int] = []
    leads = os.environ.get("RANK", "0") == "0"
    drawing = Drawing(console)

    def interrupt(number: int, frame: object) -> None:
        if asked or (leads and not drawing.training):  # there is nothing to save
            raise KeyboardInterrupt
        asked.append(number)
        print("\nsaving; again to leave at once", file=sys.stderr)

    before = {kind: signal.signal(kind, interrupt) for kind in (signal.SIGINT, signal.SIGTERM)}
    folder = Path("runs") / Path(recipe).stem if run is None else run
    hear = drawing.hear if leads else silently
    try:
        with interruptible(lambda: kept_in(folder)), heard_by(hear):
            hear(Work("starting"))
            from ..see.run import train as start  # which takes seconds: torch is imported

            trained = start(
                recipe,
                *settings,
                run=run,
                fresh=fresh,
                on=on,
                on_event=drawing if leads else silently,
                stop=lambda: bool(asked),
            )
    finally:
        drawing.close()
        for kind, handler in before.items():
            signal.signal(kind, handler)
    if not leads:
        return
    if asked and not is_trained(trained.folder):
        print(f"saved in {trained.folder}; the same command goes on from there.", file=sys.stderr)
        sys.exit(128 + asked[0])  # 130 for Ctrl-C, 143 for what a batch system sends
    show_results(console, trained.folder)


def silently(told: object) -> None:
    """For the processes that do not lead: only one of them speaks."""


def kept_in(folder: Path) -> str:
    """What is left of a training that was left at once."""
    if is_finished(folder):
        return f"the finished run in {folder} is as it was"
    if is_trained(folder):
        return f"the model is in {folder}, and the same command scores it"
    if any(folder.glob("checkpoint-*")):
        return f"the last checkpoint is in {folder}, and the same command goes on from there"
    return f"nothing was trained yet; what was read of the data is kept in {folder.parent}/.cache"


def show_results(console: Console, folder: Path) -> None:
    from ..terminal.tables import print_scores

    for scores in said(folder, RESULTS).values():
        print_scores(console, scores)
    console.print(f"The run is in {folder}", soft_wrap=True, highlight=False)
