"""CTranslate2 out, by way of the Hugging Face folder that its own converter reads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..train.run import Run
from . import hf
from .folder import must_be_new


def write(run: Run, folder: Path) -> str:
    """Make a folder that CTranslate2 loads; a word on what it is."""
    must_be_new(folder)
    task = run.recipe.task_kind
    if task not in ("language", "translate", "text-to-text"):
        raise RunError(f"{run.folder}: CTranslate2 writes text; a run for {task} is not for that.")
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
                model.config.normalize_before = run.model.settings.residual == "pre"  # type: ignore[union-attr]
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
    return said


def name_words(spec: Any, run: Run) -> None:
    """The vocabularies of both sides, and which entries begin, end and stand for the unknown."""
    source, target = (hf.texts_of(run)[i] for i in (0, -1))
    spec.register_source_vocabulary(source.tokens(range(source.size)))
    spec.register_target_vocabulary(target.tokens(range(target.size)))
    begin, end, unknown = target.tokens([target.bos, target.eos, target.unk])
    spec.config.bos_token = spec.config.decoder_start_token = begin
    spec.config.eos_token, spec.config.unk_token = end, unknown
