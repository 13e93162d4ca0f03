"""Whether two libraries write the same: told by what rounding cannot change."""

import torch

from regard.exchange.hf import texts_of
from tests.toys import tokens

NEAR = 1e-3  # two scores that differ by less are equally good


def log_probabilities(run, line, ids):
    """Ours of every token at each place of an answer and at its end.  -> (len(ids) + 1, V)"""
    text = texts_of(run)[-1]
    if run.recipe.task_kind == "language":
        row = torch.tensor([[*run.task.ids(line), *ids, text.eos]])
        batch = tokens(row, torch.zeros(1, 2))
        banned = {text.pad, text.bos, text.unk, text.mask} if text.unk >= 0 else set()
    else:
        batch = run.task.pairs(run.task.read_source([line]), [ids])
        banned = {text.pad, text.bos, text.unk}
    with torch.no_grad():
        scores = run.model(batch)[0][-len(ids) - 1 :].double()
    scores[:, sorted(banned - {-1, text.eos})] = float("-inf")
    return scores.log_softmax(-1)


def written_alike(run, lines, rows):
    """Every answer of theirs, as ids, is as good as ours, and nearly all are ours.

    Searched greedily, each token is the best in its place; by beam, the whole is. Where several
    are equally good within rounding, any may be written.
    """
    text, decode = texts_of(run)[-1], run.recipe.decode
    mine, same = run.predict(lines), 0
    for line, own, row in zip(lines, mine, rows, strict=True):
        ends = text.eos in row
        ids = row[: row.index(text.eos)] if ends else row
        logs = log_probabilities(run, line, ids)
        chosen = torch.tensor([*ids, text.eos] if ends else ids, dtype=torch.long)
        places = logs[: len(chosen)]
        got = places.gather(1, chosen[:, None])[:, 0]
        if decode.kind == "greedy":
            assert (places.amax(1) - got).max() < NEAR, (line, ids)
        else:
            whole = float(got.sum()) / len(chosen) ** decode.length_penalty
            assert abs(whole - own.score) < NEAR, (line, ids, whole, own.score)
        if run.recipe.task_kind == "language":
            same += run.task.continued(run.task.ids(line), ids) == own.output
        else:
            same += text.decode([ids])[0] == own.output
    assert same >= 0.98 * len(lines), f"{same} of {len(lines)}"
