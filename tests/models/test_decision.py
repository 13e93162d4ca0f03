"""The Decision Transformer against `transformers`', and what no decision may depend on."""

from dataclasses import replace

import pytest
import torch
from transformers import DecisionTransformerConfig
from transformers import DecisionTransformerModel as Theirs

from regard.batch import Batch, Choices, HistorySizes, Nothing, Sizes, Steps
from regard.models.decision import DecisionModel, DecisionSettings

WIDTH, NUMBERS, ACTIONS = 24, 5, 3


def steps(rows=4, length=7, told=None, seed=0):
    """Random histories for a model that reads what `told` says."""
    told = told or HistorySizes(NUMBERS, 0, 0, 0, ACTIONS, degrees=True)
    rng = torch.Generator().manual_seed(seed)
    known = (torch.rand(rows, length, told.numbers, generator=rng) < 0.7).float()
    shape = (rows, length, told.actions) if told.degrees else (rows, length)
    actions = torch.randn(shape, generator=rng)
    if not told.degrees:
        actions = torch.randint(told.actions, shape, generator=rng)
    words = torch.randint(max(told.words, 1), (rows, length, told.columns), generator=rng)
    return Steps(
        torch.randn(rows, length, told.numbers, generator=rng) * known, known, words,
        torch.randint(max(told.states, 1), (rows, length), generator=rng), actions,
        torch.randn(rows, length, generator=rng), torch.arange(length).repeat(rows, 1),
        torch.full((rows,), length),
    )  # fmt: skip


