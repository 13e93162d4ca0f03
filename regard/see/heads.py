"""What heads look at: every head of a run scored on a corpus (after Clark et al. 2019).

A kind of looking says, for the tokens of a text, which places count; a head's score is how much of
its weight falls on them, over the tokens that have such a place. Where a file has trees or entities
(CoNLL-U), the most looked-at word is held against the syntactic partner and the coreferent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.trees import Sentence
from ..errors import InputError
from ..parts.watch import attentions, watch
from ..tasks.task import Traces
from ..training.run import Run
from . import figure
from .brief import counted
from .capture import check_lengths, named
from .field import as_word, looking_at_itself
from .save import save

Array = NDArray[np.float64]
Allowed = NDArray[np.bool_]
NAMED_FROM = 0.5  # a head is named by a kind on which at least so much of its weight falls
BROAD_FROM = 0.8  # or as broad, where it looks so evenly
LEAST = 10  # pairs of a relation, below which it is not told
ENDS = ("[SEP]", "[CLS]", "<s>", "</s>", "<eos>", "<bos>", "<pad>", "<|endoftext|>")


class Seen(NamedTuple):
    """A text's tokens, and how each head of each layer looked at them."""

    tokens: list[str]
    weights: Array  # (L, H, T, T)


def beside(tokens: Sequence[str], far: int) -> Allowed:
    return np.eye(len(tokens), k=far, dtype=bool)


def same(tokens: Sequence[str]) -> Allowed:
    """Other places of the same word."""
    names = np.array([as_word(token).lower() for token in tokens])
    found: Allowed = (names[:, None] == names) & ~np.eye(len(tokens), dtype=bool)
    return found


def after_same(tokens: Sequence[str]) -> Allowed:
    """What stood behind an earlier place of the same word (induction, Olsson et al. 2022)."""
    earlier = np.tril(same(tokens), -1)
    return np.roll(earlier, 1, axis=1) & (np.arange(len(tokens)) > 0)


def ends(tokens: Sequence[str]) -> Allowed:
    """Signs that end or part texts, but for the first place."""
    found = np.array([token in ENDS for token in tokens])
    found[0] = False
    return np.broadcast_to(found, (len(tokens), len(tokens)))


def points(tokens: Sequence[str]) -> Allowed:
    found = np.array([not any(c.isalnum() for c in as_word(t)) for t in tokens])
    found &= ~np.array([token in ENDS for token in tokens])
    return np.broadcast_to(found, (len(tokens), len(tokens)))


def first(tokens: Sequence[str]) -> Allowed:
    found = np.zeros((len(tokens), len(tokens)), bool)
    found[1:, 0] = True
    return found


KINDS: dict[str, Callable[[Sequence[str]], Allowed]] = {
    "previous": lambda tokens: beside(tokens, -1),
    "next": lambda tokens: beside(tokens, 1),
    "itself": lambda tokens: beside(tokens, 0),
    "first": first,
    "separator": ends,
    "punctuation": points,
    "same": same,
    "induction": after_same,
}
BROAD = "broad"  # not a place: how evenly all that may be seen is looked at


@dataclass(frozen=True)
class Relation:
    """How often a head's most looked-at word is the partner, for its best head."""

    name: str  # a relation's name, from the dependent to its head or back; or coreference
    layer: int
    head: int
    right: float
    baseline: float  # of the best fixed distance; for coreference, of the nearest other mention
    pairs: int


@dataclass(frozen=True)
class Example:
    """Where a head shows its kind best."""

    kind: str
    layer: int
    head: int
    tokens: list[str]
    weights: list[list[float]]


