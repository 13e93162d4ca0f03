"""GGUF files, as llama.cpp keeps its models: one becomes a run, a run becomes one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
)
from torch import Tensor

from ..errors import RunError
from ..model import Model
from ..models.gpt import GPTSettings
from ..tasks.task import Chats
from ..text.chat import ChatFormat
from ..text.text import readable
from ..training import checkpoint
from ..training.run import Run
from . import folder as folders
from . import hf, spiece, vocabulary
from .architecture import Config, must_be, shown
from .gguf_file import GGUFFile, package
from .gpt import llama_config, llama_settings
from .rules import Rule, Weights, layer, same, to_ours, to_theirs

ARCHITECTURE = "llama"
# How one who was taught to converse writes where a file does not say: mostly the likeliest.
CALMLY: dict[str, object] = {"kind": "sample", "temperature": 0.2, "top_p": 0.9}

# How Hugging Face calls what a file must say.
SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
# Where text is cut before its bytes are merged, by the name that llama.cpp has for it.
WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS: dict[str, list[Any]] = {
    "gpt-2": [WORDS],
    "smollm": [DIGITS, WORDS],
    "llama-bpe": [
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
}


def read(path: Path, run: Path) -> str:
    """Make a run of a file; a word on what it is."""
    if not path.is_file():
        raise RunError(f"{path}: there must be a GGUF file, but there is none.")
    hf.must_be_free(run)
    file = GGUFFile(path)
    shapes = file.shapes()
    config = config_of(file, shapes)
    settings = llama_settings(config, set(shapes))
    if settings.depth > len(shapes):
        raise RunError(
            f"{path}: each of {settings.depth} blocks must have tensors, but there are "
            f"{len(shapes)} in all."
        )
    with readable(f"{path}: not a readable vocabulary"):
        text = vocabulary.checked(tokenizer_of(file), path, config, config["vocab_size"])
    sections: dict[str, dict[str, object]] = {
        "text": {}, "decode": CALMLY if config["chat"] else {},
    }  # fmt: skip
    name = run.resolve().name
    recipe = hf.make_recipe(name, "language", "gpt", settings, sections, {}, str(path))
    task = hf.make_task(recipe, [text], config, path, shapes)

    with torch.device("meta"):
        blank = recipe.build(task.sizes)
    fill(blank, settings, shapes, path)
    model = recipe.build(task.sizes)
    fill(model, settings, file.tensors(), path)
    return hf.write_run(run, recipe, task, model, path, config)


def fill(model: Model, settings: GPTSettings, tensors: dict[str, Tensor], path: Path) -> None:
    """Give a model the file's weights; each must have the shape that the file's sizes ask for."""
    try:
        weights = to_ours(rules(settings), tensors, path)
    except (RuntimeError, IndexError) as error:  # not even as many rows as there are heads
        raise RunError(
            f"{path}: its tensors must have the shapes of its sizes ({error})."
        ) from error
    checkpoint.put_weights(model, weights, path)


def config_of(file: GGUFFile, shapes: dict[str, Tensor]) -> Config:
    """What the file says of its model, as a Hugging Face folder would say it."""
    fields, kind = file.fields, file.fields.get("general.architecture")
    if kind != ARCHITECTURE:
        raise RunError(
            f"{file.path}: the architecture {shown(kind)} is not known here; known is "
            f"{ARCHITECTURE}."
        )
    config: Config = {name: number(file, key) for name, key in SIZES.items()}
    heads = config["num_attention_heads"]
    own = config["hidden_size"] // heads
    for key, needed in (
        ("expert_count", 0), ("rope.dimension_count", own), ("attention.key_length", own),
        ("attention.value_length", own), ("rope.scaling.type", "none"),
    ):  # fmt: skip
        if (value := fields.get(f"{kind}.{key}", needed)) != needed:
            raise RunError(
                f"{file.path}: {kind}.{key} must be {needed} to be imported, but is "
                f"{shown(value)}; nothing is guessed."
            )
    table = shapes.get("token_embd.weight")
    return config | {
        "architectures": ["LlamaForCausalLM"],
        "num_key_value_heads": number(file, "attention.head_count_kv", heads),
        "rope_theta": number(file, "rope.freq_base", 10000.0),
        "tie_word_embeddings": "output.weight" not in shapes,
        "vocab_size": len(table) if table is not None and table.dim() else 0,
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "chat": chat_of(file),
    }


def number(file: GGUFFile, key: str, default: float | None = None) -> Any:
    name = f"{ARCHITECTURE}.{key}"
    value: Any = file.fields.get(name, default)
    if type(value) not in (int, float) or not 0 < value < 2**31:
        raise RunError(f"{file.path}: {name} must be a number above 0, but is {shown(value)}.")
    return value


# The vocabulary.


class Entries(NamedTuple):
    """The vocabulary's entries, as long as each other."""

    names: list[str]
    kinds: list[int]  # numbered as SentencePiece numbers them

    def of_kind(self, kind: int) -> list[str]:
        return [name for name, its in zip(self.names, self.kinds, strict=True) if its == kind]


