"""Decoders against each other, against exhaustive search, and against transformers' generate."""

import itertools
import math
import sys
from collections import Counter

import pytest
import torch

from regard.decode import POLICIES, Limits, Settings, write
from regard.decode import rules as rules_of
from regard.decode.beam import best_continuations, largest
from regard.errors import RecipeError
from tests.marian import copy_marian, tiny_marian
from tests.toys import pairs, random_pairs
from tests.toys import small_model as small

BOS, EOS = 1, 2


def small_model(kind, **more):
    """In double precision, so that no near tie hangs on how a product is rounded."""
    return small(kind, **more).double()


def limits(rows: int, longest: int = 12) -> Limits:
    return Limits.begin(BOS, EOS, torch.full((rows,), longest))


def ids(found):
    return [[hypothesis.ids for hypothesis in row] for row in found]


class Chain:
    """A toy that writes by a fixed table: P(next | last). Its state is nothing but its rows."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table.log()

    def start(self, batch):
        return Rows(torch.arange(batch))

    def step(self, last, state):
        return self.table[last].clone(), state


class Rows:
    def __init__(self, rows):
        self.rows = rows

    def select(self, rows):
        return Rows(self.rows[rows])

    def repeat(self, count):
        return Rows(self.rows.repeat_interleave(count))


def random_chain(seed: int, size: int = 5) -> Chain:
    dice = torch.Generator().manual_seed(seed)
    return Chain(torch.rand(size, size, generator=dice, dtype=torch.float64).softmax(-1))


def test_a_beam_of_one_is_greedy():
    model, batch = small_model("transformer"), random_pairs(6)
    greedy = write(model, batch, limits(6), Settings(kind="greedy"))
    beam = write(model, batch, limits(6), Settings(num_beams=1))
    assert ids(greedy) == ids(beam)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_what_exhaustive_search_finds(seed, penalty):
    """All sequences of up to four tokens over three letters, scored by hand."""
    chain, longest = random_chain(seed), 4
    settings = Settings(
        num_beams=200, num_return_sequences=3, length_penalty=penalty, early_stopping="never"
    )
    ban = Limits.begin(BOS, EOS, torch.tensor([longest]), banned=(BOS,))
    chain.table[:, BOS] = -math.inf
    chain.table = chain.table.log_softmax(-1)
    scored = []
    for length in range(longest + 1):
        for word in itertools.product([0, 3, 4], repeat=length):
            path = [BOS, *word]
            total = sum(chain.table[a, b].item() for a, b in itertools.pairwise(path))
            end = chain.table[path[-1], EOS].item() if length < longest else 0.0
            scored.append(((total + end) / (length + (length < longest)) ** penalty, list(word)))
    best = sorted(scored, reverse=True)[:3]
    found = write(chain, 1, ban, settings)[0]
    assert [hypothesis.ids for hypothesis in found] == [word for _, word in best]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in best])


@pytest.mark.parametrize("beams", [1, 2, 4])
@pytest.mark.parametrize("penalty", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("early", [True, False])
def test_beam_search_is_that_of_transformers(beams, penalty, early):
    theirs = tiny_marian(seed=beams)
    ours = copy_marian(theirs)
    batch = random_pairs(8, seed=3, size=60)
    mask = (torch.arange(9) < batch.read.lengths[:, None]).long()
    expected = theirs.generate(
        input_ids=batch.read.ids, attention_mask=mask, num_beams=beams, num_return_sequences=beams,
        length_penalty=penalty, early_stopping=early, max_new_tokens=15, do_sample=False,
        output_scores=True, return_dict_in_generate=True, bad_words_ids=None,
    )  # fmt: skip
    settings = Settings(
        num_beams=beams, num_return_sequences=beams, length_penalty=penalty, early_stopping=early
    )
    found = write(ours, batch, limits(8, 15), settings)
    rows = [row[1:] for row in expected.sequences.tolist()]
    stripped = [list(itertools.takewhile(lambda i: i != EOS, row)) for row in rows]
    stripped = [row if EOS in whole else whole for row, whole in zip(stripped, rows, strict=True)]
    mine = [hypothesis for row in found for hypothesis in row]
    assert [hypothesis.ids for hypothesis in mine] == [
        row[: len(hypothesis.ids)] if not hypothesis.ended else row
        for row, hypothesis in zip(stripped, mine, strict=True)
    ]
    if beams > 1:
        scores = [hypothesis.score for hypothesis in mine]
        torch.testing.assert_close(
            torch.tensor(scores), expected.sequences_scores, atol=1e-4, rtol=1e-4
        )


def test_a_beam_with_nowhere_to_go_spoils_no_other():
    """Every continuation of one beam forbidden: the other's answers stand."""
    scores = torch.tensor([[-1.0, -2.0, -3.0], [float("-inf")] * 3])
    totals, parents, _ = best_continuations(scores, torch.tensor([[-0.5, -0.1]]))
    assert not totals.isnan().any() and (parents[0, :3] == 0).all()


