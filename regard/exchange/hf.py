"""Hugging Face folders: one becomes a run, a run becomes one."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from .. import config as recipes
from ..batch import Asked, Hidden, Ids, Label, Nothing, Patches, Permuted, Running
from ..decode import Settings as Decode
from ..errors import RunError
from ..model import Model
from ..tasks import TASKS, AnyTask
from ..tasks.task import Chats, Embeds, HasText, Imports, Labels, Streams, WritesText
from ..text import Frame, Text
from ..text.chat import FILE as CHAT
from ..training import checkpoint
from ..training.folder import Hold, clear
from ..training.recipe import Recipe, resolve
from ..training.run import Run
from . import folder as folders
from . import quantised, vocabulary, whisper
from .architecture import AS_IT_IS, Architecture, Config, looks_at_all, shown, wanted
from .bert import BERT, DISTILBERT, ROBERTA
from .gpt import GPT2, LLAMA
from .marian import MARIAN, PEGASUS, in_halves
from .rules import Rule, Weights, to_ours, to_theirs
from .t5 import T5
from .vit import DEIT, PREPROCESSOR, VIT, preprocessor
from .whisper import GENERATION, NAMED_WHISPER, WHISPER

ARCHITECTURES: dict[str, Architecture] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "distilbert": DISTILBERT,
    "gpt2": GPT2,
    "llama": LLAMA,
    "t5": T5,
    "marian": MARIAN,
    "pegasus": PEGASUS,
    "vit": VIT,
    "deit": DEIT,
    "whisper": WHISPER,
    "whisper-ctranslate2": NAMED_WHISPER,
}
# How sentence-transformers calls our ways of pooling.
POOLING = {
    "cls_token": "first", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last",
}  # fmt: skip
OLD = {".gamma": ".weight", ".beta": ".bias"}  # how norms were once called


def without_repeats(
    tensors: Mapping[str, Tensor], architecture: Architecture, config: Config
) -> dict[str, Tensor]:
    """Tensors that say something of their own, under the names of today."""
    tied = config.get("tie_word_embeddings", architecture is not LLAMA)
    found = {}
    for name, tensor in tensors.items():
        for new, before in architecture.spelled:
            name = re.sub(new, before, name)
        # What is tied may be said twice, but not in two ways.
        if (
            name == "lm_head.weight"
            and tied
            and any(
                n != name and t.shape == tensor.shape and (t.is_meta or t.equal(tensor))
                for n, t in tensors.items()
            )
        ):
            continue
        if not name.endswith(architecture.repeats):
            old = next((end for end in OLD if name.endswith(end)), "")
            found[name.removesuffix(old) + OLD.get(old, "")] = tensor
    return found


def rules_of(
    architecture: Architecture, settings: object, asked: type[Asked], names: set[str] | None = None
) -> Iterable[Rule]:
    """Which tensor is which; where the names are known, with the prefix that they have."""
    prefix = architecture.prefix
    if names is None:
        prefix = "" if asked is Nothing else prefix
    elif not any(name.startswith(prefix) for name in names):
        prefix = ""
    yield from architecture.body(settings, prefix)
    yield from architecture.head(settings, asked, prefix)


# In.


def read(folder: Path, run: Path) -> str:
    """Make a run of a folder; a word on what it is.

    First everything is compared by its shapes, which cost nothing; a folder that asks for more than
    it holds is refused before a number is read, and nothing is left of it.
    """
    if not folder.is_dir():
        raise RunError(
            f"{folder}: there must be a Hugging Face folder, but there is none{how_to_get(folder)}."
        )
    must_be_free(run)
    config = config_in(folder)
    if folders.find(folder, PREPROCESSOR.name) is not None:
        config["preprocessor"] = folders.read_json(folder, PREPROCESSOR.name)
    if folders.find(folder, GENERATION) is not None:
        config["generation"] = folders.read_json(folder, GENERATION)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise RunError(
            f"{folder / 'config.json'}: the architecture {shown(kind)} is not known here; known "
            f"are {', '.join(ARCHITECTURES)}."
        )
    architecture = ARCHITECTURES[kind]
    task_kind = task_of(architecture, config, folder)
    stored = folders.Stored(folder)
    shapes = without_repeats(stored.shapes(), architecture, config)
    stored.check(shapes)
    recipe = recipe_of(folder, run, architecture, task_kind, config, shapes)
    depth = recipe.model.depth + vars(recipe.model).get("decoder_depth", 0)
    if depth > len(shapes):
        raise RunError(
            f"{folder / 'config.json'}: each of {depth} blocks must have tensors, but there are "
            f"{len(shapes)} in all."
        )
    if CHAT in TASKS[task_kind].keeps:
        config["chat"] = vocabulary.read_chat(folder)
    texts = vocabulary.read(folder, kind, config) if "text" in recipe.sections else []
    task = make_task(recipe, texts, config, folder, shapes)
    with torch.device("meta"):
        blank = recipe.build(task.sizes)
    asked = task.sizes.asked
    weights = to_ours(rules_of(architecture, recipe.model, asked, set(shapes)), shapes, folder)
    checkpoint.put_weights(blank, weights, folder)

    tensors = folders.as_floats(without_repeats(stored.tensors(), architecture, config))
    if tensors.keys() != shapes.keys():  # two that were taken for one have numbers of their own
        recipe = recipe_of(folder, run, architecture, task_kind, config, tensors)
    rules = rules_of(architecture, recipe.model, asked, set(tensors))
    model = recipe.build(task.sizes)
    checkpoint.put_weights(model, to_ours(rules, tensors, folder), folder)
    return write_run(run, recipe, task, model, folder, config)


def must_be_free(run: Path) -> None:
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise RunError(f"{run}: a run needs a folder of its own, but this one holds something.")


def write_run(
    run: Path, recipe: Recipe, task: AnyTask, model: Model, source: Path, config: Config
) -> str:
    """The run folder of what was read; a word on what it is."""
    count = sum(weight.numel() for weight in model.parameters())
    with whole_or_gone(run):
        task.save(run)
        checkpoint.write_text(run / "recipe.toml", recipes.write(imported_rows(recipe)))
        checkpoint.write_text(run / "config.json", recipe.config(task.sizes))
        checkpoint.write_weights(run / "model.safetensors", checkpoint.weights_of(model))
        checkpoint.write_text(run / "README.md", card(run.name, source, config, recipe, count))
    kind = recipe.task_kind
    return f"{config_class(config)} as a run for the task {kind}, {count:,} parameters"


def how_to_get(folder: Path) -> str:
    """What to do where somebody gave the name of a model, and not a folder of it."""
    if folder.is_absolute() or len(folder.parts) > 2 or folder.parts[0] in (".", ".."):
        return ""
    return (
        "; regard reads no network, so where there is one, `hf download "
        f"{folder} --local-dir {folder.name}`, and give that folder: it must hold config.json, "
        "model.safetensors or pytorch_model.bin, and the vocabulary (tokenizer.json, vocab.txt, "
        "vocab.json with merges.txt, or a .model)"
    )


def config_in(folder: Path) -> Config:
    """What a folder says of its model; of some, the files with the weights say it."""
    graphs = [folders.find(folder, name) for name in (quantised.ENCODER, quantised.DECODER)]
    if None not in graphs and folders.find(folder, "config.json") is None:
        return quantised.config_of(folder)
    config = folders.read_config(folder)
    return config if "model_type" in config else config | whisper.config_of(folder)


@contextmanager
def whole_or_gone(run: Path) -> Iterator[None]:
    """A folder that is new or empty; what cannot be finished in it is taken away again."""
    with Hold(run) as hold:
        hold.take()
        try:
            yield
        except BaseException as error:
            clear(run)
            if hold.made:
                hold.release()
                with suppress(OSError):  # somebody has put something there
                    run.rmdir()
            if isinstance(error, OSError | UnicodeError):
                raise RunError(f"{run}: the run could not be written ({error}).") from error
            raise


def recipe_of(
    folder: Path,
    run: Path,
    architecture: Architecture,
    task: str,
    config: Config,
    tensors: Mapping[str, Tensor],
) -> Recipe:
    """The recipe of a run that such a config and such tensors make."""
    try:
        settings = architecture.settings(config, set(tensors))
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise RunError(
            f"{folder / 'config.json'}: its sizes must be numbers that go together, but do not "
            f"({error})."
        ) from error
    settings, more = with_pooling(folder, settings, task)
    more |= architecture.task(config)
    sections = architecture.sections(config)
    return make_recipe(run.resolve().name, task, architecture.model, settings, sections, more)


def imported_rows(recipe: Recipe) -> dict[str, list[tuple[str, object, str]]]:
    rows = recipe.rows("origin")
    if "text" in rows:
        rows["text"] = [
            ("vocabulary", "tokenizer.json", "imported") if row[0] == "vocabulary" else row
            for row in rows["text"]
        ]
    return rows


def config_class(config: Config) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def task_of(architecture: Architecture, config: Config, folder: Path) -> str:
    name = config_class(config)
    if name not in architecture.classes:
        raise RunError(
            f"{folder / 'config.json'}: 'architectures' must name one of "
            f"{', '.join(architecture.classes)} to be imported, but names {shown(name)}."
        )
    return architecture.classes[name]


def with_pooling(folder: Path, settings: Any, task: str) -> tuple[Any, dict[str, object]]:
    """sentence-transformers folders say how a text's vectors become one."""
    modules = folder / "modules.json"
    if TASKS[task].gets != "vector" or folders.find(folder, modules.name) is None:
        return settings, {}
    try:
        named = [
            (m["type"].rpartition(".")[2], PurePath(m["path"]))
            for m in folders.read_json(folder, modules.name, list)
        ]
    except (AttributeError, LookupError, TypeError) as error:
        raise RunError(f"{modules}: not a readable list of modules ({error}).") from error
    odd = [name for name, _ in named if name not in ("Transformer", "Pooling", "Normalize")]
    if odd:
        raise RunError(f"{modules}: a module '{odd[0]}' is not known here; nothing is guessed.")
    more: dict[str, object] = {"normalise": any(name == "Normalize" for name, _ in named)}
    for name, path in named:
        if name == "Transformer":
            own = folders.read_json(folder, f"{path}/sentence_bert_config.json")
            if isinstance(own.get("max_seq_length"), int):
                more["context"] = min(own["max_seq_length"], settings.positions)
        if name == "Pooling":
            says = folders.read_json(folder, f"{path}/config.json")
            chosen = [ours for key, ours in POOLING.items() if says.get(f"pooling_mode_{key}")]
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
    name: str,
    task: str,
    model: str,
    settings: object,
    sections: Mapping[str, dict[str, object]],
    more: dict[str, object],
    where: str = "config.json",
) -> Recipe:
    """A recipe that says what was imported, as if it had been trained with it."""
    longest = vars(settings).get("positions", 512)
    said: dict[str, dict[str, object]] = {
        "task": {"kind": task, **more},
        "data": {"train": ""},
        "model": {"kind": model, **vars(settings)},
        "train": {},
        "decode": {},
        **sections,
    }
    fields = {field.name for field in dataclasses.fields(TASKS[task].Settings)}
    if "context" in fields:
        said["task"].setdefault("context", min(512, longest))
    if model in ("transformer", "t5"):
        said["data"]["max_length"] = min(512, longest)
    given = {
        section: {k: recipes.Value(v, "imported", where, Path.cwd()) for k, v in keys.items()}
        for section, keys in said.items()
    }
    return resolve(name, given)


