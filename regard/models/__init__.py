"""One file a model; `MODELS` is what `model.kind` picks from."""

from .transformer import Transformer

MODELS = {"transformer": Transformer}
