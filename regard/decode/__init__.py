"""From scores to sequences, over two calls alone: `start(batch)` and `step(last, state)`."""

from .beam import beam
from .graph import with_cuda_graphs
from .greedy import greedy
from .sample import sample
from .settings import DRAWING, Hypothesis, Limits, Settings
from .stream import stream

DECODERS = {"beam": beam, "greedy": greedy, "sample": sample}

__all__ = ["DECODERS", "DRAWING", "Hypothesis", "Limits", "Settings", "stream", "with_cuda_graphs"]
