"""What a run folder holds, by name, and what of it says how far the run is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECIPE = "recipe.toml"
WEIGHTS = "model.safetensors"  # written when training has ended
BEST = "best.safetensors"  # the best so far, until then
BILL = "cost.json"
RESULTS = "results.json"
CARD = "README.md"  # written last of all, when it is scored


def is_trained(folder: Path) -> bool:
    return (folder / WEIGHTS).is_file()


def is_finished(folder: Path) -> bool:
    """Trained and scored, with its card written."""
    return (folder / CARD).is_file()


def said(folder: Path, name: str) -> dict[str, Any]:
    """What one of its JSON files says: nothing, where that is not there or cannot be read."""
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
