"""Long talk with a few opinions in it, made by `__main__.py`."""
