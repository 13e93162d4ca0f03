"""The Transformer against torch's and transformers' own, and its published sizes."""

import warnings

import pytest
import torch
from torch import nn

from regard.batch import Sizes
from regard.models.transformer import Transformer
from regard.models.transformer import TransformerSettings as Settings
from tests.parts.test_block import copy_block
from tests.toys import pairs

BASE = Settings()
BIG = Settings(width=1024, heads=16, hidden=4096, dropout=0.3)


@pytest.mark.parametrize(
    ("settings", "count"),
    [(BASE, 63_082_496), (BIG, 214_245_376)],
    ids=["base", "big"],
)
def test_parameter_counts_of_the_paper(settings, count):
    """Table 3 says 65 and 213 million for about 37,000 tokens; these are ours, exactly."""
    with torch.device("meta"):
        model = Transformer(Sizes(37000, 37000, True), settings)
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize("residual", ["post", "pre"])
def test_parity_with_torch_transformer(residual):
    torch.manual_seed(0)
    settings = Settings(
        width=16,
        depth=2,
        heads=4,
        hidden=32,
        dropout=0.0,
        position="none",
        residual=residual,
        tie="none",
    )
    ours = Transformer(Sizes(30, 40, False), settings).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's note on a fast path it will not take
        theirs = nn.Transformer(
            16,
            4,
            2,
            2,
            32,
            0.0,
            batch_first=True,
            norm_first=residual == "pre",
            dtype=torch.float64,
        )
    if (
        residual == "post"
    ):  # theirs always ends its stacks with a norm; the paper's post-norm does not
        theirs.encoder.norm = theirs.decoder.norm = None
    for mine, other in zip(ours.encoder, theirs.encoder.layers, strict=True):
        copy_block(mine, other)
    for mine, other in zip(ours.decoder, theirs.decoder.layers, strict=True):
        copy_block(mine, other)
    batch = pairs(
        torch.randint(4, 30, (3, 7)),
        torch.tensor([7, 2, 5]),
        torch.randint(4, 40, (3, 6)),
        torch.tensor([5, 5, 5]),
    )
    pad = torch.arange(7) >= batch.read.lengths[:, None]
    source = (ours.source.tokens.weight * 4.0).detach().requires_grad_()
    target = (ours.target.tokens.weight * 4.0).detach().requires_grad_()
    states = theirs(
        nn.functional.embedding(batch.read.ids, source),
        nn.functional.embedding(batch.asked.inputs, target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64),
        src_key_padding_mask=torch.zeros(3, 7, dtype=torch.float64).masked_fill(pad, float("-inf")),
        memory_key_padding_mask=torch.zeros(3, 7, dtype=torch.float64).masked_fill(
            pad, float("-inf")
        ),
    )
    found = ours.states(batch).states
    torch.testing.assert_close(found, states)
    found.square().sum().backward()
    states.square().sum().backward()
    torch.testing.assert_close(ours.source.tokens.weight.grad / 4.0, source.grad)
    torch.testing.assert_close(ours.target.tokens.weight.grad / 4.0, target.grad)
    mine, other = ours.encoder[0].attention, theirs.encoder.layers[0].self_attn
    packed = torch.cat((mine.query.weight.grad, mine.memory.weight.grad))
    torch.testing.assert_close(packed, other.in_proj_weight.grad)


def test_parity_with_marian():
    from tests.marian import copy_marian, tiny_marian

    theirs = tiny_marian()
    ours = copy_marian(theirs)
    source, lengths = torch.randint(4, 60, (3, 7)), torch.tensor([7, 3, 5])
    target = torch.randint(4, 60, (3, 6))
    mask = torch.arange(7) < lengths[:, None]
    expected = theirs(
        input_ids=source, attention_mask=mask.long(), decoder_input_ids=target[:, :-1]
    ).logits
    found = ours(pairs(source, lengths, target, torch.tensor([5, 5, 5])))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    expected.square().mean().backward()
    found.square().mean().backward()
    mine, other = ours.decoder[0].cross, theirs.model.decoder.layers[0].encoder_attn
    torch.testing.assert_close(
        mine.query.weight.grad, other.q_proj.weight.grad, atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(
        ours.source.tokens.weight.grad, theirs.model.shared.weight.grad, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("tie", ["all", "target", "none"])
@pytest.mark.parametrize("shared", [True, False])
def test_ties(tie, shared):
    model = Transformer(
        Sizes(30, 30 if shared else 31, shared),
        Settings(width=8, depth=1, heads=2, hidden=8, tie=tie),
    )
    one = model.source.tokens.weight is model.target.tokens.weight
    assert one == (tie == "all" and shared)
    assert (model.output.weight is model.target.tokens.weight) == (tie != "none")
