"""Pictures for paper and screen, by matplotlib: attention, positions, masks, schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..parts.position import POSITIONS
from ..training.schedule import rate_at

if TYPE_CHECKING:
    from .capture import AttentionReport, Look
    from .field import Field
    from .heads import Heads
    from .layers import Layers
    from .meaning import Meaning
    from .probe import Probed


LETTER = 0.085  # inches that a letter of a label takes, about
LONG = 24  # letters that no word has, but a sentence


def alignment(look: Look, path: Path) -> None:
    """The alignment plot: rows are output words, columns input words, brightness the weight; where
    sentences are looked at, they stand beside it, a row each."""
    weights = look.weights.mean(0)  # (T, S)
    rows, columns = [[plain(token) for token in some] for some in (look.rows, look.columns)]
    if max(map(len, columns)) > LONG:
        weights, rows, columns = weights.T, columns, rows
    beside, above = (LETTER * max(map(len, names)) for names in (rows, columns))  # inches
    wide = 1.6 + 0.42 * len(columns) + max(0.0, beside - 0.6)
    tall = 1.0 + 0.34 * len(rows) + 0.7 * above  # they lean
    chart, axes = blank(min(wide, 40), min(tall, 40))
    image = axes.imshow(weights, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="left")
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel(f"{look.kind}: {look.name}", fontsize=8)
    chart.colorbar(image, ax=axes, label="weight", shrink=0.8)
    write(chart, path)


def on_picture(report: AttentionReport, path: Path) -> None:
    """Weights drawn on the picture: for each word or step, or for each head and all layers."""
    shown = pixels(report.picture)
    panels = list(panels_of(report))[:MOST_PANELS]
    across = min(6, len(panels))
    from matplotlib.figure import Figure

    down = -(-len(panels) // across)
    chart = Figure(figsize=(1.8 * across, 2.1 * down), layout="constrained")
    tall, wide = shown.shape[:2]
    for number, (title, weights) in enumerate(panels, 1):
        axes = chart.add_subplot(down, across, number)
        axes.imshow(shown, extent=(0, wide, tall, 0))
        alpha = 0.85 * weights / max(float(weights.max()), 1e-9)
        orange = np.zeros((*weights.shape, 4))
        orange[..., :3], orange[..., 3] = (1.0, 0.47, 0.0), alpha
        axes.imshow(orange, extent=(0, wide, tall, 0), interpolation="nearest")
        axes.set_title(plain(title), fontsize=8)
        axes.set_axis_off()
    write(chart, path)


def pixels(file: bytes) -> NDArray[np.uint8]:
    """A picture's file as numbers.  -> (h, w, 3)"""
    import io

    from PIL import Image

    with Image.open(io.BytesIO(file)) as opened:
        return np.asarray(opened.convert("RGB"))


MOST_PANELS = 36


