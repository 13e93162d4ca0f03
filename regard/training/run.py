"""The run folder: what `train` leaves behind and everything else starts from."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data.examples import Data, Examples
from ..data.given import Given
from ..data.read import Faults, is_text, read_json
from ..data.store import fingerprint
from ..errors import InputError, RecipeError, RunError
from ..model import Encodes, Model, Solves
from ..models import MODELS
from ..parts.packed import pack
from ..tasks import TASKS, AnyTask, Prediction
from ..tasks.task import Chats, Compares, Fuses, Measured, ReadsTokens, Streams
from ..text.chat import Chat, Message
from . import adapt, checkpoint
from .checkpoint import write_text
from .distil import weights_of_run
from .distributed import World, pick
from .events import Event, check_logs, with_note
from .files import BEST, RECIPE, RESULTS, WEIGHTS, is_trained, said
from .folder import Hold, clear, foreign, give_up_aside, put_aside, put_back, sweep
from .loop import fit
from .more import check_same, note_on, reopen, wants_more, write_recipe
from .prepare import ANY_LENGTH, prepare_part
from .recipe import Recipe, read_run
from .rows import keep_rows
from .solve import solve
from .validate import part_to_score, store_loss


class Run:
    """A trained model with its task: it answers, and it can be scored."""

    def __init__(self, folder: Path, overrides: Sequence[str] = (), device: str = "auto") -> None:
        self.folder, self.overrides = folder, tuple(overrides)
        self.recipe = read_run(folder, overrides)
        settings, path = self.recipe, find_weights(folder)
        check_sizes(folder, settings)
        self.task: AnyTask = TASKS[settings.task_kind].load(
            settings.task, settings.sections, folder
        )
        check_shapes(settings, self.task, path)
        self.model: Model = settings.build(self.task.sizes)
        # A checkpoint of an unfinished run has its adapters beside what they adapt.
        weights = adapt.merged(checkpoint.read_tensors(path), settings.train)
        checkpoint.put_weights(self.model, weights, path)
        check_finite(self.model, path)
        check_fit(settings, self.model)
        self.device = pick(device)
        self.model.to(self.device).eval()
        self.draft: Model | None = None
        self.notes = self.prepare_products(settings.decode.precision)
        if settings.decode.fusion:
            self.use_fusion(Run(Path(settings.decode.fusion), device=device))

    def prepare_products(self, precision: str) -> list[str]:
        """Large products as `decode.precision` asks.  -> what is done otherwise, and why"""
        lacking = f"{self.device.type} answers in the precision of the weights"
        if self.device.type == "cpu":
            lacking = pack(self.model, precision)
        elif precision == "float32":
            lacking = ""
        return [f"decode.precision={precision} is not used: {lacking}"] if lacking else []

    def __repr__(self) -> str:
        weights = sum(p.numel() for p in self.model.parameters())
        kinds = f"{self.recipe.task_kind} by {self.recipe.model_kind}"
        return f"<Run {self.folder}: {kinds}, {weights:,} parameters on {self.device}>"

    def use_fusion(self, other: Run) -> None:
        """Let a language model say, too, what is likely."""
        why = "only runs that recognise speech ask one"
        if isinstance(self.task, Fuses):
            why = self.task.fuse(other.task, other.model)
        if why:
            raise InputError(f"decode.fusion: {other.folder}: {why}.")

    def use_encoder(self, folder: str) -> None:
        """Let an encoder say how near what is written is to what is right."""
        if not folder:
            return
        other = Run(Path(folder), device=str(self.device))
        task, model, budget = other.task, other.model, other.recipe.decode.batch_tokens
        if not isinstance(task, ReadsTokens) or not isinstance(model, Encodes):
            raise InputError(
                f"task.bertscore: {folder}: must be the run of an encoder of texts, but is a "
                f"{other.recipe.model_kind}; `regard import` makes one of a BERT's folder."
            )
        assert isinstance(self.task, Compares)  # whose setting it is
        reads, encoder = task, model
        signature = f"{Path(folder).name}, top layer, no idf, no baseline"
        self.task.compare_by(lambda lines: reads.read_tokens(encoder, lines, budget), signature)

    def use_draft(self, other: Run) -> None:
        """Let a smaller run of the same vocabulary guess ahead: the answers stay what they are."""
        if not isinstance(self.task, Streams):
            raise InputError("a draft can only help a language model, but this run is none.")
        theirs = other.task.written.tokenizer.to_str() if isinstance(other.task, Streams) else None
        if theirs != self.task.written.tokenizer.to_str():
            raise InputError(
                f"{other.folder}: a draft must have the vocabulary of {self.folder}, but has "
                "another; train it with text.vocabulary set to that run's tokenizer.json."
            )
        if self.recipe.decode.kind == "beam":
            raise InputError("a draft cannot search by beam; add decode.kind=greedy or sample.")
        self.draft = other.model

    def predict(self, inputs: object, first: int = 1) -> list[Prediction]:
        """An answer to each input, in order; messages count from `first`."""
        decode, longest = self.recipe.decode, self.longest
        every = inputs if isinstance(inputs, list | tuple | Iterator) else [inputs]
        given = [self.given(one, number) for number, one in enumerate(every, first)]
        if self.draft is not None and isinstance(self.task, Streams):
            return self.task.predict(self.model, given, decode, longest, first, self.draft)
        return self.task.predict(self.model, given, decode, longest, first)

    def given(self, one: object, number: int = 1) -> Any:
        """An input as its task takes it: a text as it would be typed, or the thing itself."""
        form = self.task.gives
        return form.parse(one, number) if isinstance(one, str) else form.accept(one, number)

    @property
    def longest(self) -> int:
        """Tokens that an input may have."""
        return self.recipe.data.max_length

    def examples(self, part: str) -> Examples[Any]:
        """The examples of a part of the recipe's data."""
        recipe, cache = self.recipe, self.folder.parent / ".cache"
        faults = Faults(recipe.data.skip_bad)
        return self.task.examples(recipe.task, recipe.data.files(part), cache, faults)

    def data(self, part: str) -> Data:
        """A part of the recipe's data, prepared as it was for training; nothing is too long."""
        cache, faults = self.folder.parent / ".cache", Faults(self.recipe.data.skip_bad)
        return prepare_part(self.recipe, self.task, part, cache, faults, ANY_LENGTH)

    def stream(self, prompt: str) -> Iterator[str]:
        """How a text goes on, in pieces, as they are written."""
        if not isinstance(self.task, Streams):
            raise InputError("only a language model writes on; this run answers with `predict`.")
        yield from self.task.stream(self.model, prompt, self.recipe.decode, self.draft)

    @property
    def template(self) -> Chat:
        """How this run converses."""
        chat = self.task.chat if isinstance(self.task, Chats) else None
        if chat is None:
            raise InputError(
                f"{self.folder}: a run must have a chat template to converse, but this one has "
                "none; `regard predict` asks it."
            )
        return chat

    @property
    def room(self) -> float:
        """Tokens that a conversation may have, so that its answer can be placed behind it."""
        most = self.model.longest or math.inf
        return most + 1 - self.recipe.decode.max_new_tokens

    def chat(self, messages: str | Sequence[Message]) -> str:
        """The answer to a conversation, or to one message of a user."""
        return "".join(self.chat_stream(messages))

    def chat_stream(self, messages: str | Sequence[Message]) -> Iterator[str]:
        """The answer in pieces, as they are written."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        ids = self.template.ids(messages)
        if len(ids) > self.room:
            raise InputError(
                f"messages: with {self.recipe.decode.max_new_tokens} new tokens they may have "
                f"{self.room} tokens, but have {len(ids)}; shorten them, or lower "
                "decode.max_new_tokens."
            )
        assert isinstance(self.task, Chats)
        yield from self.task.stream_ids(self.model, ids, self.recipe.decode, self.draft)

    def logprobs(self, text: str) -> list[tuple[str, float | None]]:
        """Each token of a text with its log-probability; the first may have none."""
        if not isinstance(self.task, Streams):
            raise InputError("only a language model tells how likely a text is; this run is none.")
        return self.task.logprobs(self.model, text)

    def evaluate(self, on: str = "", measured: Measured | None = None) -> dict[str, object]:
        """Scores on the recipe's test or validation data; kept in results.json.

        Where nothing is said, on what training scores at its end. `measured` is the loss on them,
        where it is known.
        """
        began = time.perf_counter()
        on = on or part_to_score(self.recipe) or "test"
        part = self.data(on)
        self.use_encoder(vars(self.recipe.task).get("bertscore", ""))
        loss, parts = measured, dict[str, float]()
        if loss is None:
            settings = self.recipe.train
            whole = store_loss(
                self.task, self.model, part.store, settings, self.device, None, thorough=True
            )
            loss, parts = whole.measured, whole.parts
        scores: dict[str, object] = {
            "on": on,
            "set": fingerprint(part.examples.files),
            "headline": self.task.metric,
            "higher_is_better": self.task.higher_is_better,
            **parts,
            **self.task.evaluate(self.model, part, self.recipe.decode, loss),
            "left_out": part.skipped,
            "seconds": round(time.perf_counter() - began, 2),
        }
        results = said(self.folder, RESULTS)
        # Scores under other settings stand beside the run's own, not in their place.
        name = " ".join([on, *self.overrides])
        write_text(self.folder / RESULTS, json.dumps(results | {name: scores}, indent=1) + "\n")
        return scores


def check_sizes(folder: Path, recipe: Recipe) -> None:
    """The model that was trained and the recipe beside it must be the same."""
    path = folder / "config.json"
    try:
        trained = dict(read_json(path)["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: the model's sizes must be readable, but are not.") from error
    usual = {field.name: field.default for field in dataclasses.fields(recipe.model)}
    for key, value in vars(recipe.model).items():
        if trained.get(key, usual[key]) != value:  # an older run does not know newer settings
            raise RunError(
                f"{path}: recipe.toml must say what was trained, but there model.{key} is "
                f"{value!r}, "
                f"here {trained.get(key, usual[key])!r}."
            )


def check_shapes(recipe: Recipe, task: AnyTask, path: Path) -> None:
    """What the recipe asks for is compared with the weights before anything of its size is made."""
    shapes = adapt.merged_shapes(checkpoint.shapes_in(path))
    for key in ("depth", "hops"):  # a model has no more blocks than weights
        if (wanted := vars(recipe.model).get(key, 0)) > max(100, len(shapes)):
            raise RunError(
                f"{path}: the weights must fit the model of config.json, but there are "
                f"{len(shapes)} of them for a model.{key} of {wanted}."
            )
    with torch.device("meta"):
        checkpoint.check_shapes(recipe.build(task.sizes), shapes, path)


def check_finite(model: nn.Module, path: Path) -> None:
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise RunError(f"{path}: the weights must be numbers, but some of '{name}' are not.")


def find_weights(folder: Path) -> Path:
    """The model to use; of an unfinished run, the best or the latest that there is."""
    latest = [path / WEIGHTS for path in checkpoint.all_in(folder)[-1:]]
    for path in (folder / WEIGHTS, folder / BEST, *latest):
        if checkpoint.files_of(path):
            return path
    raise RunError(f"{folder}: there is no trained model here yet; go on with `regard train`.")


def start(
    recipe: Recipe,
    folder: Path,
    world: World,
    fresh: bool = False,
    stop: Callable[[], bool] = lambda: False,
    hold: Hold | None = None,
    given: Mapping[str, Given] | None = None,
) -> Generator[Event, None, None]:
    """Train in a folder: a new run, the unfinished one that it holds, or more of a finished one.

    Until the first step is about to be made, everything can be taken back: a folder made here goes,
    and a run that `fresh` replaces is only put aside. `hold` is that of a caller who has more to
    write there when this has ended; `given` are rows that the folder is to hold.
    """
    held = Hold(folder) if hold is None else hold
    made = begun = False
    rows = given or {}
    try:
        made = world.first(
            lambda: prepare_folder(recipe, held, fresh, rows) if world.leads else False
        )
        world.first(lambda: keep_rows(recipe, folder, rows) if world.leads else None)
        more = wants_more(recipe, folder)
        if is_trained(folder) and not more:  # trained, but not scored yet
            if world.leads:
                (folder / BEST).unlink(missing_ok=True)  # where a kill came just before that
        else:
            check = held.check if world.leads else lambda: None
            events = fit(recipe, folder, world, stop, check)
            if issubclass(MODELS[recipe.model_kind], Solves):
                events = solve(recipe, folder, world, check)
            for event in events:
                if not begun and world.leads:
                    give_up_aside(folder)
                    if more:
                        event = with_note(event, note_on(recipe, folder))
                        reopen(recipe, folder)
                begun = True
                yield event
    except BaseException:
        if not begun and held.is_mine():
            if made:
                clear(folder)
            put_back(folder)
        raise
    finally:
        if hold is None:
            held.release()
    world.wait()


def check_fit(recipe: Recipe, model: Model) -> None:
    """Task and model must suit each other."""
    kind, said = TASKS[recipe.task_kind], vars(recipe.task)
    line = "data.max_length", recipe.data.max_length
    name, wanted = kind.longest_read(recipe.task, recipe.sections) or line
    cut = said.get("cut", "")
    if model.longest is not None and model.longest < wanted:
        raise RecipeError(f"model.positions ({model.longest}) must be at least {name} ({wanted}).")
    if cut == "documents" and not model.packs:
        raise RecipeError(
            f"task.cut=documents needs a model that keeps packed texts apart, which "
            f"{recipe.model_kind} does not; use windows or stream."
        )
    if recipe.decode.ctc_weight and not vars(recipe.model).get("ctc"):
        raise RecipeError(
            "decode.ctc_weight: there is no CTC to ask where model.ctc is false; set it to 0."
        )
    text = recipe.sections.get("text")
    if text is not None and text.dropout and not kind.recuts:
        raise RecipeError(
            "text.dropout: only tasks of pairs (translate, text-to-text) cut their text anew in "
            "every epoch; set it to 0."
        )
    train = recipe.train
    if train.keep == "average" and (train.adapters or train.optimizer == "asgd"):
        raise RecipeError(
            "train.keep=average: adapters cannot be averaged apart, and asgd averages by itself; "
            "keep the best or the last."
        )
    if train.layer_decay != 1 and train.optimizer != "adamw":
        raise RecipeError("train.layer_decay: only train.optimizer=adamw heeds it; set it to 1.")
    if (train.freeze or train.layer_decay != 1) and not any(
        model.level(name) > 0 for name, _ in model.named_parameters()
    ):
        raise RecipeError(
            f"train.freeze, train.layer_decay: {recipe.model_kind} has no blocks to tell apart."
        )
    if train.checkpoint_activations and not model.stacks:
        raise RecipeError(
            f"train.checkpoint_activations: {recipe.model_kind} has no blocks that could be "
            "computed again; set it to false."
        )
    if train.checkpoint_activations and train.compile in ("graph", "full"):
        raise RecipeError(
            "train.compile: blocks that are computed again are neither compiled nor captured; set "
            "it to off."
        )
    if cut == "stream" and recipe.train.teacher:
        raise RecipeError(
            "train.teacher: a teacher reads each batch by itself; set task.cut to windows."
        )


def prepare_folder(recipe: Recipe, hold: Hold, fresh: bool, given: Collection[str] = ()) -> bool:
    """Make the folder ready, or say why it cannot be used; True if a new run is begun there."""
    folder = hold.folder
    if not is_text(str(folder.resolve())):  # the weights' library writes no such name
        raise RunError(f"{str(folder)!r}: a run folder's name must be UTF-8, but is not.")
    with torch.device("meta"):
        model = recipe.build(recipe.usual_sizes())
    check_fit(recipe, model)
    check_logs(recipe.train)
    for setting, origin in (
        ("train.teacher", recipe.train.teacher),
        ("model.from", recipe.model_from),
    ):
        if origin:
            weights_of_run(Path(origin), setting)
    for part in ("train", "valid", "test"):
        if recipe.data.named(part) and part not in given:
            recipe.data.files(part)
    hold.take()
    put_back(folder)
    if strange := foreign(folder):
        raise RunError(
            f"{folder}: a run needs a folder of its own, but this one holds '{strange}', which no "
            "run has made; move it away, or use --run DIR."
        )
    sweep(folder)
    if fresh and (folder / RECIPE).is_file():
        put_aside(folder)
    if (folder / RECIPE).is_file():
        check_same(recipe, folder)
        return False
    write_recipe(recipe, folder)
    return True
