"""What a served run looks at: the answer that it gives, found as it is everywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from ..errors import InputError
from ..see.ablate import head_by_head
from ..see.capture import AttentionReport
from ..see.run import Run
from . import schema
from .limits import ServerLimits
from .served import ServedRun


async def into(one: ServedRun, asked: schema.Attention, limits: ServerLimits) -> dict[str, object]:
    """An input answered among the others', then looked at in one pass; where one head after the
    other is silenced, the others' steps go on between two of them."""
    if not one.run.model.looks:
        raise InputError(
            f"model: {one.name} is a {one.run.recipe.model_kind}, which has no attention to see."
        )
    decode, target = one.decode_settings(asked.parameters), asked.target
    given = one.task.looked_at(await asyncio.to_thread(one.task.gives.accept, asked.input))
    seed = {"seed": decode.seed} if one.writes and decode.kind == "sample" else {}
    if target is None and one.task.looks_at_answer:
        (answer,) = await one.predict([given], {**asked.parameters, **seed})
        target = answer["output"]

    def work() -> Iterator[None]:
        chosen = (asked.layers, asked.heads, limits.look, decode, asked.vectors)
        sight = one.run.see(given, target, *chosen)
        kept.append(sight)
        yield
        if asked.ablate:
            found = yield from head_by_head(one.run, given, examples=0, decode=decode)
            kept.append(replace(sight, ablation=found))

    kept: list[AttentionReport] = []
    await one.call(work)
    return {**kept[-1].data(), "model": one.name, **seed}


class Drawn(Protocol):
    """What a deeper look gives."""

    def data(self) -> dict[str, object]: ...
    def save(self, path: str | Path) -> Path: ...


VIEWS: dict[str, Callable[[Run, schema.Inspection], Drawn]] = {
    "field": lambda run, asked: run.field(asked.inputs[0], asked.token),
    "layers": lambda run, asked: run.layers(asked.inputs[0]),
    "word": lambda run, asked: run.meaning(asked.token, asked.inputs),
    "heads": lambda run, asked: run.heads(asked.inputs),
}


async def deeper(one: ServedRun, asked: schema.Inspection) -> dict[str, object]:
    """The numbers of a deeper look, and its picture as SVG."""
    if asked.view in ("field", "word") and not asked.token.strip():
        raise InputError(f"token: the view {asked.view} is of a token; name it.")

    def work() -> Iterator[None]:
        found = VIEWS[asked.view](one.run, asked)
        yield
        with TemporaryDirectory() as folder:
            picture = found.save(Path(folder) / "view.svg").read_text(encoding="utf-8")
        kept.append({**found.data(), "svg": picture})

    kept: list[dict[str, object]] = []
    await one.call(work)
    return {**kept[-1], "view": asked.view, "model": one.name}
