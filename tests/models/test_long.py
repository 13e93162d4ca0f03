"""Long texts: the encoders of BigBird and Longformer as transformers has them."""

import numpy as np
import pytest
import torch
import transformers

from regard.batch import Nothing, Sizes
from regard.models.bert import BERT, BERTSettings
from regard.parts.pattern import PATTERNS, BlockWindow, Drawn, GlobalBlocks, Union, Window
from regard.parts.state import Rolling
from tests.toys import random_batch, small_model, start, texts, tokens

BLOCK, LENGTH, HEADS, SIZE = 4, 56, 2, 30


def copied(theirs, ours):
    """The weights of a BERT-like encoder of theirs."""
    own = dict(ours.named_parameters())
    pairs = {
        "embedding.tokens.weight": theirs.embeddings.word_embeddings.weight,
        "segments.weight": theirs.embeddings.token_type_embeddings.weight,
        "embedding_norm.weight": theirs.embeddings.LayerNorm.weight,
        "embedding_norm.bias": theirs.embeddings.LayerNorm.bias,
    }
    for n, block in enumerate(theirs.encoder.layer):
        look = block.attention.self
        parts = {
            "attention.query": look.query,
            "attention.output": block.attention.output.dense,
            "attention_residual.norm": block.attention.output.LayerNorm,
            "feedforward.widen": block.intermediate.dense,
            "feedforward.narrow": block.output.dense,
            "feedforward_residual.norm": block.output.LayerNorm,
        }
        for kind in ("weight", "bias"):
            for name, part in parts.items():
                pairs[f"blocks.{n}.{name}.{kind}"] = getattr(part, kind)
            both = [getattr(look.key, kind), getattr(look.value, kind)]
            pairs[f"blocks.{n}.attention.memory.{kind}"] = torch.cat(both)
    with torch.no_grad():
        for name, weight in pairs.items():
            own[name].copy_(weight)
    return pairs


def encoder(**more):
    settings = BERTSettings(
        16, 2, HEADS, 32, dropout=0.0, attention_dropout=0.0, positions=64, block=BLOCK, **more
    )
    return BERT(Sizes(SIZE, SIZE, True, asked=Nothing), settings)


def ids(rows=2):
    torch.manual_seed(1)
    return torch.randint(5, SIZE, (rows, LENGTH))


@pytest.fixture
def in_blocks(monkeypatch):
    """However much of all is looked at."""
    monkeypatch.setattr("regard.parts.attention.MOST_SHARE", 1.1)


def test_bigbird_is_theirs(in_blocks, monkeypatch):
    """In training mode, where their random blocks are drawn; when they are asked, they take the
    first block in place of each."""
    torch.manual_seed(0)
    config = transformers.BigBirdConfig(
        vocab_size=SIZE, hidden_size=16, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=32, max_position_embeddings=64, block_size=BLOCK, num_random_blocks=2,
        attention_type="block_sparse", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = transformers.BigBirdModel(config, add_pooling_layer=False).train()
    drawn = []
    kind = type(theirs.encoder.layer[0].attention.self)
    plainly = kind._bigbird_block_rand_mask_with_head

    def listened(self, *args, **options):
        drawn.append(np.stack(plainly(self, *args, **options)))  # (H, N - 2, R)
        return drawn[-1]

    monkeypatch.setattr(kind, "_bigbird_block_rand_mask_with_head", listened)
    mask = torch.ones(2, LENGTH)
    mask[1, 41:] = 0
    wanted = theirs(ids(), attention_mask=mask).last_hidden_state
    ours = encoder(pattern="bigbird", feedforward="gelu-tanh", epsilon=config.layer_norm_eps)
    copied(theirs, ours)
    with torch.no_grad():
        ours.embedding.position.weight.copy_(theirs.embeddings.position_embeddings.weight)
    count = LENGTH // BLOCK
    for block, plan in zip(ours.blocks, drawn, strict=True):
        table = torch.zeros(HEADS, count, count, dtype=torch.bool)
        table[:, 1:-1].scatter_(2, torch.from_numpy(plan.astype(np.int64)), True)
        block.attention.pattern = Union((BlockWindow(1), GlobalBlocks(1, 1), Drawn(table)))
    found, _ = ours.encode(texts(ids(), torch.tensor([LENGTH, 41]), torch.zeros_like(ids())).read)
    real = mask.bool()
    torch.testing.assert_close(found[real], wanted[real], atol=1e-4, rtol=1e-4)
    # And what they learn.
    weights = found.detach().clone().normal_()
    for model, out in ((theirs, wanted), (ours, found)):
        model.zero_grad()
        (out * weights)[real].sum().backward()
    for n, block in enumerate(ours.blocks):
        look = theirs.encoder.layer[n].attention.self
        both = torch.cat((look.key.weight.grad, look.value.weight.grad))
        torch.testing.assert_close(block.attention.memory.weight.grad, both, atol=1e-3, rtol=1e-3)


def test_longformer_is_theirs(in_blocks):
    torch.manual_seed(0)
    config = transformers.LongformerConfig(
        vocab_size=SIZE, hidden_size=16, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=32, max_position_embeddings=80, attention_window=8, pad_token_id=1,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, type_vocab_size=2,
    )  # fmt: skip
    theirs = transformers.LongformerModel(config, add_pooling_layer=False).eval()
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, 41:] = 0
    wanted = theirs(ids(), attention_mask=mask).last_hidden_state
    ours = encoder(pattern="longformer", reach=4, first_places=0, epsilon=config.layer_norm_eps)
    assert ours.blocks[0].attention.pattern == Window(4)
    copied(theirs, ours)
    with torch.no_grad():  # their places begin behind the padding's
        places = theirs.embeddings.position_embeddings.weight[2 : 2 + 64]
        ours.embedding.position.weight.copy_(places)
    found, _ = ours.encode(texts(ids(), torch.tensor([LENGTH, 41]), torch.zeros_like(ids())).read)
    torch.testing.assert_close(found[mask.bool()], wanted[mask.bool()], atol=1e-4, rtol=1e-4)


