"""CTC: what it says of beginnings and of whole texts, against all ways to lay them out."""

import itertools

import pytest
import torch

from regard.decode.ctc import CtcStepper, best_path

BOS, EOS, BLANK = 0, 1, 4  # words are 2 and 3


def collapse(way):
    return tuple(t for t, _ in itertools.groupby(way) if t != BLANK)


def by_hand(scores):
    """The probability of each text, over all ways.  (S, V)"""
    chances = scores.double().softmax(-1)
    found = {}
    for way in itertools.product(range(chances.shape[1]), repeat=len(chances)):
        chance = torch.stack([chances[place, token] for place, token in enumerate(way)]).prod()
        found[collapse(way)] = found.get(collapse(way), 0.0) + float(chance)
    return found


@pytest.mark.parametrize("text", [(2,), (2, 3), (2, 2), (3, 2, 3), (2, 2, 3)])
@pytest.mark.parametrize("padded", [0, 3])
def test_beginnings_are_worth_what_all_texts_that_begin_so_are(text, padded):
    scores = torch.randn(1, 5 + padded, 5, generator=torch.Generator().manual_seed(1))
    scores[..., [BOS, EOS]] = -30  # which are never heard
    texts = by_hand(scores[0, :5])
    stepper = CtcStepper(scores, torch.tensor([5]), 1, EOS)
    written, total = [BOS], 0.0
    for place, word in enumerate(text):
        logs = stepper.step(torch.tensor([written]))[0]
        begun = sum(p for t, p in texts.items() if t[: place + 1] == text[: place + 1])
        total += float(logs[word])
        assert total == pytest.approx(torch.tensor(begun).log().item(), abs=1e-4)
        written.append(word)
    logs = stepper.step(torch.tensor([written]))[0]
    whole = torch.tensor(texts[text]).log().item()
    assert total + float(logs[EOS]) == pytest.approx(whole, abs=1e-4)
    # All that can come next is what there is: others' chances are one together.
    assert float(logs.exp().sum()) == pytest.approx(1, abs=1e-4)


def test_rows_go_on_from_others_and_share_a_sound():
    scores = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([6, 4])
    stepper = CtcStepper(scores, lengths, 2, EOS)
    stepper.step(torch.full((4, 1), BOS))
    stepper.select(torch.tensor([1, 1, 3, 2]))  # each from another of its own sound
    found = stepper.step(torch.tensor([[BOS, 2], [BOS, 3], [BOS, 3], [BOS, 2]]))
    for row, (sound, word) in enumerate(((0, 2), (0, 3), (1, 3), (1, 2))):
        alone = CtcStepper(scores[sound : sound + 1], lengths[sound : sound + 1], 1, EOS)
        alone.step(torch.tensor([[BOS]]))
        wanted = alone.step(torch.tensor([[BOS, word]]))
        torch.testing.assert_close(found[row], wanted[0], atol=1e-4, rtol=1e-4)
    stepper.select(torch.tensor([3, 3]))  # the first sound is done
    found = stepper.step(torch.tensor([[BOS, 2, 3], [BOS, 2, 2]]))
    wanted = alone.step(torch.tensor([[BOS, 2, 3]]))
    torch.testing.assert_close(found[:1], wanted, atol=1e-4, rtol=1e-4)


def test_whole_texts_are_worth_what_torch_says():
    scores = torch.randn(1, 60, 9, generator=torch.Generator().manual_seed(3))
    text = [3, 4, 4, 5, 7, 3]
    stepper = CtcStepper(scores, torch.tensor([60]), 1, EOS)
    total, written = 0.0, [BOS]
    for word in [*text, EOS]:
        total += float(stepper.step(torch.tensor([written]))[0, word])
        written.append(word)
    wanted = torch.nn.functional.ctc_loss(
        scores[0].log_softmax(-1), torch.tensor(text), torch.tensor(60), torch.tensor(len(text)),
        blank=8, reduction="sum",
    )  # fmt: skip
    assert total == pytest.approx(-float(wanted), abs=1e-3)


def test_the_best_path_takes_repeats_together():
    told = [[3, 3, 7, 3, 4, 7, 7, 4], [5, 7, 7, 7, 6, 6, 6, 6]]
    scores = torch.nn.functional.one_hot(torch.tensor(told), 8).float() * 30
    lengths, most = torch.tensor([8, 3]), torch.tensor([9, 9])
    found = best_path(scores, lengths, [], most)
    assert [one.ids for one in found] == [[3, 3, 4, 4], [5]]
    assert found[0].score == pytest.approx(0, abs=1e-3)
    short = best_path(scores, lengths, [], torch.tensor([2, 9]))
    assert short[0].ids == [3, 3] and not short[0].ended and short[1].ended
    assert 3 not in best_path(scores, lengths, [3], most)[0].ids  # what is never written
