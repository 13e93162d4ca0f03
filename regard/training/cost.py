"""What training costs: FLOPs counted, energy measured where it can be read, estimated where not."""

from __future__ import annotations

import importlib.util
import json
import logging
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ..batch import Sizes
from ..model import AnyBatch, Model, Solves
from .checkpoint import write_text
from .distributed import pick
from .events import Progress
from .loss import TokenLoss
from .settings import Settings

# Stated power for estimates, in watts: a GPU at its board limit, Apple's as part of a chip, a CPU
# core under load.
WATTS, CORE_WATTS = {"cuda": 700.0, "mps": 40.0}, 10.0


# Grams of CO2e of everyday things (Strubell et al. 2019, table 1, from pounds).
FLIGHT = "a flight from New York to San Francisco and back, one passenger"
EVERYDAY = {
    FLIGHT: 1_984 * 453.592,
    "a year of an average human life": 11_023 * 453.592,
    "a year of an American life": 36_156 * 453.592,
    "a car over its lifetime, with fuel": 126_000 * 453.592,
}


def everyday(grams: float) -> dict[str, float]:
    """As much CO2e as what part of each."""
    return {name: grams / each for name, each in EVERYDAY.items()}


def shown_share(share: float) -> str:
    """0.01 as 1/100 of, 3 as 3.0 times: few see what 0.00002 of a flight is."""
    if share >= 1:
        return f"{share:,.1f} times"
    if share >= 0.1:
        return f"{share:.2f} of"
    return f"1/{1 / share:,.0f} of" if share > 0 else "0 of"


def duration(seconds: float) -> str:
    """38 s, 12 min, 5.3 h, 12 days."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def memory(count: float) -> str:
    """12.4 GB, 310 MB."""
    unit, size = ("GB", 1e9) if count >= 1e9 else ("MB", 1e6)
    return f"{count / size:,.3g} {unit}"


def price(seconds: float, settings: Settings, devices: int = 1) -> dict[str, float]:
    """What rented devices cost, where somebody said what an hour does."""
    each = settings.price_per_hour
    return {"price": round(devices * each * seconds / 3600, 4)} if each else {}


@dataclass
class Energy:
    """Kilowatt-hours, and how they are known."""

    kwh: float = 0.0
    method: str = ""


def stated_watts(device: torch.device, settings: Settings) -> float:
    if settings.watts:
        return settings.watts
    return WATTS.get(device.type, CORE_WATTS * torch.get_num_threads())


@contextmanager
def metered(
    device: torch.device, settings: Settings, seconds: Callable[[], float], size: int = 1
) -> Iterator[Energy]:
    """Measure through codecarbon (NVML, RAPL) where it is installed and can read; else estimate.

    `seconds` tells how long the training has taken, with what came before it was interrupted; a
    measurement of the rest is scaled up to that.
    """
    energy, tracker, before = Energy(), None, seconds()
    if importlib.util.find_spec("codecarbon"):
        tracker = _tracker()
    try:
        yield energy
    finally:
        measured = _stop(tracker) if tracker is not None else None
        if measured is not None:
            whole = seconds()
            energy.kwh = measured * whole / max(whole - before, 1e-9)
            energy.method = (
                "measured by codecarbon, which reads NVML and RAPL and estimates the rest"
            )
        else:
            watts = stated_watts(device, settings) * size
            energy.kwh = watts * seconds() / 3.6e6
            energy.method = f"estimated from {watts:g} W"


def _tracker() -> object:
    from codecarbon import OfflineEmissionsTracker

    logging.getLogger("codecarbon").disabled = True
    tracker = OfflineEmissionsTracker(
        country_iso_code="WORLD", save_to_file=False, log_level="critical", allow_multiple_runs=True
    )
    tracker.start()  # which is when it looks for what can be read
    # Where neither counter can be read the library falls back on its own guess; ours is stated.
    readable = any(type(part).__name__ == "GPU" or _is_rapl(part) for part in tracker._hardware)
    if not readable:
        tracker.stop()
        return None
    return tracker


def _is_rapl(part: object) -> bool:
    return "rapl" in str(getattr(part, "_mode", ""))


def _stop(tracker: Any) -> float | None:
    tracker.stop()
    data = tracker.final_emissions_data
    return float(data.energy_consumed) if data is not None else None


@dataclass(frozen=True)
class Estimate:
    """What a batch of a given shape takes."""

    parameters: int
    flops: int  # of one update: forward, backward and loss
    activations: int  # bytes that the forward pass keeps for the backward


def count(
    build: Callable[[Sizes], Model], sizes: Sizes, batch: AnyBatch, loss: TokenLoss
) -> Estimate:
    """Count by running such a batch through such a model, in training, on tensors without data.

    `loss` is what is minimised, with all that it needs: two passes, a teacher, the words beside a
    class; what it keeps must be on the device `meta`.
    """
    with torch.device("meta"):
        model = build(sizes).train()
        if isinstance(model, Solves):
            return Estimate(sum(p.numel() for p in model.parameters()), 0, 0)
        kept = Kept()
        with FlopCounterMode(display=False) as counter:
            with torch.autograd.graph.saved_tensors_hooks(kept.add, lambda tensor: tensor):
                total = loss(model, batch.to(torch.device("meta"))).total
            torch.autograd.backward(total.sum())
    weights = sum(p.numel() for p in model.parameters())
    return Estimate(weights, counter.get_total_flops(), kept.bytes - 4 * weights)


class Kept:
    """Adds up what is saved for the backward pass, each storage once."""

    def __init__(self) -> None:
        self.bytes, self.seen = 0, set[int]()
        self.alive: list[torch.Tensor] = []  # so that no address is used twice

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.seen:
            self.seen.add(storage._cdata)
            self.alive.append(tensor)
            self.bytes += storage.nbytes()
        return tensor


@dataclass(frozen=True)
class Peak:
    """What a device could do at best, and how that is known."""

    flops: float
    method: str


# Dense bfloat16 rates of datasheets, in TFLOP/s, by a part of the device's name.
DATASHEETS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "4090": 165}


def peak_rate(device: torch.device) -> Peak:
    """The datasheet's rate where the device is known, else what a matrix product reaches."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        for part, rate in DATASHEETS.items():
            if part in name:
                return Peak(rate * 1e12, f"{rate} TFLOP/s, dense bfloat16 by the datasheet")
    reached = product_rate(device)
    return Peak(reached, f"{reached / 1e12:.3g} TFLOP/s, which a matrix product reaches here")