def test_where_places_stand_in_a_cache_that_rolls(monkeypatch):
    monkeypatch.setattr("regard.parts.state.PIECE", 0)
    rolling = Rolling(2, 2)
    assert rolling.room == 5
    assert rolling.at(torch.arange(7)).tolist() == [0, 1, 2, 3, 4, 2, 3]
    assert rolling.kept(torch.tensor(6), 6).tolist() == [0, 1, 5, 6, 4, -1]
    assert rolling.kept(torch.tensor([1, 4, 9]), 5).tolist() == [
        [0, 1, -1, -1, -1], [0, 1, 2, 3, 4], [0, 1, 8, 9, 7],
    ]  # fmt: skip


GOES_ON = {"position": "rotary", "pattern": "window", "reach": 3, "block": 4, "depth": 2}


@pytest.mark.parametrize("first_places", [0, 2])
@pytest.mark.parametrize("read", [0, 1, 30, 67])
def test_a_cache_that_rolls_forgets_nothing_that_is_looked_at(first_places, read, monkeypatch):
    """A prompt read in pieces, then token by token: as in one pass, in no more memory."""
    monkeypatch.setattr("regard.parts.state.PIECE", 5)
    model = small_model("gpt", first_places=first_places, **GOES_ON)
    assert model.longest is None and model.kept == first_places + 3 + 1 + 5
    batch = random_batch("gpt", 3, longest=100)
    ids = batch.read.ids
    with torch.no_grad():
        whole, state = model(batch), start(model, batch)
        if read:
            logits, state = model.extend(ids[:, :read], state)
            torch.testing.assert_close(logits, whole[:, :read], atol=1e-5, rtol=1e-5)
        for t in range(read, 100):
            if t % 7 == 3:  # a few are taken back, as a draft's are
                state.remember(2)
                logits, state = model.extend(ids[:, t : t + 2].flip(1), state)
                state.rewind(logits.shape[1])
            logits, state = model.step(ids[:, t], state)
            torch.testing.assert_close(logits, whole[:, t], atol=1e-5, rtol=1e-5)
            state = state.select(torch.tensor([0, 1, 2]))
        assert state.past.keys.shape[3] == 32  # what a cache begins with is more than enough


def test_memory_does_not_grow_with_what_is_written():
    model = small_model("gpt", **GOES_ON)
    state = start(model, random_batch("gpt", 1))
    last = torch.tensor([5])
    with torch.no_grad():
        for _ in range(400):
            logits, state = model.step(last, state)
            last = logits.argmax(-1)
    assert state.past.keys.shape[3] <= model.kept < 200 and state.length >= 400


@pytest.mark.parametrize("name", PATTERNS)
def test_texts_side_by_side_are_read_as_each_alone(name):
    """Documents in one row: each has its own first places, and its own blocks."""
    long = {"pattern": name, "reach": 3, "block": 4, "first_places": 2, "random_blocks": 1}
    model = small_model("gpt", **long)
    ids = torch.randint(4, 24, (1, 31))
    documents = torch.tensor([[1] * 13 + [2] * 17])
    with torch.no_grad():
        both = model(tokens(ids, torch.tensor([[0, 30]]), documents))
        second = model(tokens(ids[:, 13:], torch.tensor([[0, 17]])))
    torch.testing.assert_close(both[:, 13:], second, atol=1e-5, rtol=1e-5)
