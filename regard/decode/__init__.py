"""From scores to sequences, over two calls alone: `start(batch)` and `step(last, state)`.

One loop (`write`): a stepper scores what may come next (`stepper`), a policy says what does
(`policy`, `beam`). A batch is written to its end, one text as it comes, behind a draft or not, and
many requests side by side (`engine`), all by the same policies.
"""

from .graph import with_cuda_graphs
from .settings import DRAWING, Hypothesis, Limits, Settings
from .write import POLICIES, follow, stream, write

__all__ = [
    "DRAWING",
    "POLICIES",
    "Hypothesis",
    "Limits",
    "Settings",
    "follow",
    "stream",
    "with_cuda_graphs",
    "write",
]
