"""What the commands show on a terminal, and what they read from one."""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table

from .errors import InputError, RegardError
from .see.card import told

if TYPE_CHECKING:
    from .see.field import Field
    from .see.heads import Heads
    from .see.layers import Layers
    from .see.meaning import Meaning
    from .see.probe import Probed
    from .see.prompt import Prompted
    from .see.run import Run
    from .training.events import Event


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


class Drawing:
    """Training's events as a live bar on a terminal, as plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.training = False  # between the first step and the last checkpoint
        self.bar: Any = None
        self.task: object = None
        if console.is_terminal:
            self.bar = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(None),
                TextColumn("{task.description}", markup=False),
                TimeRemainingColumn(),
                console=console,
            )

    def __call__(self, event: Event) -> None:
        getattr(self, type(event).__name__.lower())(event)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def begun(self, event: Any) -> None:
        self.training, self.steps = True, event.steps
        self.say(
            f"{event.parameters:,} parameters, {event.examples:,} examples, "
            f"{event.batches:,} batches an epoch, "
            f"{event.device}, peak {event.peak_method}"
            + (f"; going on from step {event.step:,}" if event.step else "")
        )
        if event.left_out:
            self.say(f"{event.left_out:,} lines left out")
        for note in event.notes:
            self.say(f"note: {note}")
        for fault in event.faults:
            self.say(f"left out: {fault}")
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("", total=event.steps, completed=event.step)

    def step(self, event: Any) -> None:
        text = f"loss {event.loss:.3f}  {event.tokens_per_second:,.0f} tokens/s"
        text += "".join(f"  {name} {value:.3f}" for name, value in event.parts.items())
        text += f"  {event.use:.0%} of peak"
        if self.bar is not None:
            self.bar.update(self.task, completed=event.step, description=text)
        else:
            self.say(f"step {event.step:>6}  {text}")

    def scored(self, event: Any) -> None:
        scores = "  ".join(
            f"{name} {value}" for name, value in event.scores.items() if name != "seconds"
        )
        self.say(f"step {event.step:>6}  validation: {scores}" + ("  (best)" if event.best else ""))

    def saved(self, event: Any) -> None:
        self.training = event.step < self.steps

    def stopped(self, event: Any) -> None:
        self.training = False
        self.say(f"stopped at step {event.step}: {event.why}")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def print_scores(console: Console, scores: dict[str, object]) -> None:
    table = Table(
        "score",
        "value",
        "95 % interval",
        Column("signature", overflow="fold"),
        title=f"on {scores['on']}, {scores['examples']} examples",
    )
    for row in told(scores):
        table.add_row(*row)
    console.print(table)


def print_ablation(found: dict[str, Any]) -> None:
    table = Table("silenced", "head", found["metric"], "answer")
    table.add_row("nothing", "", _number(found["whole"]), found["output"])
    for row in found["heads"]:
        table.add_row(row["name"], str(row["head"]), _number(row["value"]), row["output"])
    console().print(table)


def print_prompted(found: Prompted) -> None:
    """What was right with each number of examples shown."""
    table = Table("shots", "accuracy", "95 % interval", "without a label")
    for row in found.rows:
        low, high = row.interval
        table.add_row(
            str(row.shots), f"{row.accuracy:.1f}", f"{low:.1f} – {high:.1f}", str(row.unread)
        )
    told = f"{found.examples:,} rows; the commonest of {', '.join(found.labels)}"
    console().print(f"{told} has {found.commonest:.1f} % of them", table, sep="\n")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where that is a terminal, with the time left."""
    columns = (TextColumn(what), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def print_logprobs(trained: Run, texts: Sequence[str], as_json: bool) -> None:
    for text in texts:
        found = trained.logprobs(text)
        total = sum(value for _, value in found if value is not None)
        if as_json:
            row = {"input": text, "score": total, "tokens": [t for t, _ in found]}
            print(json_line({**row, "logprobs": [v for _, v in found]}))
            continue
        for token, value in found:
            print(f"{token}\t{'' if value is None else f'{value:.4f}'}")
        print(f"\t{total:.4f}")


def write_on(trained: Run, prompts: Sequence[str], first: int) -> None:
    """One text, piece by piece as it is written; several answers, or a beam, when they are done."""
    from .tasks.task import Streams

    decode, task = trained.recipe.decode, trained.task
    for prompt in prompts:
        slides = isinstance(task, Streams) and task.slides(prompt, trained.model, decode)
        if decode.overflow == "slide" and slides:
            print(
                f"regard: with its continuation the text is longer than the "
                f"{trained.model.longest} tokens that the model can place; its beginning is "
                "forgotten on the way (decode.overflow=refuse refuses).",
                file=sys.stderr,
            )
    if decode.kind == "beam" or decode.num_return_sequences > 1 or len(prompts) > 1:
        for answer in trained.predict(prompts, first):
            for text, _ in answer.nbest or ((answer.output, 0.0),):
                print(text)
        return
    for piece in trained.stream(prompts[0]):
        print(piece, end="", flush=True)
    print()


def chunks_of(lines: Iterator[str], size: int = 512) -> Iterator[list[str]]:
    while chunk := list(islice(lines, size)):
        yield chunk


def arriving() -> Iterator[list[str]]:
    """Lines of standard input, as many at a time as have come by then."""
    arrived: queue.Queue[str | RegardError | None] = queue.Queue(4096)

    def read() -> None:
        number, rest = 0, b""
        try:
            # Read from the descriptor: a buffered reader cannot be left while it waits.
            while piece := os.read(0, 65536):
                *whole, rest = (rest + piece).split(b"\n")
                for number, raw in enumerate(whole, number + 1):  # noqa: B020
                    arrived.put(_decode(raw, number))
            if rest:
                arrived.put(_decode(rest, number + 1))
        except RegardError as error:
            arrived.put(error)
        except OSError as error:
            arrived.put(InputError(f"standard input: cannot be read ({error.strerror})."))
        finally:
            arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk = [arrived.get()]
        while not arrived.empty() and len(chunk) < 512:
            chunk.append(arrived.get())
        if lines := [line for line in chunk if isinstance(line, str)]:
            yield lines
        for line in chunk:
            if isinstance(line, RegardError):
                raise line
        if chunk[-1] is None:
            return


def _decode(raw: bytes, number: int) -> str:
    try:
        text = raw.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input:{number}: the text must be UTF-8, but is not.") from error
    return text.removeprefix("\ufeff") if number == 1 else text


def counted(chunks: Iterator[list[str]], shown: bool) -> Iterator[list[str]]:
    """The same chunks, counted on stderr where that is a terminal and stdout is not."""
    if not shown or not sys.stderr.isatty() or sys.stdout.isatty():
        yield from chunks
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} lines"), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        for chunk in chunks:
            yield chunk
            bar.advance(task, len(chunk))


