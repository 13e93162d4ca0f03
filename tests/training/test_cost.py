"""What training costs is counted on what training does."""

import pytest
import torch

from regard.batch import Batch, Ids, Label, Sizes
from regard.models import MODELS
from regard.training.cost import count
from regard.training.distil import DistilLoss
from regard.training.loss import ClassLoss, TokenLoss
from regard.training.settings import Settings
from tests.toys import SMALL, random_batch, tokens

SIZES = Sizes(500, 500, True)


def build(kind="gpt", depth=2):
    return lambda sizes: MODELS[kind](
        sizes, MODELS[kind].Settings(**{**SMALL[kind], "depth": depth})
    )


def flops(loss, kind="gpt", sizes=SIZES, batch=None, depth=2):
    batch = random_batch(kind, rows=8, longest=32, size=500) if batch is None else batch
    return count(build(kind, depth), sizes, batch, loss).flops


@pytest.mark.parametrize("kind", ["gpt", "transformer"])
def test_two_dropouts_cost_twice_as_much(kind):
    once, twice = flops(TokenLoss(), kind), flops(TokenLoss(r_drop=1.0), kind)
    assert 1.95 * once < twice < 2.5 * once  # scores are made a second time for the backward


def test_a_teacher_s_pass_counts():
    alone = flops(TokenLoss())
    with torch.device("meta"):
        teacher = build(depth=6)(SIZES)
    taught = flops(DistilLoss(teacher, Settings()))
    # A forward pass is a third of forward and backward, and this one is of three times the depth.
    blocks = flops(TokenLoss(), depth=6) - flops(TokenLoss(), depth=4)
    assert taught - alone > 0.95 * blocks


def test_the_words_beside_a_class_count():
    ids = torch.zeros(8, 32, dtype=torch.long)
    lengths = torch.full((8,), 32)
    batch = Batch(Ids(ids, lengths, ids), Label(lengths * 0, torch.ones(8)))
    sizes = Sizes(500, 500, True, 2, asked=Label)
    plain = flops(ClassLoss(), sizes=sizes, batch=batch)
    beside = flops(ClassLoss(language=0.5), sizes=sizes, batch=batch)
    words, width = 8 * 31, SMALL["gpt"]["width"]
    assert beside - plain == pytest.approx(6 * words * width * 500, rel=0.05)


def test_patterns_cost_the_blocks_that_are_worked_out():
    """A token of a long text costs what one of a text twice as long does; with all, it grows."""

    def each(pattern, length):
        model = {"pattern": pattern, "block": 64, "reach": 128, "positions": length, "dropout": 0.0}
        settings = MODELS["gpt"].Settings(64, 2, 2, **model)
        ids = torch.zeros(1, length + 1, dtype=torch.long)
        batch = tokens(ids, torch.tensor([[0, length]]))
        made = count(lambda sizes: MODELS["gpt"](sizes, settings), SIZES, batch, TokenLoss())
        return made.flops / length

    for pattern in ("window", "bigbird"):
        assert each(pattern, 4096) == pytest.approx(each(pattern, 2048), rel=0.1)
    assert each("full", 4096) > 1.6 * each("full", 2048) > 3 * each("window", 2048)
