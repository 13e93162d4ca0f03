"""What `[decode]` may say, what a decoder is told about its batch, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from ..errors import RecipeError

DRAWING = ("temperature", "top_k", "top_p", "min_p", "typical_p")  # matter only then


@dataclass(frozen=True)
class Settings:
    """How an answer is searched for."""

    kind: Annotated[Literal["beam", "greedy", "sample"], "how the next token is chosen"] = "beam"
    num_beams: Annotated[int, Gt(0), Le(1000), "hypotheses kept at each step (beam)"] = 5
    num_return_sequences: Annotated[int, Gt(0), Le(1000), "answers for each input"] = 1
    length_penalty: Annotated[
        float, Ge(-10), Le(10), "scores are divided by length to this power (beam)"
    ] = 1.0
    early_stopping: Annotated[
        bool | Literal["never"],
        "true: stop at num_beams answers; false: when none better is likely; never: "
        "when none can be",
    ] = False
    no_repeat_ngram_size: Annotated[
        int, Ge(0), Le(1000), "n-grams of this size do not come twice; 0: they may"
    ] = 0
    min_new_tokens: Annotated[int, Ge(0), Lt(2**31), "no end before this many tokens"] = 0
    max_new_tokens: Annotated[int, Gt(0), Lt(2**31), "an end at this many tokens at the latest"] = (
        256
    )
    max_ratio: Annotated[
        float,
        Ge(0),
        Le(10**6),
        "an end at this many times the source's tokens plus 10; 0: no such limit",
    ] = 3.0
    temperature: Annotated[
        float, Ge(1e-4), Le(100), "below 1 bolder towards the likely, above 1 flatter (sample)"
    ] = 1.0
    top_k: Annotated[int, Ge(0), Lt(2**31), "draw among the k likeliest; 0: all (sample)"] = 0
    top_p: Annotated[float, Gt(0), Le(1), "draw among the likeliest that sum to p (sample)"] = 1.0
    min_p: Annotated[
        float, Ge(0), Le(1), "draw among those at least p times the likeliest (sample)"
    ] = 0.0
    typical_p: Annotated[
        float, Gt(0), Le(1), "draw among the most typical that sum to p (sample)"
    ] = 1.0
    repetition_penalty: Annotated[
        float, Ge(0.01), Le(100), "above 1, what is written already becomes less likely"
    ] = 1.0
    stop: Annotated[list[str], "texts that end an answer and are cut off it"] = field(
        default_factory=list
    )
    overflow: Annotated[
        Literal["slide", "refuse"],
        "a text longer than the model can place: forget its beginning, or refuse it",
    ] = "slide"
    ctc_weight: Annotated[
        float, Ge(0), Le(1), "speech: how much CTC counts beside attention; 1: CTC alone"
    ] = 0.0
    fusion: Annotated[
        str, Path, "speech: a language model's run that says, too, what is likely (shallow fusion)"
    ] = ""
    fusion_weight: Annotated[float, Ge(0), Le(10), "how much it counts"] = 0.3
    timestamps: Annotated[
        Literal["never", "long", "always"],
        "speech: tell when each piece is said, where the vocabulary has entries for that; long: of "
        "sounds longer than sound.longest, whose next window begins where a piece has ended",
    ] = "long"
    seed: Annotated[int, Ge(0), Lt(2**40), "the same seed draws the same (sample)"] = 0
    compile: Annotated[
        Literal["auto", "off", "full"],
        "auto: steps on a GPU are captured as graphs; full: and compiled, which takes a while",
    ] = "auto"
    precision: Annotated[
        Literal["float32", "bfloat16", "int8"],
        "of the large products on a CPU; int8: weights are rounded once, by row, and vectors as "
        "they come, by token",
    ] = "float32"
    batch_tokens: Annotated[
        int, Gt(0), Lt(2**31), "source tokens decoded together, each beam counted"
    ] = 8000

    def __post_init__(self) -> None:
        given = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        if "" in self.stop:
            raise RecipeError("decode.stop: a text to stop at must not be empty.")
        if self.kind != "sample":
            for name in DRAWING:
                if name in given:
                    raise RecipeError(
                        f"decode.{name} only matters when drawing; add decode.kind=sample."
                    )
        if self.kind == "greedy" and self.num_return_sequences > 1:
            raise RecipeError(
                "decode.num_return_sequences: greedy has one answer; use beam or sample."
            )
        if self.kind == "beam" and self.num_return_sequences > self.num_beams:
            raise RecipeError(
                f"decode.num_return_sequences must be at most decode.num_beams ({self.num_beams}), "
                f"but is {self.num_return_sequences}."
            )

    def alone(self) -> Settings:
        """The same for one answer."""
        return replace(self, num_return_sequences=1)

    @property
    def rows(self) -> int:
        """Rows of a batch that each input takes."""
        return self.num_beams if self.kind == "beam" else self.num_return_sequences


Rule = Callable[[Tensor, Tensor], Tensor]  # scores (R, V), the answer so far (R, t) -> scores


@dataclass(frozen=True)
class Limits:
    """What a decoder must know of its batch beside the model."""

    prompt: Tensor  # (B, P) what is written already; `bos` alone where nothing is
    eos: int
    longest: Tensor  # (B,) an end at this many new tokens at the latest, `eos` counted
    banned: tuple[int, ...] = ()  # never to be written
    not_first: tuple[int, ...] = ()  # nor these, as the first
    rule: Rule | None = None  # what else may not come next

    @classmethod
    def begin(cls, bos: int, eos: int, longest: Tensor, banned: tuple[int, ...] = ()) -> Self:
        """Limits of answers that begin with nothing but `bos`."""
        return cls(torch.full_like(longest, bos)[:, None], eos, longest, banned)


@dataclass(frozen=True)
class Hypothesis:
    """One answer: its ids without prompt and `eos`, and its score."""

    ids: list[int]
    score: float  # log-probability; a beam's divided by length to the penalty's power
    ended: bool  # by `eos`, not by a limit
