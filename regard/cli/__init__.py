"""The shell: thin commands, one file for each kind of work.

What needs torch is imported inside them, so that --help is instant.
"""

# In this order --help tells of them.
# isort: off
from .app import app, main
from . import learn, answer, chat, prompt, look, exchange
# isort: on

__all__ = ["answer", "app", "chat", "exchange", "learn", "look", "main", "prompt"]
