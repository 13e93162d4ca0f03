"""One input through a model, with everything it attended to."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.read import is_text
from ..decode import Settings as Decode
from ..errors import InputError
from ..parts import mask as masks
from ..parts.score import Dot
from ..parts.watch import attentions, choose, record_inputs, watch
from ..tasks.task import Axis, Traces, WritesText
from ..training.run import Run
from . import figure, generation, page
from .brief import counted, quoted
from .save import save


@dataclass(frozen=True, repr=False)
class Look:
    """The weights of one attention: every row sums to one over the columns it may see."""

    name: str  # the part's own name, such as decoder.3.cross
    kind: str  # the name without its number: decoder.cross
    layer: int
    rows: list[str]
    columns: list[str]
    weights: NDArray[np.float32]  # (H, T, S)
    scores: NDArray[np.float32] | None = None  # before the softmax, -inf where none may look
    scale: float | None = None  # that a dot product was multiplied by
    queries: NDArray[np.float32] | None = None  # (H, T, K) what scores are products of
    keys: NDArray[np.float32] | None = None  # (H, S, K)
    values: NDArray[np.float32] | None = None  # (H, S, K) what is mixed; else its first 4 numbers
    row_kind: str = "words"  # what rows and columns stand for, by which they are drawn
    column_kind: str = "words"
    row_side: str = ""  # which text they are of: source, inputs, outputs
    column_side: str = ""
    row_shape: tuple[int, ...] = ()  # where they lie in several dimensions
    column_shape: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<Look {self.name}: heads × rows × columns {self.weights.shape}>"


@dataclass(frozen=True, repr=False)
class AttentionReport:
    """What was seen for one input; saves itself as a page, a picture or numbers."""

    input: str
    output: str
    looks: list[Look]
    task: str = ""
    model: str = ""
    generation: dict[str, object] | None = None
    ablation: dict[str, object] | None = None
    picture: bytes = b""  # what rows or columns are parts of, as a PNG
    layout: Mapping[str, Any] | None = None  # of nodes: where they are drawn, and who is joined

    def __repr__(self) -> str:
        answer = f" → {quoted(self.output)}" if self.output else ""
        looks = counted(len(self.looks), "attention")
        return f"<AttentionReport {quoted(self.input)}{answer}: {looks}>"

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(look.kind for look in self.looks))

    def of(self, kind: str) -> list[Look]:
        """All layers of one kind, first to last."""
        return [look for look in self.looks if look.kind == kind]

    def alignment(self) -> Look:
        """The mean over heads and layers of what the output looked at in the input."""
        if self.kinds() == ["hops"]:  # one picture, a row each
            hops = np.concatenate([look.weights.mean(0) for look in self.looks])[None]
            names, first = [f"hop {look.layer + 1}" for look in self.looks], self.looks[0]
            return Look("each hop of the question", first.kind, -1, names, first.columns, hops)
        crossing = [look for look in self.looks if look.kind.endswith("cross")] or self.looks[-1:]
        mean = np.mean([look.weights.mean(0) for look in crossing], 0, keepdims=True)
        first = crossing[0]
        told = "mean of all heads and layers"
        return replace(first, name=told, layer=-1, weights=mean, scores=None, values=None)

    def data(self) -> dict[str, object]:
        """Plain lists, for JSON."""
        looks = []
        for look in self.looks:
            one = {k: v for k, v in vars(look).items() if v is not None}
            for name in ("weights", "scores", "queries", "keys", "values"):
                if name in one:
                    one[name] = plain(np.round(one[name].astype(float), 4))
            looks.append(one)
        told = {"input": self.input, "output": self.output, "task": self.task, "model": self.model}
        shown = base64.b64encode(self.picture).decode() if self.picture else None
        more: dict[str, object] = {"generation": self.generation, "ablation": self.ablation}
        more["layout"] = self.layout
        more["picture"] = shown and f"data:image/png;base64,{shown}"
        return {**told, "looks": looks, **{k: v for k, v in more.items() if v is not None}}

    def draw(self, path: Path) -> None:
        """One figure: on the picture, graph or history where there is one, else the alignment."""
        on_patches = any(look.column_kind == "patches" for look in self.looks)
        if self.picture and on_patches:
            figure.on_picture(self, path)
        elif self.picture and self.alignment().column_kind == "frames":
            figure.on_sound(self, path)
        elif self.layout is not None:
            figure.on_graph(self, path)
        elif self.looks and self.looks[-1].column_kind == "history":
            figure.on_history(self, path)
        else:
            figure.alignment(self.alignment(), path)

    def save(self, path: str | Path) -> Path:
        """Write .html, .json, .png, .svg or .pdf, as the name says."""
        return save(self, Path(path), WRITERS)

    def _repr_html_(self) -> str:
        return page.inline(self.data())


WRITERS: dict[str, Callable[[AttentionReport, Path], object]] = {
    ".html": lambda sight, path: path.write_text(page.standalone(sight.data()), encoding="utf-8"),
    ".json": lambda sight, path: path.write_text(page.dump(sight.data()), encoding="utf-8"),
    **{kind: lambda sight, path: sight.draw(path) for kind in (".png", ".svg", ".pdf")},
}


MOST = 50_000_000  # weights of one look: 200 MB; beyond, some layers or heads must be chosen


def look(
    run: Run,
    source: object,
    target: str | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    most: int = MOST,
    decode: Decode | None = None,
    vectors: bool = True,
) -> AttentionReport:
    """Answer an input (or take the answer given), and look at the pass that gives it."""
    decode = decode or run.recipe.decode
    if not run.model.looks:
        raise InputError(f"a model of the kind {run.recipe.model_kind} has no attention to see.")
    task = run.task
    if not isinstance(task, Traces):
        raise InputError(f"a run for the task {run.recipe.task_kind} cannot be looked into.")
    given = task.looked_at(run.given(source))
    if target is None:
        target = ""
        if run.task.looks_at_answer:
            target = run.task.predict(run.model, [given], decode, run.longest)[0].output
    elif not is_text(target):
        raise InputError("target: the text must be UTF-8, but is not.")
    batch, sides = task.trace(given, target)
    sides = named(run, sides)
    check_lengths(run, sides)
    check_choice(run, layers, heads)
    parts = attentions(run.model)
    names = fitting(run, sides, layers, heads, most)
    here = batch.to(run.device)
    with (
        torch.inference_mode(),
        watch(run.model, heads=heads, names=names) as seen,
        record_inputs(run.model, names) as heard,
    ):
        logits = run.model(here)
    looks = []
    for name, calls in seen.items():
        kind = re.sub(r"\.\d+", "", name)
        number = re.search(r"\d+", name)
        layer = int(number[0]) if number else 0
        told = run.model.looks[re.sub(r"\d+", "*", name)]
        # An attention that is used several times in a pass says what each use is called; one that
        # is used once a step has its steps put together.
        if not isinstance(told, list):
            calls = [torch.cat(calls, 2)]
        for (label, rows, columns), weights in zip(
            told if isinstance(told, list) else [("", *told)], calls, strict=True
        ):
            end = f".{label}" if label else ""
            more: dict[str, Any] = {}
            if name in heard:
                more = inside(parts[name].score, heard[name], heads, vectors)
            steps = Axis([str(step + 1) for step in range(weights.shape[2])], "steps")
            # Rows are the model's own where no task names them.
            down = sides.get(rows, steps).spaced(weights.shape[2])
            across = sides[columns].spaced(weights.shape[3])
            weights = weights[:, :, : down.real(weights.shape[2]), : across.real(weights.shape[3])]
            found = weights[0].float().cpu().numpy()
            one = Look(name + end, kind + end, layer, down.names, across.names, found)
            drawn = replace(one, row_kind=down.kind, row_shape=down.shape)
            drawn = replace(drawn, column_kind=across.kind, column_shape=across.shape)
            drawn = replace(drawn, row_side=rows, column_side=columns)
            looks.append(replace(drawn, **more))
    written: dict[str, object] | None = None
    if isinstance(run.task, WritesText):
        written = {"steps": generation.steps(run.task, logits, batch, sides["outputs"].names)}
        if tree := generation.search(run.model, run.task, given, decode):
            written["beam"] = tree
    shown, recipe = run.task.gives.show(given), run.recipe
    picture = next((axis.picture for axis in sides.values() if axis.picture), b"")
    kinds = (recipe.task_kind, recipe.model_kind)
    layout = next((axis.layout for axis in sides.values() if axis.layout), None)
    answer = target
    if not answer and run.task.gets == "label":  # what it says, though it looks at no answer
        answer = run.task.predict(run.model, [given], decode, run.longest)[0].output
    return AttentionReport(shown, answer, looks, *kinds, written, picture=picture, layout=layout)


def named(run: Run, sides: Mapping[str, Axis]) -> dict[str, Axis]:
    """What rows and columns stand for, with what the model itself puts before them."""
    first = list(run.model.before)
    return {name: axis._replace(names=[*first, *axis.names]) for name, axis in sides.items()}


def plain(numbers: NDArray[np.float64]) -> list[object]:
    """Lists for JSON, which knows no infinity: what may not be seen has no score."""
    if np.isfinite(numbers).all():
        return list(numbers.tolist())
    whole = numbers.astype(object)
    whole[~np.isfinite(numbers)] = None
    return list(whole.tolist())


FEW = 20_000  # scores of one attention that are told beside its weights


def inside(
    score: object, inputs: tuple[Any, ...], heads: Sequence[int] | None, vectors: bool
) -> dict[str, Any]:
    """The numbers behind the weights of a dot product: scores, scale, and what is mixed; with
    `vectors` also what the scores are products of, where that is not too much."""
    given = dict(zip(("q", "k", "v", "mask", "bias", "causal"), inputs, strict=False))
    q, k, v = (given[name][:1].float() for name in ("q", "k", "v"))
    share = q.shape[1] // k.shape[1]
    picked = list(heads) if heads is not None else list(range(q.shape[1]))
    if len(picked) * q.shape[2] * k.shape[2] > FEW or not isinstance(score, Dot):
        return {}
    k, v = (x.repeat_interleave(share, 1) for x in (k, v))
    scores = (q @ k.mT) * score.scale
    if given.get("bias") is not None:
        scores = scores + given["bias"][:1]
    mask = given.get("mask")
    if given.get("causal"):
        mask = masks.both(mask, masks.causal(q.shape[2], k.shape[2], q.device))
    if mask is not None:
        scores = scores.masked_fill(~mask[:1], float("-inf"))
    found = {"scores": scores[0, picked].cpu().numpy()}
    if vectors and len(picked) * (q.shape[2] + 2 * k.shape[2]) * k.shape[3] <= FEW:
        found |= {"queries": q[0, picked].cpu().numpy(), "keys": k[0, picked].cpu().numpy()}
        found |= {"values": v[0, picked].cpu().numpy()}
    else:
        found["values"] = v[0, picked, :, :4].cpu().numpy()
    # With a bias added, a score is not the product times the scale any more.
    return found if given.get("bias") is not None else {**found, "scale": score.scale}


def check_lengths(run: Run, sides: dict[str, Axis]) -> None:
    """What is looked at has places in the model, and is no longer than what may be answered; its
    end is counted."""
    words = [axis for axis in sides.values() if axis.kind != "frames"]  # whose places are others
    longest, most_tokens = run.model.longest, max(len(axis.names) for axis in words)
    if longest is not None and most_tokens > longest:
        raise InputError(
            f"input: the model can place {longest} tokens, but the text has {most_tokens}."
        )
    limit = run.longest
    for name in ("source", "outputs") if "source" in sides else ():
        if sides[name].kind == "words" and len(sides[name].names) > limit:
            what = "input" if name == "source" else "target"
            raise InputError(
                f"{what}: a line may have {limit} tokens with its end (data.max_length), but has "
                f"{len(sides[name].names)}."
            )


def check_choice(run: Run, layers: Sequence[int] | None, heads: Sequence[int] | None) -> None:
    """Layers and heads must be there."""
    parts = attentions(run.model)
    count = head_count(run)
    if heads is not None and not heads:
        raise InputError(f"heads: from 0 to {count - 1}, but none is named; leave it out for all.")
    for head in heads or ():
        if not 0 <= head < count:
            raise InputError(f"heads: from 0 to {count - 1}, but one is {head}.")
    if layers is not None and not choose(list(parts), layers):
        raise InputError(f"layers: the model has none of {list(layers)}.")


def fitting(
    run: Run,
    sides: dict[str, Axis],
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
    most: int,
) -> list[str]:
    """The attentions to look at; what would not fit is refused before it is computed.

    How frames of a sound look at each other is left out where it would be too much, unless layers
    are asked for.
    """
    every = choose(list(attentions(run.model)), layers)
    longest = max((len(axis.names) for axis in sides.values()), default=0)
    each = len(heads) if heads is not None else head_count(run)

    def shown(name: str) -> list[Axis]:
        """What its rows and columns stand for, where the task says so."""
        told = run.model.looks.get(re.sub(r"\d+", "*", name), ())
        return [sides[one] for one in told if isinstance(one, str) and one in sides]

    def amount(names: Sequence[str]) -> int:
        sizes = [[len(axis.names) for axis in shown(name)] for name in names]
        return sum(each * (math.prod(s) if len(s) == 2 else longest**2) for s in sizes)

    names = every
    if layers is None and amount(every) > most:
        names = [n for n in every if [axis.kind for axis in shown(n)] != ["frames", "frames"]]
    if (count := amount(names)) > most:
        raise InputError(
            f"input: {count:,} weights would be looked at, but at most {most:,} may; choose "
            "layers or heads, or a shorter text."
        )
    return names


def head_count(run: Run) -> int:
    return int(vars(run.model.settings).get("heads") or 1)
