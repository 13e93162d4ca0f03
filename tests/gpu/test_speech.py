"""Speech on a GPU: the CPU's loss, gradient and answers, and a recipe that trains and answers."""

import json
import tarfile
import warnings
from pathlib import Path

import pytest
import torch

import regard
from regard.batch import Batch, Frames, Sizes, Words
from regard.decode import Settings, follow, with_cuda_graphs
from regard.decode.beam import Beam
from regard.decode.ctc import CtcStepper
from regard.decode.settings import Limits
from regard.decode.stepper import Joined, Together
from regard.models import MODELS
from regard.training.backward import make_backward
from regard.training.distributed import World
from regard.training.loss import HeardLoss
from tests.gpu.test_decode import assert_alike
from tests.tasks.test_speech import FOLDER, LESS

SOME = {
    "conformer": ("transformer", {"depth": 2, "heads": 4, "residual": "pre", "convolution": 5}),
    "pyramid": (
        "seq2seq",
        {"reader": "pyramid", "reader_depth": 2, "coverage": "location", "feed": "context"},
    ),
}
SIZE = 30


def make(name, stem="conv"):
    torch.manual_seed(0)
    kind, more = SOME[name]
    sizes = Sizes(0, SIZE, False, 0, Frames, Words, (20,), stem=stem)
    shape = {"width": 32, "hidden": 64, "dropout": 0.0, "ctc": True}
    return MODELS[kind](sizes, MODELS[kind].Settings(**shape, **more))


def sounds(rows=6):
    dice = torch.Generator().manual_seed(rows)
    lengths = torch.randint(30, 81, (rows,), generator=dice)
    lengths[0] = 80
    values = torch.randn(rows, 80, 20, generator=dice)
    values[torch.arange(80) >= lengths[:, None]] = 0
    ids = torch.randint(4, SIZE, (rows, 6), generator=dice)
    ids[:, 0], ids[:, -1] = 1, 2
    return Batch(Frames(values, lengths), Words(ids, torch.full((rows,), 5)))


@pytest.mark.parametrize("name", SOME)
def test_loss_and_gradient_are_those_of_a_cpu(name, gpu):
    model, batch, loss = make(name).double(), sounds(), HeardLoss(ctc=0.5)
    batch = batch.put([t.double() if t.is_floating_point() else t for t in batch.tensors()])
    found = {}
    for device in ("cpu", "cuda"):
        model = model.to(device)
        model.zero_grad()
        told = loss(model, batch.to(torch.device(device)))
        told.total.backward()
        slopes = [p.grad.flatten().cpu() for p in model.parameters() if p.grad is not None]
        found[device] = float(told.total.detach()), torch.cat(slopes)
    assert found["cuda"][0] == pytest.approx(found["cpu"][0], rel=1e-6)
    apart = (found["cuda"][1] - found["cpu"][1]).norm() / found["cpu"][1].norm()
    assert float(apart) < 1e-5


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("ctc", [0.0, 0.5])
def test_quick_steps_have_the_plain_gradient(name, ctc, gpu):
    """Captured where CTC does not look at lengths; compiled in any case."""

    def gradient(compiling):
        model = make(name).to(gpu).train()
        backward = make_backward(model, HeardLoss(ctc=ctc), World(0, 1, gpu), compiling, None)
        batch = sounds().to(gpu)
        for _ in range(3):
            model.zero_grad(set_to_none=False)
            backward(batch, [1 / 30], True)
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    plain = gradient("off")
    for way in ("graph", "full"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = gradient(way)
        assert float((fast - plain).norm() / plain.norm()) < 1e-3, way


def search(model, batch, device):
    batch = batch.to(device)
    decode = Settings(num_beams=4, max_new_tokens=20, num_return_sequences=2)
    longest = torch.full((len(batch),), 20, device=device)
    limits = Limits.begin(1, 2, longest, (0, 1, 3))
    beam = Beam(limits, decode, sums=True)
    with torch.inference_mode():
        attention = Together(with_cuda_graphs(model, decode), batch, 4, limits.prompt)
        ctc = CtcStepper(*attention.state.heard, 4, 2)
        return follow(beam, Joined([(0.6, attention), (0.4, ctc)]))


@pytest.mark.parametrize("name", SOME)
def test_a_joint_search_finds_what_a_cpu_finds(name, gpu):
    model, batch = make(name).eval(), sounds(9)
    wanted = search(model, batch, torch.device("cpu"))
    found = search(model.to(gpu), batch, gpu)
    assert assert_alike(found, wanted) >= 0.7


def test_a_recipe_trains_and_answers(tmp_path):
    less = [one for one in LESS if not one.startswith(("train.device", "train.steps"))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler
        run = regard.train("speech-digits", *less, "train.steps=400", run=tmp_path / "run")
    results = json.loads((tmp_path / "run/results.json").read_text())["test"]
    assert results["wer"] < 70
    with tarfile.open(FOLDER / "valid.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    paths = [str(Path(tmp_path) / f"{number:03}.ogg") for number in range(6)]
    quick = [one.output for one in run.predict(paths)]
    slow = [one.output for one in regard.load(tmp_path / "run", device="cpu").predict(paths)]
    assert sum(a == b for a, b in zip(quick, slow, strict=True)) >= 5  # or a near tie
