"""`regard train … --seeds N --sweep KEY=A,B`: several runs of one recipe, and their table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError


def train_several(
    recipe: str,
    settings: Sequence[str],
    run: Path | None,
    fresh: bool,
    seeds: int,
    sweep: Sequence[str],
) -> None:
    """Train them one after the other with the progress drawn; then tell what they reach."""
    from rich.table import Table

    from .. import terminal
    from ..see.several import several
    from .learn import train_shown

    console = terminal.console()

    def shown(recipe: str, *said: str, run: Path, data: object, on: str, fresh: bool) -> None:
        console.print(f"\n{run}", style="bold", soft_wrap=True)
        train_shown(recipe, said, run, fresh, on=on)

    chosen = dict(map(values_of, sweep))
    if len(chosen) < len(sweep):
        raise InputError("--sweep: a setting must come once, with all its values: KEY=A,B.")
    told: Any = several(
        recipe, *settings, seeds=seeds, sweep=chosen, run=run, train=shown, fresh=fresh
    )
    head, *rows = told.table()
    table = Table(*head, title=f"{told.recipe} on {told.on}")
    for cells in rows:
        table.add_row(*cells)
    console.print(table)
    if chosen:
        console.print(
            f"The best is {told.best}; `regard evaluate {told.best}` scores it on test data.",
            soft_wrap=True,
            highlight=False,
        )


def values_of(text: str) -> tuple[str, list[str]]:
    """`KEY=A,B` taken apart; commas inside brackets or quotes do not part values."""
    key, equals, rest = text.partition("=")
    values = re.findall(r"(?:\[[^]]*\]|\"[^\"]*\"|[^,])+", rest)
    if not equals or not values or "." not in key:
        raise InputError(
            f"--sweep: '{text}' must look like KEY=A,B, such as train.rate=0.001,0.002."
        )
    return key.strip(), [value.strip() for value in values]
