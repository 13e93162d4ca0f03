"""Language models against those that others wrote, with the same weights."""

import pytest
import torch
import transformers

from regard.batch import Batch, Permuted, Sizes, Tokens
from regard.models.gpt import GPT, GPTSettings
from regard.models.rnn import RNN, RNNSettings
from regard.models.xl import XL, XLSettings
from regard.models.xlnet import XLNet, XLNetSettings
from tests.toys import tokens

SIZE = 60


def some_ids(rows=3, length=11, seed=0):
    """One column more than is read."""
    return torch.randint(SIZE, (rows, length + 1), generator=torch.Generator().manual_seed(seed))


def text(ids, past=()):
    """All of it asked for."""
    return tokens(ids, torch.tensor([[0, ids.shape[1] - 1]] * len(ids)), past=past)


def permuted(ids, ranks, targets):
    """All tokens at `targets` asked for."""
    counted = torch.tensor([[0, targets.shape[1]]] * len(ids))
    return Batch(Permuted(ids, ranks, targets), Tokens(ids.gather(1, targets), counted))


def shake(model, scale=0.3):
    """Weights large enough that nothing is near zero."""
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.data += torch.randn_like(weight) * scale
    return model.eval()


def copy(pairs):
    with torch.no_grad():
        for ours, theirs in pairs:
            assert ours.shape == theirs.shape
            ours.copy_(theirs)


def same_gradients(ours, theirs, pairs):
    """After the same loss on both sides."""
    ours.square().mean().backward()
    theirs.square().mean().backward()
    for mine, its in pairs:
        torch.testing.assert_close(mine.grad, its.grad, atol=1e-5, rtol=1e-4)


def same_steps(model, batch, logits):
    """Read in two pieces, then token by token; the last two taken back and read again."""
    inputs = batch.read.ids
    with torch.no_grad():
        state = model.start(tokens(inputs[:, :4], batch.asked.label_range))
        state.remember(4)
        found, state = model.extend(inputs[:, 3:6], state)
        torch.testing.assert_close(found, logits[:, 3:6], atol=1e-4, rtol=1e-4)
        for t in range(6, inputs.shape[1]):
            found, state = model.step(inputs[:, t], state)
            torch.testing.assert_close(found, logits[:, t], atol=1e-4, rtol=1e-4)
        state.rewind(2)
        found, state = model.extend(inputs[:, -2:], state)
        torch.testing.assert_close(found, logits[:, -2:], atol=1e-4, rtol=1e-4)


def test_gpt_is_gpt2():
    config = transformers.GPT2Config(
        vocab_size=SIZE, n_positions=32, n_embd=24, n_layer=3, n_head=4, attn_pdrop=0.0
    )
    theirs = shake(transformers.GPT2LMHeadModel(config))
    ours = GPT(Sizes(SIZE, SIZE, True), GPTSettings(24, 3, 4, positions=32)).eval()
    body = theirs.transformer
    copy([(ours.embedding.tokens.weight, body.wte.weight), (ours.norm.weight, body.ln_f.weight)])
    copy([(ours.embedding.position.weight, body.wpe.weight), (ours.norm.bias, body.ln_f.bias)])
    linears = []
    for mine, its in zip(ours.blocks, body.h, strict=True):
        copy([(mine.attention_residual.norm.weight, its.ln_1.weight)])
        copy([(mine.attention_residual.norm.bias, its.ln_1.bias)])
        copy([(mine.feedforward_residual.norm.weight, its.ln_2.weight)])
        copy([(mine.feedforward_residual.norm.bias, its.ln_2.bias)])
        weight, bias = its.attn.c_attn.weight.T, its.attn.c_attn.bias
        copy([(mine.attention.query.weight, weight[:24]), (mine.attention.query.bias, bias[:24])])
        copy([(mine.attention.memory.weight, weight[24:]), (mine.attention.memory.bias, bias[24:])])
        for own, other in (
            (mine.attention.output, its.attn.c_proj),
            (mine.feedforward.widen, its.mlp.c_fc),
            (mine.feedforward.narrow, its.mlp.c_proj),
        ):
            copy([(own.weight, other.weight.T), (own.bias, other.bias)])
            linears.append((own.bias, other.bias))
    batch = text(some_ids())
    logits = theirs(batch.read.ids).logits
    torch.testing.assert_close(ours(batch), logits, atol=1e-4, rtol=1e-4)
    same_steps(ours, batch, logits)
    same_gradients(ours(batch), logits, linears)


