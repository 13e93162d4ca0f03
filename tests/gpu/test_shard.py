"""A model that is cut, on a GPU that has all the parts: blocks travel in bfloat16."""

from copy import deepcopy

import pytest
import torch
import torch.distributed as dist

from regard.training.backward import Objective, Plain, checkpoint_blocks
from regard.training.distributed import World
from regard.training.loss import TokenLoss
from regard.training.optim import OPTIMIZERS, set_rate
from regard.training.settings import Settings
from regard.training.shard import full, shard
from tests.toys import random_batch, small_model


@pytest.fixture
def world(gpu, tmp_path):
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl", f"file://{tmp_path}/peers", rank=0, world_size=1)
    yield World(0, 1, device)
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["gpt", "transformer", "t5", "bert"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_step_is_that_of_a_whole_model(kind, optimizer, world):
    sizes = {"width": 64, "hidden": 128} if kind != "bert" else {"width": 64}
    whole = small_model(kind, **sizes).to(world.device).train()
    cut, again = deepcopy(whole), deepcopy(whole)
    batch = random_batch(kind, rows=16).to(world.device)
    settings = Settings(optimizer=optimizer, rate=0.01)
    precision = torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    found = []
    for model in (whole, cut, again):
        objective = Objective(model, TokenLoss())
        if model is again:
            checkpoint_blocks(model)
        if model is not whole:
            shard(objective, model, world, precision)
        made = OPTIMIZERS[optimizer](model, settings)
        Plain(objective, precision)(batch, [1 / batch.counts[0]], True)
        norm = full(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        set_rate(made, 0.01)
        made.step()
        gradient = [full(p.grad).flatten() for p in model.parameters() if p.grad is not None]
        found.append((float(norm), torch.cat(gradient)))
    for norm, gradient in found[1:]:
        assert norm == pytest.approx(found[0][0], rel=0.02)
        torch.testing.assert_close(gradient, found[0][1], rtol=0.05, atol=0.02)
