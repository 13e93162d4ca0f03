"""Pictures for paper and screen, by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .capture import Look


def alignment(look: Look, path: Path) -> None:
    """The alignment plot: rows are output words, columns input words, brightness the weight."""
    from matplotlib.figure import Figure

    weights = look.weights.mean(0)  # (T, S)
    height, width = weights.shape
    chart = Figure(
        figsize=(min(1.6 + 0.42 * width, 40), min(1.2 + 0.34 * height, 40)), layout="constrained"
    )
    axes = chart.add_subplot()
    image = axes.imshow(weights, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(width), [plain(token) for token in look.columns], rotation=45, ha="left")
    axes.set_yticks(range(height), [plain(token) for token in look.rows])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel(f"{look.kind}: {look.name}", fontsize=8)
    chart.colorbar(image, ax=axes, label="weight", shrink=0.8)
    # A fixed date: the same weights give the same file.
    stamp = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[path.suffix[1:]]
    chart.savefig(path, dpi=150, metadata=stamp)


def plain(token: str) -> str:
    """A token as shown to people; a dollar sign would start a formula."""
    return token.replace("▁", " ").strip().replace("$", r"\$") or "␣"
