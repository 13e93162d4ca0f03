"""Looking inside: what attends to what, as pictures and as a page."""