def both(one_hot: bool, bounded: bool):
    """Their model and ours with their weights."""
    config = DecisionTransformerConfig(
        state_dim=NUMBERS, act_dim=ACTIONS, hidden_size=WIDTH, n_layer=2, n_head=3,
        max_ep_len=20, action_tanh=bounded, n_inner=40, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = Theirs(config).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    told = HistorySizes(NUMBERS, 0, 0, 0, ACTIONS, degrees=True)
    if one_hot:
        told = HistorySizes(0, 1, NUMBERS, NUMBERS, ACTIONS)
    settings = DecisionSettings(
        width=WIDTH, depth=2, heads=3, hidden=40, dropout=0, positions=20, bounded=bounded
    )
    ours = DecisionModel(Sizes(0, 0, False, ACTIONS, Steps, Choices, history=told), settings)
    t, door = theirs.state_dict(), "embedding."
    w = {
        f"{door}position.weight": t["embed_timestep.weight"],
        f"{door}returns.weight": t["embed_return.weight"],
        f"{door}returns.bias": t["embed_return.bias"],
        f"{door}norm.weight": t["embed_ln.weight"],
        # Theirs has one more vector, the same at every place.
        f"{door}norm.bias": t["embed_ln.bias"] + t["encoder.wpe.weight"][0],
        f"{door}unwished": torch.zeros(WIDTH),
        "norm.weight": t["encoder.ln_f.weight"],
        "norm.bias": t["encoder.ln_f.bias"],
        "output.weight": t["predict_action.0.weight"],
        "output.bias": t["predict_action.0.bias"],
    }
    if one_hot:  # a table is a linear layer of what is 1 in one place
        w[f"{door}words.weight"] = t["embed_state.weight"].T + t["embed_state.bias"]
        w[f"{door}actions.weight"] = t["embed_action.weight"].T + t["embed_action.bias"]
    else:  # of what was recorded theirs says nothing
        unknown = torch.zeros(WIDTH, NUMBERS)
        w[f"{door}numbers.weight"] = torch.cat((t["embed_state.weight"], unknown), 1)
        w[f"{door}numbers.bias"] = t["embed_state.bias"]
        w[f"{door}actions.weight"] = t["embed_action.weight"]
        w[f"{door}actions.bias"] = t["embed_action.bias"]
    for at in range(2):
        a, b = f"encoder.h.{at}.", f"blocks.{at}."
        for kind in ("weight", "bias"):
            for own, name in (
                ("attention_residual.norm", "ln_1"),
                ("feedforward_residual.norm", "ln_2"),
            ):
                w[f"{b}{own}.{kind}"] = t[f"{a}{name}.{kind}"]
            query, key, value = t[f"{a}attn.c_attn.{kind}"].chunk(3, -1)
            pairs = {"query": query, "memory": torch.cat((key, value), -1)}
            for own, part in pairs.items():
                w[f"{b}attention.{own}.{kind}"] = part.T if kind == "weight" else part
            for own, name in (
                ("attention.output", "attn.c_proj"),
                ("feedforward.widen", "mlp.c_fc"),
                ("feedforward.narrow", "mlp.c_proj"),
            ):
                part = t[f"{a}{name}.{kind}"]
                w[f"{b}{own}.{kind}"] = part.T if kind == "weight" else part
    ours.load_state_dict(w)
    return theirs, ours.eval()


def asked_theirs(theirs, read, one_hot):
    def hot(ids, size):
        return torch.nn.functional.one_hot(ids, size).float()

    return theirs(
        states=hot(read.words[..., 0], NUMBERS) if one_hot else read.numbers,
        actions=hot(read.actions, ACTIONS) if one_hot else read.actions,
        rewards=None, returns_to_go=read.returns[..., None], timesteps=read.times,
    ).action_preds  # fmt: skip


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_answers_and_gradients_equal_theirs(one_hot, bounded):
    theirs, ours = both(one_hot, bounded)
    told = HistorySizes(0, 1, NUMBERS, NUMBERS, ACTIONS) if one_hot else None
    read = steps(told=told)
    found, wanted = ours(Batch(read, Nothing())), asked_theirs(theirs, read, one_hot)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    wanted.square().sum().backward()
    pairs = [
        (ours.embedding.returns.weight.grad, theirs.embed_return.weight.grad),
        (ours.blocks[0].feedforward.widen.weight.grad, theirs.encoder.h[0].mlp.c_fc.weight.grad.T),
        (ours.output.weight.grad, theirs.predict_action[0].weight.grad),
    ]
    for one, other in pairs:
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_decision_sees_what_was_before_it_alone():
    """Not its own action, nor what is done, seen or wished for later."""
    told = HistorySizes(NUMBERS, 2, 9, 0, ACTIONS)
    sizes = Sizes(0, 0, False, ACTIONS, Steps, Choices, history=told)
    torch.manual_seed(0)
    model = DecisionModel(sizes, DecisionSettings(width=WIDTH, heads=3, dropout=0)).eval()
    read = steps(told=told)
    before = model(Batch(read, Nothing()))
    later = steps(told=told, seed=1)
    for name in ("numbers", "known", "words", "returns", "actions"):
        mixed = getattr(read, name).clone()
        first = 3 if name == "actions" else 4
        mixed[:, first:] = getattr(later, name)[:, first:]
        after = model(Batch(replace(read, **{name: mixed}), Nothing()))
        torch.testing.assert_close(after[:, :4], before[:, :4])
        assert not torch.allclose(after[:, 4:], before[:, 4:])


def test_what_was_not_recorded_is_an_input_of_its_own():
    """A number of zero and one that is missing are told apart."""
    told = HistorySizes(1, 0, 0, 0, ACTIONS)
    sizes = Sizes(0, 0, False, ACTIONS, Steps, Choices, history=told)
    torch.manual_seed(0)
    model = DecisionModel(sizes, DecisionSettings(width=WIDTH, heads=3)).eval()
    read = steps(told=told)
    zero = replace(read, numbers=torch.zeros_like(read.numbers))
    there = model(Batch(replace(zero, known=torch.ones_like(read.known)), Nothing()))
    missing = model(Batch(replace(zero, known=torch.zeros_like(read.known)), Nothing()))
    assert not torch.allclose(there, missing)


def test_the_slow_copy_follows():
    told = HistorySizes(0, 1, 9, 9, ACTIONS, values=ACTIONS)
    sizes = Sizes(0, 0, False, 2 * ACTIONS, Steps, Choices, history=told)
    model = DecisionModel(sizes, DecisionSettings(width=WIDTH, heads=3, follow=0.25))
    with torch.no_grad():
        model.output.weight += 1.0
    before = model.slow["output"].weight.clone()
    model.on_progress(0.5)
    torch.testing.assert_close(model.slow["output"].weight, before + 0.25)
    assert not any(weight.requires_grad for weight in model.slow.parameters())
