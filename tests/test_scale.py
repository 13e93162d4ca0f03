"""docs/scale.md says what its formulas say, and its launch lines are such that can be typed."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch.distributed.run import get_args_parser

from regard.training.recipe import read

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scale():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks/scale.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "benchmarks"))


def test_the_tables_are_what_the_formulas_give(scale):
    for job in scale.JOBS:
        assert scale.table(job) in PAGE


def test_what_is_reckoned_with_is_the_recipes(scale):
    for job, name in zip(scale.JOBS, ("gpt2-124m", "transformer-base"), strict=True):
        recipe = read(name)
        with torch.device("meta"):
            model = recipe.build(recipe.usual_sizes())
        sizes = [weight.numel() for weight in model.parameters()]
        assert job.parameters == pytest.approx(sum(sizes), rel=0.001)
        assert job.table == pytest.approx(max(sizes), rel=0.005)
        assert job.batch == recipe.train.batch_tokens


def test_a_step_by_hand(scale):
    """Eight GPUs sum 124.4 M float32 gradients: 7/8 of eight bytes each, at 450 GB/s."""
    step = scale.reckon(scale.JOBS[0], 8, sharded=False)
    assert step.moved == pytest.approx(870.8e6, rel=1e-4)
    assert step.compute == pytest.approx(65_536 / 547e3)
    messages = 38  # of 25 MiB
    assert step.exchange == pytest.approx(870.8e6 / 450e9 + messages * 10e-6 * 3, rel=1e-3)
    assert step.exposed == pytest.approx(7 * 38.6e6 / 450e9, rel=1e-3)  # the table alone
    alone = scale.reckon(scale.JOBS[0], 1, sharded=True)
    assert alone.moved == alone.exposed == 0 and alone.efficiency == 1
    assert scale.reckon(scale.JOBS[0], 1024, False).efficiency < step.efficiency


def launches():
    """Every torchrun line of the page, as words."""
    shell = "\n".join(re.findall(r"```bash\n(.*?)```", PAGE, re.S)).replace("\\\n", " ")
    lines = [line.partition("torchrun ")[2] for line in shell.splitlines() if "torchrun " in line]
    pods = [d for d in manifests() if d["kind"] == "Job"]
    args = [c["args"] for d in pods for c in d["spec"]["template"]["spec"]["containers"]]
    return [shlex.split(line, comments=True) for line in lines] + args


def manifests():
    return [d for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
            for d in yaml.safe_load_all(text)]  # fmt: skip


def test_every_launch_line_is_understood():
    assert len(launches()) == 6
    for words in launches():
        words = [re.sub(r"\$\w+", "4", word) for word in words]
        options = get_args_parser().parse_args(words)
        assert (options.module, options.training_script) == (True, "regard")
        command, name, *rest = options.training_script_args
        settings = [word for word in rest if "=" in word and not word.startswith("-")]
        assert command == "train" and read(name, settings).name == name


def test_the_scripts_are_shell_and_the_manifests_belong_together():
    for script in re.findall(r"```bash\n(.*?)```", PAGE, re.S):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    service, job = manifests()
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
