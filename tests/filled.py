"""Fresh memory filled with NaN, so that whatever is read before it is written shows."""

import warnings
from contextlib import contextmanager

import torch


@contextmanager
def filled_memory(warn_only=False):
    """torch fills what it allocates without a value where deterministic algorithms are wanted."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3).isnan().all()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before)