def panels_of(report: AttentionReport) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Titles and weights on patches, in the shape of the picture."""
    look = report.alignment()
    last = [one for one in report.looks if one.kind == look.kind][-1]
    tall, wide = last.column_shape
    before = len(last.columns) - tall * wide

    def placed(row: NDArray[np.float32]) -> NDArray[np.float32]:
        return row[before:].reshape(tall, wide)

    if last.row_kind != "patches":
        for name, row in zip(look.rows, look.weights[0], strict=True):
            yield name, placed(row)
        return
    # What speaks for the picture is its token, or where there is none, all patches alike.
    layers = [one.weights.mean(0) for one in report.of(last.kind)]
    whole, name = rollout(layers), last.rows[0] if before else "all patches"
    yield f"{name}: rollout", placed(whole[0] if before else whole.mean(0))
    for head, weights in enumerate(last.weights):
        yield f"{name}: head {head + 1}", placed(weights[0] if before else weights.mean(0))


def on_sound(report: AttentionReport, path: Path) -> None:
    """The alignment below the spectrogram, both along the time."""
    import io

    from matplotlib.figure import Figure
    from PIL import Image

    with Image.open(io.BytesIO(report.picture)) as opened:
        shown = np.asarray(opened.convert("L"))
    look = report.alignment()
    weights = look.weights[0]  # (T, S)
    last = float(look.columns[-1].split()[0]) * len(look.columns) / max(1, len(look.columns) - 1)
    rows = len(weights)
    chart = Figure(figsize=(9, min(2.4 + 0.26 * rows, 30)), layout="constrained")
    above, below = chart.subplots(
        2, 1, sharex=True, height_ratios=[1, max(1.0, 0.16 * rows)], squeeze=True
    )
    above.imshow(shown, cmap="gray", aspect="auto", extent=(0, last, 0, 1))
    above.set_yticks([])
    above.set_title(plain(report.output), fontsize=9)
    below.imshow(weights, cmap="viridis", aspect="auto", extent=(0, last, rows - 0.5, -0.5))
    below.set_yticks(range(rows), [plain(token) for token in look.rows], fontsize=7)
    below.set_xlabel("seconds", fontsize=8)
    write(chart, path)


def on_graph(report: AttentionReport, path: Path) -> None:
    """Weights drawn along the edges of a graph: for the mean of the last layer and each head."""
    from matplotlib.figure import Figure

    assert report.layout is not None
    places = np.array(report.layout["places"])  # (N, 2)
    edges, last = report.layout["edges"], report.looks[-1]
    shown = [("mean of heads", last.weights.mean(0))]
    shown += [(f"head {n + 1}", w) for n, w in enumerate(last.weights)]
    across = min(len(shown), 4)
    down = -(-len(shown) // across)
    chart = Figure(figsize=(3.2 * across, 3.2 * down), layout="constrained")
    chart.suptitle(plain(f"{report.input[:60]} {report.output}"), fontsize=9)
    names = [name.split(" ")[0] for name in last.columns]
    for axes, (title, weights) in zip(
        chart.subplots(down, across, squeeze=False).flat, shown, strict=False
    ):
        for one, other in edges:
            strength = float(max(weights[one, other], weights[other, one]))
            axes.plot(*places[[one, other]].T, color="0.8", linewidth=0.6, zorder=0)
            axes.plot(
                *places[[one, other]].T, color="tab:orange", linewidth=0.2 + 5 * strength,
                alpha=min(1.0, 0.2 + strength), zorder=1,
            )  # fmt: skip
        looked_at = weights[:, : len(places)].mean(0)
        sizes = 15 + 120 * looked_at / max(float(looked_at.max()), 1e-9)
        axes.scatter(
            *places.T, s=sizes, color="tab:orange", edgecolors="0.2", linewidths=0.5, zorder=2
        )
        if len(places) <= 40:
            for (x, y), name in zip(places, names, strict=False):
                axes.annotate(plain(name), (x, y), fontsize=6, ha="center", va="center", zorder=3)
        axes.set_title(title, fontsize=9)
    for axes in chart.axes:
        axes.set_axis_off()
        axes.margins(0.15)
        axes.invert_yaxis()  # down is down, as on the page
    write(chart, path)


def on_history(report: AttentionReport, path: Path) -> None:
    """How much the last decision looked at each part of each step, step after step."""
    from matplotlib.figure import Figure

    last = report.looks[-1]
    steps, parts = last.column_shape
    decision = (steps - 1) * parts + 1  # it stands at what is observed
    shown = [("mean of heads", last.weights.mean(0)[decision])]
    whole = rollout([one.weights.mean(0) for one in report.of(last.kind)])
    shown.append(("rollout, all layers", whole[decision]))
    shown += [(f"head {n + 1}", w[decision]) for n, w in enumerate(last.weights)]
    wide = min(3 + 0.45 * steps, 24)
    chart = Figure(figsize=(wide, 0.9 + 0.85 * len(shown)), layout="constrained")
    chart.suptitle(plain(f"decided: {report.output}"), fontsize=9)
    every = chart.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axes, (title, weights) in zip(every, shown, strict=True):
        grid = weights.reshape(steps, parts).T
        axes.imshow(grid, cmap="Oranges", vmin=0, aspect="auto")
        axes.set_yticks(range(parts), PARTS_OF_A_STEP, fontsize=6)
        axes.set_ylabel(title.replace(", ", ",\n"), fontsize=7, rotation=0, ha="right", va="center")
        axes.set_xticks([])
    seen = [plain(last.columns[step * parts + 1]) for step in range(steps)]
    every[-1].set_xticks(range(steps), seen, fontsize=6, rotation=45, ha="right")
    write(chart, path)


def planes(found: Meaning, path: Path) -> Path:
    """A word in several sentences: where its vectors lie, layer by layer, and how far apart."""
    from matplotlib.figure import Figure

    count, told = len(found.vectors), found.sentences
    across = min(count, 4)
    down = -(-count // across)
    tall = 2.6 * down + 0.17 * len(told)
    chart = Figure(figsize=(2.8 * across, tall + 0.5), layout="constrained")
    chart.suptitle(plain(f"'{found.word}' in {len(told)} sentences"), fontsize=10)
    panels = list(chart.subplots(down, across, squeeze=False).flat)
    for layer, (axes, far) in enumerate(zip(panels, found.apart(), strict=False)):
        places = found.plane(layer)
        axes.scatter(*places.T, s=120, color="tab:orange", alpha=0.5)
        for number, (x, y) in enumerate(places, 1):
            axes.annotate(str(number), (x, y), fontsize=8, ha="center", va="center")
        axes.set_title(f"{height_of(layer, count)}: {far:.3f} apart", fontsize=8)
        axes.margins(0.3)
        axes.set_xticks([])
        axes.set_yticks([])
    for axes in panels[count:]:
        axes.set_axis_off()
    named = [plain(f"{n}: {s if len(s) <= 80 else s[:79] + '…'}") for n, s in enumerate(told, 1)]
    chart.supxlabel("\n".join(named), fontsize=7, ha="left", x=0.02)
    return write(chart, path)


def clouds(found: Layers, path: Path) -> Path:
    """An input's tokens as points, joined as they follow each other, layer by layer; below, how
    alike neighbours and others are, and in how many directions all differ."""
    from matplotlib.figure import Figure

    count = len(found.vectors)
    across = min(count, 4)
    down = -(-count // across)
    chart = Figure(figsize=(3.2 * across, 3.0 * down + 2.4), layout="constrained")
    parts: Any = chart.subfigures(2, 1, height_ratios=[3.0 * down, 2.4])
    above, below = parts
    panels = list(above.subplots(down, across, squeeze=False).flat)
    for layer, (axes, places) in enumerate(zip(panels, found.planes(), strict=False)):
        axes.plot(*places.T, color="0.8", linewidth=0.8, zorder=1)
        axes.scatter(*places.T, c=range(len(places)), cmap="viridis", s=24, zorder=2)
        if len(places) <= MOST_NAMED:
            for token, place in zip(found.tokens, places, strict=True):
                beside: Any = {"xytext": (3, 3), "textcoords": "offset points"}
                axes.annotate(plain(token), place, fontsize=6, **beside)
        axes.set_title(height_of(layer, count), fontsize=8)
        axes.margins(0.25)
        axes.set_xticks([])
        axes.set_yticks([])
    for axes in panels[count:]:
        axes.set_axis_off()
    left, right = below.subplots(1, 2)
    left.plot(found.neighbours(), "o-", label="side by side")
    left.plot(found.others(), "s--", label="further apart")
    left.set_ylabel("mean cosine of two tokens", fontsize=8)
    left.legend(fontsize=7)
    right.plot(found.directions(), "o-", color="tab:green")
    right.set_ylabel("directions in which they differ", fontsize=8)
    for axes in (left, right):
        axes.set_xlabel("layers passed", fontsize=8)
        axes.set_xticks(range(count))
        axes.tick_params(labelsize=7)
    return write(chart, path)


MOST_NAMED = 40  # tokens that are written beside their points


def height_of(layer: int, count: int) -> str:
    """What one of so many layers' vectors are: what goes into it, or what the last gives."""
    return "at the top" if layer == count - 1 else f"into layer {layer + 1}"


