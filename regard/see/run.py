"""Runs as Python users meet them: `load`, `train`, and a run that can be looked into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from ..data.given import parts
from ..data.trees import Sentence
from ..decode import Settings as Decode
from ..errors import InputError
from ..training import run as runs
from ..training.distributed import join
from ..training.events import Event
from ..training.files import is_trained
from ..training.folder import Hold
from ..training.recipe import Tables, read
from ..training.rows import with_rows
from ..training.validate import loss_of_kept, part_to_score
from . import capture, card
from . import field as fields
from . import heads as looking
from . import layers as hierarchy
from . import meaning as meanings
from . import probe as probes
from . import prompt as prompts
from .ablate import ablate


class Run(runs.Run):
    """A trained model: `predict`, `evaluate`, `see`."""

    def see(
        self,
        source: object,
        target: str | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        most: int = capture.MOST,
        decode: Decode | None = None,
        vectors: bool = True,
    ) -> capture.AttentionReport:
        """What attends to what while this input is answered; in all layers and heads, or some."""
        return capture.look(self, source, target, layers, heads, most, decode, vectors)

    def field(self, source: object, token: str | int, threshold: float = 0.1) -> fields.Field:
        """What a token of an input depends on, layer by layer: its receptive field."""
        return fields.field(self, source, token, threshold)

    def meaning(self, word: str, sentences: Sequence[str]) -> meanings.Meaning:
        """One word in several sentences: its vectors, layer by layer."""
        return meanings.meaning(self, word, sentences)

    def layers(self, source: object) -> hierarchy.Layers:
        """The tokens of an input as points, layer by layer: how they gather."""
        return hierarchy.layers(self, source)

    def probe(
        self, recipe: str, *overrides: str, examples: int = 1000, on: str = ""
    ) -> probes.Probed:
        """What a linear classifier reads off the vectors of each layer, of a recipe's labels."""
        return probes.probe(self, recipe, *overrides, examples=examples, on=on)

    def prompt(
        self,
        table: str | Path,
        *overrides: str,
        shots: Sequence[int] = (0, 1, 4),
        examples: int = 200,
        seed: int = 0,
        chat: bool = False,
    ) -> prompts.Prompted:
        """How well labels of a table's rows are told in words, with so many examples shown."""
        return prompts.prompt(
            self, table, *overrides, shots=shots, examples=examples, seed=seed, chat=chat,
        )  # fmt: skip

    def heads(self, texts: Sequence[str | Sentence], examples: int = 0) -> looking.Heads:
        """What every head looks at in texts; with examples of the validation data, what the metric
        loses without it."""
        first = texts[0] if texts else ""
        given = first if isinstance(first, str) else first.text
        effects = ablate(self, given, examples) if examples else None
        return looking.heads(self, texts, effects)


def load(folder: str | Path, *overrides: str, device: str = "auto") -> Run:
    """The run in a folder; overrides such as "decode.num_beams=1" change how it answers."""
    return Run(Path(folder), overrides, device)


def train(
    recipe: str | Tables,
    *overrides: str,
    run: str | Path | None = None,
    data: object = None,
    on: str = "",
    fresh: bool = False,
    on_event: Callable[[Event], object] = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Train a recipe, score it and write its card; goes on where an unfinished run was left.

    `recipe` is a name, a .toml file, or settings by section, {"train": {"steps": 100}, …}.
    `data` are rows in place of the recipe's files: a list, a data frame or anything that yields
    rows, to learn from; or such by part, {"train": rows, "valid": rows, "test": rows}. `on` is the
    part to score at the end, where it is not to be the test data.
    """
    settings = read(recipe, overrides)
    if run is None and not settings.name:
        raise InputError("run: a recipe written in Python has no name; say run=DIR.")
    folder = Path(run) if run is not None else Path("runs") / settings.name
    given = parts(data) if data is not None else {}
    if given:
        settings = with_rows(settings, folder, given)
    # Held until it is scored too, and let go at once where `on_event` raises.
    with Hold(folder) as hold:
        with (
            join(settings.train.device) as world,
            closing(runs.start(settings, folder, world, fresh, stop, hold, given)) as events,
        ):
            measured = None
            for event in events:
                measured = loss_of_kept(event, settings) or measured
                on_event(event)
            leads = world.leads
        trained = load(folder, device=settings.train.device)
        if leads and is_trained(folder):
            hold.check()
            if part_to_score(settings):
                trained.evaluate(on, measured=measured)
            hold.check()
            card.write(trained)
    return trained
