"""CTranslate2 out, by way of the Hugging Face folder that its own converter reads."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..tasks.task import WritesText
from ..training.checkpoint import write_text
from ..training.run import Run
from . import hf
from .folder import must_be_new


def write(run: Run, folder: Path) -> str:
    """Make a folder that CTranslate2 loads; a word on what it is."""
    must_be_new(folder)
    if not isinstance(run.task, WritesText):
        raise RunError(
            f"{run.folder}: CTranslate2 writes text; a run for {run.recipe.task_kind} is not for "
            "that."
        )
    try:
        import transformers
        from ctranslate2.converters import TransformersConverter
        from ctranslate2.converters.transformers import BartLoader
    except ImportError as error:
        raise RunError(
            "--to ctranslate2 needs its converter; pip install 'regard[ctranslate2]'."
        ) from error
    with tempfile.TemporaryDirectory() as between:
        said = hf.write(run, Path(between) / "hf")
        try:
            if run.recipe.model_kind == "transformer":
                # Its own reader of Marians drops a word and begins with a zero vector, as published
                # ones do; the one that it builds on leaves the weights as they are.
                model = transformers.AutoModelForSeq2SeqLM.from_pretrained(Path(between) / "hf")
                model.config.normalize_before = run.model.settings.residual == "pre"
                model.config.normalize_embedding = False
                spec = BartLoader().get_model_spec(model)
                name_words(spec, run)
                spec.validate()
                spec.optimize()
                folder.mkdir(parents=True, exist_ok=True)
                spec.save(str(folder))
            else:
                kept = ["tokenizer.json"]
                converter = TransformersConverter(str(Path(between) / "hf"), copy_files=kept)
                converter.convert(str(folder), force=True)
        except (ValueError, KeyError, AttributeError) as error:
            raise RunError(f"CTranslate2 does not take such a model ({error}).") from error
    options = how_to_ask(run)
    write_text(folder / OPTIONS, json.dumps(options, indent=1) + "\n")
    if options.get("beam_size", 1) > 1 and run.recipe.decode.early_stopping is not True:
        said += (
            "; CTranslate2 ends a search as decode.early_stopping=true does, so where the run "
            "searches on, answers can differ"
        )
    return said


OPTIONS = "decode.json"  # what to call it with


def how_to_ask(run: Run) -> dict[str, Any]:
    """The options of `translate_batch` or `generate_batch` that answer as the run does.

    Left to itself, CTranslate2 lets no answer be empty and writes any entry of the vocabulary.
    Everything else that it is not told here is as the run has it.
    """
    decode, text = run.recipe.decode, hf.texts_of(run)[-1]
    assert isinstance(run.task, WritesText)
    never = run.task.never_written
    length = "max_length" if run.task.writes_on else "max_decoding_length"
    options: dict[str, object] = {
        "beam_size": decode.num_beams if decode.kind == "beam" else 1,
        length: decode.max_new_tokens,
        length.replace("max", "min"): decode.min_new_tokens,
        "suppress_sequences": [[name] for name in text.tokens(never)],
        "repetition_penalty": decode.repetition_penalty,
        "no_repeat_ngram_size": decode.no_repeat_ngram_size,
    }
    if decode.kind == "beam":
        options["length_penalty"] = decode.length_penalty
        options["num_hypotheses"] = decode.num_return_sequences
    if decode.kind == "sample":
        options |= {"sampling_topk": decode.top_k, "sampling_topp": decode.top_p}
        options["sampling_temperature"] = decode.temperature
    return options


def name_words(spec: Any, run: Run) -> None:
    """The vocabularies of both sides, and which entries begin, end and stand for the unknown."""
    source, target = (hf.texts_of(run)[i] for i in (0, -1))
    spec.register_source_vocabulary(source.tokens(range(source.size)))
    spec.register_target_vocabulary(target.tokens(range(target.size)))
    begin, end, unknown = target.tokens([target.bos, target.eos, target.unk])
    spec.config.bos_token = spec.config.decoder_start_token = begin
    spec.config.eos_token, spec.config.unk_token = end, unknown
