"""Runs as Python users meet them: `load`, `train`, and a run that can be looked into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..train import run as runs
from ..train.distributed import join
from ..train.events import Event
from ..train.recipe import read
from . import capture, card


class Run(runs.Run):
    """A trained model: `predict`, `evaluate`, `see`."""

    def see(
        self,
        source: str,
        target: str | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        most: int = capture.MOST,
    ) -> capture.Sight:
        """What attends to what while this input is answered; in all layers and heads, or some."""
        return capture.look(self, source, target, layers, heads, most)


def load(folder: str | Path, *overrides: str, device: str = "auto") -> Run:
    """The run in a folder; overrides such as "decode.num_beams=1" change how it answers."""
    return Run(Path(folder), overrides, device)


def train(
    recipe: str,
    *overrides: str,
    run: str | Path | None = None,
    fresh: bool = False,
    on_event: Callable[[Event], Any] = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Train a recipe, score it and write its card; goes on where an unfinished run was left."""
    settings = read(recipe, overrides)
    folder = Path(run) if run is not None else Path("runs") / settings.name
    with join(settings.train.device) as world:
        for event in runs.start(settings, folder, world, fresh, stop):
            on_event(event)
        leads = world.leads
    trained = load(folder, device=settings.train.device)
    finished = (folder / "model.safetensors").is_file()
    if leads and finished:
        part = "test" if settings.data.test else "valid" if settings.data.valid else ""
        if part:
            trained.evaluate(part)
        card.write(trained)
    return trained