def entries_of(file: GGUFFile) -> Entries:
    names = file.fields.get("tokenizer.ggml.tokens")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RunError(f"{file.path}: there must be a vocabulary, but there is none.")
    kinds = file.fields.get("tokenizer.ggml.token_type", [spiece.NORMAL] * len(names))
    if not isinstance(kinds, list) or len(kinds) != len(names) or len(set(names)) != len(names):
        raise RunError(
            f"{file.path}: every entry of the vocabulary must have a name of its own and a type."
        )
    return Entries(names, kinds)


def entry(file: GGUFFile, role: str, names: list[str]) -> str:
    """The entry that has a role; "" where none has."""
    place = file.fields.get(f"tokenizer.ggml.{role}_token_id")
    if place is None:
        return ""
    if type(place) is not int or not 0 <= place < len(names):
        raise RunError(
            f"{file.path}: tokenizer.ggml.{role}_token_id must be an entry of the vocabulary, but "
            f"is {shown(place)}."
        )
    return names[place]


def chat_of(file: GGUFFile) -> ChatFormat | None:
    """The chat template and the entries that it may use; None where there is none."""
    template, entries = file.fields.get("tokenizer.chat_template"), entries_of(file)
    if not isinstance(template, str):
        return None
    bos, eos = (entry(file, role, entries.names) for role in ("bos", "eos"))
    controls = dict.fromkeys([*entries.of_kind(spiece.CONTROL), bos, eos])
    return ChatFormat(template, [name for name in controls if name], bos, eos)


def tokenizer_of(file: GGUFFile) -> Tokenizer:
    kind, entries = file.fields.get("tokenizer.ggml.model"), entries_of(file)
    if kind not in VOCABULARIES:
        raise RunError(
            f"{file.path}: tokenizer.ggml.model must be {' or '.join(VOCABULARIES)}, but is "
            f"{shown(kind)}."
        )
    tokenizer = VOCABULARIES[kind](file, entries)
    bos = entry(file, "bos", entries.names)
    if bos and file.fields.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, entries.names.index(bos))],
        )  # fmt: skip
    return tokenizer


def merged_bytes(file: GGUFFile, entries: Entries) -> Tokenizer:
    """Bytes that are merged, as GPT-2 has them."""
    cut, merges = file.fields.get("tokenizer.ggml.pre"), file.fields.get("tokenizer.ggml.merges")
    if cut not in CUTS:
        raise RunError(
            f"{file.path}: tokenizer.ggml.pre must be one of {', '.join(CUTS)}, but is "
            f"{shown(cut)}; nothing is guessed."
        )
    if not isinstance(merges, list) or not all(" " in str(merge) for merge in merges):
        raise RunError(f"{file.path}: tokenizer.ggml.merges must be pairs, but are not.")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={name: i for i, name in enumerate(entries.names)},
            merges=[tuple(merge.split(" ", 1)) for merge in merges],
            ignore_merges=cut == "llama-bpe",
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(CUTS[cut])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [AddedToken(name, normalized=False) for name in entries.of_kind(spiece.USER)]
    )
    return tokenizer


def scored_pieces(file: GGUFFile, entries: Entries) -> Tokenizer:
    """Pieces that are merged by their scores, as SentencePiece has them."""
    scores = file.fields.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(entries.names):
        raise RunError(f"{file.path}: every entry of the vocabulary must have a score.")
    unknown = entries.of_kind(spiece.UNKNOWN)
    if len(unknown) != 1:
        raise RunError(f"{file.path}: one entry of the vocabulary must be the unknown one.")
    return spiece.bpe(
        spiece.Pieces(
            pieces=list(zip(entries.names, scores, entries.kinds, strict=True)),
            kind="bpe",
            byte_fallback=bool(entries.of_kind(spiece.BYTE)),
            charsmap=b"",
            normaliser="identity",
            add_dummy_prefix=bool(file.fields.get("tokenizer.ggml.add_space_prefix", True)),
            remove_extra_whitespaces=False,
            unk=entries.names.index(unknown[0]),
            unk_surface=" ⁇ ",
        )
    )


VOCABULARIES: dict[str, Callable[[GGUFFile, Entries], Tokenizer]] = {
    "gpt2": merged_bytes,
    "llama": scored_pieces,
}


# The tensors.


def rules(s: GPTSettings) -> Iterable[Rule]:
    """Which tensor is which, and in which order its rows stand."""
    yield same("embedding.tokens.weight", "token_embd.weight")
    for n in range(s.depth):
        ours, theirs = f"blocks.{n}", f"blk.{n}"
        yield from turned(s, f"{ours}.attention", f"{theirs}.attn")
        yield from layer(f"{ours}.attention.output", f"{theirs}.attn_output", False)
        yield from layer(f"{ours}.attention_residual.norm", f"{theirs}.attn_norm", False)
        yield from layer(f"{ours}.feedforward_residual.norm", f"{theirs}.ffn_norm", False)
        for part, its in (("gate", "gate"), ("widen", "up"), ("narrow", "down")):
            yield from layer(f"{ours}.feedforward.{part}", f"{theirs}.ffn_{its}", False)
    yield from layer("norm", "output_norm", False)
    if not s.tie:
        yield from layer("output", "output", False)


