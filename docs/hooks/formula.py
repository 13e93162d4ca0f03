"""Formulas between dollar signs as drawings in the text's own colour: the page loads nothing."""

from __future__ import annotations

import re
from functools import cache

from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])", re.S)
ROOT = re.compile(r"\\sqrt (\w)")  # mathtext wants braces
# What starts a piece of an outline in SVG; a piece of several points is named once.
LETTERS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}
SIZE = 100.0  # of a letter, in the drawing's own unit


def drawn(markdown: str) -> str:
    """Every formula of a text, drawn; what mathtext cannot draw stays as it is written."""
    return FORMULA.sub(lambda found: svg(found[1] or found[2], found[1] is not None), markdown)


@cache
def svg(formula: str, apart: bool) -> str:
    text = ROOT.sub(r"\\sqrt{\1}", f"${' '.join(formula.split())}$")
    font = FontProperties(size=SIZE)
    try:
        width, height, depth, *_ = MathTextParser("path").parse(text, 72, font)
        outline = TextPath((0, 0), text, prop=font)
    except ValueError:
        return f"`{formula.strip()}`"
    pieces = []
    for points, kind in outline.iter_segments(simplify=False, curves=True):
        if kind == Outline.CLOSEPOLY:
            pieces.append("Z")
        else:
            pairs = zip(points[::2], points[1::2], strict=True)
            pieces.append(LETTERS[kind] + " ".join(f"{x:.0f} {-y:.0f}" for x, y in pairs))
    # As numbers, since Markdown would read signs in it as its own.
    label = "".join(c if c.isalnum() else f"&#{ord(c)};" for c in formula)
    style = f"height:{height / SIZE:.2f}em;vertical-align:{-depth / SIZE:.2f}em"
    style += ";display:block;margin:1em auto" if apart else ""
    box = f"0 {depth - height:.0f} {width:.0f} {height:.0f}"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="{box}" style="{style}" '
        f'fill="currentColor"><path d="{"".join(pieces)}"/></svg>'
    )
