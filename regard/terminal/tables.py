"""Tables of scores, and of what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table

from ..see.card import scored, told
from . import console

if TYPE_CHECKING:
    from ..see.field import Field
    from ..see.heads import Heads
    from ..see.layers import Layers
    from ..see.meaning import Meaning
    from ..see.probe import Probed
    from ..see.prompt import Prompted


def print_scores(console: Console, scores: dict[str, object]) -> None:
    table = Table(
        "score",
        "value",
        "95 % interval",
        Column("signature", overflow="fold"),
        title=f"on {scores['on']}, {scored(scores)}",
    )
    for row in told(scores):
        table.add_row(*row)
    console.print(table)


def print_ablation(found: dict[str, Any]) -> None:
    table = Table("silenced", "head", found["metric"], "answer")
    table.add_row("nothing", "", _number(found["whole"]), found["output"])
    for row in found["heads"]:
        table.add_row(row["name"], str(row["head"]), _number(row["value"]), row["output"])
    console().print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def print_field(field: Field) -> None:
    """The receptive field of a token, a line a layer."""
    from ..see.field import as_word

    table = Table("into layer", "looked at", "what moves it most, by gradient", "by rollout")
    for one in field.layers:
        columns = []
        for shares in (one.gradient, one.rollout):
            best = sorted(range(len(shares)), key=lambda at: -shares[at])[:4]
            columns.append(
                ", ".join(f"{as_word(field.tokens[at])} {shares[at]:.2f}" for at in best)
            )
        count = f"{len(one.looked_at)} of {len(field.tokens)}"
        table.add_row(str(one.layer + 1), count, *columns)
    console().print(f"What '{as_word(field.tokens[field.place])}' depends on", table, sep="\n")


def print_meaning(found: Meaning) -> None:
    """How far a word's vectors in several sentences are from each other, a line a layer."""
    table = Table("vectors", "mean distance (1 - cosine)", "most alike", "least alike")
    every, count = found.similarities(), len(found.sentences)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    for layer, far in enumerate(found.apart()):
        where = "at the top" if layer == len(every) - 1 else f"into layer {layer + 1}"
        ordered = sorted(pairs, key=lambda pair: -every[layer][pair])
        told = [
            f"{i + 1} and {j + 1}: {every[layer][i, j]:.3f}" for i, j in (ordered[0], ordered[-1])
        ]
        table.add_row(where, f"{far:.4f}", *told)
    console().print(f"'{found.word}' in {count} sentences", table, sep="\n")


def print_layers(found: Layers) -> None:
    """How alike tokens are, and in how many directions they differ, a line a layer."""
    table = Table("vectors", "cosine of neighbours", "of others", "directions")
    rows = zip(found.neighbours(), found.others(), found.directions(), strict=True)
    for layer, (near, far, rank) in enumerate(rows):
        last = layer == len(found.vectors) - 1
        where = "at the top" if last else f"into layer {layer + 1}"
        table.add_row(where, f"{near:.3f}", f"{far:.3f}", f"{rank:.1f}")
    console().print(f"{len(found.tokens)} tokens", table, sep="\n")


def print_heads(found: Heads) -> None:
    """The head that looks so the most, and how many do, a line a kind; then relations."""
    named = [kind for row in found.kinds() for kind in row]
    table = Table("looks at", "most", "layer", "head", "heads named so")
    for kind in found.scores:
        layer, head, share = found.best(kind)
        told = f"{share:.3f}" if share >= 0 else "-"
        table.add_row(kind, told, str(layer + 1), str(head + 1), str(named.count(kind)))
    table.add_row("mixed", "", "", "", str(named.count("mixed")))
    console().print(f"{found.texts} texts, {found.tokens:,} tokens", table, sep="\n")
    if found.relations:
        table = Table("partner", "right", "by distance", "layer", "head", "pairs")
        for one in found.relations:
            numbers = (f"{one.right:.3f}", f"{one.baseline:.3f}")
            table.add_row(one.name, *numbers, str(one.layer + 1), str(one.head + 1), str(one.pairs))
        console().print(table)
    effects = found.effects()
    if effects is not None and found.ablation is not None:
        table = Table("layer", "head", "looks at", f"{found.ablation['metric']} without it")
        kinds = found.kinds()
        flat = [(x, i, j) for (i, j), x in _numbered(effects) if x == x]
        for change, layer, head in sorted(flat)[:8]:
            table.add_row(str(layer + 1), str(head + 1), kinds[layer][head], f"{change:+.3f}")
        console().print("heads that are missed the most", table, sep="\n")


def _numbered(table: Any) -> Iterator[tuple[tuple[int, int], float]]:
    for i, row in enumerate(table):
        for j, x in enumerate(row):
            yield (i, j), float(x)


def print_probed(found: Probed) -> None:
    """What a linear classifier reads off each layer's vectors."""
    table = Table("vectors", "accuracy", "95 % interval", "control labels", "selectivity")
    for one in found.layers:
        low, high = one.interval
        table.add_row(
            one.name, f"{one.accuracy:.1f}", f"{low:.1f} – {high:.1f}", f"{one.control:.1f}",
            f"{one.accuracy - one.control:+.1f}",
        )  # fmt: skip
    said = (
        f"{found.train:,} to learn from, {found.test:,} to be told; the commonest {found.most:.1f}"
    )
    console().print(said, table, sep="\n")


def print_prompted(found: Prompted) -> None:
    """What was right with each number of examples shown."""
    table = Table("shots", "accuracy", "95 % interval", "without a label")
    for row in found.rows:
        low, high = row.interval
        table.add_row(
            str(row.shots), f"{row.accuracy:.1f}", f"{low:.1f} – {high:.1f}", str(row.unread)
        )
    told = f"{found.examples:,} rows; the commonest of {', '.join(found.labels)}"
    console().print(f"{told} has {found.commonest:.1f} % of them", table, sep="\n")
