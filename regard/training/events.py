"""What training tells while it runs: events, their means, and the log that keeps them."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.read import parse_json
from ..errors import RunError
from ..tasks.task import Measured
from .checkpoint import write_text
from .distributed import World
from .settings import Settings
from .shard import local


@dataclass(frozen=True)
class Begun:
    """Before the first step: what there is to do."""

    step: int
    steps: int
    examples: int  # rows of the store
    amount: str  # how much there is to learn from, as people say it
    batches: int
    parameters: int
    device: str
    left_out: int = 0  # lines that could not be used
    faults: tuple[str, ...] = ()  # the first of them, where they were read just now
    peak: float = 0.0  # FLOP/s that `use` is a part of
    peak_method: str = ""
    notes: tuple[str, ...] = ()  # what is no mistake, but may not be meant


@dataclass(frozen=True)
class Step:
    """Some updates were made; means over those since the last such event."""

    step: int
    loss: float
    perplexity: float
    rate: float
    gradient: float  # norm before clipping
    tokens_per_second: float  # of the target, padding not counted
    seconds: float
    use: float = 0.0  # model FLOPs used, as a part of the peak that `Begun` names
    parts: dict[str, float] = field(default_factory=dict)  # of the loss, where it has several


@dataclass(frozen=True)
class Advanced:
    """Updates are being made; told by the clock, between two `Step`s, and not logged."""

    step: int
    tokens_per_second: float
    loss: float | None  # the mean since the last `Step`, where reading it waits for no device


@dataclass(frozen=True)
class Scored:
    """The validation data were looked at."""

    step: int
    scores: dict[str, object]
    best: bool
    measured: Measured | None = None  # the loss, where a final score on the same would be the same


@dataclass(frozen=True)
class Saved:
    """A checkpoint is in place."""

    step: int
    folder: str


@dataclass(frozen=True)
class Stopped:
    """Early: asked to, or no gain for too long."""

    step: int
    why: str
    for_good: bool


@dataclass
class Progress:
    """What a run must remember beside weights and optimizer."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    worse: int = 0  # validations since the best


Event = Begun | Step | Advanced | Scored | Saved | Stopped


GLANCE = 0.5  # seconds


def with_note(event: Event, note: str) -> Event:
    """The same beginning with one more note, where there is one."""
    if not note or not isinstance(event, Begun):
        return event
    return dataclasses.replace(event, notes=(*event.notes, note))


class Window:
    """Sums since the last logged step, kept on the device so that it need not be waited for."""

    def __init__(
        self, device: torch.device, share: float = 0.0, parts: tuple[str, ...] = ()
    ) -> None:
        """`share`: of the peak that one token a second takes; `parts`: of the loss."""
        self.device, self.share, self.parts = device, share, parts
        self.restart()

    def restart(self) -> None:
        self.nll = torch.zeros((), device=self.device)
        self.norm = torch.zeros((), device=self.device)
        self.told = time.monotonic()
        self.steps, self.counts = 0, [0] * max(1, len(self.parts))
        self.began = time.perf_counter()

    def add(self, nll: Tensor, norm: Tensor, counts: Sequence[int]) -> None:
        """A step's sums, and what each part of its loss is a mean over."""
        self.nll = self.nll + nll
        self.norm += norm
        self.steps += 1
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=False)]

    def glance(self, world: World, step: int) -> Advanced | None:
        """How far it is, a few times a second at most."""
        if time.monotonic() - self.told < GLANCE:
            return None
        self.told, loss = time.monotonic(), None
        speed = self.counts[0] / max(time.perf_counter() - self.began, 1e-9)
        if self.device.type == "cpu" and world.size == 1:
            sums = self.nll.view(-1).tolist()
            means = [total / max(n, 1) for total, n in zip(sums, self.counts, strict=True)]
            loss = round(sum(means), 5)
        return Advanced(step, round(speed, 1), loss)

    def close(self, world: World, step: int, optimizer: torch.optim.Optimizer) -> Step:
        """Means over the window; waits for the device."""
        self.check(world, step, optimizer)
        sums = world.sum(self.nll.clone()).view(-1).tolist()
        means = [total / max(count, 1) for total, count in zip(sums, self.counts, strict=True)]
        loss, tokens = sum(means), self.counts[0]
        norm = float(self.norm) / self.steps
        seconds = time.perf_counter() - self.began
        event = Step(
            step,
            round(loss, 5),
            round(float(np.exp(min(loss, 700.0))), 4),
            max(float(group["lr"]) for group in optimizer.param_groups),
            round(norm, 4),
            round(tokens / seconds, 1),
            round(seconds, 3),
            round(tokens / seconds * self.share, 4),
            {name: round(mean, 5) for name, mean in zip(self.parts, means, strict=False)},
        )
        self.restart()
        return event

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done here is not training, and does not count in its speed."""
        before = time.perf_counter()
        yield
        self.began += time.perf_counter() - before

    def check(self, world: World, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Stop before anything that is not a number is told as good, or saved.

        A loss is of the weights before its step, so the weights after it are looked at too.
        """
        weights = [local(p).detach() for group in optimizer.param_groups for p in group["params"]]
        weights = [rows for rows in weights if rows.numel()]  # of short ones, a rank may have none
        # By the largest entry: the sum of squares of finite weights need not be finite.
        largest = torch.stack([self.norm, *torch._foreach_norm(weights, torch.inf)])
        told = (self.nll + self.norm, largest)
        loss, update = torch.stack([torch.isfinite(value).all() for value in told]).tolist()
        if world.any(not (loss and update)):
            what = "the weights are not numbers" if loss else "the loss is not a number"
            raise RunError(
                f"step {step}: {what} any more; what was saved before is good: try a lower "
                "train.rate, a longer train.warmup, or train.clip=1.0, with --fresh."
            )


