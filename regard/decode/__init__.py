"""From scores to sequences, over two calls alone: `start(batch)` and `step(last, state)`.

Tokens are chosen in one place (`policy`), beams grown in one (`beam`). A batch is written to its
end (`walk`, `beam`), a text as it comes, behind a draft or not (`stream`), and many requests side
by side (`engine`).
"""

from .beam import beam
from .graph import with_cuda_graphs
from .settings import DRAWING, Hypothesis, Limits, Settings
from .stream import stream
from .walk import walk

DECODERS = {"beam": beam, "greedy": walk, "sample": walk}

__all__ = ["DECODERS", "DRAWING", "Hypothesis", "Limits", "Settings", "stream", "with_cuda_graphs"]
