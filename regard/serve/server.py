"""The server: a socket, the app, and a graceful end."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ..errors import InputError
from ..see.run import Run, load
from .app import make_app
from .connection import connection
from .guard import Hosts
from .limits import ServerLimits
from .served import ServedRun


def serve(
    folders: Sequence[Path],
    host: str,
    port: int,
    api_key: str,
    limits: ServerLimits,
    open_run: Callable[[Path], Run] = load,
    origins: Sequence[str] = (),
    allowed: Sequence[str] = (),
) -> None:
    """Serve runs until asked to stop; what runs then is finished, what is new is refused."""
    names = [folder.resolve().name for folder in folders]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"two runs are called '{twice[0]}'; a run's name is its folder's.")
    bound = bind(host, port)  # before anything is loaded
    hosted = [ServedRun(open_run(folder), limits) for folder in folders]
    app = make_app(hosted, limits, api_key, origins, Hosts(host, allowed))
    print(f"http://{host}:{port}  ({', '.join(map(str, folders))}); Ctrl-C ends", flush=True)
    make_server(app, limits).run(sockets=[bound])


def make_server(app: FastAPI, limits: ServerLimits) -> uvicorn.Server:
    """uvicorn with our limits on connections."""
    allow_files(limits.connections + 64)
    config = uvicorn.Config(
        app,
        http=connection(limits),
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=max(1, round(limits.stopping)),
        server_header=False,
        h11_max_incomplete_event_size=2**16,
    )
    return Server(config, app.state.stopping)


class Server(uvicorn.Server):
    """A server that says that it is stopping from the moment it is asked to."""

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self.stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stopping.set()
        super().handle_exit(sig, frame)


def allow_files(count: int) -> None:
    """As many open files as there may be connections, where the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        if wanted < count:
            raise InputError(
                f"the system allows {wanted} open files, but {count - 64} connections need {count};"
                " lower --max-connections, or raise `ulimit -n`."
            )


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio would not send small answers at once, but wait 40 ms for more.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(1024)
    except (OSError, OverflowError) as error:
        bound.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{host}:{port} cannot be served ({why}); choose another --port."
        ) from error
    return bound
