"""Beginning with what another run has learned: its weights, every second block of them, and what it
finds likely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from ..errors import RecipeError, RunError
from ..model import AnyBatch, Model
from ..parts.output import Output
from ..parts.precision import at_least_float32
from ..tasks import TASKS, AnyTask
from ..tasks.task import HasText
from . import checkpoint
from .files import WEIGHTS
from .loss import LOSSES, ClassLoss, Loss, TokenLoss, chunks
from .recipe import Recipe, read_run
from .settings import Settings


class DistilLoss(TokenLoss):
    """What a teacher finds likely, beside what the text says: three losses, weighted.

    KL(teacher ‖ student) at a temperature, times its square (Hinton et al. 2015); -log p of the
    text; and one minus the cosine between both's last states (Sanh et al. 2019).
    """

    def __init__(self, teacher: Model, settings: Settings) -> None:
        super().__init__(settings.smoothing)
        self.teacher = teacher.requires_grad_(False).eval()
        self.settings = settings

    def measure(self, model: Model, states: Tensor, batch: AnyBatch, twice: bool) -> Loss:
        if not torch.is_grad_enabled():  # validation asks for the language loss alone
            return super().measure(model, states, batch, twice)
        with torch.no_grad():
            known = self.teacher.states(batch).states
        output, source = model.output, self.teacher.output
        assert isinstance(output, Output) and isinstance(source, Output)
        sides = [x.flatten(0, 1) for x in (states, known)] + [batch.asked.labels.flatten()]
        sides.append(batch.asked.real.flatten())
        pieces = zip(*(chunks(x, output.weight) for x in sides), strict=True)
        weights = (output.weight, output.bias, source.weight, source.bias)
        parts = [recompute(self._apart, *piece, *weights, use_reentrant=False) for piece in pieces]
        total, nll = (torch.stack(values).sum() for values in zip(*parts, strict=True))
        return Loss(total, nll.detach())

    def _apart(
        self,
        states: Tensor,
        known: Tensor,
        labels: Tensor,
        real: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        known_weight: Tensor,
        known_bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        s = self.settings
        scores = at_least_float32(F.linear(states, weight, bias))
        wanted = at_least_float32(F.linear(known, known_weight, known_bias)) / s.temperature
        soft = F.kl_div(
            (scores / s.temperature).log_softmax(-1),
            wanted.log_softmax(-1),
            log_target=True,
            reduction="none",
        ).sum(-1) * (s.temperature**2)
        nll = F.cross_entropy(scores, labels, reduction="none")
        total = s.soft_weight * soft + s.text_weight * nll
        if s.cosine_weight and states.shape == known.shape:
            total = total + s.cosine_weight * (1 - F.cosine_similarity(states, known, dim=-1))
        return (total * real).sum(), (nll * real).sum()


def make_loss(
    named: str, settings: Settings, device: torch.device, task: AnyTask | None = None
) -> TokenLoss:
    """A task's loss by its name; with a teacher, what that knows beside it.

    On the device `meta`, where there are no numbers, it costs nothing and tells what it would.
    """
    kind = LOSSES[named]
    if settings.r_drop and (kind not in (TokenLoss, ClassLoss) or settings.teacher):
        raise RecipeError(
            "train.r_drop: it is for tasks that predict tokens or one class, and not beside a "
            "teacher; set it to 0."
        )
    if not settings.teacher:
        return kind.of(settings)
    if kind is not TokenLoss:
        raise RecipeError("train.teacher: a teacher is for tasks that predict tokens alone.")
    folder = Path(settings.teacher)
    recipe = read_run(folder)
    known = TASKS[recipe.task_kind].load(recipe.task, recipe.sections, folder)
    if device.type == "meta":
        with device:
            return DistilLoss(recipe.build(known.sizes), settings)
    if task is not None:
        check_teacher(folder, recipe, known, task)
    teacher = recipe.build(known.sizes)
    checkpoint.put_weights(teacher, weights_of_run(folder, "train.teacher"), folder)
    return DistilLoss(teacher.to(device), settings)


def check_teacher(folder: Path, recipe: Recipe, known: AnyTask, task: AnyTask) -> None:
    """A teacher must have learned the same, in the same vocabulary, and see as far."""
    teaches, learns = TASKS[recipe.task_kind], type(task)
    if not issubclass(learns, teaches) and not issubclass(teaches, learns):
        raise RunError(
            f"{folder}: a teacher must have learned the student's task, but is a run for "
            f"{recipe.task_kind}."
        )
    if known.sizes != task.sizes:
        raise RunError(
            f"{folder}: a teacher must have the student's vocabulary, but has {known.sizes.target} "
            f"entries where the student has {task.sizes.target}."
        )
    other = next((name for name, theirs, own in vocabularies(known, task) if theirs != own), None)
    if other is not None:
        raise RunError(
            f"{folder}: a teacher must have the student's vocabulary, but its entries are others, "
            f"such as '{other}'; set text.vocabulary to its tokenizer.json."
        )
    with torch.device("meta"):
        longest = recipe.build(known.sizes).longest
    wanted = vars(task.settings).get("context", 0)
    if longest is not None and longest < wanted:
        raise RunError(
            f"{folder}: a teacher must be able to place task.context "
            f"({wanted}) tokens, but can place {longest}."
        )


def vocabularies(known: AnyTask, task: AnyTask) -> Iterator[tuple[str, int | None, int | None]]:
    """Every entry that either of two tasks has, with its number in each."""
    if not isinstance(known, HasText) or not isinstance(task, HasText):
        return
    for one, other in zip(known.texts.values(), task.texts.values(), strict=False):
        theirs, own = (text.tokenizer.get_vocab() for text in (one, other))
        yield from ((name, theirs.get(name), own.get(name)) for name in sorted({*theirs, *own}))


def start_from(model: Model, folder: Path, may_differ: bool) -> None:
    """Begin with another run's weights; of a deeper one, with every second block, or third, …

    A student that is not built as its teacher begins with weights of its own.
    """
    weights = weights_of_run(folder, "model.from")
    own = dict(model.named_parameters())
    picked = with_new_heads(every_nth_block(model.fitted(weights), own), own, model.heads)
    fits = picked.keys() == own.keys() and all(picked[n].shape == own[n].shape for n in own)
    if fits or not may_differ:
        checkpoint.put_weights(model, picked, folder / WEIGHTS)


def start_encoder(model: Model, folder: Path, frozen: bool) -> int:
    """Begin reading as another run does: its door, and blocks, as far as both are built alike.

    -> how many weights were taken over
    """
    weights, own = weights_of_run(folder, "train.encoder"), dict(model.named_parameters())
    taken = 0
    with torch.no_grad():
        for theirs, weight in weights.items():
            part, dot, rest = theirs.partition(".")
            name = f"{model.encoder_names.get(part, part)}{dot}{rest}"
            if part not in model.encoder_names or name not in own:
                continue
            if own[name].shape == weight.shape:
                own[name].copy_(weight)
                own[name].requires_grad_(not frozen)
                taken += weight.numel()
    if not taken:
        raise RunError(
            f"{folder}: train.encoder must be built as this model's encoder is, but nothing of it "
            "fits; give both the same width, patch and stem."
        )
    return taken


def with_new_heads(
    weights: dict[str, Tensor], own: dict[str, Any], heads: Sequence[str]
) -> dict[str, Tensor]:
    """What another run has learned, for a model that is asked something else.

    What only serves to say something (`heads`) begins anew where it does not fit; what told the
    words still does, where they are told beside something else.
    """
    if "words.weight" in own and "output.weight" in weights:
        weights = {**weights, "words.weight": weights["output.weight"]}

    def is_head(name: str) -> bool:
        return name.partition(".")[0] in (*heads, "words")

    def fits(name: str) -> bool:
        return name in weights and name in own and weights[name].shape == own[name].shape

    kept = {n: w for n, w in weights.items() if not is_head(n) or fits(n)}
    return kept | {n: w.detach() for n, w in own.items() if is_head(n) and not fits(n)}


def weights_of_run(folder: Path, setting: str) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    if not path.is_file():
        raise RunError(
            f"{folder}: {setting} must name a finished run, but there is no model.safetensors; "
            f"train it first, or `regard import` somebody's model as {folder.name}."
        )
    return checkpoint.read_tensors(path)


def every_nth_block(weights: dict[str, Tensor], own: dict[str, Any]) -> dict[str, Tensor]:
    """Weights of a deeper model, renumbered: of blocks 0 … 11, six take 0, 2, 4, … (DistilGPT2)."""

    def depths(names: Iterable[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in names:
            if match := re.match(r"(\w+)\.(\d+)\.", name):
                found[match[1]] = max(found.get(match[1], 0), int(match[2]) + 1)
        return found

    have, want = depths(weights), depths(own)
    picked = {}
    for name, weight in weights.items():
        match = re.match(r"(\w+)\.(\d+)\.(.*)", name)
        if match is None or not want.get(match[1]) or have[match[1]] % want[match[1]]:
            picked[name] = weight
            continue
        number, each = int(match[2]), have[match[1]] // want[match[1]]
        if number % each == 0:
            picked[f"{match[1]}.{number // each}.{match[3]}"] = weight
    return picked
