"""Prompting: a language model told a task in words and by examples, and scored without training
(Brown et al. 2020)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch

from ..batch import Batch, Running, Tokens
from ..config import Value, make_settings, parse_override
from ..data import labelled
from ..data.labelled import Example
from ..data.read import Faults
from ..errors import InputError
from ..progress import counted
from ..score.interval import proportion
from ..tasks.task import Streams
from ..tasks.writing import GREEDY
from ..training.run import Run
from .save import save

PLACES = re.compile(r"\{(text|pair|label)\}")


@dataclass(frozen=True)
class PromptSettings:
    """How rows become prompts, and answers classes."""

    text: Annotated[str, "the column of the text"] = "text"
    pair: Annotated[str, "the column of a second text; empty: there is none"] = ""
    label: Annotated[str, "the column of the label"] = "label"
    words: Annotated[dict[str, str], "what stands for each label; empty: the label itself"] = field(
        default_factory=dict
    )
    template: Annotated[str, "an example: {text}, {pair}, and at its end {label}"] = (
        "Text: {text}\nLabel: {label}"
    )
    instruction: Annotated[str, "what stands before the examples; empty: nothing"] = ""
    by: Annotated[
        Literal["sum", "mean", "writing"],
        "the likeliest label by the sum or the mean of its tokens, or what the model writes",
    ] = "sum"

    def __post_init__(self) -> None:
        if "{text}" not in self.template or not self.template.endswith("{label}"):
            raise InputError(
                f"task.template must have {{text}} in it and {{label}} at its end, but is "
                f"{self.template!r}."
            )


class Question(NamedTuple):
    """A prompt's tokens, and those of each label that may come next."""

    prompt: list[int]
    answers: list[list[int]]
    words: list[str]


@dataclass(frozen=True)
class Shots:
    """What was right with so many examples shown, in hundredths; unread: no label was written."""

    shots: int
    accuracy: float
    interval: list[float]
    unread: int


@dataclass(frozen=True)
class Prompted:
    """Accuracy by the number of examples shown; saves itself as numbers or as a table."""

    rows: list[Shots]
    examples: int
    commonest: float  # of the commonest label, in hundredths
    labels: list[str]
    example: str  # a prompt as the model reads it

    def data(self) -> dict[str, object]:
        return {**vars(self), "rows": [vars(row) for row in self.rows]}

    def markdown(self) -> str:
        lines = ["| shots | accuracy | 95 % interval |", "| ---: | ---: | --- |"]
        for row in self.rows:
            low, high = row.interval
            lines.append(f"| {row.shots} | {row.accuracy:.1f} | {low:.1f} – {high:.1f} |")
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> Path:
        """Write .json or .md, as the name says."""
        return save(self, Path(path), WRITERS)


WRITERS: dict[str, Callable[[Prompted, Path], object]] = {
    ".json": lambda found, path: path.write_text(
        json.dumps(found.data(), ensure_ascii=False), encoding="utf-8"
    ),
    ".md": lambda found, path: path.write_text(found.markdown(), encoding="utf-8"),
}


def prompt(
    run: Run,
    path: str | Path,
    *overrides: str,
    shots: Sequence[int] = (0, 1, 4),
    examples: int = 200,
    seed: int = 0,
    chat: bool = False,
) -> Prompted:
    """Score rows of a table with so many others shown before each; as a conversation, if asked."""
    settings = settings_of(overrides)
    if not isinstance(run.task, Streams):
        raise InputError(f"{run.folder}: only a language model can be prompted; this run is none.")
    rows = list(labelled.read([Path(path)], settings.text, settings.pair, settings.label, Faults()))
    labels = sorted({str(row.label) for row in rows})
    words = [settings.words.get(label, label) for label in labels]
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    scored, others = order[:examples], order[examples:]
    if len(labels) < 2 or len(others) < max(shots):
        raise InputError(
            f"{path}: there must be two labels and {max(shots)} rows beside the {examples} that "
            f"are scored, but there are {len(labels)} and {len(others)}; lower --examples."
        )
    known = [str(rows[i].label) for i in others]
    found, ask = [], as_chat if chat else as_text
    for count in shots:
        hits = unread = 0
        for place in counted(scored, f"asking with {count} shown", len(scored)):
            rng = np.random.default_rng([seed, place])
            shown = [rows[i] for i in islice(drawn(rng, others, known), count)]
            question = ask(run, settings, shown, rows[place], words, labels)
            told = CHOICES[settings.by](run, question)
            hits += told is not None and labels[told] == str(rows[place].label)
            unread += told is None
        share = 100 * hits / len(scored)
        found.append(Shots(count, share, proportion(hits, len(scored)), unread))
    given = [str(rows[i].label) for i in scored]
    commonest = 100 * max(map(given.count, labels)) / len(given)
    text = "".join(run.task.written.tokenizer.decode(question.prompt, skip_special_tokens=False))
    return Prompted(found, len(scored), commonest, labels, text)


