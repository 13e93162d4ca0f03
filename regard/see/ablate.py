"""What each head is for: one is silenced at a time, and the answer and the score looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.read import Faults
from ..errors import InputError
from ..parts.watch import attentions, silence
from ..tasks.translate import GREEDY
from ..train.run import Run


def ablate(run: Run, source: str, examples: int = 40) -> dict[str, Any]:
    """The answer to one input and the metric on the first validation examples, head by head.

    Without data at hand only the answers are told.
    """
    if not run.model.looks:
        raise InputError(
            f"a model of the kind {run.recipe.model_kind} has no attention to silence."
        )
    heads = int(getattr(run.model.settings, "heads", 1) or 1)
    whole = measure(run, source, examples)
    rows = []
    for name in attentions(run.model):
        for head in range(heads):
            with silence(run.model, name, [head]):
                found = measure(run, source, examples)
            rows.append({"name": name, "head": head, **found})
    metric = run.task.metric if whole["value"] is not None else "none"
    return {"metric": metric, "whole": whole["value"], "output": whole["output"], "heads": rows}


def measure(run: Run, source: str, examples: int) -> dict[str, Any]:
    task, decode = run.task, replace(run.recipe.decode, **GREEDY)
    longest = run.recipe.data.max_length
    output = task.predict(run.model, [source], decode, longest)[0].output
    value = None
    if examples and run.recipe.data.valid:
        files = run.recipe.data.files("valid")
        scores = task.quick_scores(run.model, files, decode, Faults(skip=True), examples)
        value = scores.get(task.metric)
    return {"output": output, "value": value}
