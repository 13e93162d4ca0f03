"""Fresh memory filled with NaN, so that whatever is read before it is written shows."""

from contextlib import contextmanager

import torch


@contextmanager
def filled_memory():
    """torch fills what it allocates without a value where deterministic algorithms are wanted."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3).isnan().all()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
