"""Positions: the paper's formula, its shift property, and what rotation leaves alone."""

import math

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from regard.parts.position import POSITIONS, STRETCHES, LearnedPosition, Rotary, Sinusoid


def table(width: int, length: int) -> torch.Tensor:
    return (
        Sinusoid(width)
        .double()
        .add(torch.zeros(1, length, width, dtype=torch.float64), torch.arange(length))[0]
    )


def test_sinusoid_is_the_papers_formula():
    found = table(8, 20)
    for t in (0, 1, 7, 19):
        for i in range(4):
            angle = t / 10000 ** (2 * i / 8)
            assert found[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert found[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_a_shift_is_one_linear_map_for_all_places():
    """PE(t + 5) = M PE(t): M, found from some places, holds for the others."""
    found = table(4, 100)
    shift = torch.linalg.lstsq(found[:40], found[5:45]).solution
    torch.testing.assert_close(found[40:95] @ shift, found[45:100], atol=1e-4, rtol=0)


def test_rotary_scores_depend_on_distance_alone():
    torch.manual_seed(0)
    rotary = Rotary(16, heads=2)
    q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8)

    def score(at: int, to: int) -> torch.Tensor:
        return (rotary.turn(q, torch.tensor([at])) * rotary.turn(k, torch.tensor([to]))).sum(-1)

    torch.testing.assert_close(score(7, 3), score(107, 103), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(score(7, 3), score(7, 4))
    torch.testing.assert_close(rotary.turn(q, torch.tensor([9])).norm(), q.norm())


def test_rotary_is_llamas():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    torch.manual_seed(0)
    x, places = torch.randn(2, 3, 5, 8), torch.arange(5)
    rotary = Rotary(24, heads=3)
    angles = (places[:, None] * rotary.rates).repeat(1, 2)[None]
    expected, _ = apply_rotary_pos_emb(x, x, angles.cos(), angles.sin())
    torch.testing.assert_close(rotary.turn(x, places), expected)


@pytest.mark.parametrize("name", POSITIONS)
def test_places_by_row_are_places_by_column(name):
    """Rows that stand at different places get what they would get alone."""
    torch.manual_seed(0)
    position = POSITIONS[name](8, 2, 32)
    x, q = torch.randn(2, 3, 8), torch.randn(2, 2, 3, 4)
    places = torch.tensor([[0, 1, 2], [5, 6, 7]])
    for row in range(2):
        torch.testing.assert_close(position.add(x, places)[row], position.add(x, places[row])[row])
        torch.testing.assert_close(
            position.turn(q, places)[row], position.turn(q, places[row])[row]
        )


def test_learned_positions_are_trained():
    position = LearnedPosition(4, size=3)
    position.add(torch.zeros(1, 2, 4), torch.arange(2)).sum().backward()
    assert position.weight.grad[:2].abs().sum() > 0
    assert position.weight.grad[2:].abs().sum() == 0


@pytest.mark.parametrize("name", STRETCHES)
def test_stretched_positions_turn_no_further_than_was_learned(name):
    """Four times as many places: the quickest pair as ever but for linear, the slowest a quarter as
    far, so that it has met every angle."""
    learned = Rotary(64, 1, 512)
    longer = Rotary(64, 1, 2048, 10000.0, name, 4.0)
    ratio = longer.rates / learned.rates
    quick, slow = {"none": (1, 1), "linear": (0.25, 0.25)}.get(name, (1, 0.25))
    assert float(ratio[0]) == pytest.approx(quick) and float(ratio[-1]) == pytest.approx(slow)
    assert (ratio.diff() <= 1e-6).all()
    assert longer.scale == pytest.approx(0.1 * math.log(4) + 1 if name == "yarn" else 1)


def test_yarn_is_theirs():
    """Pair by pair, for several sizes."""
    for width, base, factor, places in ((64, 10000.0, 4.0, 8192), (128, 500000.0, 16.0, 2**17)):
        config = transformers.LlamaConfig(
            hidden_size=width, num_attention_heads=1, max_position_embeddings=places,
            rope_parameters={"rope_type": "yarn", "factor": factor, "rope_theta": base,
                             "original_max_position_embeddings": round(places / factor)},
        )  # fmt: skip
        wanted, scale = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
        ours = Rotary(width, 1, places, base, "yarn", factor)
        torch.testing.assert_close(ours.rates, wanted, rtol=1e-5, atol=1e-9)
        assert ours.scale == pytest.approx(scale)
