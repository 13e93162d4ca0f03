"""A whole recipe: each section settled for the one who needs it, and where each value came from."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import config, decode
from ..batch import Sizes
from ..data.settings import Settings as DataSettings
from ..errors import RecipeError, RunError, UnknownNameError
from ..model import Model
from ..models import MODELS
from ..tasks import TASKS
from .settings import Settings as TrainSettings


@dataclass(frozen=True)
class Recipe:
    """Settings by section. `task` and `model` are of the classes that their kinds name."""

    name: str
    task_kind: str
    model_kind: str
    model_from: str
    task: Any
    data: DataSettings
    sections: Mapping[str, Any]  # the task's own, such as [text]
    model: Any
    train: TrainSettings
    decode: decode.Settings
    origins: dict[str, str]  # "train.steps" -> "recipe" or "command line"; defaults are not listed

    def build(self, sizes: Sizes) -> Model:
        """The model, with new weights; what its parts cannot be made of is the recipe's mistake."""
        if not suits(MODELS[self.model_kind], sizes):
            able = [name for name, kind in MODELS.items() if suits(kind, sizes)]
            raise RecipeError(
                f"[model]: {self.model_kind} cannot tell {sizes.asked.__name__} of "
                f"{sizes.read.__name__}, which the task {self.task_kind} asks for; choose "
                f"{' or '.join(able)}."
            )
        try:
            return MODELS[self.model_kind](sizes, self.model)
        except AssertionError as error:
            raise RecipeError(f"[model]: {error}.") from error

    def config(self, sizes: Sizes) -> str:
        """What config.json of a run says: the model, its sizes and its settings."""
        told = {k: v.__name__ if isinstance(v, type) else v for k, v in vars(sizes).items()}
        said = {"model": self.model_kind, "sizes": told, "settings": vars(self.model)}
        return json.dumps(said, indent=1) + "\n"

    def usual_sizes(self) -> Sizes:
        """What the sizes may be, before the data have told them."""
        return TASKS[self.task_kind].usual_sizes(self.task, self.sections)

    def rows(self, notes: str) -> dict[str, list[tuple[str, Any, str]]]:
        """Every key with its value and its `origin` or its `comment`."""
        kinds = {"task": self.task_kind, "model": self.model_kind}
        table: dict[str, list[tuple[str, object, str]]] = {}
        own = {"task": self.task, "data": self.data, **self.sections, "model": self.model}
        for section, settings in {**own, "train": self.train, "decode": self.decode}.items():
            says = config.comments(type(settings))
            rows: list[tuple[str, object, str]] = []
            if section in kinds:
                rows.append(("kind", kinds[section], f"which {section}"))
            if section == "model":
                rows.append(("from", self.model_from, "a run folder whose weights to start from"))
            for field in dataclasses.fields(settings):
                rows.append((field.name, vars(settings)[field.name], says[field.name]))
            if notes == "origin":
                rows = [(k, v, self.origins.get(f"{section}.{k}", "default")) for k, v, _ in rows]
            table[section] = rows
        return table


def suits(model: type[Model], sizes: Sizes) -> bool:
    """Whether a model can be asked this of this."""
    return sizes.read in model.reads and sizes.asked in model.answers


Tables = Mapping[str, Mapping[str, Any]]  # a recipe written in Python: settings by section


