"""What is installed, where runs go, and what is missing for which command."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .. import __version__
from .app import app


class Feature(NamedTuple):
    """What needs more than the core: the extra that brings it, and the packages in that."""

    what: str
    extra: str
    packages: tuple[str, ...]


FEATURES = (
    Feature("regard serve", "serve", ("fastapi", "uvicorn")),
    Feature("chat templates", "chat", ("jinja2",)),
    Feature("regard import FILE.gguf", "gguf", ("gguf",)),
    Feature("regard export --to onnx", "onnx", ("onnx", "onnxscript")),
    Feature("regard export --to ctranslate2", "ctranslate2", ("ctranslate2", "transformers")),
    Feature("sound: WAV, FLAC, OGG, MP3", "sound", ("soundfile",)),
    Feature("molecules as SMILES", "molecules", ("rdkit",)),
    Feature("tables in .parquet", "parquet", ("pyarrow",)),
    Feature("regard record, .hdf5 histories", "decisions", ("gymnasium", "icu-sepsis", "h5py")),
    Feature("energy that is measured", "energy", ("codecarbon",)),
    Feature("train.tensorboard", "tensorboard", ("tensorboard",)),
    Feature("train.wandb", "wandb", ("wandb",)),
)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """What is installed, which device is used, what is missing."""
    from .. import terminal

    told = examination()
    if as_json:
        print(terminal.json_line(told))
        return
    from rich.table import Column, Table

    console = terminal.console()
    for name, text in summary(told):
        console.print(f"{name:8} {text}", highlight=False, soft_wrap=True)
    table = Table("for", Column("packages", overflow="fold"), Column("state", no_wrap=True))
    for row in told["features"]:
        packages = ", ".join(
            f"{name} {number}" if number else name for name, number in row["packages"].items()
        )
        table.add_row(row["for"], packages, row["install"] or "ready")
    console.print(table)


def examination() -> dict[str, Any]:
    """All that is known, in plain values."""
    import torch

    features = []
    for feature in FEATURES:
        packages = {name: installed(name) for name in feature.packages}
        whole = all(packages.values())
        install = None if whole else f"pip install 'regard[{feature.extra}]'"
        row = {"for": feature.what, "extra": feature.extra, "packages": packages}
        features.append({**row, "install": install})
    return {
        "regard": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "device": device(),
        "runs": place_of_runs(),
        "features": features,
    }


def installed(package: str) -> str | None:
    """A package's version, where it can be imported."""
    if find_spec(package.replace("-", "_")) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


def device() -> dict[str, Any]:
    """What `train.device=auto` picks, and what there is beside it."""
    import torch

    from ..training.distributed import pick
    from ..training.prepare import device_name

    chosen = pick("auto")
    cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "auto": str(chosen),
        "name": device_name(chosen),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cuda": [{"name": card.name, "memory_bytes": card.total_memory} for card in cards],
        "mps": torch.backends.mps.is_available(),
    }


def place_of_runs() -> dict[str, Any]:
    """Where `regard train` writes from here, and how much room there is."""
    folder = Path("runs").absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return {"folder": str(folder), "free_bytes": shutil.disk_usage(there).free}


def summary(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines before the table."""
    device, runs = told["device"], told["runs"]
    yield "regard", f"{told['regard']}, Python {told['python']}, torch {told['torch']}"
    yield "system", told["system"]
    yield "device", f"{device['auto']} ({device['name']}; {device['instructions']})"
    for card in device["cuda"]:
        yield "", f"{card['name']}, {card['memory_bytes'] / 1e9:.0f} GB"
    if not device["cuda"]:
        other = "; Apple's GPU (MPS) is there" if device["mps"] else ""
        yield "", f"no CUDA GPU{other}"
    yield "runs", f"{runs['folder']}, {runs['free_bytes'] / 1e9:,.0f} GB free"
