"""Watching changes nothing and shows what was really used."""

import pytest
import torch

import regard
from regard.batch import Pairs, Sizes
from regard.models.transformer import Transformer
from regard.models.transformer import TransformerSettings as Settings
from regard.parts.watch import attentions, choose
from tests.toys import random_batch, small_model

SMALL = Settings(width=16, depth=3, heads=4, hidden=32, dropout=0.0)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(Sizes(20, 20, True), SMALL).eval()


@pytest.fixture
def batch():
    ids = torch.randint(4, 20, (2, 6), generator=torch.Generator().manual_seed(0))
    return Pairs(ids, torch.tensor([6, 4]), ids, torch.tensor([5, 5]))


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


def test_what_a_written_token_looked_at_is_what_reading_it_again_shows():
    """Step by step a query a call, (B, H, 1, S); in one pass the same rows: a beam's final answer
    read once more shows what its own tokens looked at, whatever was reordered on the way."""
    model, batch = small_model("transformer"), random_batch("transformer")
    with torch.no_grad(), regard.watch(model) as whole:
        model(batch)
    with torch.no_grad():
        state = model.start(batch)
        with regard.watch(model) as steps:
            for place in range(batch.inputs.shape[1]):
                _, state = model.step(batch.inputs[:, place], state)
                state = state.select(torch.arange(len(batch)))
    for name in ("decoder.0.attention", "decoder.1.cross"):
        for place, seen in enumerate(steps[name]):
            seen = seen.reshape(len(batch), 4, 1, -1)
            wanted = whole[name][0][:, :, place : place + 1, : seen.shape[-1]]
            torch.testing.assert_close(seen, wanted, atol=1e-5, rtol=1e-5)