def make_task(
    recipe: Recipe, texts: list[Any], config: Config, folder: Path, shapes: Mapping[str, Tensor]
) -> AnyTask:
    kind, labels = TASKS[recipe.task_kind], list[str]()
    if kind.names_classes:
        kinds = ("single_label_classification", "multi_label_classification", "regression")
        wanted(config, "problem_type", None, *kinds)
        labels = labels_of(
            config, folder, max((len(s) for s in shapes.values() if s.dim()), default=0)
        )
    assert issubclass(kind, Imports)
    return kind.imported(recipe.task, recipe.sections, texts, labels, config)


def labels_of(config: Config, folder: Path, most: int) -> list[str]:
    """The names of the classes, of which there may be as many as a tensor has rows."""
    path, named = folder / "config.json", config.get("id2label")
    count = len(named) if isinstance(named, dict) and named else config.get("num_labels", 2)
    if not isinstance(count, int) or not 0 < count <= most:
        raise RunError(
            f"{path}: num_labels must be how many classes the tensors have rows for, but is "
            f"{shown(count)}."
        )
    try:
        labels = [str(named[str(i)]) if named else str(i) for i in range(count)]
    except (LookupError, TypeError) as error:
        raise RunError(f"{path}: id2label must name classes 0, 1, ….") from error
    if len(set(labels)) < count:
        raise RunError(f"{path}: id2label must name each class in its own way, but does not.")
    return labels


