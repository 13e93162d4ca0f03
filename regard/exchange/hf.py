"""Hugging Face folders: one becomes a run, a run becomes one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from .. import config as recipes
from ..errors import RunError
from ..tasks import TASKS
from ..train import checkpoint
from ..train.recipe import Recipe, resolve
from ..train.run import Run
from . import folder as folders
from . import vocabulary
from .architecture import Architecture, Config
from .bert import BERT, DISTILBERT, ROBERTA
from .gpt import GPT2, LLAMA
from .marian import MARIAN, PEGASUS, in_halves
from .rules import Rule, Weights, to_ours, to_theirs
from .t5 import T5

ARCHITECTURES: dict[str, Architecture] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "distilbert": DISTILBERT,
    "gpt2": GPT2,
    "llama": LLAMA,
    "t5": T5,
    "marian": MARIAN,
    "pegasus": PEGASUS,
}
OLD = {".gamma": ".weight", ".beta": ".bias"}  # how norms were once called


def without_repeats(
    tensors: Mapping[str, Tensor], architecture: Architecture, config: Config
) -> dict[str, Tensor]:
    """Tensors that say something of their own, under the names of today."""
    tied = config.get("tie_word_embeddings", architecture is not LLAMA)
    found = {}
    for name, tensor in tensors.items():
        # What is tied may be said twice, but not in two ways.
        if (
            name == "lm_head.weight"
            and tied
            and any(
                n != name and t.shape == tensor.shape and t.equal(tensor)
                for n, t in tensors.items()
            )
        ):
            continue
        if not name.endswith(architecture.repeats):
            old = next((end for end in OLD if name.endswith(end)), "")
            found[name.removesuffix(old) + OLD.get(old, "")] = tensor
    return found


def rules_of(
    architecture: Architecture, settings: Any, task: str, names: set[str] | None = None
) -> Iterable[Rule]:
    """Which tensor is which; where the names are known, with the prefix that they have."""
    prefix = architecture.prefix
    if names is None:
        prefix = "" if task == "embed" else prefix
    elif not any(name.startswith(prefix) for name in names):
        prefix = ""
    yield from architecture.body(settings, prefix)
    yield from architecture.head(settings, task, prefix)


# In.


def read(folder: Path, run: Path) -> str:
    """Make a run of a folder; a word on what it is."""
    if not folder.is_dir():
        raise RunError(f"{folder}: there must be a Hugging Face folder, but there is none.")
    if run.is_dir() and any(run.iterdir()):
        raise RunError(f"{run}: a run needs a folder of its own, but this one holds something.")
    config = folders.read_config(folder)
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise RunError(
            f"{folder / 'config.json'}: the architecture '{kind}' is not known here; known are "
            f"{', '.join(ARCHITECTURES)}."
        )
    architecture = ARCHITECTURES[kind]
    task_kind = task_of(architecture, config, folder)
    texts = vocabulary.read(folder, kind, config)
    tensors = without_repeats(folders.read_tensors(folder), architecture, config)
    settings = architecture.settings(config, set(tensors))
    settings, more = with_pooling(folder, settings, task_kind)
    weights = to_ours(rules_of(architecture, settings, task_kind, set(tensors)), tensors, folder)

    run.mkdir(parents=True, exist_ok=True)
    recipe = make_recipe(run.resolve().name, task_kind, architecture.model, settings, config, more)
    task = make_task(recipe, texts, config, folder)
    model = recipe.build(task.sizes)
    checkpoint.put_weights(model, weights, folder)
    task.save(run)
    rows = recipe.rows("origin")
    rows["text"] = [
        ("vocabulary", "tokenizer.json", "imported") if row[0] == "vocabulary" else row
        for row in rows["text"]
    ]
    checkpoint.write_text(run / "recipe.toml", recipes.write(rows))
    checkpoint.write_text(run / "config.json", recipe.config(task.sizes))
    checkpoint.write_weights(run / "model.safetensors", checkpoint.weights_of(model))
    count = sum(weight.numel() for weight in model.parameters())
    checkpoint.write_text(run / "README.md", card(run.name, folder.name, config, recipe, count))
    return f"{config_class(config)} as a run for the task {task_kind}, {count:,} parameters"


def config_class(config: Config) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def task_of(architecture: Architecture, config: Config, folder: Path) -> str:
    name = config_class(config)
    if name not in architecture.classes:
        raise RunError(
            f"{folder / 'config.json'}: 'architectures' must name one of "
            f"{', '.join(architecture.classes)} to be imported, but names '{name}'."
        )
    return architecture.classes[name]


def with_pooling(folder: Path, settings: Any, task: str) -> tuple[Any, dict[str, Any]]:
    """sentence-transformers folders say how a text's vectors become one."""
    modules = folder / "modules.json"
    if task != "embed" or not modules.is_file():
        return settings, {}
    try:
        named = [
            (str(m["type"]).rpartition(".")[2], m["path"]) for m in json.loads(modules.read_text())
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{modules}: not a readable list of modules ({error}).") from error
    odd = [name for name, _ in named if name not in ("Transformer", "Pooling", "Normalize")]
    if odd:
        raise RunError(f"{modules}: a module '{odd[0]}' is not known here; nothing is guessed.")
    found = {"cls_token": "first", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}
    more: dict[str, Any] = {"normalise": any(name == "Normalize" for name, _ in named)}
    for name, path in named:
        if name == "Transformer":
            own = folders.read_json(folder / path / "sentence_bert_config.json")
            if isinstance(own.get("max_seq_length"), int):
                more["context"] = min(own["max_seq_length"], settings.positions)
        if name == "Pooling":
            says = folders.read_json(folder / path / "config.json")
            chosen = [found[key] for key in found if says.get(f"pooling_mode_{key}")]
            mode = says.get("pooling_mode")  # newer folders say it in one word
            if not chosen and isinstance(mode, str):
                chosen = [{"cls": "first", "lasttoken": "last"}.get(mode, mode)]
            if len(chosen) != 1:
                raise RunError(
                    f"{folder / path}: there must be one way of pooling, but there are "
                    f"{len(chosen)}."
                )
            settings = dataclasses.replace(settings, pool=chosen[0])
    return settings, more


def make_recipe(
    name: str, task: str, model: str, settings: Any, config: Config, more: dict[str, Any]
) -> Recipe:
    """A recipe that says what was imported, as if it had been trained with it."""
    longest = getattr(settings, "positions", 512)
    said: dict[str, dict[str, Any]] = {
        "task": {"kind": task, **more},
        "data": {"train": ""},
        "text": {},
        "model": {"kind": model, **vars(settings)},
        "train": {},
        "decode": {},
    }
    fields = {field.name for field in dataclasses.fields(TASKS[task].Settings)}
    if "context" in fields:
        said["task"].setdefault("context", min(512, longest))
    if model in ("transformer", "t5"):
        said["data"]["max_length"] = min(512, longest)
    given = {
        section: {
            k: recipes.Value(v, "imported", "config.json", Path.cwd()) for k, v in keys.items()
        }
        for section, keys in said.items()
    }
    return resolve(name, given)


def make_task(recipe: Recipe, texts: list[Any], config: Config, folder: Path) -> Any:
    kind = TASKS[recipe.task_kind]
    if recipe.task_kind in ("classify", "tag"):
        return kind.imported(recipe.task, texts[0], labels_of(config, folder), config)
    if recipe.task_kind == "translate":
        return kind(recipe.task, texts[0], texts[-1])
    return kind(recipe.task, texts[0])


def labels_of(config: Config, folder: Path) -> list[str]:
    named = config.get("id2label") or {str(i): str(i) for i in range(config.get("num_labels", 2))}
    try:
        return [str(named[str(i)]) for i in range(len(named))]
    except (KeyError, TypeError) as error:
        raise RunError(f"{folder / 'config.json'}: id2label must name classes 0, 1, ….") from error


def card(name: str, source: str, config: Config, recipe: Recipe, parameters: int) -> str:
    return (
        f"# {name}\n\nA {recipe.model_kind} for the task `{recipe.task_kind}`, imported from the "
        f"folder `{source}` ({config_class(config)}); {parameters:,} parameters.\n\n"
        f"Train on from it: `regard train RECIPE model.from={name}`.\n"
    )


# Out.


def write(run: Run, folder: Path) -> str:
    """Make a folder of a run; a word on what it is."""
    folders.must_be_new(folder)
    architecture, config = theirs(run)
    weights = Weights(checkpoint.weights_of(run.model))
    settings: Any = run.model.settings
    if architecture in (MARIAN, PEGASUS) and settings.position == "sinusoid":
        weights = in_halves(weights)
    tensors = to_theirs(rules_of(architecture, settings, run.recipe.task_kind), weights)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
    save_file(
        {n: t.cpu() for n, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    (folder / "model.safetensors").chmod(0o644)
    write_vocabulary(run, folder, config)
    return f"{config_class(config)}, {sum(t.numel() for t in tensors.values()):,} parameters"


def theirs(run: Run) -> tuple[Architecture, Config]:
    """The architecture that a run is there, and its config."""
    settings: Any = run.model.settings
    task, text = run.recipe.task_kind, texts_of(run)[-1]
    choices = {
        "bert": "distilbert"
        if getattr(settings, "segments", 1) == 0
        else "roberta"
        if text.pad == 1
        else "bert",
        "gpt": "llama" if getattr(settings, "position", "") == "rotary" else "gpt2",
        "t5": "t5",
        "transformer": "pegasus" if getattr(settings, "residual", "") == "pre" else "marian",
    }
    model = run.recipe.model_kind
    if model not in choices:
        raise RunError(
            f"{run.folder}: a model of the kind {model} has no counterpart there; "
            f"{', '.join(choices)} have."
        )
    architecture = ARCHITECTURES[choices[model]]
    named = [name for name, kind in architecture.classes.items() if kind == task]
    if choices[model] == "bert" and task == "masked" and settings.pooler == "none":
        named = named[1:]
    if not named:
        raise RunError(
            f"{run.folder}: a {choices[model]} for the task {task} has no counterpart there."
        )
    config = {**architecture.config(settings), "architectures": [named[0]]}
    config |= {"vocab_size": text.size, "dtype": "float32", "use_cache": True}
    config |= {"eos_token_id": text.eos, "bos_token_id": text.bos}
    if text.pad >= 0:
        config["pad_token_id"] = text.pad
    if config.get("is_encoder_decoder"):
        config |= {"decoder_start_token_id": text.bos}
    if labels := getattr(run.task, "labels", None):
        config["id2label"] = {str(i): name for i, name in enumerate(labels)}
        config["label2id"] = {name: i for i, name in enumerate(labels)}
    predicts = getattr(run.task, "predicts", "class")
    if task == "classify":
        config["problem_type"] = {
            "class": "single_label_classification",
            "classes": "multi_label_classification",
            "number": "regression",
        }[predicts]
        if predicts == "number":
            config |= {"id2label": {"0": "number"}, "label2id": {"number": 0}}
    return architecture, config


def texts_of(run: Run) -> list[Any]:
    task: Any = run.task
    return [task.text] if hasattr(task, "text") else [task.source, task.target]


def write_vocabulary(run: Run, folder: Path, config: Config) -> None:
    """tokenizer.json with its specials placed, and what `transformers` wants beside it."""
    text, decode = texts_of(run)[0], run.recipe.decode
    writes = run.recipe.task_kind == "language"
    tokenizer = text.tokenizer
    if not writes:
        tokenizer = vocabulary.framed(text, single=bool(config.get("is_encoder_decoder")))
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"bos": text.bos, "eos": text.eos, "unk": text.unk, "pad": text.pad, "mask": text.mask}
    if run.recipe.model_kind == "bert":
        roles |= {"cls": text.bos, "sep": text.eos}
    if text.unk < 0:  # nothing is unknown, but programs want a name for it; GPT-2 says its end
        roles["unk"] = text.eos
    names = {f"{role}_token": text.tokens([i])[0] for role, i in roles.items() if i >= 0}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    about |= {"model_max_length": run.model.longest or 10**9, "clean_up_tokenization_spaces": False}
    checkpoint.write_text(folder / "tokenizer_config.json", json.dumps(about, indent=2) + "\n")
    if not writes and not config.get("is_encoder_decoder"):
        return
    beams = decode.num_beams if decode.kind == "beam" else 1
    said: dict[str, Any] = {
        key: config[key]
        for key in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        if key in config
    }
    said |= {"num_beams": beams, "max_new_tokens": decode.max_new_tokens}
    if beams > 1:
        said |= {"length_penalty": decode.length_penalty}
        said["early_stopping"] = decode.early_stopping
    if config.get("is_encoder_decoder"):  # what is never written here is not written there
        banned = sorted({text.pad, text.bos, text.unk} - {-1, text.eos})
        said |= {"bad_words_ids": [[i] for i in banned], "renormalize_logits": True}
    checkpoint.write_text(folder / "generation_config.json", json.dumps(said, indent=2) + "\n")


__all__ = ["ARCHITECTURES", "read", "rules_of", "without_repeats", "write"]
