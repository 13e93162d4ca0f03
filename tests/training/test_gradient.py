"""One batch, cut any way: the same gradient. Real processes for the ranks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loop import gradient
from regard.training.loss import TokenLoss
from tests.toys import random_pairs, small_model

ALONE = World(0, 1, torch.device("cpu"))


def gradients(dtype, pieces=1, rows=11, world=ALONE):
    model = small_model("transformer").to(dtype).train()
    batch = random_pairs(rows, seed=1)
    nll, _ = gradient(make_backward(model, TokenLoss(0.1), world), batch, world, pieces)
    return {name: weight.grad for name, weight in model.named_parameters()} | {"nll": nll}


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
@pytest.mark.parametrize("pieces", [2, 8, 32])
def test_pieces_do_not_change_the_gradient(dtype, near, pieces):
    """Thirty-two pieces of eleven rows: some are empty."""
    whole, cut = gradients(dtype), gradients(dtype, pieces)
    for name, value in whole.items():
        bound = 1e-6 if name == "nll" else near  # the reported sum is kept in float32
        torch.testing.assert_close(cut[name], value, rtol=bound, atol=bound)


RANK = """
import sys, torch
from safetensors.torch import save_file
from regard.training.distributed import join
from tests.train.test_gradient import gradients
with join("cpu") as world:
    for name, dtype in (("float64", torch.float64), ("float32", torch.float32)):
        for rows in (11, 1):
            for pieces in (1, 3):
                found = gradients(dtype, pieces, rows, world)
                found["nll"] = world.sum(found["nll"])
                if world.leads:
                    save_file(found, f"{sys.argv[1]}/{name}-{rows}-{pieces}.safetensors")
"""


def test_two_ranks_give_one_ranks_gradient(tmp_path):
    """One row for two ranks: the second has nothing, and nobody waits."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    run_ranks(2, [str(script), str(tmp_path)])
    for name, dtype, near in (("float64", torch.float64, 1e-13), ("float32", torch.float32, 1e-6)):
        for rows in (11, 1):
            expected = gradients(dtype, 1, rows)
            for pieces in (1, 3):
                found = load_file(tmp_path / f"{name}-{rows}-{pieces}.safetensors")
                for key, value in expected.items():
                    bound = 1e-6 if key == "nll" else near  # the reported sum is kept in float32
                    torch.testing.assert_close(found[key], value, rtol=bound, atol=bound)


def run_ranks(count: int, command: list[str]) -> str:
    """A command under torchrun, on loopback."""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={count}",
    ]
    done = subprocess.run(
        [*torchrun, *command], env=env, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