def card(name: str, source: Path, config: Config, recipe: Recipe, parameters: int) -> str:
    what = "folder" if source.is_dir() else "file"
    return (
        f"# {name}\n\nA {recipe.model_kind} for the task `{recipe.task_kind}`, imported from the "
        f"{what} `{source.name}` ({config_class(config)}); {parameters:,} parameters.\n\n"
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
    tensors = to_theirs(rules_of(architecture, settings, run.task.sizes.asked), weights)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
    save_file(
        {n: t.cpu() for n, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    (folder / "model.safetensors").chmod(0o644)
    if "picture" in run.recipe.sections:
        said = preprocessor(run.recipe.sections["picture"], run.task.sizes.colours)
        checkpoint.write_text(folder / PREPROCESSOR, json.dumps(said, indent=2) + "\n")
        return f"{config_class(config)}, {sum(t.numel() for t in tensors.values()):,} parameters"
    # Segments are said only where the model tells them apart: others have no row for the second.
    told = ["token_type_ids"] if vars(settings).get("segments", 0) > 1 else []
    write_vocabulary(run, folder, config, ["input_ids", *told, "attention_mask"])
    if isinstance(run.task, Embeds):
        write_modules(run, folder)
    return f"{config_class(config)}, {sum(t.numel() for t in tensors.values()):,} parameters"


def check_reads_text(run: Run) -> None:
    """Other formats are of models that read text."""
    if run.task.sizes.read not in (Ids, Running, Permuted):
        raise RunError(
            f"{run.folder}: only runs that read text can be exported so, but the task "
            f"{run.recipe.task_kind} reads {run.task.sizes.read.__name__}; {AS_IT_IS}."
        )


def check_hides_nothing(run: Run) -> None:
    """Which patches are hidden is no input of other programs."""
    if run.task.sizes.asked is Patches:
        raise RunError(
            f"{run.folder}: a run that fills in hidden patches has no counterpart there; begin a "
            "run for the task picture with it (model.from), and export that."
        )


def theirs(run: Run) -> tuple[Architecture, Config]:
    """The architecture that a run is there, and its config."""
    settings: Any = run.model.settings
    task, model = run.recipe.task_kind, run.recipe.model_kind
    task = "language" if task == "chat" else task  # there, both are language models
    if model == "vit":
        return theirs_of_pictures(run, VIT if not settings.distilled else DEIT)
    check_reads_text(run)
    looks_at_all(settings)
    text = texts_of(run)[-1]
    choices = {
        "bert": "distilbert"
        if vars(settings).get("segments", 1) == 0
        else "roberta"
        if text.pad == 1
        else "bert",
        "gpt": "llama" if vars(settings).get("position") == "rotary" else "gpt2",
        "t5": "t5",
        "transformer": "pegasus" if vars(settings).get("residual") == "pre" else "marian",
    }
    if model not in choices:
        raise RunError(
            f"{run.folder}: a model of the kind {model} has no counterpart there; "
            f"{', '.join(choices)} have, and {AS_IT_IS}."
        )
    architecture = ARCHITECTURES[choices[model]]
    named = [name for name, kind in architecture.classes.items() if kind == task]
    if choices[model] == "bert" and run.task.sizes.asked is Hidden and settings.pooler == "none":
        named = named[1:]
    if not named:
        raise RunError(
            f"{run.folder}: a {choices[model]} for the task {task} has no counterpart there; "
            f"{AS_IT_IS}."
        )
    config = {**architecture.config(settings), "architectures": [named[0]]}
    config |= {"vocab_size": text.size, "dtype": "float32", "use_cache": True}
    config |= {"eos_token_id": text.eos, "bos_token_id": text.bos}
    if (pad := padding(run)) >= 0:
        config["pad_token_id"] = pad
    if config.get("is_encoder_decoder"):
        config |= {"decoder_start_token_id": text.bos}
    return architecture, config | labels_there(run)


def theirs_of_pictures(run: Run, architecture: Architecture) -> tuple[Architecture, Config]:
    check_hides_nothing(run)
    picture = run.recipe.sections["picture"]
    config = {**architecture.config(run.model.settings), "dtype": "float32"}
    config |= {"architectures": [next(iter(architecture.classes))]}
    config |= {"image_size": picture.size, "patch_size": picture.patch}
    config |= {"num_channels": picture.channels}
    return architecture, config | labels_there(run)


def labels_there(run: Run) -> Config:
    """The names of classes as a config has them."""
    config: Config = {}
    labels = run.task.labels if isinstance(run.task, Labels) else []
    if labels:
        config["id2label"] = {str(i): name for i, name in enumerate(labels)}
        config["label2id"] = {name: i for i, name in enumerate(labels)}
    predicts = run.task.predicts if isinstance(run.task, Labels) else ""
    if run.task.sizes.asked is Label:
        config["problem_type"] = {
            "class": "single_label_classification",
            "classes": "multi_label_classification",
            "number": "regression",
        }[predicts]
        if predicts == "number":
            config |= {"id2label": {"0": "number"}, "label2id": {"number": 0}}
    return config


def texts_of(run: Run) -> list[Text]:
    """The vocabularies that it reads and writes, of which both may be one."""
    assert isinstance(run.task, HasText)
    return list(run.task.texts.values())


def padding(run: Run) -> int:
    """The entry that fills a row up: the end where there is no other, as GPT-2's users have it."""
    text = texts_of(run)[-1]
    # A class is told by the last entry that is not padding, which an end must then not be.
    ends = run.task.sizes.asked is Label and text.frame.last
    return text.eos if text.pad < 0 and not ends else text.pad


def write_vocabulary(run: Run, folder: Path, config: Config, inputs: Sequence[str]) -> None:
    """tokenizer.json with its specials placed, and what `transformers` wants beside it.

    `inputs` is what a model there is called with, and so what its tokenizer has to make.
    """
    text, task = texts_of(run)[0], run.task
    tokenizer = text.tokenizer
    if not isinstance(task, Streams):
        tokenizer = vocabulary.framed(text, single=bool(config.get("is_encoder_decoder")))
    elif task.begins:  # behind the end of another text
        tokenizer = vocabulary.placed(text, Frame([text.eos], [], [], []))
    chat = task.chat if isinstance(task, Chats) else None
    if chat is not None:  # there, whoever renders a template has its controls found in the text
        tokenizer = Tokenizer.from_str(tokenizer.to_str())
        tokenizer.add_special_tokens([AddedToken(name, special=True) for name in text.controls])
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"bos": text.bos, "eos": text.eos, "unk": text.unk, "pad": padding(run)}
    if run.recipe.model_kind == "bert":
        roles |= {"cls": text.bos, "sep": text.eos}
    if text.unk < 0:  # nothing is unknown, but programs want a name for it; GPT-2 says its end
        roles["unk"] = text.eos
    about: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    about |= {f"{role}_token": text.tokens([i])[0] for role, i in roles.items() if i >= 0}
    if text.mask >= 0:  # here, too, it takes the space before it along
        token = {"content": text.tokens([text.mask])[0], "lstrip": True, "special": True}
        about["mask_token"] = {"__type": "AddedToken", **token}
    about |= {"model_max_length": run.model.longest or 10**9, "clean_up_tokenization_spaces": False}
    about["model_input_names"] = list(inputs)
    if chat is not None:
        checkpoint.write_text(folder / vocabulary.TEMPLATE, chat.format.template)
        about |= {"bos_token": chat.format.bos} if chat.format.bos else {}
    checkpoint.write_text(folder / "tokenizer_config.json", json.dumps(about, indent=2) + "\n")
    if isinstance(task, WritesText):
        said = generation(run, config)
        checkpoint.write_text(folder / "generation_config.json", json.dumps(said, indent=2) + "\n")


def generation(run: Run, config: Config) -> dict[str, object]:
    """How text is written there: as here, as far as both have a name for it."""
    decode = run.recipe.decode
    beams = decode.num_beams if decode.kind == "beam" else 1
    ends = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    said: dict[str, object] = {key: config[key] for key in ends if key in config}
    said |= {"num_beams": beams, "max_new_tokens": decode.max_new_tokens}
    if beams > 1:
        said |= {"length_penalty": decode.length_penalty}
        said["early_stopping"] = decode.early_stopping
    said["do_sample"] = decode.kind == "sample"  # said even where not: their pipelines would draw
    if decode.kind == "sample":
        drawn = ("temperature", "top_k", "top_p", "min_p", "typical_p")
        said |= {key: vars(decode)[key] for key in drawn}
    usual = Decode()
    for key in ("repetition_penalty", "no_repeat_ngram_size", "min_new_tokens"):
        if vars(decode)[key] != vars(usual)[key]:
            said[key] = vars(decode)[key]
    # What is never written here is not written there.
    assert isinstance(run.task, WritesText)
    if banned := run.task.never_written:
        said |= {"bad_words_ids": [[i] for i in banned], "renormalize_logits": True}
    return said


def write_modules(run: Run, folder: Path) -> None:
    """What sentence-transformers reads beside the model: how a text's vectors become one."""
    settings: Any = run.model.settings
    names = ["Transformer", "Pooling", *(["Normalize"] if run.recipe.task.normalise else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{name}" if i else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for i, name in enumerate(names)
    ]
    pooling = {f"pooling_mode_{key}": ours == settings.pool for key, ours in POOLING.items()}
    said: dict[str, object] = {
        "modules.json": modules,
        "sentence_bert_config.json": {
            "max_seq_length": run.recipe.task.context,
            "do_lower_case": False,
        },
        "1_Pooling/config.json": {"word_embedding_dimension": settings.width, **pooling},
    }
    for module in modules[1:]:
        (folder / str(module["path"])).mkdir()
    for name, value in said.items():
        checkpoint.write_text(folder / name, json.dumps(value, indent=2) + "\n")


__all__ = ["ARCHITECTURES", "read", "rules_of", "without_repeats", "write"]
