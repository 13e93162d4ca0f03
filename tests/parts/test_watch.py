"""Watching changes nothing and shows what was really used."""

import pytest
import torch

import regard
from regard.batch import Sizes
from regard.decode import Limits, follow
from regard.decode import Settings as Decode
from regard.decode.beam import Beam
from regard.decode.stepper import Together
from regard.models.transformer import Transformer
from regard.models.transformer import TransformerSettings as Settings
from regard.parts.watch import attentions, choose
from tests.toys import pairs, random_batch, small_model

SMALL = Settings(width=16, depth=3, heads=4, hidden=32, dropout=0.0)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(Sizes(20, 20, True), SMALL).eval()


@pytest.fixture
def batch():
    ids = torch.randint(4, 20, (2, 6), generator=torch.Generator().manual_seed(0))
    return pairs(ids, torch.tensor([6, 4]), ids, torch.tensor([5, 5]))


def test_watched_equals_unwatched_bit_for_bit(model, batch):
    alone = model(batch)
    with regard.watch(model) as seen:
        watched = model(batch)
    assert torch.equal(alone, watched)
    assert len(seen) == 9


def test_weights_are_those_of_the_plain_path(model, batch):
    """With every attention on the plain path, the weights seen give back the output."""
    mixed = {}
    for name, part in attentions(model).items():

        def note(part, args, out, name=name):
            mixed[name] = (args[2], out)

        part.register_forward_hook(note)
    with regard.watch(model) as seen:
        model(batch)
    for name, (weights,) in seen.items():
        value, out = mixed[name]
        torch.testing.assert_close(weights @ value, out)
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_only_what_is_asked_for(model, batch):
    with regard.watch(model, layers=[-1], heads=[0, 2]) as seen:
        model(batch)
    assert list(seen) == ["encoder.2.attention", "decoder.2.attention", "decoder.2.cross"]
    assert seen["decoder.2.cross"][0].shape == (2, 2, 5, 6)
    with regard.watch(model) as all_heads:
        model(batch)
    torch.testing.assert_close(
        seen["decoder.2.cross"][0], all_heads["decoder.2.cross"][0][:, [0, 2]]
    )


def test_padding_and_the_future_have_no_weight(model, batch):
    with regard.watch(model) as seen:
        model(batch)
    assert (seen["encoder.0.attention"][0][1, :, :, 4:] == 0).all()
    assert (seen["decoder.0.attention"][0].triu(1) == 0).all()


def test_nothing_listens_afterwards(model, batch):
    with pytest.raises(ZeroDivisionError), regard.watch(model) as seen:
        raise ZeroDivisionError
    model(batch)
    assert seen == {}


def test_layers_count_within_their_stack():
    names = ["a.0.x", "a.1.x", "b.0.x", "b.0.y"]
    assert choose(names, [0]) == ["a.0.x", "b.0.x", "b.0.y"]
    assert choose(names, [-1]) == ["a.1.x", "b.0.x", "b.0.y"]
    assert choose(names, [1]) == ["a.1.x"]
    assert choose(names, None) == names


def test_rows_can_be_chosen_and_are_made_in_pieces(monkeypatch):
    from regard.parts import attention

    for kind, more in (
        ("gpt", {}),
        ("transformer", {}),
        ("t5", {}),
        ("gpt", {"score": "additive"}),
    ):
        model, batch = small_model(kind, **more), random_batch(kind)
        with torch.no_grad(), regard.watch(model) as every:
            model(batch)
        monkeypatch.setattr(attention, "SEEN", 50)  # a row or two at a time
        with torch.no_grad(), regard.watch(model, rows=[0, 3, 4]) as some:
            model(batch)
        monkeypatch.undo()
        for name, (whole,) in every.items():
            torch.testing.assert_close(some[name][0], whole[:, :, [0, 3, 4]], atol=1e-6, rtol=1e-6)


def test_what_a_beams_answer_looked_at_is_what_reading_it_again_shows():
    """A search whose rows really change places: the weights of each step, traced back along the
    rows that the answer came by, are those of one pass over the answer."""
    model, batch = small_model("transformer", seed=3), random_batch("transformer", rows=1)
    history = []

    def record(totals, parents, tokens, going):
        rows = parents.gather(1, going)[0].tolist()
        history.append((parents[0].tolist(), tokens[0].tolist(), rows, going[0].tolist()))

    settings = Decode(kind="beam", num_beams=4, num_return_sequences=4, max_new_tokens=9)
    limits = Limits.begin(1, 2, torch.tensor([9]), banned=(0, 1, 3))
    with regard.watch(model) as steps:
        beam = Beam(limits, settings, record)
        answers = follow(beam, Together(model, batch, beam.copies))[0]
    moved = 0
    for answer in answers:
        rows = rows_of(history, [*answer.ids, *([2] if answer.ended else [])])
        moved += len(set(rows)) > 1
        target = torch.tensor([[1, *answer.ids, 2]])
        length = torch.tensor([target.shape[1] - 1])
        with torch.no_grad(), regard.watch(model) as whole:
            model(pairs(batch.read.ids, batch.read.lengths, target, length))
        for place, row in enumerate(rows):
            own = steps["decoder.1.attention"][place][row, :, 0]
            again = whole["decoder.1.attention"][0][0, :, place, : own.shape[-1]]
            torch.testing.assert_close(own, again, atol=1e-5, rtol=1e-5)
            cross = steps["decoder.1.cross"][place][0, :, row]
            again = whole["decoder.1.cross"][0][0, :, place]
            torch.testing.assert_close(cross, again, atol=1e-5, rtol=1e-5)
    assert moved, "no answer changed its row on the way"


def rows_of(history, wanted):
    """The row of each step that an answer came by."""
    parents, tokens, _, _ = history[len(wanted) - 1]
    for place in range(len(parents)):
        rows, words = [parents[place]], [tokens[place]]
        for _, earlier, before, going in reversed(history[: len(wanted) - 1]):
            words.insert(0, earlier[going[rows[0]]])
            rows.insert(0, before[rows[0]])
        if words == wanted:
            return rows
    raise AssertionError("the answer was never a candidate")