@pytest.mark.parametrize("key_heads", [4, 2])
def test_gpt_by_values_is_llama(key_heads):
    config = transformers.LlamaConfig(
        vocab_size=SIZE, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=key_heads, max_position_embeddings=64,
        rms_norm_eps=1e-6, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = shake(transformers.LlamaForCausalLM(config))
    settings = GPTSettings(
        32, 2, 4, key_heads, 40, position="rotary", positions=64, norm="rms", epsilon=1e-6,
        feedforward="gated-silu", bias=False, tie=False,
    )  # fmt: skip
    ours = GPT(Sizes(SIZE, SIZE, True), settings).eval()
    copy([(ours.embedding.tokens.weight, theirs.model.embed_tokens.weight)])
    copy(
        [(ours.norm.weight, theirs.model.norm.weight), (ours.output.weight, theirs.lm_head.weight)]
    )
    pairs = []
    for mine, its in zip(ours.blocks, theirs.model.layers, strict=True):
        keys = torch.cat((its.self_attn.k_proj.weight, its.self_attn.v_proj.weight))
        pairs += [
            (mine.attention.query.weight, its.self_attn.q_proj.weight),
            (mine.attention.output.weight, its.self_attn.o_proj.weight),
            (mine.feedforward.gate.weight, its.mlp.gate_proj.weight),
            (mine.feedforward.widen.weight, its.mlp.up_proj.weight),
            (mine.feedforward.narrow.weight, its.mlp.down_proj.weight),
            (mine.attention_residual.norm.weight, its.input_layernorm.weight),
            (mine.feedforward_residual.norm.weight, its.post_attention_layernorm.weight),
        ]
        copy([(mine.attention.memory.weight, keys)])
    copy(pairs)
    batch = text(some_ids())
    logits = theirs(batch.read.ids).logits
    torch.testing.assert_close(ours(batch), logits, atol=1e-4, rtol=1e-4)
    same_steps(ours, batch, logits)
    same_gradients(ours(batch), logits, pairs)


def test_gpt_sizes():
    """Radford et al. 2019's smallest two, as their checkpoints have them."""
    sizes = Sizes(50257, 50257, True)
    with torch.device("meta"):
        small = GPT(sizes)
        medium = GPT(sizes, GPTSettings(1024, 24, 16))
    assert sum(p.numel() for p in small.parameters()) == 124_439_808
    assert sum(p.numel() for p in medium.parameters()) == 354_823_168


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_rnn_is_torchs(cell):
    ours = shake(RNN(Sizes(SIZE, SIZE, True), RNNSettings(cell, 12, 12, 2, tie=False)))
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[cell]
    theirs = kind(12, 12, 2, batch_first=True)
    pairs = [
        (theirs.get_parameter(f"{name}_l{layer}"), part.get_parameter(f"{name}_l0"))
        for layer, part in enumerate(ours.recurrent.layers)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    copy(pairs)
    batch = text(some_ids())
    hidden, _ = theirs(ours.tokens(batch.read.ids).detach())
    logits = ours.output(hidden)
    torch.testing.assert_close(ours(batch), logits)
    same_steps(ours, batch, logits)
    same_gradients(logits, ours(batch), [(ours.output.bias, ours.output.bias), *pairs])


def xlnet(width=24, depth=2):
    config = transformers.XLNetConfig(
        vocab_size=SIZE, d_model=width, n_layer=depth, n_head=4, d_inner=40, ff_activation="relu",
        dropout=0.0, mem_len=64, layer_norm_eps=1e-5,
    )  # fmt: skip
    return shake(transformers.XLNetLMHeadModel(config), 0.2)


def copy_xlnet(ours, theirs):
    """Weights of `transformers`' XLNet into ours -> pairs whose gradients can be compared."""
    body, width = theirs.transformer, ours.settings.width
    copy([(ours.embedding.tokens.weight, body.word_embedding.weight)])
    copy([(ours.output.bias, theirs.lm_loss.bias)])
    if hasattr(ours, "unseen"):
        copy([(ours.unseen, body.mask_emb[0, 0])])
    pairs = []
    for mine, its in zip(ours.blocks, body.layer, strict=True):
        part, other = mine.attention, its.rel_attn
        copy([(part.query.weight, other.q.reshape(width, width).T)])
        keys = torch.cat((other.k.reshape(width, width).T, other.v.reshape(width, width).T))
        copy([(part.memory.weight, keys)])
        copy([(part.output.weight, other.o.reshape(width, width))])
        copy([(part.distance.weight, other.r.reshape(width, width).T)])
        copy([(part.by_content[:, 0], other.r_w_bias), (part.by_distance[:, 0], other.r_r_bias)])
        pairs += [
            (mine.attention_residual.norm.weight, other.layer_norm.weight),
            (mine.attention_residual.norm.bias, other.layer_norm.bias),
            (mine.feedforward_residual.norm.weight, its.ff.layer_norm.weight),
            (mine.feedforward_residual.norm.bias, its.ff.layer_norm.bias),
            (mine.feedforward.widen.weight, its.ff.layer_1.weight),
            (mine.feedforward.widen.bias, its.ff.layer_1.bias),
            (mine.feedforward.narrow.weight, its.ff.layer_2.weight),
            (mine.feedforward.narrow.bias, its.ff.layer_2.bias),
        ]
    copy(pairs)
    return pairs


def small_xlnet(kind=XLNet, **more):
    settings = (XLNetSettings if kind is XLNet else XLSettings)(
        24, 2, 4, 40, dropout=0.0, **{"memory": 64, **more}
    )
    model = kind(Sizes(SIZE, SIZE, True), settings).eval()
    for block in model.blocks:  # theirs has no bias on the output of attention, nor do we
        assert block.attention.output.bias is None
    return model


def test_xlnet_is_that_of_transformers():
    theirs, ours = xlnet(), small_xlnet()
    pairs = copy_xlnet(ours, theirs)
    ids = some_ids()[:, :-1]
    targets = torch.tensor([[2, 7, 4], [9, 0, 5], [10, 3, 1]])
    ranks = torch.zeros_like(ids).scatter(1, targets, torch.arange(1, 4).expand(3, -1))
    batch = permuted(ids, ranks, targets)
    # In theirs, 1 means "may not look", and a token given may be seen by all.
    blocked = (ranks[:, None, :] >= ranks[:, :, None]) & (ranks[:, None, :] > 0)
    mapping = torch.nn.functional.one_hot(targets, ids.shape[1]).float()
    logits = theirs(ids, perm_mask=blocked.float(), target_mapping=mapping).logits
    torch.testing.assert_close(ours(batch), logits, atol=1e-4, rtol=1e-4)
    same_gradients(ours(batch), logits, pairs)


def test_the_order_is_kept():
    """What is predicted does not depend on itself, nor on what comes after it in the order."""
    model = small_xlnet()
    ids, targets = some_ids()[:, :-1], torch.tensor([[2, 7, 4]] * 3)
    ranks = torch.zeros_like(ids).scatter(1, targets, torch.arange(1, 4).expand(3, -1))
    before = model(permuted(ids, ranks, targets))
    for changed, same in ((2, 1), (7, 2), (4, 3)):
        other = ids.clone()
        other[:, changed] = (other[:, changed] + 1) % SIZE
        after = model(permuted(other, ranks, targets))
        torch.testing.assert_close(after[:, :same], before[:, :same])
        assert same == 3 or not torch.allclose(after[:, same:], before[:, same:])


@pytest.mark.parametrize("kind", [XL, XLNet])
def test_xl_is_xlnets_causal_case(kind):
    """Two segments: the second looks at the memory of the first."""
    theirs, ours = xlnet(), small_xlnet(kind)
    ours.embedding.scale = 1.0
    copy_xlnet(ours, theirs)
    ids = some_ids(length=12)
    batch = text(ids)
    one = ours.states(text(ids[:, :7]))
    two = ours.states(text(ids[:, 6:], one.past))
    found = torch.cat((one.states, two.states), 1)
    whole = batch.read.ids
    length = whole.shape[1]
    if kind is XL:  # theirs, as a content stream that sees itself and those before
        blocked = torch.ones(length, length).triu(1).expand(3, -1, -1)
        hidden = theirs.transformer(whole, perm_mask=blocked).last_hidden_state
    else:  # a query stream at each next place
        ids = torch.cat((whole, whole[:, :1]), 1)
        blocked = torch.ones(length + 1, length + 1).triu(0).expand(3, -1, -1)
        mapping = torch.eye(length + 1)[1:].expand(3, -1, -1)
        hidden = theirs.transformer(ids, perm_mask=blocked, target_mapping=mapping)[0]
    torch.testing.assert_close(found, hidden, atol=1e-4, rtol=1e-4)
    same_steps(ours, batch, ours.output(hidden))


def test_a_longer_memory_can_be_used_than_was_trained_with():
    model = small_xlnet(XL, memory=3, evaluation_memory=8)
    batch = text(some_ids(length=10))
    assert model.states(batch).past[0].shape[2] == 8
    assert model.train().states(batch).past[0].shape[2] == 3


def test_documents_do_not_see_each_other():
    """Changing a neighbour changes nothing, and positions start anew."""
    for model in (
        shake(GPT(Sizes(SIZE, SIZE, True), GPTSettings(24, 2, 4, positions=32))),
        small_xlnet(XL),
    ):
        ids = some_ids(1, 9)
        numbers = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2]])
        counted = torch.tensor([[0, 9]])
        packed = model(tokens(ids, counted, numbers))
        other = ids.clone()
        other[:, :4] = 5
        torch.testing.assert_close(model(tokens(other, counted, numbers))[:, 4:], packed[:, 4:])
        alone = model(text(ids[:, 4:]))
        torch.testing.assert_close(alone, packed[:, 4:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize("kind", [XL, XLNet])
def test_two_segments_are_one_text(kind, residual):
    """Wherever the norm stands, the memory is what the segment before was."""
    model = shake(small_xlnet(kind, residual=residual), 0.2)
    ids = some_ids(length=12)
    batch = text(ids)
    one = model.states(text(ids[:, :7]))
    two = model.states(text(ids[:, 6:], one.past))
    whole = model.states(batch).states
    found = torch.cat((one.states, two.states), 1)
    torch.testing.assert_close(found, whole, atol=1e-4, rtol=1e-4)
    same_steps(model, batch, model.output(whole))


def test_a_fixed_recurrent_state_is_reordered_where_it_is():
    model = shake(RNN(Sizes(SIZE, SIZE, True), RNNSettings("lstm", 12, 12, 2)))
    state = model.start(text(some_ids()[:, :5]))
    state.fix(0)
    before = [v.clone() for v in state.past.vectors]
    places = [v.data_ptr() for v in state.past.vectors]
    with torch.no_grad():
        state.select(torch.tensor([2, 0, 0]))
    assert places == [v.data_ptr() for v in state.past.vectors]
    for old, new in zip(before, state.past.vectors, strict=True):
        torch.testing.assert_close(new, old[[2, 0, 0]])
