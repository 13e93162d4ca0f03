"""The Vision Transformer: the same function as others', and invariants of patches."""

import pytest
import torch

from regard.batch import Batch, Label, Nothing, Pixels, Sizes
from regard.models.vit import ViT, ViTSettings
from regard.parts.norm import DropPath
from regard.parts.place import PLACES, Relative
from regard.parts.stem import STEMS


def pictures(rows=3, size=12, seed=0):
    return torch.randn(rows, 3, size, size, generator=torch.Generator().manual_seed(seed))


def ask(values):
    return Batch(Pixels(values), Label(torch.zeros(len(values), dtype=torch.long), torch.ones(1)))


def model(asked=Label, stem="linear", **more):
    torch.manual_seed(1)
    settings = ViTSettings(16, 2, 4, dropout=0.0, **more)
    sizes = Sizes(0, 0, False, 5, Pixels, asked, (3, 4, 4), (3, 3), stem)
    return ViT(sizes, settings).eval()


@pytest.mark.parametrize("pool", ["token", "mean", "sequence"])
@pytest.mark.parametrize("position", PLACES)
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


@pytest.mark.parametrize("stem", STEMS)
def test_every_stem_gives_a_vector_a_patch_and_learns(stem):
    ours, values = model(stem=stem, pool="mean"), pictures(4)
    assert ours.encode(Pixels(values)).shape == (4, 9, 16)
    torch.testing.assert_close(ours(ask(values[1:2])), ours(ask(values))[1:2], atol=1e-5, rtol=1e-5)
    ours(ask(values)).square().sum().backward()
    assert all(weight.grad is not None for weight in ours.parameters())


@pytest.mark.parametrize("position", PLACES)
def test_a_larger_picture_is_read_with_places_drawn_out(position):
    ours = model(position=position)
    for weight in ours.places.parameters():
        torch.nn.init.normal_(weight)
    assert ours.encode(Pixels(pictures(2, 20))).shape == (2, 1 + 25, 16)
    if position == "learned":
        same, drawn = ours.places.table((3, 3)), ours.places.table((6, 6))
        assert same is ours.places.weight
        torch.testing.assert_close(drawn[0], same[0])  # the class token lies nowhere
        assert drawn.shape == (37, 16)


def test_a_bias_follows_the_distance_and_leaves_tokens_alone():
    places = Relative(8, 2, (2, 3), 1)
    torch.nn.init.normal_(places.weight)
    bias = places.bias((2, 3))[0]
    assert bias.shape == (2, 7, 7) and not bias[:, 0].any() and not bias[:, :, 0].any()
    # From (0, 0) to (1, 1) and from (0, 1) to (1, 2): one down, one across.
    torch.testing.assert_close(bias[:, 1, 1 + 4], bias[:, 1 + 1, 1 + 5])
    assert not torch.allclose(bias[:, 1, 1 + 4], bias[:, 1 + 4, 1])


def test_what_is_left_out_is_made_up_for():
    part, x = DropPath(0.25), torch.ones(4000, 3, 2)
    torch.manual_seed(0)
    out = part.train()(x)
    assert sorted(set(out.flatten().tolist())) == pytest.approx([0.0, 4 / 3])
    assert out.mean().item() == pytest.approx(1.0, abs=0.05)
    assert ((out == out[:, :1, :1]).all(2)).all()  # an example goes around as a whole
    assert part.eval()(x) is x
    rates = [float(m.rate) for m in model(drop_path=0.5).modules() if isinstance(m, DropPath)]
    assert rates == [0.0, 0.0, 0.5, 0.5]  # the first block is never left out
