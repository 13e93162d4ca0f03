"""Before the first step: the task with what it has learned, the data, and how to compute."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch

from ..batch import Sizes
from ..data.draws import Draws
from ..data.examples import Data
from ..data.read import Faults
from ..errors import RunError
from ..model import AnyBatch, Model
from ..tasks import TASKS, AnyTask
from ..tasks.task import Adopts
from . import adapt, checkpoint
from .backward import checkpoint_blocks
from .checkpoint import write_text
from .distil import start_encoder, start_from
from .distributed import World
from .recipe import Recipe
from .settings import Settings
from .shard import birthplace, fill

PARTS = ("train", "valid", "test")
ANY_LENGTH = 10**9  # what is only scored may be as long as it likes


def prepare_task(recipe: Recipe, folder: Path, faults: Faults) -> AnyTask:
    """The task with what it has learned: the run's own where it has that, else learned and kept."""
    kind = TASKS[recipe.task_kind]
    if (folder / "config.json").is_file():
        return kind.load(recipe.task, recipe.sections, folder)
    origin = recipe.model_from or recipe.train.teacher
    cache = folder.parent / ".cache"
    if origin and not issubclass(kind, Adopts):
        task = kind.load(recipe.task, recipe.sections, Path(origin))
    else:
        examples = kind.examples(recipe.task, recipe.data.files("train"), cache, faults)
        if origin and issubclass(kind, Adopts):  # what it is asked differs, the vocabulary does not
            task = kind.adopt_from(recipe.task, recipe.sections, Path(origin), examples)
        else:
            task = kind.learn(recipe.task, recipe.sections, examples)
    task.save(folder)
    # Written last: its presence says that what stands beside it is whole.
    write_text(folder / "config.json", recipe.config(task.sizes))
    return task


def prepare_data(recipe: Recipe, task: AnyTask, cache: Path, faults: Faults) -> dict[str, Data]:
    """All parts of the data, in the cache beside the run; faults in any show before training."""
    longest = {"train": recipe.data.max_length}
    return {
        part: prepare_part(recipe, task, part, cache, faults, longest.get(part, ANY_LENGTH))
        for part in PARTS
        if recipe.data.named(part)
    }


def prepare_part(
    recipe: Recipe, task: AnyTask, part: str, cache: Path, faults: Faults, longest: int
) -> Data:
    """The examples of one part, and what the task makes of them."""
    examples = task.examples(recipe.task, recipe.data.files(part), cache, faults)
    return task.data(examples, cache, longest, faults)


def prepare_model(recipe: Recipe, sizes: Sizes, folder: Path, world: World) -> Model:
    """A model to train, with the weights that it begins with; one that is to be cut over ranks is
    on rank 0's host alone until then."""
    settings = recipe.train
    sharded = settings.shard and world.size > 1
    torch.manual_seed(settings.seed)
    with birthplace(world) if sharded else nullcontext():
        model = recipe.build(sizes)
    origin = recipe.model_from or settings.teacher
    if origin and not checkpoint.all_in(folder):
        start_from(model, Path(origin), may_differ=not recipe.model_from)
    # What is frozen stays so when a run goes on.
    if settings.encoder and (settings.freeze_encoder or not checkpoint.all_in(folder)):
        start_encoder(model, Path(settings.encoder), settings.freeze_encoder)
    with birthplace(world) if sharded else nullcontext():
        adapt.prepare(model, settings)
    if settings.checkpoint_activations:
        checkpoint_blocks(model)
    return model.train() if sharded else model.to(world.device).train()


def whole_model(recipe: Recipe, sizes: Sizes, model: Model) -> Model:
    """A copy with all weights whole of a model that is cut; all ranks must ask."""
    with torch.device("meta"):
        copy = recipe.build(sizes)
        adapt.prepare(copy, recipe.train)
    fill(copy, model)
    return copy


def one_batch(task: AnyTask, data: Data, rows: object, settings: Settings) -> AnyBatch:
    """A batch to try or to count on."""
    count = len(rows)  # type: ignore[arg-type]
    rng = Draws(settings.seed, 0, range(count)) if task.draws else None
    return task.batch(data.store, rows, rng)


def notes_on(settings: Settings) -> list[str]:
    """What is no mistake, but can hardly be meant."""
    if settings.warmup <= settings.steps:
        return []
    return [
        f"train.warmup ({settings.warmup}) is longer than the training ({settings.steps} steps), "
        f"so the rate never reaches train.rate; set train.warmup={max(settings.steps // 10, 1)} "
        "or so."
    ]


def way_to_compile(settings: Settings, device: torch.device) -> str:
    """Compiling takes half a minute, which a long training on a GPU earns back."""
    if settings.checkpoint_activations:
        return "off"  # a captured step has not been shown to draw the same dropout twice
    if settings.compile != "auto" or device.type != "cuda":
        return settings.compile
    return "full" if settings.steps * settings.batch_tokens >= 2 * 10**7 else "graph"


def autocast(device: torch.device, settings: Settings) -> torch.autocast | None:
    """bfloat16 products where the hardware has them and the recipe does not forbid it."""
    choice = settings.precision
    if choice == "auto":
        fit_for_it = device.type == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        choice = "bfloat16" if fit_for_it else "float32"
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = choice == "bfloat16"
    if choice != "bfloat16":
        return None
    # Casts are not cached: a captured graph must make its own.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def too_large(batch: AnyBatch, settings: Settings) -> RunError:
    """What to say where the largest batch does not fit into memory."""
    return RunError(
        f"the largest batch ({len(batch)} lines) does not fit into memory; halve "
        f"train.batch_tokens ({settings.batch_tokens}), or set "
        f"train.accumulate={settings.accumulate * 2}, which costs only time."
    )


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "Apple GPU (Metal)"
    return f"CPU, {torch.get_num_threads()} threads"
