"""Runs side by side: quality, size, speed and cost, from what each run folder says of itself."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.read import parse_json, read_json
from ..errors import InputError, RunError
from ..score.decisions import around
from ..training.cost import FLIGHT, everyday, shown_share
from .brief import counted
from .card import scored
from .figure import plain
from .save import save

# The columns of a terminal's second and third table.
SPEED = ("training s", "training tokens/s", "predicting /s", "FLOPs")
COST = ("kWh", "g CO2e", "CO2e as", "price")


@dataclass(frozen=True)
class Entry:
    """One run's line: its scores, its bill, and what it learned by when."""

    name: str
    scores: dict[str, object]
    bill: dict[str, Any]
    curve: list[tuple[float, float]]  # seconds of training, validation loss

    @property
    def headline(self) -> str:
        return str(self.scores["headline"])

    @property
    def measured_as(self) -> dict[str, Any]:
        """What must be the same for two scores to be compared."""
        name = self.headline
        return {
            "how it was estimated": self.scores.get("estimator", ""),
            "the set": (self.scores["on"], self.scores["set"]),
            "the score": name,
            "its signature": self.scores.get(f"{name}_signature")
            or self.scores.get(f"{name}_unit", ""),
        }

    def row(self) -> dict[str, Any]:
        """All that is compared, under plain names."""
        s, b, name = self.scores, self.bill, self.headline
        # Tokens, answers, words or texts a second, as the task counts.
        told = (v for k, v in s.items() if k.startswith("predict_") and k.endswith("_per_second"))
        speed = next(told, None)
        return {
            "run": self.name,
            name: s[name],
            "interval": s.get(f"{name}_interval"),
            "parameters": b["parameters"],
            "training_seconds": b["seconds"],
            "training_tokens_per_second": b["tokens_per_second"],
            "predict_per_second": speed,
            "flops": b["flops"],
            "kwh": b["kwh"],
            "kwh_method": b["kwh_method"],
            "co2e_grams": b["co2e_grams"],
            "flights": everyday(b["co2e_grams"])[FLIGHT],
            "price": b.get("price"),
            "device": b["device"],
            "by_length": s.get("by_length"),
            "by_length_unit": s.get("by_length_unit"),
        }


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs that were measured alike; saves itself as a page, a picture, a table or numbers."""

    entries: list[Entry]

    def __repr__(self) -> str:
        return f"<Comparison of {counted(len(self.entries), 'run')} by {self.headline}>"

    @property
    def headline(self) -> str:
        return self.entries[0].headline

    def rows(self) -> list[dict[str, Any]]:
        """The best first."""
        sign = -1 if self.entries[0].scores["higher_is_better"] else 1
        return sorted((e.row() for e in self.entries), key=lambda row: sign * row[self.headline])

    def columns(self) -> list[tuple[str, Callable[[dict[str, object]], str]]]:
        """Heads of the table, and what stands under each."""

        def interval(row: dict[str, Any]) -> str:
            return f"{row['interval'][0]} – {row['interval'][1]}" if row["interval"] else ""

        priced = [("price", lambda row: _number(row["price"], ",.2f"))]
        priced = priced if any(row["price"] is not None for row in self.rows()) else []
        return [
            ("run", lambda row: row["run"]),
            (self.headline, lambda row: f"{row[self.headline]}"),
            ("95 % interval", interval),
            ("parameters", lambda row: f"{row['parameters']:,}"),
            ("training s", lambda row: f"{row['training_seconds']:,.0f}"),
            ("training tokens/s", lambda row: f"{row['training_tokens_per_second']:,.0f}"),
            ("predicting /s", lambda row: _number(row["predict_per_second"], ",.0f")),
            ("FLOPs", lambda row: f"{row['flops']:.3g}"),
            ("kWh", lambda row: f"{row['kwh']:.3g}"),
            ("g CO2e", lambda row: f"{row['co2e_grams']:.3g}"),
            ("CO2e as", lambda row: f"{shown_share(row['flights'])} a flight"),
            *priced,
        ]

    def tables(self) -> list[list[list[str]]]:
        """The same in narrow tables, for a terminal; a column in which nothing is known is left
        out."""
        told = {head: [show(row) for row in self.rows()] for head, show in self.columns()}
        names = told.pop("run")
        tables = []
        for heads in ((self.headline, "95 % interval", "parameters"), SPEED, COST):
            known = [head for head in heads if any(told.get(head, ()))]
            columns = [[head, *told[head]] for head in known]
            rows = zip(["run", *names], *columns, strict=True)
            tables += [[list(row) for row in rows]] if columns else []
        return [*tables, *([self.lengths()] if self.lengths() else [])]

    def lengths(self) -> list[list[str]]:
        """The score by length: a head, then a row a run; empty where there is none."""
        rows = [row for row in self.rows() if row["by_length"]]
        if not rows:
            return []
        steps = rows[0]["by_length"]
        head = [f"{rows[0]['by_length_unit']}:", *(f"{b['from']}–{b['to']}" for b in steps)]
        return [head, *([r["run"], *(_score(b) for b in r["by_length"])] for r in rows)]

    def notes(self) -> list[str]:
        """What the numbers are, and how the energy is known."""
        same = self.entries[0].measured_as
        methods = dict.fromkeys(entry.bill["kwh_method"] for entry in self.entries)
        return [
            *self.differences(),
            f"On {same['the set'][0]}, {scored(self.entries[0].scores)}; "
            f"{self.headline}: {same['its signature'] or 'no signature'}.",
            f"Energy: {'; '.join(methods)}.",
        ]

    def differences(self) -> list[str]:
        """How much more the best is worth than each other, where both were judged on the same draws
        of the same records."""
        by_name = {entry.name: entry.scores for entry in self.entries}
        best, *others = (by_name[row["run"]] for row in self.rows())
        names = [row["run"] for row in self.rows()]
        found = []
        for name, other in zip(names[1:], others, strict=True):
            one, two = (scores.get("value_draws") for scores in (best, other))
            known = all("value_degrees" in scores for scores in (best, other))
            if not known or not one or not two or len(one) != len(two):  # type: ignore[arg-type]
                continue
            more = float(best["value"]) - float(other["value"])  # type: ignore[arg-type]
            degrees = min(float(scores["value_degrees"]) for scores in (best, other))  # type: ignore[arg-type]
            low, high = around(more, np.array(one) - np.array(two), degrees)
            found.append(
                f"{names[0]} is worth {more:+.4f} more than {name} (95 %: {low:+.4f} – "
                f"{high:+.4f}, both on the same draws of histories)."
            )
        return found

    def markdown(self) -> str:
        """Tables for a README."""
        tables = [
            [[head for head, _ in self.columns()], *self.cells()],
            *([self.lengths()] if self.lengths() else []),
        ]
        parts = []
        for table in tables:
            safe = [[cell.replace("|", "\\|") for cell in row] for row in table]
            lines = [f"| {' | '.join(row)} |" for row in safe]
            lines.insert(1, "| --- " * len(table[0]) + "|")
            parts.append("\n".join(lines))
        return "\n\n".join([*parts, *self.notes()]) + "\n"

    def cells(self) -> list[list[str]]:
        return [[show(row) for _, show in self.columns()] for row in self.rows()]

    def page(self) -> str:
        """One file that works offline."""
        picture = io.BytesIO()
        self.draw(picture, "svg")
        image = base64.b64encode(picture.getvalue()).decode()

        def table(rows: list[list[str]]) -> str:
            shown = [[html.escape(cell) for cell in row] for row in rows]
            head = "".join(f"<th>{cell}</th>" for cell in shown[0])
            body = "".join(
                "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in shown[1:]
            )
            return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

        tables = [[[head for head, _ in self.columns()], *self.cells()]]
        tables += [self.lengths()] if self.lengths() else []
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return (
            "<!doctype html><html lang=en><meta charset=utf-8><title>regard compare</title><style>"
            ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem;}"
            "table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}"
            "th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid #8886}"
            "th:first-child,td:first-child{text-align:left}"
            "img{max-width:100%;background:#fff;border-radius:6px}</style>"
            f"<h1>Runs compared</h1>{''.join(map(table, tables))}"
            f'<img alt="{html.escape(self.headline)} of each run, and by length" '
            f'src="data:image/svg+xml;base64,{image}">{notes}</html>\n'
        )

    def draw(self, target: Any, kind: str) -> None:
        """Quality with its interval; by length; and by seconds of training."""
        from matplotlib.figure import Figure

        rows, by_name = self.rows(), {entry.name: entry for entry in self.entries}
        panels = ["quality"]
        panels += ["length"] if self.lengths() else []
        panels += ["time"] if all(entry.curve for entry in self.entries) else []
        chart = Figure(figsize=(5.2 * len(panels), 3.8), layout="constrained")
        axes = dict(zip(panels, chart.subplots(1, len(panels), squeeze=False)[0], strict=True))
        styles = [{"linestyle": line} for line in ("-", "--", "-.", ":")]
        for number, row in enumerate(rows):
            value = row[self.headline]
            low, high = row["interval"] or (value, value)
            error = [[max(0.0, value - low)], [max(0.0, high - value)]]
            axes["quality"].barh(number, value, xerr=error, color=f"C{number % 10}", capsize=3)
            style = {**styles[number // 10 % 4], "color": f"C{number % 10}"}
            style["label"] = plain(row["run"])
            if "length" in axes and row["by_length"]:
                middles = [(b["from"] + b["to"]) / 2 for b in row["by_length"]]
                heights = [_value(b) for b in row["by_length"]]
                axes["length"].plot(middles, heights, marker="o", **style)
            if "time" in axes:
                axes["time"].plot(*zip(*by_name[row["run"]].curve, strict=True), **style)
        axes["quality"].set_yticks(range(len(rows)), [plain(row["run"]) for row in rows])
        axes["quality"].invert_yaxis()
        axes["quality"].set_xlabel(self.headline)
        if "length" in axes:
            axes["length"].set(xlabel=rows[0]["by_length_unit"], ylabel=self.headline)
            axes["length"].legend(fontsize=8)
        if "time" in axes:
            axes["time"].set(xlabel="seconds of training", ylabel="validation loss")
        chart.savefig(
            target, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {}
        )

    def save(self, path: str | Path) -> Path:
        """Write .html, .md, .json, .png, .svg or .pdf, as the name says."""
        return save(self, Path(path), WRITERS)


WRITERS: dict[str, Callable[[Comparison, Path], object]] = {
    ".html": lambda found, path: path.write_text(found.page(), encoding="utf-8"),
    ".md": lambda found, path: path.write_text(found.markdown(), encoding="utf-8"),
    ".json": lambda found, path: path.write_text(
        json.dumps(found.rows(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    ),
    **{
        f".{kind}": lambda found, path: found.draw(path, path.suffix[1:])
        for kind in ("png", "svg", "pdf")
    },
}


def compare(folders: Sequence[str | Path], on: str = "test") -> Comparison:
    """The runs in these folders; refused where their scores do not mean the same."""
    paths = [Path(folder).resolve() for folder in folders]
    if not paths or len(set(paths)) < len(paths):
        raise InputError("compare: name at least one run, and each only once.")
    last = [path.name for path in paths]
    names = [p.name if last.count(p.name) == 1 else f"{p.parent.name}/{p.name}" for p in paths]
    entries = [read(Path(f), on, name) for f, name in zip(folders, names, strict=True)]
    first = entries[0]
    for other in entries[1:]:
        for what, value in first.measured_as.items():
            if other.measured_as[what] != value:
                why = f"{_told(other.measured_as[what])} is not {_told(value)}"
                if what == "the set" and other.scores["on"] == first.scores["on"]:
                    why = f"their data.{first.scores['on']} are different files"
                raise InputError(
                    f"{other.name}: {what} must be the same as {first.name}'s to stand side by "
                    f"side, but {why}."
                )
    return Comparison(entries)


def read(folder: Path, on: str, name: str = "") -> Entry:
    """What a run folder says of itself."""
    try:
        results, bill = (read_json(folder / f"{name}.json") for name in ("results", "cost"))
    except (OSError, ValueError) as error:
        raise RunError(
            f"{folder}: a finished run is needed, with results.json and cost.json; "
            "`regard train` makes one."
        ) from error
    scores = results.get(on) if isinstance(results, dict) else None
    if not isinstance(scores, dict) or "headline" not in scores:
        raise RunError(
            f"{folder}: there are no scores on {on} that can be compared; "
            f"run `regard evaluate {folder} --on {on}`, or compare with --on "
            f"{'valid' if on == 'test' else 'test'}."
        )
    entry = Entry(name or folder.resolve().name, scores, bill, curve(folder / "metrics.jsonl"))
    try:
        float(entry.row()[entry.headline])
        for _, say in Comparison([entry]).columns():
            say(entry.row())
        assert entry.measured_as and isinstance(scores["higher_is_better"], bool)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise RunError(
            f"{folder}: results.json and cost.json must be whole, but {error} is missing or is no "
            f"number; run `regard evaluate {folder} --on {on}`."
        ) from error
    return entry


def curve(path: Path) -> list[tuple[float, float]]:
    """Validation loss by seconds of training, where both were logged."""
    seconds, found = 0.0, []
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        try:
            event = parse_json(line)
            if event["event"] == "step":
                seconds += event["seconds"]
            elif event["event"] == "scored":
                found.append((seconds, float(event["scores"]["loss"])))
        except (ValueError, KeyError, TypeError):  # a process was killed while it wrote
            continue
    return found


def _value(bucket: dict[str, Any]) -> float:
    return next(float(v) for k, v in bucket.items() if k not in ("from", "to", "examples"))


def _score(bucket: dict[str, object]) -> str:
    return f"{_value(bucket):.1f}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _told(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else f"'{value}'"