def peak_memory(device: torch.device) -> int:
    """Bytes: the GPU's peak, or the process's peak resident size."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        return torch.mps.driver_allocated_memory()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def estimate(
    build: Callable[[Sizes], Model],
    sizes: Sizes,
    train: Settings,
    batch: AnyBatch,
    loss: TokenLoss,
) -> dict[str, object]:
    """The bill before training, for batches like this one."""
    device = pick(train.device)
    one = count(build, sizes, batch, loss)
    flops = one.flops * train.steps
    rate = train.flops_per_second
    method = f"at {rate / 1e12:.3g} TFLOP/s, as train.flops_per_second says"
    if not rate:
        reached = product_rate(device)
        rate = reached * USE
        method = (
            f"at {USE:.0%} of {reached / 1e12:.3g} TFLOP/s, which a matrix product reaches here"
        )
    seconds = flops / rate
    kwh = stated_watts(device, train) * seconds / 3.6e6
    grams = kwh * train.grams_per_kwh
    return {
        "parameters": one.parameters,
        "flops_per_step": one.flops,
        "flops": float(flops),
        "memory_bytes": one.parameters * 16 + one.activations // train.accumulate,
        "memory_method": "weights, gradients and two moments in float32, and what backward keeps",
        "seconds": seconds,
        "seconds_method": method,
        "kwh": kwh,
        "kwh_method": f"estimated from {stated_watts(device, train):g} W",
        "co2e_grams": grams,
        "everyday": everyday(grams),
        **price(seconds, train),
        "batch_rows": len(batch),
        "batch_columns": batch.asked.labels.shape[1],
    }


USE = 0.5  # of what a large matrix product reaches, seen in training


def product_rate(device: torch.device) -> float:
    """FLOP/s of a matrix product on this device, measured now."""
    # On a CPU, products so short that the best of them was not interrupted by what else it does.
    size, tries, dtype = 512, 30, torch.float32
    if device.type == "cuda":
        size, tries, dtype = 8192, 4, torch.bfloat16
    a = torch.randn(size, size, device=device, dtype=dtype)
    best = 0.0
    for _ in range(tries):
        began = time.perf_counter()
        a @ a
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def bill(
    progress: Progress,
    parameters: int,
    flops: float,
    peak: Peak,
    energy: Energy,
    settings: Settings,
    device: str,
    devices: int = 1,
) -> dict[str, object]:
    """What a training took."""
    seconds = max(progress.seconds, 1e-9)
    grams = energy.kwh * settings.grams_per_kwh
    return {
        "steps": progress.step,
        "target_tokens": progress.tokens,
        "parameters": parameters,
        "flops": flops,
        "flops_method": "counted on one batch's shape, scaled by target tokens",
        "use": flops / seconds / peak.flops,
        "use_method": f"FLOPs a second, as a part of {peak.method}",
        "seconds": round(progress.seconds, 2),
        "tokens_per_second": round(progress.tokens / seconds, 1),
        "device": device,
        "kwh": energy.kwh,
        "kwh_method": energy.method,
        "co2e_grams": grams,
        "grams_per_kwh": settings.grams_per_kwh,
        "everyday": everyday(grams),
        **price(progress.seconds, settings, devices),
    }


def write_bill(path: Path, bill: dict[str, object], device: torch.device) -> None:
    """cost.json."""
    whole = {**bill, "peak_memory_bytes": peak_memory(device)}
    write_text(path, json.dumps(whole, indent=1) + "\n")