def settings_of(overrides: Sequence[str]) -> PromptSettings:
    """`task.KEY=VALUE` as settings."""
    given = {}
    for text in overrides:
        section, key, value = parse_override(text)
        if section != "task":
            raise InputError(f"'{text}': of a prompt, only task.KEY=VALUE can be set.")
        given[key] = Value(value, "command line", "command line", Path.cwd())
    return make_settings(PromptSettings, "task", given)


def drawn(rng: np.random.Generator, rows: Sequence[int], labels: Sequence[str]) -> Iterator[int]:
    """Rows in turns of one of each label, both in an order of their own."""
    classes = sorted(set(labels))
    pairs = list(zip(rows, labels, strict=True))
    members = {name: [row for row, label in pairs if label == name] for name in classes}
    pools = {name: rng.permutation(members[name]) for name in classes}
    for turn in range(max(map(len, pools.values()))):
        for number in rng.permutation(len(classes)):
            if turn < len(pools[classes[number]]):
                yield int(pools[classes[number]][turn])


# A question in words.


def fill(template: str, row: Example, word: str) -> str:
    """A template with a row in it; what the row says is not looked through again."""
    own = {"text": row.text.strip(), "pair": (row.pair or "").strip(), "label": word}
    return PLACES.sub(lambda place: own[place[1]], template)


def as_text(
    run: Run,
    s: PromptSettings,
    shown: Sequence[Example],
    row: Example,
    words: Sequence[str],
    labels: Sequence[str],
) -> Question:
    """Examples one below the other, the last without its label."""
    known = dict(zip(labels, words, strict=True))
    blocks = [s.instruction] if s.instruction else []
    blocks += [fill(s.template, one, known[str(one.label)]) for one in shown]
    whole = ["\n\n".join([*blocks, fill(s.template, row, word)]) for word in words]
    before = "\n\n".join([*blocks, fill(s.template.removesuffix("{label}").rstrip(" "), row, "")])
    task: Any = run.task
    prompt, *rows = [task.known_ids(text) for text in (before, *whole)]
    # Where a label's first token takes something of the prompt along, that is told with it.
    place = min(shared(prompt, ids) for ids in rows)
    return Question(prompt[:place], [ids[place:] for ids in rows], list(words))


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many of the first entries both have."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def as_chat(
    run: Run,
    s: PromptSettings,
    shown: Sequence[Example],
    row: Example,
    words: Sequence[str],
    labels: Sequence[str],
) -> Question:
    """Each example a turn of the user and of the assistant, who says the label."""
    known = dict(zip(labels, words, strict=True))
    asked = s.template.removesuffix("{label}").rstrip()
    messages = [{"role": "system", "content": s.instruction}] if s.instruction else []
    for one in shown:
        messages.append({"role": "user", "content": fill(asked, one, "")})
        messages.append({"role": "assistant", "content": known[str(one.label)]})
    messages.append({"role": "user", "content": fill(asked, row, "")})
    template = run.template
    return Question(template.ids(messages), template.text.encode(list(words)), list(words))


# An answer as a class.


def log_probabilities(run: Run, question: Question) -> list[list[float]]:
    """Those of each label's tokens behind the prompt; what labels share is read once."""
    prompt, answers = question.prompt, question.answers
    before = list(dict.fromkeys(tuple(answer[:-1]) for answer in answers))
    longest = len(prompt) + max(map(len, before))
    if longest > (run.model.longest or longest):
        raise InputError(
            f"a prompt may have {run.model.longest} tokens with its label, but one has {longest}; "
            "show fewer examples."
        )
    ids = torch.zeros(len(before), longest, dtype=torch.long)
    for number, start in enumerate(before):
        ids[number, : len(prompt) + len(start)] = torch.tensor([*prompt, *start])
    label_range = torch.tensor([[0, longest]] * len(before))
    batch = Batch(Running(ids), Tokens(ids, label_range)).to(run.device)
    with torch.inference_mode():
        states = run.model.states(batch).states[:, len(prompt) - 1 :]
        logs = run.model.output(states).float().log_softmax(-1).cpu()
    return [
        [float(logs[before.index(tuple(answer[:-1])), i, token]) for i, token in enumerate(answer)]
        for answer in answers
    ]


def likeliest_sum(run: Run, question: Question) -> int:
    return int(np.argmax([sum(row) for row in log_probabilities(run, question)]))


def likeliest_mean(run: Run, question: Question) -> int:
    return int(np.argmax([sum(row) / len(row) for row in log_probabilities(run, question)]))


def written(run: Run, question: Question) -> int | None:
    """The label that the model writes first; None where it writes none."""
    task: Any = run.task
    most = max(map(len, question.answers)) + 4
    decode = replace(run.recipe.decode, **{**GREEDY, "max_new_tokens": most})
    text = "".join(task.stream_ids(run.model, question.prompt, decode)).casefold()
    places = [text.find(word.casefold()) for word in question.words]
    known = [(place, -len(question.words[i]), i) for i, place in enumerate(places) if place >= 0]
    return min(known)[2] if known else None


# What `task.by` picks from.
CHOICES: dict[str, Callable[[Run, Question], int | None]] = {
    "sum": likeliest_sum,
    "mean": likeliest_mean,
    "writing": written,
}
