"""Facts hidden in long texts, of which one is asked for, made by `__main__.py`."""
