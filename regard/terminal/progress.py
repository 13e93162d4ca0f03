"""Long work as a live bar on a terminal, as plain lines now and then elsewhere.

Nothing slow is imported here, so that the bar is there before torch is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from ..progress import Work, heard_by
from . import console as make_console

if TYPE_CHECKING:
    from ..training.events import Event

QUIET = 20.0  # seconds without a plain line, after which one says how far the work is
MEMORY = 120.0  # seconds back that the time left is reckoned from: steps may be slow


class Count(ProgressColumn):
    """How many of how many, where there is something to count."""

    def render(self, task: Task) -> Text:
        return Text(
            progress_of(int(task.completed), None if task.total is None else int(task.total))
        )


class Clock(ProgressColumn):
    """The time left; where nobody knows it, the time gone by."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        seconds = (task.elapsed or 0.0) if left is None else left
        what = "" if left is None else " left"
        return Text(f"{timedelta(seconds=int(seconds))}{what}")


def progress_of(done: int, total: int | None) -> str:
    if total is None:
        return f"{done:,}" if done else ""
    return f"{min(done, total):,}/{total:,}"


class Drawing:
    """Training's events, and other work, as they are told."""

    def __init__(
        self, console: Console, quiet: float = QUIET, stays: bool = True, before: str = ""
    ) -> None:
        """`quiet`: see above; `stays`: whether the bar is left behind at the end; `before`: what
        stands before the name of other work."""
        self.console, self.quiet, self.before = console, quiet, before
        self.training = False  # between the first step and the last checkpoint
        self.steps = self.first = 0
        self.began = time.monotonic()
        self.loss = self.rest = ""  # the last that was told
        self.spoke = time.monotonic()
        self.bar: Progress | None = None
        self.rows: dict[str, Any] = {}  # of the bar: of the steps, and of other work
        if console.is_terminal:
            self.bar = Progress(
                SpinnerColumn(finished_text=" "),
                TextColumn("{task.fields[what]}", markup=False),
                Count(),
                BarColumn(None),
                TextColumn("{task.description}", markup=False),
                Clock(),
                console=console,
                speed_estimate_period=MEMORY,
                transient=not stays,
                # What is piped on must not end up on the terminal.
                redirect_stdout=stays,
            )

    # Other work.

    def hear(self, work: Work) -> None:
        """What is being done, and how far it is."""
        work = work._replace(what=f"{self.before}{work.what}")
        if self.bar is None:
            self.say_seldom(f"{work.what} {progress_of(work.done, work.total)}".rstrip())
            return
        known = self.rows.get("work")
        if known is None or known[1] != work.what or work.done == 0:
            self.forget("work")
            number = self.bar.add_task("", total=work.total, what=work.what)
            self.rows["work"] = known = number, work.what
        self.bar.update(known[0], completed=work.done)
        self.bar.start()

    def forget(self, row: str) -> None:
        if self.bar is not None and row in self.rows:
            self.bar.remove_task(self.rows.pop(row)[0])

    def say(self, text: str) -> None:
        self.spoke = time.monotonic()
        self.console.print(text, highlight=False, soft_wrap=True)

    def say_seldom(self, text: str) -> None:
        if time.monotonic() - self.spoke >= self.quiet:
            self.say(text)

    # Events of training.

    def __call__(self, event: Event) -> None:
        self.forget("work")
        getattr(self, type(event).__name__.lower())(event)

    def begun(self, event: Any) -> None:
        self.training, self.steps, self.first = True, event.steps, event.step
        self.began = time.monotonic()
        self.say(
            f"{event.parameters:,} parameters, {event.amount}, "
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
            number = self.bar.add_task("", total=event.steps, completed=event.step, what="step")
            self.rows["steps"] = number, "step"
            self.bar.start()

    def step(self, event: Any) -> None:
        self.rest = "".join(f"  {name} {value:.3f}" for name, value in event.parts.items())
        self.rest += f"  {event.use:.0%} of peak"
        self.loss = f"loss {event.loss:.3f}"
        text = f"{self.loss}  {event.tokens_per_second:,.0f} tokens/s{self.rest}"
        if self.bar is not None:
            self.draw_step(event.step, text)
        else:
            self.say(f"step {event.step:>6}  {text}{self.left_after(event.step)}")

    def advanced(self, event: Any) -> None:
        self.loss = self.loss if event.loss is None else f"loss {event.loss:.3f}"
        text = f"{self.loss}  {event.tokens_per_second:,.0f} tokens/s"
        if self.bar is not None:
            self.draw_step(event.step, f"{text}{self.rest}")
        else:
            left = self.left_after(event.step)
            self.say_seldom(f"step {event.step:>6} of {self.steps:,}  {text}{left}")

    def left_after(self, step: int) -> str:
        """The time left, where it is known: as long a step as it took so far."""
        done, left = step - self.first, self.steps - step
        if done < 2 or left < 1:
            return ""
        seconds = int((time.monotonic() - self.began) * left / done)
        return f"  {timedelta(seconds=seconds)} left"

    def draw_step(self, step: int, text: str) -> None:
        assert self.bar is not None
        self.bar.update(self.rows["steps"][0], completed=step, description=text)

    def scored(self, event: Any) -> None:
        scores = "  ".join(
            f"{name} {value}" for name, value in event.scores.items() if name != "seconds"
        )
        self.say(f"step {event.step:>6}  validation: {scores}" + ("  (best)" if event.best else ""))

    def saved(self, event: Any) -> None:
        self.training = event.step < self.steps
        if not self.training:
            self.hear(Work("scoring"))

    def stopped(self, event: Any) -> None:
        self.training = False
        self.say(f"stopped at step {event.step}: {event.why}")

    def close(self) -> None:
        self.forget("work")
        if self.bar is not None:
            self.bar.stop()


@contextmanager
def shown(what: str, before: str = "") -> Iterator[None]:
    """Work drawn on stderr while it lasts."""
    drawing = Drawing(make_console(stderr=True), stays=False, before=before)
    try:
        drawing.hear(Work(what))  # an interruption may come as soon as this is seen
        with heard_by(drawing.hear):
            yield
    finally:
        drawing.close()
