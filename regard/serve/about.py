"""What a run is, beside its answers: inputs to try it with, and how it was trained."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from ..data.examples import Examples
from ..data.read import parse_json
from ..data.running import Piece
from ..errors import RegardError
from ..see.run import Run
from ..tasks.task import HasText
from ..training.files import CARD

COUNT = 3  # inputs that are offered
LOOKED_AT = 200  # examples among which they are chosen
WORDS = 7  # that a sentence to try has at best
LARGEST = 500_000  # bytes of a file that is offered
POINTS = 600  # of a curve; more cannot be told apart on a page
# How a file is sent that an example holds, by the form of its task.
FILES = {"picture": ("image", "data:image/png"), "sound": ("audio", "data:audio/file")}


def examples(run: Run) -> list[dict[str, object]]:
    """Inputs of the run's own data, in the form it takes, with what was wanted; where the data are
    gone, the one on its card, or none."""
    for part in ("valid", "test", "train"):
        if not run.recipe.data.named(part):
            continue
        try:
            if offered := chosen(list(candidates(run, run.examples(part)))):
                return offered
        except (RegardError, OSError):  # moved or deleted since
            continue
    return on_card(run)


def candidates(run: Run, data: Examples[Any]) -> Iterator[tuple[object, str, int]]:
    """Examples from all over the data: the input, what is wanted, how far from easily read."""
    form, task = run.task.gives, run.task
    text = next(iter(task.texts.values())) if isinstance(task, HasText) else None
    for number in range(0, len(data), max(1, len(data) // LOOKED_AT)):
        if form.from_file:
            row = data[number]
            if len(row.content) <= LARGEST:
                name, kind = FILES[form.kind]
                content = shown(row.content) if form.kind == "picture" else row.content
                sent = f"{kind};base64,{base64.b64encode(content).decode()}"
                yield {name: sent}, wanted(row), len(row.content) if form.kind == "sound" else 0
            continue
        for row in cut(data[number]):
            if typed := run.task.example(cast(Examples[Any], [row]), run.model.longest):
                far, words = len(typed), len(typed.split())
                if form.kind == "text":  # few words, of which the model cuts few into pieces
                    pieces = len(text.encode([typed])[0]) if text else words
                    far = abs(words - WORDS) + abs(pieces - words)
                yield typed, wanted(row), far


def cut(row: Any) -> list[Any]:
    """Running text as several examples, each beginning at a line; another example as it is."""
    lines = row.text.split("\n") if isinstance(row, Piece) else []
    if len(lines) < COUNT:
        return [row]
    starts = [len(lines) * part // COUNT for part in range(COUNT)]
    return [row._replace(text="\n".join(lines[start:])) for start in starts]


def shown(picture: bytes) -> bytes:
    """A picture's file as browsers can show it."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as opened:
        if opened.format in ("PNG", "JPEG", "WEBP", "GIF", "BMP"):
            return picture
        content = io.BytesIO()
        opened.save(content, "PNG")
    return content.getvalue()


def chosen(found: list[tuple[object, str, int]]) -> list[dict[str, object]]:
    """The most easily read, of several classes where there are such."""
    order = sorted(found, key=lambda each: each[2])
    picked: list[tuple[object, str]] = []
    for differ in (True, False):
        for sent, right, _ in order:
            new = all(sent != other for other, _ in picked)
            if differ:
                new = new and all(right != other for _, other in picked)
            if new and len(picked) < COUNT:
                picked.append((sent, right))
    return [{"input": sent, "wanted": right or None} for sent, right in picked]


def plain(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


# What is right, by the name that an example has for it.
RIGHT: dict[str, Callable[[Any], str]] = {
    "target": plain,
    "label": plain,
    "answer": plain,
    "answers": lambda several: several[0][0] if several else "",
    "captions": lambda several: several[0] if several else "",
    "tags": lambda several: " ".join(several) if isinstance(several[0], str) else "",
}


def wanted(row: Any) -> str:
    """What an example has for right; "" where that is nothing to be read."""
    fields = row._asdict()
    if "speaker" in fields:  # what is said in a sound
        return plain(fields["text"])
    return next((RIGHT[name](fields[name]) for name in RIGHT if fields.get(name)), "")


def on_card(run: Run) -> list[dict[str, object]]:
    """The input that the card's first command has."""
    path = run.folder / CARD
    card = path.read_text(encoding="utf-8") if path.is_file() else ""
    typed = re.search(r'^regard predict .*? "(.+)"$', card, re.M)
    if typed is None or run.task.gives.from_file:
        return []
    return [{"input": typed[1], "wanted": None}]


def training(folder: Path) -> dict[str, object]:
    """The curves of metrics.jsonl: means over steps, and scores on the validation data."""
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    events = [event for line in lines if (event := readable(line))]
    steps = [
        {name: event.get(name) for name in ("step", "loss", "rate")}
        for event in events
        if event.get("event") == "step"
    ]
    scored = [
        {"step": event["step"], **numbers(event["scores"])}
        for event in events
        if event.get("event") == "scored"
    ]
    return {"steps": steps[:: -(-len(steps) // POINTS) or 1], "scored": scored}


def readable(line: str) -> dict[str, Any]:
    """An event; the last line of a run that was killed may be cut short."""
    try:
        event = parse_json(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def numbers(scores: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if isinstance(value, int | float)}