def turned(s: GPTSettings, ours: str, theirs: str) -> Iterable[Rule]:
    """Queries and keys: what turns together stands side by side there, half a head apart here."""
    query, key, value = (f"{theirs}_{part}.weight" for part in "qkv")
    shared = s.key_heads or s.heads

    def apart(x: Tensor, heads: int) -> Tensor:
        pairs: Tensor = x.unflatten(0, (heads, -1, 2))
        return pairs.transpose(1, 2).flatten(0, 2)

    def beside(x: Tensor, heads: int) -> Tensor:
        halves: Tensor = x.unflatten(0, (heads, 2, -1))
        return halves.transpose(1, 2).flatten(0, 2)

    def join(k: Tensor, v: Tensor) -> tuple[Tensor]:
        return (torch.cat((apart(k, shared), v)),)

    def cut(x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = x.chunk(2)
        return beside(k, shared), v

    yield Rule((f"{ours}.query.weight",), (query,), lambda x: (apart(x, s.heads),),
               lambda x: (beside(x, s.heads),))  # fmt: skip
    yield Rule((f"{ours}.memory.weight",), (key, value), join, cut)


# Out.


def write(run: Run, folder: Path) -> str:
    """Make a folder with the file in it; a word on what it is. No number of it is rounded."""
    folders.must_be_new(folder)
    types = package(folder)
    settings, task = run.model.settings, run.task
    if not isinstance(settings, GPTSettings) or not isinstance(task, Chats):
        raise RunError(
            f"{run.folder}: only language models of Llama's form can be a GGUF file, but this is a "
            f"{run.recipe.model_kind} for {run.recipe.task_kind}."
        )
    llama_config(settings)  # what has no counterpart there is refused
    must_be(settings, rotary_stretch="none")
    said = {**sizes_there(settings, task.written.size), **vocabulary_there(run, task)}
    tensors = to_theirs(rules(settings), Weights(checkpoint.weights_of(run.model)))
    folder.mkdir(parents=True, exist_ok=True)
    writer = types.GGUFWriter(folder / "model.gguf", ARCHITECTURE)
    for name, value in said.items():
        {
            bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
            str: writer.add_string, list: writer.add_array,
        }[type(value)](name, value)  # fmt: skip
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.cpu().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return f"{ARCHITECTURE} in F32, {sum(t.numel() for t in tensors.values()):,} parameters"


def sizes_there(s: GPTSettings, size: int) -> dict[str, object]:
    """Our settings under the names of `SIZES`, and what else their programs want."""
    config = llama_config(s)
    return {f"{ARCHITECTURE}.{key}": config[name] for name, key in SIZES.items()} | {
        f"{ARCHITECTURE}.attention.head_count_kv": config["num_key_value_heads"],
        f"{ARCHITECTURE}.rope.dimension_count": s.width // s.heads,
        f"{ARCHITECTURE}.rope.freq_base": s.rotary_base,
        f"{ARCHITECTURE}.vocab_size": size,
    }


def vocabulary_there(run: Run, task: Chats) -> dict[str, object]:
    """The vocabulary as that of `merged_bytes`, and the chat template."""
    text, chat = task.written, task.chat
    whole = json.loads(text.tokenizer.to_str())
    cut = next((name for name, cuts in CUTS.items() if same_cuts(cuts, whole)), None)
    if whole["model"]["type"] != "BPE" or cut is None:
        raise RunError(
            f"{run.folder}: the vocabulary must merge bytes and cut text as {', '.join(CUTS)} do "
            "to be exported, but does not."
        )
    names = text.tokens(range(text.size))
    roles = {"bos": text.bos, "eos": text.eos}
    if chat is not None and chat.format.bos:
        roles["bos"] = text.controls[chat.format.bos]
    kinds = [spiece.CONTROL if i in text.specials else spiece.NORMAL for i in range(text.size)]
    said = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": cut,
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in whole["model"]["merges"]],
        "tokenizer.ggml.add_bos_token": bool(task.written.tokenizer.post_processor is not None
                                             and text.frame.first),
    } | {f"tokenizer.ggml.{role}_token_id": i for role, i in roles.items() if i >= 0}  # fmt: skip
    return said if chat is None else said | {"tokenizer.chat_template": chat.format.template}


def same_cuts(cuts: list[Any], whole: dict[str, Any]) -> bool:
    """Whether a vocabulary cuts text in this way; a step alone may stand in no sequence."""
    given = whole["pre_tokenizer"] or {}
    steps = given.get("pretokenizers", [given])
    return bool(steps == [json.loads(cut.__getstate__()) for cut in cuts])
