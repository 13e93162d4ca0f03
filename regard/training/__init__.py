"""Training: the loop, its parts, and the run folder."""
