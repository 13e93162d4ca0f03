"""regard: attention models of the classic lectures, built of the same few parts."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .parts.attention import attend as attend
    from .parts.watch import watch as watch
    from .see.run import load as load
    from .see.run import train as train

# Where each public name lives; imported when first used, so that `import regard` and the shell's
# --help do not wait for torch.
_HOMES = {
    "attend": "parts.attention",
    "load": "see.run",
    "train": "see.run",
    "watch": "parts.watch",
}
__all__ = ["__version__", "attend", "load", "train", "watch"]


def _public(name: str) -> property:
    def get(package: ModuleType) -> Any:
        return getattr(import_module(f"regard.{_HOMES[name]}"), name)

    def ignore(package: ModuleType, value: Any) -> None:
        """Importing the room `regard.train` would otherwise hide the function of that name."""

    return property(get, ignore)


class _Regard(ModuleType):
    """The package as a user sees it: the few public names, each fetched when it is asked for."""

    attend, load, train, watch = (_public(name) for name in ("attend", "load", "train", "watch"))


sys.modules[__name__].__class__ = _Regard
