"""One file a model; `MODELS` is what `model.kind` picks from."""

from typing import Any

from .gpt import GPT
from .rnn import RNN
from .transformer import Transformer
from .xl import XL
from .xlnet import XLNet

MODELS: dict[str, Any] = {
    "transformer": Transformer,
    "rnn": RNN,
    "gpt": GPT,
    "xl": XL,
    "xlnet": XLNet,
}