def test_looking_seldom_at_who_is_done_changes_nothing(monkeypatch):
    """As on a GPU, where a search that is done stays in the batch for a few steps more."""
    model, batch = small_model("transformer", size=8), random_pairs(16, size=8)
    limit = Limits.begin(BOS, EOS, torch.arange(5, 21))
    settings = Settings(num_beams=3, num_return_sequences=3)
    often = write(model, batch, limit, settings)
    monkeypatch.setitem(sys.modules["regard.decode.leave"].LOOK, "cpu", 4)
    assert ids(write(model, batch, limit, settings)) == ids(often)
    assert len({len(row[0].ids) for row in often}) > 3


@pytest.mark.parametrize("kind", ["greedy", "beam"])
def test_rescoring_an_answer_gives_its_score(kind):
    model, batch = small_model("transformer"), random_pairs(5)
    found = write(model, batch, limits(5), Settings(kind=kind, length_penalty=0.0))
    for row, (best, *_) in enumerate(found):
        written = [BOS, *best.ids, *([EOS] if best.ended else [])]
        target = torch.tensor([written + ([0] if len(written) == 1 else [])])
        alone = batch.shard(row, len(batch))
        length = torch.tensor([len(written) - 1])
        pair = pairs(alone.read.ids, alone.read.lengths, target, length)
        scores = model(pair).log_softmax(-1)[0]
        total = sum(scores[t, i].item() for t, i in enumerate(written[1:]))
        assert best.score == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("kind", POLICIES)
def test_alone_equals_batched(kind):
    model, batch = small_model("transformer"), random_pairs(6)
    settings = Settings(kind=kind, seed=3)
    together = write(model, batch, limits(6), settings)
    for row in range(6):
        alone = write(model, batch.shard(row, 6), limits(1), settings)
        assert ids(alone)[0] == ids(together)[row]


@pytest.mark.parametrize("kind", POLICIES)
def test_each_row_has_its_own_limit(kind):
    chain = random_chain(0)
    chain.table[:, EOS] = -math.inf
    found = write(chain, 3, Limits.begin(BOS, EOS, torch.tensor([1, 4, 2])), Settings(kind=kind))
    assert [len(row[0].ids) for row in found] == [1, 4, 2]
    assert not any(row[0].ended for row in found)


@pytest.mark.parametrize("kind", POLICIES)
def test_minimum_length_and_bans(kind):
    chain = random_chain(1)
    settings = Settings(kind=kind, min_new_tokens=5)
    for seed in range(3):
        (best, *_) = write(
            chain, 1, Limits.begin(BOS, EOS, torch.tensor([9]), banned=(0, BOS)), settings
        )[0]
        assert len(best.ids) >= 5
        assert not {0, BOS} & set(best.ids), seed


@pytest.mark.parametrize("kind", POLICIES)
def test_no_ngram_twice(kind):
    chain = random_chain(2)
    settings = Settings(kind=kind, no_repeat_ngram_size=2, min_new_tokens=8)
    (best, *_) = write(chain, 1, limits(1, 12), settings)[0]
    pairs = list(itertools.pairwise(best.ids))
    assert len(pairs) == len(set(pairs)) > 0


