"""From scores to sequences, over two calls alone: `start(batch)` and `step(last, state)`."""

from .beam import beam
from .graph import quickest
from .greedy import greedy
from .sample import sample
from .settings import DRAWING, Hypothesis, Limits, Settings
from .stream import stream

DECODERS = {"beam": beam, "greedy": greedy, "sample": sample}

__all__ = ["DECODERS", "DRAWING", "Hypothesis", "Limits", "Settings", "quickest", "stream"]
