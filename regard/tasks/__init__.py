"""What a run is for; `TASKS` is what `task.kind` picks from."""

from typing import Any

from .classify import Classify
from .language import Language
from .permute import Permute
from .prediction import Prediction
from .story import Story
from .translate import Translate

TASKS: dict[str, Any] = {
    "translate": Translate,
    "language": Language,
    "permute": Permute,
    "story": Story,
    "classify": Classify,
}

__all__ = ["TASKS", "Prediction"]
