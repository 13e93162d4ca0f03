"""What training costs is counted on what training does."""

import pytest
import torch

from regard.batch import Batch, Ids, Label, Sizes
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.cost import FLIGHT, count, estimate, everyday, price, shown_share
from regard.training.distil import DistilLoss, make_loss
from regard.training.loss import ClassLoss, TokenLoss
from regard.training.recipe import read
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


def test_what_it_is_as_much_as():
    """A return flight of one passenger is 1,984 pounds of CO2e, a car's lifetime 126,000."""
    found = everyday(2 * 899_926.5)
    assert found[FLIGHT] == pytest.approx(2, rel=1e-5)
    assert min(found.values()) == pytest.approx(2 * 1984 / 126_000, rel=1e-5)
    shown = [shown_share(share) for share in (2.0, 0.97, 0.25, 0.01, 1e-6, 0.0)]
    assert shown == ["2.0 times", "0.97 of", "0.25 of", "1/100 of", "1/1,000,000 of", "0 of"]
    assert price(7200, Settings(price_per_hour=2.5), 4) == {"price": 20.0}
    assert price(7200, Settings()) == {}


def test_the_tables_of_the_lecture():
    """Eight P100s at 1,416 W and a centre that takes 1.58 times as much; base took twelve hours:
    27 kWh, 26 pounds, 41 to 140 dollars; big took 84: 201 kWh, 192 pounds, 289 to 981 dollars
    (Strubell et al. 2019, tables 3 and 4)."""
    centre = ["train.watts=2237", "train.grams_per_kwh=432.7", "train.flops_per_second=22e12"]
    for name, kwh, pounds, dollars in (
        ("transformer-base", 27, 26, (41, 140)),
        ("transformer-big", 201, 192, (289, 981)),
    ):
        recipe = read(name, [*centre, "train.price_per_hour=7.5"])
        task = TASKS[recipe.task_kind]
        batch = task.sample_batch(recipe.task, recipe.train.batch_tokens, recipe.sections)
        loss = make_loss(task.loss, recipe.train, torch.device("meta"))
        bill = estimate(recipe.build, recipe.usual_sizes(), recipe.train, batch, loss)
        assert bill["kwh"] == pytest.approx(kwh, rel=0.5)
        assert bill["co2e_grams"] / 453.592 == pytest.approx(pounds, rel=0.5)
        assert dollars[0] < bill["price"] < dollars[1]
