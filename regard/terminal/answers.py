"""Answers that are written as one watches, and how likely a text is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tasks.task import Streams
from . import json_line

if TYPE_CHECKING:
    from ..see.run import Run


def print_logprobs(trained: Run, texts: Sequence[str], as_json: bool) -> None:
    for text in texts:
        found = trained.logprobs(text)
        total = sum(value for _, value in found if value is not None)
        if as_json:
            row = {"input": text, "score": total, "tokens": [t for t, _ in found]}
            print(json_line({**row, "logprobs": [v for _, v in found]}))
            continue
        for token, value in found:
            print(f"{token}\t{'' if value is None else f'{value:.4f}'}")
        print(f"\t{total:.4f}")


def write_on(trained: Run, prompts: Sequence[str], first: int) -> None:
    """One text, piece by piece as it is written; several answers, or a beam, when they are done."""
    decode, task = trained.recipe.decode, trained.task
    for prompt in prompts:
        slides = isinstance(task, Streams) and task.slides(prompt, trained.model, decode)
        if decode.overflow == "slide" and slides:
            print(
                f"regard: with its continuation the text is longer than the "
                f"{trained.model.longest} tokens that the model can place; its beginning is "
                "forgotten on the way (decode.overflow=refuse refuses).",
                file=sys.stderr,
            )
    if decode.kind == "beam" or decode.num_return_sequences > 1 or len(prompts) > 1:
        for answer in trained.predict(prompts, first):
            for text, _ in answer.nbest or ((answer.output, 0.0),):
                print(text)
        return
    for piece in trained.stream(prompts[0]):
        print(piece, end="", flush=True)
    print()
