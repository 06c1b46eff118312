"""Serves a console over HTTP/1.1, on a socket that was opened before.

Owns `prepare`, `listen`, `url_of` and `serve`. `hypercorn` speaks HTTP; it gets the socket by its
number.

Called by: the command, and the node's command.
"""

from __future__ import annotations

import logging
import socket
from typing import Final, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_http
from hypercorn.typing import ASGIFramework

from kraftrio.clients.console.app import make_app
from kraftrio.clients.console.console import open_console
from kraftrio.clients.console.rendering import make_environment
from kraftrio.clients.console.settings import ConsoleSettings

_BACKLOG: Final = 64
_KEEP_ALIVE_S: Final = 30
_GRACE_S: Final = 1.0
_MAX_HEAD_BYTES: Final = 32 << 10

_faults = logging.getLogger("kraftrio.console.faults")
_faults.setLevel(logging.ERROR)  # what is below are greetings


def prepare() -> None:
    """Do once what takes long, before an event loop would have to wait for it."""
    make_environment()


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of a console; port 0 picks a free one.

    Raises:
        OSError: it cannot be opened.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def url_of(host: str, sock: socket.socket) -> str:
    """Return the address that a browser on this machine opens."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{sock.getsockname()[1]}/"


async def serve(settings: ConsoleSettings, sock: socket.socket) -> None:
    """Serve a console until cancelled; the socket is then closed.

    Raises:
        ConfigError: a setting of its clients is wrong.
    """
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]
    config.accesslog = None
    config.errorlog = _faults
    config.include_server_header = False
    config.keep_alive_timeout = _KEEP_ALIVE_S
    config.graceful_timeout = _GRACE_S
    config.h11_max_incomplete_size = _MAX_HEAD_BYTES
    config.alpn_protocols = ["http/1.1"]
    async with open_console(settings) as console:
        app = cast("ASGIFramework", make_app(console))  # two libraries, two names of one type
        await serve_http(app, config, shutdown_trigger=trio.sleep_forever)
