"""What a run is for; `TASKS` is what `task.kind` picks from."""

from .prediction import Prediction
from .translate import Translate

TASKS = {"translate": Translate}

__all__ = ["TASKS", "Prediction"]
