"""A process that has imported everything, and answers each `regard …` by a copy of itself.

What is typed takes milliseconds to begin where it would take seconds; nothing else is different.
"""

import importlib
import json
import os
import signal
import socket
import sys

# What a copy is asked by: its words, folder and environment; its three streams go along.
ASK = """
import json, os, socket, sys
asked = {"words": sys.argv[2:], "folder": os.getcwd(), "env": dict(os.environ)}
with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    socket.send_fds(link, [json.dumps(asked).encode()], [0, 1, 2])
    sys.exit((link.recv(1) or b"\\1")[0])
"""


def answer(link: socket.socket) -> int:
    """One command, in this process."""
    message, streams, _, _ = socket.recv_fds(link, 2**20, 3)
    asked = json.loads(message)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    opened = [os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")]
    sys.stdin, sys.stdout, sys.stderr = opened
    sys.argv = asked["words"]
    try:
        cli.main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 1


if __name__ == "__main__":
    # What training and answering need when they first need it, too.
    for name in ("codecarbon", "matplotlib.figure", "rich.progress", "torch._dynamo"):
        importlib.import_module(name)
    import torch

    import regard.see.run
    import regard.terminal  # noqa: F401
    from regard import cli

    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(sys.argv[1])
        door.listen()
        while True:
            link, _ = door.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                status = answer(link)
                link.send(bytes([status]))
                os._exit(status)
            link.close()
