"""Opens the sockets that a node listens on, as its configuration names them.

Rules:
1. A listener without a host takes every address of the machine, of IPv4 and IPv6; so does `[::]`,
   unless a listener for IPv4 has the same port (KIP-797).
2. A socket that cannot be opened is reported in one sentence that names the address.

Called by: `node`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kraftrio.base.start_errors import StartError
from kraftrio.broker.config.attributes import ListenerAddress, address_text, ip_version
from kraftrio.broker.config.config import BrokerConfig
from kraftrio.net.transport import ACCEPT_BACKLOG, ListeningSocket, Network

BoundListener = tuple[ListenerAddress, Any]
"""A listener of the configuration with its bound socket."""


def bind_listeners(config: BrokerConfig, network: Network, bound: list[BoundListener]) -> None:
    """Open the socket of every listener.

    Args:
        bound: gets them one by one, so that the caller can close those that were opened.

    Raises:
        StartError: one cannot be opened.
    """
    backlog = ACCEPT_BACKLOG
    if config.is_set("socket.listen.backlog.size"):
        backlog = config.socket_listen_backlog_size
    for listener in config.listeners:
        host, port = listener.host, listener.port
        with _reported(host, port):
            sock = network.bind(
                host, port, backlog=backlog, ipv6_only=_is_shared(listener, config.listeners)
            )
        bound.append((listener, sock))


def bind_address(network: Network, host: str, port: int) -> ListeningSocket:
    """Open a socket for something else than the protocol (StartError if it cannot be opened)."""
    with _reported(host, port):
        sock: ListeningSocket = network.bind(host, port)
    return sock


@contextmanager
def _reported(host: str, port: int) -> Iterator[None]:
    """Rule 2."""
    try:
        yield
    except OSError as error:
        raise StartError(
            f"cannot listen on {address_text(host or '*', port)}: {error.strerror or error}"
        ) from error


def _is_shared(listener: ListenerAddress, listeners: Sequence[ListenerAddress]) -> bool:
    """Whether an IPv6 listener leaves the IPv4 addresses of its port to another one."""
    return ip_version(listener.host) == 6 and any(
        other.port == listener.port and ip_version(other.host) == 4 for other in listeners
    )
