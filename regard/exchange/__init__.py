"""Other people's formats: Hugging Face and GGUF in and out, CTranslate2 and ONNX out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..training.run import Run
from . import ctranslate2, gguf, hf, onnx

# What `regard export --to` picks from.
WRITERS: dict[str, Callable[[Run, Path], str]] = {
    "hf": hf.write,
    "ctranslate2": ctranslate2.write,
    "onnx": onnx.write,
    "gguf": gguf.write,
}
