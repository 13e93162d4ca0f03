"""Nested lists of numbers with what is to be worked out of them, made by `__main__.py`."""