@dataclass(frozen=True, repr=False)
class Heads:
    """Every head's scores; saves itself as a map or numbers."""

    scores: dict[str, Array]  # (L, H) each
    texts: int
    tokens: int
    relations: list[Relation] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    ablation: dict[str, Any] | None = None

    def __repr__(self) -> str:
        layers, heads = self.scores[BROAD].shape
        texts = counted(self.texts, "text")
        return f"<Heads: {counted(layers, 'layer')} of {counted(heads, 'head')} on {texts}>"

    def kinds(self) -> list[list[str]]:
        """What each head is named by; mixed: nothing takes half of its weight."""
        names = [name for name in self.scores if name != BROAD]
        table = np.stack([np.nan_to_num(self.scores[name]) for name in names])  # (kinds, L, H)
        best, how, even = table.argmax(0), table.max(0), self.scores[BROAD]

        def named(layer: int, head: int) -> str:
            if how[layer, head] >= NAMED_FROM:
                return str(names[best[layer, head]])
            return BROAD if even[layer, head] >= BROAD_FROM else "mixed"

        return [[named(layer, head) for head in range(even.shape[1])] for layer in range(len(even))]

    def best(self, kind: str) -> tuple[int, int, float]:
        """The layer and head that look so the most."""
        table = np.nan_to_num(self.scores[kind], nan=-1.0)
        layer, head = np.unravel_index(int(table.argmax()), table.shape)
        return int(layer), int(head), float(table[layer, head])

    def effects(self) -> Array | None:
        """What the metric loses without each head.  -> (L, H)"""
        if self.ablation is None:
            return None
        found = np.full(next(iter(self.scores.values())).shape, np.nan)
        for row in self.ablation["heads"]:
            if row["layer"] is not None and row["value"] is not None:
                found[row["layer"], row["head"]] = row["value"] - self.ablation["whole"]
        return found

    def data(self) -> dict[str, object]:
        effects = self.effects()
        heads = [
            {"layer": layer, "head": head, "kind": kind,
             **{name: told(table[layer, head]) for name, table in self.scores.items()},
             **({} if effects is None else {"ablation": told(effects[layer, head])})}
            for layer, row in enumerate(self.kinds())
            for head, kind in enumerate(row)
        ]  # fmt: skip
        return {
            "texts": self.texts, "tokens": self.tokens, "heads": heads,
            "relations": [vars(one) for one in self.relations],
            "examples": [vars(one) for one in self.examples],
            **({} if self.ablation is None else {"metric": self.ablation["metric"]}),
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write .json, .png, .svg or .pdf, as the name says."""
        return save(self, Path(path), WRITERS)


WRITERS: dict[str, Callable[[Heads, Path], object]] = {
    ".json": lambda found, path: path.write_text(
        json.dumps(found.data(), ensure_ascii=False), encoding="utf-8"
    ),
    **{kind: lambda found, path: figure.head_map(found, path) for kind in (".png", ".svg", ".pdf")},
}


def told(number: float) -> float | None:
    return None if np.isnan(number) else round(float(number), 4)


def seen(run: Run, source: object) -> Seen:
    """How all heads of the blocks that look at themselves look at an input."""
    task = run.task
    if not isinstance(task, Traces):
        raise InputError(f"a run for the task {run.recipe.task_kind} cannot be looked into.")
    stack, side = looking_at_itself(run)
    names = [n for n in attentions(run.model) if n.startswith(f"{stack}.") and "cross" not in n]
    batch, sides = task.trace(task.looked_at(run.given(source)), "")
    sides = named(run, sides)
    check_lengths(run, sides)
    with torch.inference_mode(), watch(run.model, names=names) as found:
        run.model(batch.to(run.device))
    weights = [found[name][0][0].double().cpu().numpy() for name in names]
    return Seen(sides[side].names, np.stack(weights))


def heads(
    run: Run, texts: Sequence[str | Sentence], ablation: Mapping[str, Any] | None = None
) -> Heads:
    """Score every head on texts: plain ones, or sentences with trees and entities."""
    if not texts:
        raise InputError("there must be a text to look at, but is none.")
    sums: dict[str, Array] = {}
    counts: dict[str, Array] = {}
    best: dict[str, list[tuple[float, Seen]]] = {}
    partners = Partners()
    tokens = 0
    for text in texts:
        one = seen(run, text if isinstance(text, str) else text.text)
        tokens += len(one.tokens)
        if len(one.tokens) < 2:
            continue
        for kind, (total, rows) in scored(one).items():
            sums[kind] = sums.get(kind, np.zeros(total.shape)) + total
            counts[kind] = counts.get(kind, np.zeros(total.shape)) + rows
            if rows and len(one.tokens) <= SHOWN:
                best.setdefault(kind, []).append((float((total / rows).max()), one))
        if isinstance(text, Sentence):
            partners.add(one, text)
    with np.errstate(invalid="ignore"):
        scores = {kind: sums[kind] / counts[kind] for kind in sums}
    found = Heads(scores, len(texts), tokens, partners.relations())
    examples = []
    for kind in scores:
        layer, head, _ = found.best(kind)
        if kind in best:
            one = max(best[kind], key=lambda pair: pair[0])[1]
            shown = one.weights[layer, head].round(4).tolist()
            examples.append(Example(kind, layer, head, one.tokens, shown))
    numbered = None
    if ablation is not None:
        numbered = {**ablation, "heads": [{**row, "layer": layer_of(run, row["name"])}
                                          for row in ablation["heads"]]}  # fmt: skip
    return Heads(scores, len(texts), tokens, found.relations, examples, numbered)


SHOWN = 40  # tokens of a text that is given as an example, at most


def layer_of(run: Run, name: str) -> int | None:
    """The layer of an attention that looks at its own text; None: it is another."""
    stack, _ = looking_at_itself(run)
    own = name.startswith(f"{stack}.") and "cross" not in name
    return int(name.split(".")[1]) if own else None


def scored(one: Seen) -> dict[str, tuple[Array, int]]:
    """Of each kind, the weight that falls on its places, summed over the rows that have such a
    place, by head; and how many rows those are."""
    # What no head ever looks at may not be seen, as what comes later in a language model.
    visible = one.weights.max((0, 1)) > 0  # (T, T)
    found = {}
    for kind, places in KINDS.items():
        counted = places(one.tokens) & visible
        rows = counted.any(1)
        weight = (one.weights * counted).sum(-1)[..., rows].sum(-1)
        found[kind] = (weight, int(rows.sum()))
    amount = visible.sum(1)
    rows = amount > 1
    spread = -(one.weights * np.log(np.maximum(one.weights, 1e-12))).sum(-1)[..., rows]
    found[BROAD] = ((spread / np.log(amount[rows])).sum(-1), int(rows.sum()))
    return found


def words_of(tokens: Sequence[str], words: Sequence[str]) -> list[list[int]]:
    """The tokens that make up each word of a sentence, in order; some may have none."""
    found, at = [], 0
    plain = [as_word(token).removeprefix("##").lower() for token in tokens]
    for word in words:
        start, joined = at, ""
        while start < len(tokens) and tokens[start] in ENDS:
            start += 1
        end = start
        while end < len(tokens) and word.lower().startswith(joined + plain[end]):
            joined += plain[end]
            end += 1
            if joined == word.lower():
                break
        if joined == word.lower():
            found.append(list(range(start, end)))
            at = end
        else:
            found.append([])
    return found


class Partners:
    """How often the most looked-at word is a syntactic partner or a coreferent, by head."""

    def __init__(self) -> None:
        self.right: dict[str, Array] = {}
        self.pairs: dict[str, int] = {}
        self.far: dict[str, dict[int, int]] = {}  # how far partners stand, for the baseline
        self.nearest = 0

    def add(self, one: Seen, sentence: Sentence) -> None:
        pieces = words_of(one.tokens, sentence.words)
        known = [number for number, tokens in enumerate(pieces) if tokens]
        if len(known) < 2:
            return
        # To a word: the sum over its pieces; from it: their mean (Clark et al. 2019, section 4.1).
        to = np.stack([one.weights[..., pieces[n]].sum(-1) for n in known], -1)  # (L, H, T, W)
        by_word = np.stack([to[:, :, pieces[n]].mean(2) for n in known], 2)  # (L, H, W, W)
        by_word[..., range(len(known)), range(len(known))] = -1.0
        most = by_word.argmax(-1)  # (L, H, W)
        place = {number: at for at, number in enumerate(known)}
        for number, (head, relation) in enumerate(
            zip(sentence.heads, sentence.relations, strict=True)
        ):
            if number in place and head in place:
                for name, source, partner in (
                    (f"{relation}: its head", number, head),
                    (f"{relation}: its dependent", head, number),
                ):
                    self.count(name, most[:, :, place[source]] == place[partner])
                    distances = self.far.setdefault(name, {})
                    distances[partner - source] = distances.get(partner - source, 0) + 1
        self.add_entities(by_word, sentence, place)

    def add_entities(self, by_word: Array, sentence: Sentence, place: Mapping[int, int]) -> None:
        """A mention of what was mentioned before: is the most looked-at mention one of it?"""
        mentions = [(last, entity) for last, entity in sentence.mentions if last in place]
        for number, (last, entity) in enumerate(mentions):
            before = mentions[:number]
            if len({other for _, other in before}) < 2 or all(e != entity for _, e in before):
                continue  # there must be something to confuse it with
            columns = [place[other] for other, _ in before]
            chosen = by_word[:, :, place[last]][..., columns].argmax(-1)
            self.count(COREFERENCE, np.array([e == entity for _, e in before])[chosen])
            self.nearest += before[-1][1] == entity

    def count(self, name: str, right: NDArray[np.bool_]) -> None:
        self.right[name] = self.right.get(name, np.zeros(right.shape)) + right
        self.pairs[name] = self.pairs.get(name, 0) + 1

    def relations(self) -> list[Relation]:
        """The best head of each relation that comes often enough, the most frequent first."""
        found = []
        for name, right in self.right.items():
            pairs = self.pairs[name]
            if pairs < LEAST:
                continue
            layer, head = np.unravel_index(int(right.argmax()), right.shape)
            usual = self.nearest if name == COREFERENCE else max(self.far[name].values())
            found.append(
                Relation(
                    name, int(layer), int(head), round(float(right[layer, head]) / pairs, 4),
                    round(usual / pairs, 4), pairs,
                )
            )  # fmt: skip
        return sorted(found, key=lambda one: (-one.pairs, one.name))


COREFERENCE = "coreference: an earlier mention"
