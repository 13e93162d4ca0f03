"""The Vision Transformer: the same function as others', and invariants of patches."""

import pytest
import torch
import transformers

from regard.batch import Batch, Label, Nothing, Pixels, Sizes
from regard.models.vit import ViT, ViTSettings


def copy_vit(theirs: transformers.ViTForImageClassification) -> ViT:
    """Ours with the weights of theirs."""
    c = theirs.config
    grid = c.image_size // c.patch_size
    sizes = Sizes(
        0, 0, False, c.num_labels, Pixels, Label, (3, c.patch_size, c.patch_size), (grid, grid)
    )
    settings = ViTSettings(
        c.hidden_size, c.num_hidden_layers, c.num_attention_heads, c.intermediate_size, 0.0
    )
    model, body = ViT(sizes, settings), theirs.vit
    state = dict(body.named_parameters())
    with torch.no_grad():
        model.token.copy_(body.embeddings.cls_token)
        model.places.weight.copy_(body.embeddings.position_embeddings[0])
        cut = body.embeddings.patch_embeddings.projection
        model.embedding.cut.load_state_dict(cut.state_dict())
        model.norm.load_state_dict(body.layernorm.state_dict())
        model.output.weight.copy_(theirs.classifier.weight)
        model.output.bias.copy_(theirs.classifier.bias)
        for number, block in enumerate(model.blocks):
            stem = next(n for n in state if f".{number}." in n).partition(f".{number}.")[0]
            own = {n.removeprefix(f"{stem}.{number}."): w for n, w in state.items()
                   if n.startswith(f"{stem}.{number}.")}  # fmt: skip

            def found(*parts, own=own):
                return [w for n, w in own.items() if all(part in n for part in parts)]

            def pair(*parts, found=found):
                (weight,), (bias,) = found(*parts, "weight"), found(*parts, "bias")
                return weight, bias

            def one_of(*names, pair=pair):
                for name in names:
                    try:
                        return pair(*name)
                    except ValueError:
                        continue
                raise AssertionError(names)

            q = one_of(("query",), ("q_proj",))
            k = one_of(("key",), ("k_proj",))
            v = one_of(("value",), ("v_proj",))
            block.attention.query.weight.copy_(q[0])
            block.attention.query.bias.copy_(q[1])
            block.attention.memory.weight.copy_(torch.cat((k[0], v[0])))
            block.attention.memory.bias.copy_(torch.cat((k[1], v[1])))
            for part, names in (
                (block.attention.output, (("attention.output",), ("o_proj",))),
                (block.attention_residual.norm, (("layernorm_before",),)),
                (block.feedforward_residual.norm, (("layernorm_after",),)),
                (block.feedforward.widen, (("intermediate",), ("fc1",))),
            ):
                weight, bias = one_of(*names)
                part.weight.copy_(weight)
                part.bias.copy_(bias)
            narrow = [n for n in own if "attention" not in n and ("output" in n or "fc2" in n)]
            for name in narrow:
                kind = "weight" if name.endswith("weight") else "bias"
                getattr(block.feedforward.narrow, kind).copy_(own[name])
    return model.eval()


@pytest.fixture(scope="module")
def both():
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
        image_size=12, patch_size=4, num_labels=5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = transformers.ViTForImageClassification(config).eval()
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return theirs, copy_vit(theirs)


def pictures(rows=3, size=12, seed=0):
    return torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(seed))


def ask(values):
    return Batch(Pixels(values), Label(torch.zeros(len(values), dtype=torch.long), torch.ones(1)))


def test_it_is_vit(both):
    theirs, ours = both
    values = pictures()
    found = ours(ask(values))[:, 0]
    torch.testing.assert_close(found, theirs(values).logits, rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    theirs(values).logits.square().sum().backward()
    cut = theirs.vit.embeddings.patch_embeddings.projection.weight.grad
    torch.testing.assert_close(ours.embedding.cut.weight.grad, cut, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        ours.token.grad, theirs.vit.embeddings.cls_token.grad, rtol=1e-3, atol=1e-4
    )


def model(asked=Label, **more):
    torch.manual_seed(1)
    settings = ViTSettings(16, 2, 4, dropout=0.0, **more)
    return ViT(Sizes(0, 0, False, 5, Pixels, asked, (3, 4, 4), (3, 3)), settings).eval()


@pytest.mark.parametrize("pool", ["token", "mean"])
@pytest.mark.parametrize("position", ["learned", "sinusoid", "none", "rotary"])
def test_a_row_is_the_same_alone(pool, position):
    ours, values = model(pool=pool, position=position), pictures(4)
    whole = ours(ask(values))
    assert whole.shape == (4, 1, 5)
    torch.testing.assert_close(ours(ask(values[2:3])), whole[2:3])
    assert model(Nothing, pool=pool)(ask(values)).shape == (4, 1, 16)


def test_without_positions_patches_are_a_bag():
    """Whole patches may change places, and nothing else changes."""
    bag, placed = model(position="none", pool="mean"), model(pool="mean")
    torch.nn.init.normal_(placed.places.weight)
    values = pictures(1)
    moved = values.clone()
    moved[..., :4, :4], moved[..., 4:8, 8:] = values[..., 4:8, 8:], values[..., :4, :4]
    torch.testing.assert_close(bag(ask(moved)), bag(ask(values)))
    assert not torch.allclose(placed(ask(moved)), placed(ask(values)))
