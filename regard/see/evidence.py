"""Where the evidence for a policy ends: the part of a card that stands beside every estimate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMES = {
    "is": "importance sampling, ordinary",
    "wis": "importance sampling, weighted",
    "pdis": "the same step by step, ordinary",
    "wpdis": "the same step by step, weighted",
    "dr": "doubly robust",
    "wdr": "doubly robust, weighted",
    "mdr": "doubly robust, by how often states are met",
    "fqe": "fitted Q evaluation",
}
FIGURE = "evidence.png"


FEW = "**too few: not to be relied on**"


def lines(part: str, scores: Mapping[str, Any]) -> list[str]:
    """What the estimates rest on, and what they do not know."""
    if "estimates" not in scores:
        return []
    found = ["", f"### What the policy is worth, judged on {part}", "", *estimates(scores), ""]
    found += [*difference(scores), "", f"![who is left]({FIGURE})", ""]
    found += [
        "After each decision, how many histories still count, and how far those who are left "
        "differ from those who began.",
        "",
        "### Questions to be answered before anybody relies on it",
        "",
    ]
    return [*found, *tried(scores["coverage"]), *hidden(scores), *rewarded(scores), *later(scores)]


def estimates(scores: Mapping[str, Any]) -> list[str]:
    found = [
        "| by | value | 95 % interval | effective sample size | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, row in scores["estimates"].items():
        low, high = row["interval"]
        found.append(
            f"| {NAMES[name]} ({name}) | {row['value']:.4f} | {low:.4f} – {high:.4f} | "
            f"{row['effective']:,.1f} of {scores['histories']:,} | "
            f"{FEW if row['too_few'] else ''} |"
        )
    return found


def difference(scores: Mapping[str, Any]) -> list[str]:
    around, (low, high) = scores["recorded_value_interval"], scores["difference_interval"]
    return [
        f"The records themselves came to {scores['recorded_value']:.4f} ({around[0]:.4f} – "
        f"{around[1]:.4f}). By {scores['estimator']}, the policy is worth "
        f"{scores['difference']:+.4f} more ({low:+.4f} – {high:+.4f}, both judged on the same "
        f"draws of histories). How likely the recorded actions were was {scores['behaviour']}."
    ]


def tried(cover: Mapping[str, Any]) -> list[str]:
    counted = cover["by"] == "counts"
    by = "fewer than ten times in the same state" if counted else "with a likelihood below 5 %"
    found = [
        f"- **Was what it does ever tried?** At {cover['seldom']:.1%} of the recorded steps it "
        f"would do what was recorded {by}, at {cover['never']:.1%} what was (all but) never done."
    ]
    return found + [
        f"  - {row['state']}: it does {row['action']}, recorded {row['recorded']} times; met "
        f"{row['met']} times"
        for row in cover.get("where", [])[:5]
    ]


def hidden(scores: Mapping[str, Any]) -> list[str]:
    found = [
        "- **Is everything recorded that the decisions went by?** If something that was not had "
        "made recorded histories up to Γ times likelier or less likely, the weighted estimate "
        "could be:"
    ]
    return found + [
        f"  - Γ = {strength}: {low:.4f} – {high:.4f}"
        for strength, (low, high) in scores["confounding"].items()
    ]


def rewarded(scores: Mapping[str, Any]) -> list[str]:
    found = ["- **Is the reward the right one?** The same policy, if rewards counted otherwise:"]
    for row in scores["rewards"]:
        what = f"discount {row['discount']:g}" if "discount" in row else ""
        what = what or f"{row['column']} × {row['factor']:g}"
        found.append(f"  - {what}: {row['value']:.4f}, the records {row['recorded_value']:.4f}")
    return found


def later(scores: Mapping[str, Any]) -> list[str]:
    found = [
        "- **Would it hold elsewhere, or later?** The first and the second half of the records:"
    ]
    for row in scores["shift"]:
        low, high = row["interval"]
        found.append(
            f"  - {row['histories']:,} histories: {row['value']:.4f} ({low:.4f} – {high:.4f}), "
            f"effective sample size {row['effective']:,.1f}{', ' + FEW if row['too_few'] else ''}"
        )
    return found


def draw(scores: Mapping[str, Any], path: Path) -> None:
    """How many histories count after each decision, and who they are."""
    from matplotlib.figure import Figure

    rows = scores["left"]
    steps = [row["step"] for row in rows]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(steps, [max(row["effective"], 1e-3) for row in rows], marker="o", markersize=3)
    left.plot(steps, [max(row["went_on"], 1e-3) for row in rows], color="0.6", linestyle=":")
    left.axhline(50, color="tab:red", linewidth=0.8)
    left.set(yscale="log", xlabel="decisions made", ylabel="histories")
    left.legend(["still count (effective sample size)", "went on", "too few below"], fontsize=7)
    widest: dict[str, float] = {}
    for row in rows:
        for name, value in row["differences"].items():
            widest[name] = max(widest.get(name, 0.0), abs(value))
    for name in sorted(widest, key=lambda n: -widest[n])[:5]:
        right.plot(steps, [row["differences"].get(name, float("nan")) for row in rows], label=name)
    right.axhline(0, color="0.6", linewidth=0.8)
    right.set(xlabel="decisions made", ylabel="standardised difference from those who began")
    if widest:
        right.legend(fontsize=7)
    figure.savefig(path, dpi=120)
