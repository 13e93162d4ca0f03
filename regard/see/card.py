"""The model card: README.md of a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..errors import InputError
from ..tasks.task import Chats, Shows
from ..training.checkpoint import write_text
from ..training.cost import shown_share
from ..training.files import BILL, CARD, RESULTS, said
from ..training.run import Run
from . import capture, evidence


def write(run: Run) -> None:
    """What it is, data, scores, cost, how to use it, one picture."""
    recipe, folder = run.recipe, run.folder
    results, bill = said(folder, RESULTS), said(folder, BILL)
    example, sight = _example(run), None
    if example and run.model.looks:
        # What cannot be looked at, too long a line say, must not spoil the end of a training.
        with suppress(InputError):
            sight = capture.look(run, _given(run))
    lines = [
        f"# {recipe.name}",
        "",
        *([f"**{run.task.caution}**", ""] if run.task.caution else []),
        f"A {recipe.model_kind} trained for the task `{recipe.task_kind}` with regard; "
        f"{bill['parameters']:,} parameters.",
        "",
        "## Data",
        "",
        *(
            f"- {part}: {_files(vars(recipe.data)[part])}"
            for part in ("train", "valid", "test")
            if recipe.data.named(part)
        ),
        "",
        "## Scores",
        "",
        *(_scores(results) if results else ["Not scored yet."]),
        "",
        "## Cost",
        "",
        f"- {bill['steps']:,} steps, {bill['target_tokens']:,} target tokens, "
        f"{bill['flops']:.3g} FLOPs",
        f"- {bill['seconds']:,.0f} s on {bill['device']}, "
        f"{bill['tokens_per_second']:,.0f} target tokens/s",
        f"- {bill['kwh']:.4g} kWh ({bill['kwh_method']}), {bill['co2e_grams']:.3g} g CO2e "
        f"at {bill['grams_per_kwh']:g} g/kWh",
        *_everyday(bill),
        "",
        "## Use",
        "",
        "```",
        f'regard predict {folder} "{example}"',
        *([f"regard chat {folder}"] if isinstance(run.task, Chats) and run.task.chat else []),
        f'regard see {folder} "{example}" --out see.html',
        "```",
        "",
    ]
    for scores in results.values():
        if isinstance(scores, dict) and "left" in scores:
            evidence.draw(scores, folder / evidence.FIGURE)
    if sight is not None:
        sight.save(folder / "attention.png")
        answer = f", of which it says “{sight.output}”" if sight.output else ""
        lines += [
            f"What attended to what in “{sight.input}”{answer}:",
            "",
            "![attention](attention.png)",
            "",
        ]
    write_text(folder / CARD, "\n".join(lines))


def _files(given: str | Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in ([given] if isinstance(given, str) else given))


def _scores(results: dict[str, Any]) -> list[str]:
    lines = []
    for part, scores in results.items():
        for name, value, interval, note in told(scores):
            around, signed = f" [{interval}]" if interval else "", f" ({note})" if note else ""
            lines.append(f"- {part} {name}: {value}{around}{signed}")
        lines += _classes(part, scores)
        lines += evidence.lines(part, scores)
    return lines


def _classes(part: str, scores: dict[str, Any]) -> list[str]:
    """Each class with what was found of it, and which was taken for which."""
    lines: list[str] = []
    if told_apart := scores.get("per_class"):
        lines += ["", f"Of {part}, class by class:", ""]
        lines += [
            "| class | precision | recall | F1 | examples |",
            "| --- | --- | --- | --- | --- |",
        ]
        for name, row in told_apart.items():
            shares = " | ".join(f"{100 * row[key]:.2f}" for key in ("precision", "recall", "f1"))
            lines.append(f"| {name} | {shares} | {row['examples']} |")
    if confusion := scores.get("confusion"):
        names = confusion["labels"]
        lines += ["", f"What was taken for what in {part}; rows are right, columns were given:", ""]
        lines += [f"| | {' | '.join(names)} |", f"| --- {'| --- ' * len(names)}|"]
        for name, row in zip(names, confusion["matrix"], strict=True):
            lines.append(f"| {name} | {' | '.join(map(str, row))} |")
    return lines


def told(scores: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Scores as people read them: name, value, interval, and signature or unit.

    Speeds and settings beside them are not scores.
    """
    for name, value in scores.items():
        if isinstance(value, float) and name != "seconds" and not name.endswith("_per_second"):
            low_high = scores.get(f"{name}_interval")
            interval = f"{low_high[0]} – {low_high[1]}" if low_high else ""
            notes = (scores.get(f"{name}_{kind}", "") for kind in ("signature", "unit"))
            note = "; ".join(filter(None, notes))
            yield name, f"{value}", interval, note
        elif isinstance(value, dict) and all(isinstance(part, float) for part in value.values()):
            for part, own in value.items():  # one score of several tasks
                yield f"{name}: {part}", f"{own}", "", ""
        elif name == "estimates":
            for part, own in value.items():
                few = ", too few" if own["too_few"] else ""
                interval = f"{own['interval'][0]} – {own['interval'][1]}"
                size = f"effective sample size {own['effective']:,.1f}{few}"
                yield f"value by {part}", f"{own['value']}", interval, size
        elif name.endswith("_passed"):
            yield name, f"{value} of {scores[name.removesuffix('_passed')]}", "", ""


def scored(scores: Mapping[str, Any]) -> str:
    """What the scores are of."""
    count = scores["examples"]
    return str(scores.get("scored", f"{count:,} example{'s' * (count != 1)}"))


def _part(run: Run) -> str:
    return "valid" if run.recipe.data.valid else "test" if run.recipe.data.test else "train"


def _example(run: Run) -> str:
    return run.task.example(run.examples(_part(run)), run.model.longest)


def _given(run: Run) -> object:
    """The same as it is given; what is a file is taken from the data, wherever that may be."""
    if isinstance(run.task, Shows):
        return run.task.as_given(next(iter(run.examples(_part(run)))))
    return _example(run)


def _everyday(bill: Mapping[str, Any]) -> list[str]:
    """The same beside what everybody knows; runs of before have none of it."""
    told = [f"{shown_share(share)} {name}" for name, share in bill.get("everyday", {}).items()]
    lines = [f"- as much CO2e as {'; '.join(told)} (Strubell et al. 2019)"] if told else []
    if "price" in bill:
        lines.append(f"- {bill['price']:,.2f} for the devices, at what train.price_per_hour says")
    return lines