def print_field(field: Field) -> None:
    """The receptive field of a token, a line a layer."""
    from .see.field import as_word

    table = Table("into layer", "looked at", "what moves it most, by gradient", "by rollout")
    for one in field.layers:
        columns = []
        for shares in (one.gradient, one.rollout):
            best = sorted(range(len(shares)), key=lambda at: -shares[at])[:4]
            columns.append(
                ", ".join(f"{as_word(field.tokens[at])} {shares[at]:.2f}" for at in best)
            )
        count = f"{len(one.looked_at)} of {len(field.tokens)}"
        table.add_row(str(one.layer + 1), count, *columns)
    Console().print(f"What '{as_word(field.tokens[field.place])}' depends on", table, sep="\n")


def print_meaning(found: Meaning) -> None:
    """How far a word's vectors in several sentences are from each other, a line a layer."""
    table = Table("vectors", "mean distance (1 - cosine)", "most alike", "least alike")
    every, count = found.similarities(), len(found.sentences)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    for layer, far in enumerate(found.apart()):
        where = "at the top" if layer == len(every) - 1 else f"into layer {layer + 1}"
        ordered = sorted(pairs, key=lambda pair: -every[layer][pair])
        told = [
            f"{i + 1} and {j + 1}: {every[layer][i, j]:.3f}" for i, j in (ordered[0], ordered[-1])
        ]
        table.add_row(where, f"{far:.4f}", *told)
    Console().print(f"'{found.word}' in {count} sentences", table, sep="\n")


def print_layers(found: Layers) -> None:
    """How alike tokens are, and in how many directions they differ, a line a layer."""
    table = Table("vectors", "cosine of neighbours", "of others", "directions")
    rows = zip(found.neighbours(), found.others(), found.directions(), strict=True)
    for layer, (near, far, rank) in enumerate(rows):
        last = layer == len(found.vectors) - 1
        where = "at the top" if last else f"into layer {layer + 1}"
        table.add_row(where, f"{near:.3f}", f"{far:.3f}", f"{rank:.1f}")
    console().print(f"{len(found.tokens)} tokens", table, sep="\n")


def print_heads(found: Heads) -> None:
    """The head that looks so the most, and how many do, a line a kind; then relations."""
    named = [kind for row in found.kinds() for kind in row]
    table = Table("looks at", "most", "layer", "head", "heads named so")
    for kind in found.scores:
        layer, head, share = found.best(kind)
        told = f"{share:.3f}" if share >= 0 else "-"
        table.add_row(kind, told, str(layer + 1), str(head + 1), str(named.count(kind)))
    table.add_row("mixed", "", "", "", str(named.count("mixed")))
    console().print(f"{found.texts} texts, {found.tokens:,} tokens", table, sep="\n")
    if found.relations:
        table = Table("partner", "right", "by distance", "layer", "head", "pairs")
        for one in found.relations:
            numbers = (f"{one.right:.3f}", f"{one.baseline:.3f}")
            table.add_row(one.name, *numbers, str(one.layer + 1), str(one.head + 1), str(one.pairs))
        console().print(table)
    effects = found.effects()
    if effects is not None and found.ablation is not None:
        table = Table("layer", "head", "looks at", f"{found.ablation['metric']} without it")
        kinds = found.kinds()
        flat = [(x, i, j) for (i, j), x in _numbered(effects) if x == x]
        for change, layer, head in sorted(flat)[:8]:
            table.add_row(str(layer + 1), str(head + 1), kinds[layer][head], f"{change:+.3f}")
        console().print("heads that are missed the most", table, sep="\n")


def _numbered(table: Any) -> Iterator[tuple[tuple[int, int], float]]:
    for i, row in enumerate(table):
        for j, x in enumerate(row):
            yield (i, j), float(x)


def print_probed(found: Probed) -> None:
    """What a linear classifier reads off each layer's vectors."""
    table = Table("vectors", "accuracy", "95 % interval", "control labels", "selectivity")
    for one in found.layers:
        low, high = one.interval
        table.add_row(
            one.name, f"{one.accuracy:.1f}", f"{low:.1f} – {high:.1f}", f"{one.control:.1f}",
            f"{one.accuracy - one.control:+.1f}",
        )  # fmt: skip
    said = (
        f"{found.train:,} to learn from, {found.test:,} to be told; the commonest {found.most:.1f}"
    )
    console().print(said, table, sep="\n")
