"""regard: attention models of the classic lectures, built of the same few parts.

train    trains a recipe, scores it, and gives the run
several  the same with several seeds, or with each of several settings
load     the run in a folder: it predicts, evaluates, and shows what attends to what
attend   the one operation: softmax(query · key) value, and the weights
watch    collects a model's attention weights while it runs; models of transformers too
draw     what was seen so of somebody else's model, as a report
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .parts.attention import attend as attend
    from .parts.watch import watch as watch
    from .see.live import draw as draw
    from .see.run import load as load
    from .see.run import train as train
    from .see.several import several as several

# Where each public name lives; imported when first used, so that `import regard` and the shell's
# --help do not wait for torch.
_HOMES = {
    "attend": "parts.attention",
    "draw": "see.live",
    "load": "see.run",
    "several": "see.several",
    "train": "see.run",
    "watch": "parts.watch",
}
__all__ = ["__version__", "attend", "draw", "load", "several", "train", "watch"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute '{name}'")
    return getattr(import_module(f"regard.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
