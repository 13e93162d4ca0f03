"""What the tab key offers; nothing slow is imported for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

RECIPES = Path(__file__).parents[1] / "recipes"


def recipe_names(incomplete: str) -> list[str]:
    """Recipes that are shipped, and files of one's own."""
    names = [*(path.stem for path in RECIPES.glob("*.toml")), *paths(incomplete, ".toml")]
    return sorted(name for name in names if name.startswith(incomplete))


def run_folders(incomplete: str) -> list[str]:
    """Folders that hold a run: here, in runs/, and in what is typed so far."""
    usual = (str(path.parent) for path in Path("runs").glob("*/recipe.toml"))
    typed = (str(Path(folder)) for folder in paths(incomplete, "/recipe.toml"))
    return sorted({name for name in (*usual, *typed) if name.startswith(incomplete)})


def paths(incomplete: str, ending: str) -> Iterator[str]:
    """What is there that begins so; of a folder's file, the folder."""
    base, _, begun = incomplete.rpartition("/")
    folder = Path(base or ("/" if incomplete.startswith("/") else "."))
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name.startswith(begun) and not path.name.startswith("."):
            is_folder = ending.startswith("/") and (path / ending[1:]).is_file()
            if is_folder or (path.is_file() and path.name.endswith(ending)):
                yield str(path)