def test_the_banned_ngram_is_the_repeated_one():
    scores = torch.zeros(1, 5)
    rules_of.ban_repeats(scores, torch.tensor([[1, 2, 3, 1]]), 2)
    assert scores.tolist() == [[0.0, 0.0, -math.inf, 0.0, 0.0]]


def test_sampling_draws_by_probability_and_seed():
    table = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]] * 5, dtype=torch.float64)
    table[BOS] = torch.tensor([0.5, 0.0, 0.0, 0.3, 0.2])
    draws = write(
        Chain(table), 1, limits(1, 1), Settings(kind="sample", num_return_sequences=4000)
    )[0]
    counts = Counter(draw.ids[0] for draw in draws)
    for token, chance in ((0, 0.5), (3, 0.3), (4, 0.2)):
        assert counts[token] / 4000 == pytest.approx(chance, abs=0.03)
    again = write(
        Chain(table), 1, limits(1, 1), Settings(kind="sample", num_return_sequences=4000)
    )[0]
    other = write(
        Chain(table), 1, limits(1, 1), Settings(kind="sample", num_return_sequences=4000, seed=1)
    )[0]
    assert ids([draws]) == ids([again]) != ids([other])


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"min_p": 0.5}, {0, 1}),
        ({"top_k": 3, "min_p": 0.39}, {0, 1, 2}),
        ({"temperature": 0.5, "min_p": 0.3}, {0, 1}),
    ],
)
def test_what_is_likely_enough(more, kept):
    scores = torch.tensor([[0.5, 0.3, 0.2, 0.0]]).log()
    likely = rules_of.keep_likely(scores, Settings(kind="sample", **more))
    assert {i for i, score in enumerate(likely[0].tolist()) if score > -math.inf} == kept


def test_a_low_temperature_is_greedy():
    model, batch = small_model("transformer"), random_pairs(4)
    cold = write(model, batch, limits(4), Settings(kind="sample", temperature=1e-4))
    assert ids(cold) == ids(write(model, batch, limits(4), Settings(kind="greedy")))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"temperature": 0.5},
            "decode.temperature only matters when drawing; add decode.kind=sample",
        ),
        ({"kind": "greedy", "num_return_sequences": 2}, "greedy has one answer"),
        ({"num_beams": 2, "num_return_sequences": 3}, r"at most decode.num_beams \(2\), but is 3"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given, said):
    with pytest.raises(RecipeError, match=said):
        Settings(**given)


@pytest.mark.parametrize("size", [5, 300, 4097, 37000])
def test_the_largest_are_those_of_topk(size):
    scores = torch.randn(6, size, generator=torch.Generator().manual_seed(0))
    scores[2, 7 % size :] = float("-inf") if size > 100 else 0.0
    count = min(8, size)
    top, places = largest(scores, count)
    torch.testing.assert_close(top, scores.topk(count, -1).values)
    torch.testing.assert_close(scores.gather(1, places), top)
    assert all(len(set(row)) == count for row in places[:2].tolist())


def test_repetition_and_typicality_are_those_of_transformers():
    from transformers import RepetitionPenaltyLogitsProcessor, TypicalLogitsWarper

    scores = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)) * 3
    written = torch.randint(50, (4, 9), generator=torch.Generator().manual_seed(1))
    theirs = RepetitionPenaltyLogitsProcessor(1.3)(written, scores.clone())
    torch.testing.assert_close(rules_of.penalise_repeats(scores, written, 1.3), theirs)
    for mass in (0.2, 0.7, 0.95):
        theirs = TypicalLogitsWarper(mass)(written, scores.clone())
        torch.testing.assert_close(rules_of.keep_typical(scores, mass), theirs)


def test_a_prompt_counts_as_written():
    """The limit, the least length and the answer begin behind it; repeats reach back into it."""
    chain = random_chain(3, size=14)
    prompt = torch.tensor([[5, 6, 7]])
    limit = Limits(prompt, EOS, torch.tensor([6]), banned=(0, BOS))
    for kind in POLICIES:
        settings = Settings(kind=kind, min_new_tokens=6, no_repeat_ngram_size=1, num_beams=2)
        (best,) = write(chain, 1, limit, settings)[0][:1]
        assert not {5, 6, 7} & set(best.ids) and len(best.ids) == len(set(best.ids))