def head_map(found: Heads, path: Path) -> Path:
    """Every head by what it looks at, the deeper the more of its weight is there; beside it, where
    that was asked for, what is lost without it."""
    from matplotlib.figure import Figure

    kinds, effects = found.kinds(), found.effects()
    depth, count = len(kinds), len(kinds[0])
    panels = 1 if effects is None else 2
    size = (panels * max(4.0, 0.75 * count + 1.6), max(2.4, 0.5 * depth + 1.2))
    chart = Figure(figsize=size, layout="constrained")
    left, *right = list(chart.subplots(1, panels, squeeze=False).flat)
    names = [*found.scores, "mixed"]
    colors = {name: f"C{number}" for number, name in enumerate(names)} | {"mixed": "0.85"}
    for layer, row in enumerate(kinds):
        for head, kind in enumerate(row):
            share = 0.0 if kind == "mixed" else float(found.scores[kind][layer, head])
            color, pale = colors[kind], 1.0 if kind == "mixed" else 0.3 + 0.7 * share
            left.add_patch(_square(head, layer, color, pale))
            said = "" if kind == "mixed" else f"{kind}\n{share:.2f}"
            left.annotate(said, (head, layer), fontsize=5.5, ha="center", va="center")
    left.set_title(f"what heads look at, {found.texts} texts", fontsize=9)
    for axes in right:
        assert effects is not None and found.ablation is not None
        most = float(np.nanmax(np.abs(effects))) or 1.0
        image = axes.imshow(effects, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
        chart.colorbar(image, ax=axes, shrink=0.8)
        axes.set_title(f"{plain(str(found.ablation['metric']))} without it, gain", fontsize=9)
    for axes in (left, *right):
        axes.set(xlim=(-0.5, count - 0.5), ylim=(-0.5, depth - 0.5))
        axes.set_xticks(range(count), [str(head + 1) for head in range(count)])
        axes.set_yticks(range(depth), [str(layer + 1) for layer in range(depth)])
        axes.set_xlabel("head", fontsize=8)
        axes.set_ylabel("layer", fontsize=8)
        axes.tick_params(length=0, labelsize=7)
    return write(chart, path)


def probes(found: Probed, path: Path) -> Path:
    """What a linear classifier reads off each layer, beside control labels and the commonest."""
    from matplotlib.figure import Figure

    chart = Figure(figsize=(1.8 + 0.75 * len(found.layers), 3.4), layout="constrained")
    axes = chart.add_subplot()
    values = np.array([one.accuracy for one in found.layers])
    edges = np.array([one.interval for one in found.layers]).T
    places = range(len(values))
    spread = np.abs(edges - values)
    axes.errorbar(places, values, yerr=spread, fmt="o-", capsize=3, label="labels")
    axes.plot(places, [one.control for one in found.layers], "s--", label="control labels")
    axes.axhline(found.most, color="0.6", linewidth=0.8, label="the commonest label")
    axes.set_xticks(places, [one.name for one in found.layers], rotation=30, ha="right", fontsize=7)
    axes.set_ylabel("read off rightly, %", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7)
    return write(chart, path)


def _square(x: float, y: float, color: str, strength: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=color, alpha=strength, linewidth=0)


def tree(field: Field, path: Path) -> Path:
    """The lecture's tree: a row of tokens a layer, the chosen one on top; lines to what is looked
    at, and dots as large as what really moves it."""
    from matplotlib.figure import Figure

    count, depth = len(field.tokens), len(field.layers)
    chart = Figure(figsize=(min(2 + 0.5 * count, 30), 1.6 + 1.1 * depth), layout="constrained")
    axes = chart.add_subplot()
    axes.plot(field.place, depth, "o", color="tab:blue", markersize=12)
    above = [field.place]
    for below, weights in zip(field.layers, field.weights, strict=True):
        high = below.layer + 1
        for i in above:
            for j in below.looked_at:
                strength = float(weights[i, j])
                if i == j or strength >= field.threshold:
                    wide, clear = 0.5 + 4 * strength, min(1.0, 0.25 + strength)
                    ends = [i, j], [high, below.layer]
                    axes.plot(*ends, color="tab:orange", linewidth=wide, alpha=clear)
        most = max(max(below.gradient), 1e-9)
        sizes = [8 + 140 * share / most if share > 0 else 0 for share in below.gradient]
        axes.scatter(range(count), [below.layer] * count, s=sizes, color="tab:blue", zorder=3)
        told = f"{len(below.looked_at)} of {count}"
        axes.annotate(told, (count - 0.4, below.layer), fontsize=7, va="center")
        above = below.looked_at
    axes.set_xticks(range(count), [plain(token) for token in field.tokens], rotation=60, ha="right")
    axes.set_yticks(range(depth + 1), [*(f"into layer {n + 1}" for n in range(depth)), "top"])
    axes.tick_params(labelsize=7)
    axes.set_xlim(-0.6, count + 1)
    return write(chart, path)


def growing_patches(field: Field, path: Path) -> Path:
    """A picture a layer, from the top down: framed what is looked at, lit by what really moves the
    chosen patch."""
    picture = pixels(field.axis.picture)
    down, across = field.axis.shape
    first = len(field.tokens) - down * across  # a class token stands before the patches
    high, wide = picture.shape[0] / down, picture.shape[1] / across
    chart, panels = side_by_side(field)
    for axes, below in zip(panels, field.layers, strict=True):
        axes.imshow(picture, alpha=0.5, extent=(0, across, down, 0))
        heat = np.array(below.gradient[first:]).reshape(down, across)
        axes.imshow(heat, cmap="Oranges", alpha=0.6, vmin=0, extent=(0, across, down, 0))
        for token, color in [*((j, "tab:blue") for j in below.looked_at), (field.place, "k")]:
            row, column = divmod(token - first, across)
            if token >= first:
                box = {"fill": False, "edgecolor": color, "linewidth": 1.2}
                axes.add_patch(_frame(column, row, **box))
        axes.set_aspect(high / wide)
    return write(chart, path)


def growing_nodes(field: Field, path: Path) -> Path:
    """A graph a layer, from the top down: filled what is looked at, as large as what really moves
    the chosen node."""
    assert field.axis.layout is not None
    places, edges = np.array(field.axis.layout["places"]), field.axis.layout["edges"]
    first = len(field.tokens) - len(places)  # a virtual node stands before the others
    chart, panels = side_by_side(field)
    for axes, below in zip(panels, field.layers, strict=True):
        for one, other in edges:
            axes.plot(*places[[one, other]].T, color="0.8", linewidth=0.8, zorder=0)
        moved = np.array(below.gradient[first:])
        sizes = 20 + 200 * moved / max(float(moved.max()), 1e-9)
        seen = [node + first in below.looked_at for node in range(len(places))]
        colors = ["tab:orange" if one else "white" for one in seen]
        edge = ["k" if node + first == field.place else "0.6" for node in range(len(places))]
        axes.scatter(*places.T, s=sizes, c=colors, edgecolors=edge, zorder=2)
        axes.margins(0.15)
        axes.invert_yaxis()
    return write(chart, path)


def side_by_side(field: Field) -> tuple[Any, Sequence[Any]]:
    """A panel for what goes into each layer, the highest first."""
    from matplotlib.figure import Figure

    chart = Figure(figsize=(2.6 * len(field.layers), 3.0), layout="constrained")
    chart.suptitle(plain(f"what {field.tokens[field.place]} depends on"), fontsize=9)
    panels = list(chart.subplots(1, len(field.layers), squeeze=False).flat)
    for axes, below in zip(panels, field.layers, strict=True):
        told = f"{len(below.looked_at)} of {len(field.tokens)}"
        axes.set_title(f"into layer {below.layer + 1}: {told}", fontsize=8)
        axes.set_axis_off()
    return chart, panels


def _frame(x: float, y: float, **look: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, **look)


PARTS_OF_A_STEP = ("wished", "seen", "done")


def rollout(layers: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """What each place of the first layer counts for in the last: half of every vector stays itself.

    Abnar and Zuidema 2020.  layers (S, S) each -> (S, S)
    """
    whole = np.eye(len(layers[0]), dtype=np.float32)
    for weights in layers:
        whole = (0.5 * weights + 0.5 * np.eye(len(weights), dtype=np.float32)) @ whole
    return whole


def positions(name: str, path: str | Path, length: int = 64, width: int = 64) -> Path:
    """What a scheme adds at each place: a heat map of places and numbers of the vector."""
    scheme = POSITIONS[name](width, 1, length)
    with torch.no_grad():
        table = scheme.add(torch.zeros(1, length, width), torch.arange(length))[0].numpy()
    chart, axes = blank(7, 4)
    image = axes.imshow(table, cmap="RdBu_r", aspect="auto")
    axes.set_xlabel("number of the vector")
    axes.set_ylabel("place")
    axes.set_title(f"positions: {name}", fontsize=10)
    chart.colorbar(image, ax=axes)
    return write(chart, Path(path))


def mask(allowed: torch.Tensor, path: str | Path) -> Path:
    """Who may look at whom.  (…, T, S), True means may look"""
    table = allowed.reshape(-1, *allowed.shape[-2:])[0].cpu().numpy().astype(float)
    chart, axes = blank(4, 4)
    axes.imshow(table, cmap="Blues", vmin=0.0, vmax=1.4, aspect="equal")
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    axes.set_title("dark: may look", fontsize=10)
    return write(chart, Path(path))


def schedule(
    name: str, path: str | Path, steps: int = 1000, warmup: int = 100, final: float = 0.0
) -> Path:
    """The rate at every step, as a part of the highest."""
    rates = [rate_at(name, step, steps, warmup, final) for step in range(1, steps + 1)]
    chart, axes = blank(6, 3)
    axes.plot(np.arange(1, steps + 1), rates)
    axes.set_xlabel("step")
    axes.set_ylabel("part of the rate")
    axes.set_title(f"schedule: {name}", fontsize=10)
    return write(chart, Path(path))


def blank(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    chart = Figure(figsize=(width, height), layout="constrained")
    return chart, chart.add_subplot()


def write(chart: Any, path: Path) -> Path:
    """As the name says; with a fixed date, so that the same numbers give the same file."""
    stamp = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[path.suffix[1:]]
    chart.savefig(path, dpi=150, metadata=stamp)
    return path


def plain(token: str) -> str:
    """A token as shown to people; a dollar sign would start a formula."""
    return token.replace("▁", " ").strip().replace("$", r"\$") or "␣"
