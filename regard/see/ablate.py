"""What each head is for: one is silenced at a time, and the answer and the score looked at."""

from __future__ import annotations

import math
from collections.abc import Generator

import torch

from ..data.examples import Data
from ..decode import Settings as Decode
from ..errors import InputError
from ..parts.watch import attentions, silence
from ..tasks import Prediction
from ..tasks.task import Traces
from ..training.run import Run
from .capture import head_count


def head_by_head(
    run: Run, source: object, examples: int = 40, decode: Decode | None = None
) -> Generator[None, None, dict[str, object]]:
    """The answer to one input and the metric on the first validation examples, head by head; it
    yields between two heads.

    Answers are found as the run finds them, or as `decode` says. Without examples, how likely the
    whole model's answer still is stands in the metric's place.
    """
    if not run.model.looks:
        raise InputError(
            f"a model of the kind {run.recipe.model_kind} has no attention to silence."
        )
    heads, given = head_count(run), run.given(source)
    data = run.data("valid") if examples and run.recipe.data.valid else None
    decode = decode or run.recipe.decode
    answer = run.task.predict(run.model, [given], decode, run.longest)[0]
    yield
    whole = measure(run, given, answer, answer.output, data, examples)
    rows = []
    for name in attentions(run.model):
        for head in range(heads):
            yield
            with silence(run.model, name, [head]):
                said = run.task.predict(run.model, [given], decode, run.longest)[0]
                found = measure(run, given, said, answer.output, data, examples)
            rows.append({"name": name, "head": head, **found})
    metric = run.task.metric if data is not None else LIKELY
    return {"metric": metric, "whole": whole["value"], "output": whole["output"], "heads": rows}


LIKELY = "log-probability of the whole model's answer"


def measure(
    run: Run, given: object, said: Prediction, answer: str, data: Data | None, examples: int
) -> dict[str, object]:
    """How good the model is as it is now; or what it makes of the whole model's answer."""
    task, decode = run.task, run.recipe.decode
    output, value = said.output, None
    if data is not None:
        scores = task.quick_scores(run.model, data, decode, examples)
        value = scores.get(task.metric)
    elif said.probabilities is not None:
        value = math.log(max(said.probabilities.get(answer, 0.0), 1e-12))
    elif isinstance(task, Traces) and task.looks_at_answer:
        batch, _ = task.trace(given, answer)
        with torch.inference_mode():
            logs = run.model(batch.to(run.device))[0].float().log_softmax(-1).cpu()
        labels = batch.asked.labels[0]
        value = float(logs[: len(labels)].gather(1, labels[:, None]).sum())
    return {"output": output, "value": value if value is None else round(value, 4)}


def ablate(run: Run, source: object, examples: int = 40) -> dict[str, object]:
    """All heads, one after the other."""
    turns = head_by_head(run, source, examples)
    while True:
        try:
            next(turns)
        except StopIteration as end:
            found: dict[str, object] = end.value
            return found
