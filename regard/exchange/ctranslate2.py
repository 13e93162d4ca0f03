"""CTranslate2 out, by way of the Hugging Face folder that its own converter reads."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..errors import RunError
from ..train.run import Run
from . import hf


def write(run: Run, folder: Path) -> str:
    """Make a folder that CTranslate2 loads; a word on what it is."""
    if folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{folder}: the folder must be empty or new, but holds something.")
    try:
        from ctranslate2.converters import TransformersConverter
    except ImportError as error:
        raise RunError(
            "--to ctranslate2 needs its converter; pip install 'regard[ctranslate2]'."
        ) from error
    with tempfile.TemporaryDirectory() as between:
        said = hf.write(run, Path(between) / "hf")
        kept = ["tokenizer.json"]
        try:
            converter = TransformersConverter(str(Path(between) / "hf"), copy_files=kept)
            converter.convert(str(folder), force=True)
        except (ValueError, KeyError) as error:
            raise RunError(f"CTranslate2 does not take such a model ({error}).") from error
    return said