class Log:
    """metrics.jsonl, one event a line, and TensorBoard beside it where wanted."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        check: Callable[[], None] = lambda: None,
        step: int = 0,
    ) -> None:
        """`check` is asked before each line whether the folder may still be written in; `step`
        is the one that the run goes on from."""
        self.path, self.check = folder / "metrics.jsonl", check
        self.board: Any = None
        check_logs(settings)
        if settings.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # What a killed process logged after its last checkpoint is logged again.
            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        self.wandb: Any = start_wandb(folder) if settings.wandb else None

    def write(self, event: Event) -> None:
        self.check()
        row = {k: v for k, v in dataclasses.asdict(event).items() if k != "measured"}
        kind = type(event).__name__.lower()
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"event": kind, **row}) + "\n")
        except OSError as error:
            raise RunError(
                f"{self.path}: could not be written ({error.strerror}); make room and run the same "
                "command again."
            ) from error
        every = {**row, **row.get("scores", {}), **row.get("parts", {})}
        numbers = {f"{kind}/{key}": x for key, x in every.items() if isinstance(x, float)}
        if self.board is not None:
            for key, value in numbers.items():
                self.board.add_scalar(key, value, row["step"])
            self.board.flush()
        if self.wandb is not None:
            self.wandb.log({**numbers, "step": row["step"]})

    def close(self) -> None:
        """Nothing more will be written."""
        if self.board is not None:
            self.board.close()
        if self.wandb is not None:
            self.wandb.finish()


def check_logs(settings: Settings) -> None:
    """What is to be written beside metrics.jsonl must be installed."""
    for name, called in (("tensorboard", "TensorBoard"), ("wandb", "wandb")):
        if vars(settings)[name] and find_spec(name) is None:
            raise RunError(f"train.{name} needs {called}; pip install 'regard[{name}]'.")


def start_wandb(folder: Path) -> Any:
    """A log of Weights & Biases in the run folder; offline unless WANDB_MODE says other."""
    # Its error reports would go out even where its log does not.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    return wandb.init(
        project="regard",
        name=folder.resolve().name,
        dir=str(folder),
        mode=os.environ.get("WANDB_MODE", "offline"),  # type: ignore[arg-type]
        settings=wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, save_code=False,
            x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True,
        ),
    )  # fmt: skip


def record(log: Log | None, event: Event) -> Event:
    if log is not None:
        log.write(event)
    return event


def trim_log(path: Path, step: int) -> None:
    """Forget what a killed process logged after its last checkpoint; it will be logged again."""
    if path.is_file():
        rows = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            try:
                keep = parse_json(line)["step"] <= step
            except (ValueError, KeyError, TypeError):  # a killed process's last line, cut short
                keep = False
            rows += [line] if keep else []
        write_text(path, "".join(rows))
