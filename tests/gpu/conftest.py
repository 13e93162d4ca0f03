"""What only a GPU can show; `make test-gpu` runs it, and without a GPU it is skipped.

Everything runs twice: as it is, and in memory that holds NaN until it is written.
"""

import os

import pytest
import torch

from tests.filled import filled_memory

# Without it, cuBLAS refuses to be deterministic, which is what fills fresh memory.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu" not in item.nodeid:
            continue
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no GPU here"))


@pytest.fixture(autouse=True, params=["plain", "filled"])
def memory(request):
    torch.backends.cuda.matmul.allow_tf32 = False
    if request.param == "plain":
        yield
        return
    with filled_memory(warn_only=True):  # some kernels have no deterministic form
        yield


@pytest.fixture
def gpu():
    return torch.device("cuda")