def read(recipe: str | Tables, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe by name or path, or as tables, with overrides; fully checked."""
    if not isinstance(recipe, str):
        given = config.by_section(recipe, "recipe", lambda _: Path.cwd(), overrides)
        nothing = config.Value("", "recipe", "recipe", Path.cwd())
        given["data"].setdefault("train", nothing)  # rows may be given instead
        return resolve("", with_origin(given))
    path = config.find(recipe)
    asks = config.read(path)
    for text in overrides:
        check_section(text, _kind(asks, "task"), _kind(asks, "model"))
    return resolve(path.stem, with_origin(config.read(path, overrides)))


def check_section(text: str, task: str = "", model: str = "") -> None:
    """Refuse a setting that was given without its section, such as steps=100."""
    key, equals, _ = text.partition("=")
    if equals and (homes := homes_of(key, task, model)):
        forms = " or ".join(f"{section}.{text}" for section in homes)
        raise RecipeError(f"command line: '{text}' must say its section; write {forms}.")


def homes_of(key: str, task: str = "", model: str = "") -> list[str]:
    """The sections that have such a setting, of this kind of task and model or of any."""
    kinds: dict[str, list[type]] = {"decode": [decode.Settings], "train": [TrainSettings]}
    models = [MODELS[model]] if model in MODELS else MODELS.values()
    tasks = [TASKS[task]] if task in TASKS else list(TASKS.values())
    kinds |= {"data": [DataSettings], "model": [each.Settings for each in models]}
    kinds |= {"task": [each.Settings for each in tasks]}
    for each in tasks:
        for section, kind in each.sections.items():
            kinds.setdefault(section, []).append(kind)
    return [section for section, found in kinds.items() if any(_has(kind, key) for kind in found)]


def _kind(given: config.Given, section: str) -> str:
    kind = given[section].get("kind")
    return str(kind.value) if kind is not None else ""


def _has(kind: type, key: str) -> bool:
    return any(field.name == key for field in dataclasses.fields(kind))


def with_origin(given: config.Given) -> config.Given:
    """`model.from` brings its model along: its kind and all its settings.

    What is said beside it, in the same place or nearer to the user, changes them: a dropout, say.
    """
    named = given["model"].get("from")
    if named is None or not isinstance(named.value, str) or not named.value:
        return given
    folder = Path(config.anchor(named.value, named.folder))
    if not (folder / "recipe.toml").is_file():
        return given  # said when it is needed
    origin = read_run(folder)
    weaker = named.origin == "command line"
    said = {k: v for k, v in given["model"].items() if not weaker or v.origin == "command line"}
    kind = said.get("kind")
    if kind is not None and kind.value != origin.model_kind:
        raise RecipeError(
            f"{kind.where}: model.kind must be what model.from is, {origin.model_kind}, but is "
            f"{kind.value!r}."
        )
    brought = {**vars(origin.model), "kind": origin.model_kind}
    own = {k: config.Value(v, "model.from", str(folder), Path.cwd()) for k, v in brought.items()}
    return {**given, "model": {**own, **said}}


def nearest_run(folder: Path) -> str:
    """A run here whose name is like this one, as advice; "" where there is none."""
    runs = {p.parent.name: p.parent for p in (*folder.parent.glob("*/recipe.toml"),
                                              *Path("runs").glob("*/recipe.toml"))}  # fmt: skip
    alike = difflib.get_close_matches(folder.name, runs, 1)
    return f"did you mean {runs[alike[0]]}? " if alike else ""


def read_run(folder: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe that a run was trained with."""
    path = folder / "recipe.toml"
    if not path.is_file():
        what = "is a file" if folder.is_file() else "is not there"
        what = "holds no recipe.toml" if folder.is_dir() else what
        raise RunError(
            f"{folder}: a run folder is needed, but this one {what}; {nearest_run(folder)}"
            "`regard train` makes one."
        )
    given = config.read(path, overrides)
    try:
        return resolve(folder.resolve().name, given)
    except UnknownNameError as error:
        if error.origin == "command line":
            raise
        raise RunError(
            f"{path}: the run was trained with {error.setting}='{error.name}', which is not known "
            "here; whoever brought it must add it to its dictionary again before the run is loaded "
            "(docs/add.md, From your own script)."
        ) from error


def resolve(name: str, given: config.Given) -> Recipe:
    task_kind = config.choose("task", given["task"], TASKS)
    model_kind = config.choose("model", given["model"], MODELS)
    own = TASKS[task_kind].sections
    config.check_sections(given, own, name)
    given = {**{section: {} for section in own}, **given}
    given = with_defaults(given, TASKS[task_kind].defaults)
    from_run = given["model"].get("from")
    model_from = ""
    if from_run is not None and from_run.value:
        if not isinstance(from_run.value, str):
            raise RecipeError(
                f"{from_run.where}: model.from must be a run folder, but is {from_run.value!r}."
            )
        model_from = config.anchor(from_run.value, from_run.folder)
    settled: dict[str, Any] = {
        "task": config.make_settings(TASKS[task_kind].Settings, "task", given["task"], ["kind"]),
        "data": config.make_settings(DataSettings, "data", given["data"]),
        "model": config.make_settings(
            MODELS[model_kind].Settings, "model", given["model"], ["kind", "from"]
        ),
        "train": config.make_settings(TrainSettings, "train", given["train"]),
        "decode": config.make_settings(decode.Settings, "decode", given["decode"]),
    }
    sections: dict[str, object] = {
        section: config.make_settings(kind, section, given[section])
        for section, kind in own.items()
    }
    data = settled["data"]
    assert isinstance(data, DataSettings)
    if not data.root:  # then the files themselves are relative to where they were named
        anchored = {
            part: config.anchor(vars(data)[part], given["data"][part].folder)
            for part in ("train", "valid", "test")
            if part in given["data"]
        }
        settled["data"] = dataclasses.replace(data, **anchored)
    origins = {f"{s}.{k}": v.origin for s, keys in given.items() for k, v in keys.items()}
    return Recipe(
        name, task_kind, model_kind, model_from, origins=origins, sections=sections, **settled
    )


def with_defaults(
    given: config.Given, defaults: Mapping[str, Mapping[str, object]]
) -> config.Given:
    """What the task would rather have where nothing is said; and a way of decoding that the command
    line names puts aside what the recipe says about drawing."""
    whole = {section: dict(keys) for section, keys in given.items()}
    if _is_zero(whole["decode"].get("temperature")):  # as cold as can be: the likeliest always
        cold = whole["decode"].pop("temperature")
        whole["decode"]["kind"] = dataclasses.replace(cold, value="greedy")
        kept = whole["decode"].get("num_return_sequences")
        if kept is not None and kept.origin != "command line":
            del whole["decode"]["num_return_sequences"]
        _put_aside_drawing(whole["decode"])
    kind = whole["decode"].get("kind")
    if kind is not None and kind.origin == "command line" and kind.value != "sample":
        _put_aside_drawing(whole["decode"])
    for section, keys in defaults.items():
        for key, value in keys.items():
            whole[section].setdefault(key, config.Value(value, "default", "the task", Path()))
    return whole


def _is_zero(given: config.Value | None) -> bool:
    return given is not None and type(given.value) in (int, float) and given.value == 0


def _put_aside_drawing(given: dict[str, config.Value]) -> None:
    for name in decode.DRAWING:
        if name in given and given[name].origin != "command line":
            del given[name]
