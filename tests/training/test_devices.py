"""Which device is taken, and what each is told apart by; Apple's itself is not to be had here."""

import pytest
import torch

from regard.decode.policy import draw
from regard.errors import RecipeError
from regard.parts.precision import widest
from regard.training.cost import stated_watts
from regard.training.distributed import DEVICES, join, pick
from regard.training.prepare import autocast, device_name, way_to_compile
from regard.training.settings import Settings

APPLE = torch.device("mps")


@pytest.fixture
def there(monkeypatch):
    """So many devices of each kind, as the machine would tell."""

    def say(**counts):
        for kind in ("cuda", "mps"):
            monkeypatch.setitem(DEVICES, kind, lambda count=counts.get(kind, 0): count)

    return say


@pytest.mark.parametrize(("counts", "taken"), [
    ({}, "cpu"), ({"mps": 1}, "mps"), ({"cuda": 1}, "cuda"), ({"cuda": 2, "mps": 1}, "cuda"),
])  # fmt: skip
def test_auto_takes_a_gpu_where_there_is_one(there, counts, taken):
    there(**counts)
    assert pick("auto") == torch.device(taken)


def test_a_device_that_is_not_there_is_told(there):
    there(mps=1)
    assert pick("mps") == APPLE and pick("mps:0").type == "mps"
    for name in ("mps:1", "cuda", "cuda:3"):
        with pytest.raises(RecipeError, match=f"train.device is '{name}', but no such GPU"):
            pick(name)
    there()
    with pytest.raises(RecipeError, match="train.device is 'mps', but no such GPU can be used"):
        pick("mps")
    for name in ("tpu", "meta", "xpu"):
        with pytest.raises(RecipeError, match=f"auto, cpu, mps, cuda or cuda:N, but is '{name}'"):
            pick(name)


def test_this_machine_has_what_torch_says():
    assert DEVICES["mps"]() == int(torch.backends.mps.is_available())
    assert DEVICES["cuda"]() == torch.cuda.device_count()


def test_apples_gpu_trains_alone(there, monkeypatch):
    there(mps=1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="several processes train on cuda or on cpu, not on mps"):
        join("auto").__enter__()


def test_what_apples_gpu_lacks_is_not_asked_of_it():
    settings = Settings()
    assert widest(APPLE) == torch.float32 and widest(torch.device("cpu")) == torch.float64
    assert autocast(APPLE, settings) is None  # float32, unless bfloat16 is asked for
    assert way_to_compile(settings, APPLE) == "auto"  # which is off but on CUDA
    assert device_name(APPLE) == "Apple GPU (Metal)"
    assert stated_watts(APPLE, settings) == 40.0
    assert stated_watts(APPLE, Settings(watts=12.0)) == 12.0


def test_numbers_thrown_draw_the_same_in_either_precision():
    """Where they do not fall on an edge."""
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().expand(3, -1)
    thrown = torch.tensor([0.05, 0.45, 0.95])
    assert draw(scores, thrown.double()).tolist() == [0, 2, 3]
    assert draw(scores.float(), thrown).tolist() == [0, 2, 3]
