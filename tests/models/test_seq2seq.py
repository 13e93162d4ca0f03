"""Recurrent translators against plain loops that do the same, step by step."""

import pytest
import torch

import regard
from regard.batch import Sizes
from regard.models.seq2seq import Seq2Seq, Seq2SeqSettings
from regard.training.checkpoint import put_weights
from regard.training.loss import TokenLoss
from tests.toys import pairs, random_pairs, small_model

SIZES = Sizes(24, 24, True)


def make(**more):
    torch.manual_seed(0)
    settings = Seq2SeqSettings(width=12, hidden=16, dropout=0.0, **more)
    return Seq2Seq(SIZES, settings).eval()


@pytest.mark.parametrize("feed", ["none", "attended", "context"])
@torch.no_grad()
def test_it_is_the_lectures_loop(feed):
    """One row after the other, one word after the other, with an LSTM cell."""
    model, batch = make(feed=feed, score="additive"), random_pairs()
    wanted = model(batch)
    layer = model.decoder.layers[0]
    cell = torch.nn.LSTMCell(layer.input_size, 16)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, name).data = getattr(layer, f"{name}_l0").data
    score = model.align.attend.score
    for row in range(len(batch)):
        length = int(batch.read.lengths[row])
        words = model.source.tokens(batch.read.ids[row : row + 1, :length])
        states, (last,), _ = model.reader(words, torch.tensor([length]))
        h, c = model.bridge[0](last).tanh().split(16, -1)

        def look(query, states=states):
            inner = query @ score.query[0] + states[0] @ score.key[0]
            weights = (inner.tanh() @ score.value[0, :, 0]).softmax(0)
            return (weights @ states[0])[None]

        attended = torch.zeros(1, 12)
        for t in range(int(batch.asked.lengths[row])):
            x = model.target(batch.asked.inputs[row : row + 1, t])
            if feed == "context":
                context = look(h)
                x = torch.cat((x, context), -1)
            elif feed == "attended":
                x = torch.cat((x, attended), -1)
            h, c = cell(x, (h, c))
            if feed != "context":
                context = look(h)
            attended = model.join(torch.cat((context, h), -1)).tanh()
            torch.testing.assert_close(
                model.output(attended)[0], wanted[row, t], atol=1e-5, rtol=1e-5
            )


@torch.no_grad()
def test_without_attention_the_last_state_is_all_that_passes(monkeypatch):
    model, batch = make(attention="none"), random_pairs()
    before = model(batch)
    read = model.reader.forward
    monkeypatch.setattr(
        model.reader, "forward", lambda x, n: (torch.randn_like(read(x, n)[0]), read(x, n)[1], n)
    )
    torch.testing.assert_close(model(batch), before)
    monkeypatch.setattr(
        model.reader, "forward", lambda x, n: (read(x, n)[0], [-v for v in read(x, n)[1]], n)
    )
    assert not torch.allclose(model(batch), before)


@pytest.mark.parametrize("feed", ["none", "attended"])
def test_watched_equals_unwatched_and_rows_sum_to_one(feed):
    model, batch = make(feed=feed), random_pairs()
    with torch.no_grad():
        plain = model(batch)
        with regard.watch(model) as seen:
            watched = model(batch)
    assert torch.equal(plain, watched)
    weights = torch.cat(seen["align"], 2)
    assert weights.shape == (4, 1, 9, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 1, 9))
    hidden = ~(torch.arange(9) < batch.read.lengths[:, None])
    assert not weights[hidden[:, None, None].expand_as(weights)].any()


def test_hard_attention_learns_where_to_look():
    """Copying three words through one place at a time."""
    torch.manual_seed(0)
    for pick, exploration in (("hard", 0.02), ("gumbel", 0.0)):
        model = Seq2Seq(
            Sizes(12, 12, True),
            Seq2SeqSettings(
                width=24, hidden=32, dropout=0.0, attention="separate", pick=pick, tie="none",
                exploration=exploration,
            ),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        loss = TokenLoss()

        def batch(rows=64):
            source = torch.randint(4, 12, (rows, 3))
            target = torch.cat((torch.ones(rows, 1, dtype=torch.long), source), 1)
            lengths = torch.full((rows,), 3)
            return pairs(source, lengths, target, lengths)

        for _ in range(400):
            found = loss(model.train(), batch())
            (found.total / 192).backward()
            optimizer.step()
            optimizer.zero_grad()
        test = batch(200)
        model.eval()
        right = (model(test).argmax(-1) == test.asked.labels).float().mean()
        assert right > 0.9, (pick, right)
        with regard.watch(model) as seen, torch.no_grad():
            model(test)
        assert set(seen["align"][0].unique().tolist()) == {0.0, 1.0}


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(AssertionError, match="no context to feed"):
        make(attention="none", feed="context")
    with pytest.raises(AssertionError, match="3 heads cannot share a width of 16"):
        make(heads=3)


def test_the_reward_does_not_know_the_draw_it_judges():
    """Two places, one right: the right draw must be pushed up however good the baseline is."""
    torch.manual_seed(0)
    model = Seq2Seq(
        SIZES, Seq2SeqSettings(width=12, hidden=16, dropout=0.0, pick="hard", tie="none")
    )
    batch = random_pairs(64).shard(0, 1)
    seen = []
    model.baseline.register_forward_hook(lambda part, given, out: seen.append(given[0]))
    model.train()
    torch.manual_seed(1)
    model.states(batch)
    torch.manual_seed(2)  # other draws
    model.states(batch)
    assert torch.equal(seen[0], seen[1])
    passed = model.states(batch)
    passed.penalty.backward()
    assert model.align.attend.score.weight.grad.abs().sum() > 0
    assert model.output.weight.grad is None  # the words' own loss is not the reward's to change


def test_one_written_word_is_no_hop():
    """A picture of hops has a row for each; a translation of one row stays one."""
    import numpy as np

    from regard.see.capture import AttentionReport
    from regard.see.capture import Look as Seen

    look = Seen("align", "align", 0, ["<eos>"], ["Hi", "."], np.ones((1, 1, 2), np.float32) / 2)
    assert AttentionReport("Hi.", "", [look]).alignment().rows == ["<eos>"]


def test_runs_of_an_earlier_day_can_still_be_used(tmp_path):
    """Their source words stood before the door."""
    model = small_model("seq2seq")
    now = {name: weight.detach() + 1 for name, weight in model.named_parameters()}
    then = {name.replace("source.tokens.", "source."): weight for name, weight in now.items()}
    assert then.keys() != now.keys()
    put_weights(model, then, tmp_path)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, now[name])
