"""Listeners: they accept connections, have them let in, keep their limits, and say why they end.

Limits: frame size (`socket.request.max.bytes`), connections (`connection_quotas`), requests in
flight and memory (`client_connection`), idle time.  A peer that breaks the protocol loses its own
connection only.  An unexpected exception is logged with the request that met it, and closes that
connection; it is never answered with silence.

However a connection ends, also by the end of its listener, `ClientInfo.on_close` is called once.
"""

from __future__ import annotations

import errno
import logging
from typing import Any

import trio

from kraftrio.base.exception_groups import innermost
from kraftrio.base.statistics import Statistics
from kraftrio.broker.security.principal import ANONYMOUS
from kraftrio.broker.server.admission.admission import Admission, AdmissionRefused
from kraftrio.broker.server.admission.connection_quotas import MOST_HELD
from kraftrio.broker.server.audit import login_refused
from kraftrio.broker.server.client_connection import AcceptedConnection, PeerGone
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.limits import ServerLimits
from kraftrio.broker.server.resources import ServerResources
from kraftrio.net.transport import (
    ListeningSocket,
    Network,
    Socket,
    SystemNetwork,
    peer_host,
)
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.protocol.api import APIS
from kraftrio.wire.protocol.framing import RequestStart
from kraftrio.wire.stored_bytes import StoredBytesGone

_log = logging.getLogger("kraftrio.server")

_SCRATCH_BYTES = 256 * 1024
_ACCEPT_PAUSE_S = 0.1
_PACE_CHECK_S = 1.0  # the pace may change meanwhile
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SYSTEM_NETWORK = SystemNetwork()


def describe_request(request: RequestStart | None, client: ClientInfo) -> str:
    """Name a request and who sent it, for the log."""
    sender = (
        f"client={client.host}:{client.port} software={client.software_name}/"
        f"{client.software_version}"
    )
    if request is None:
        return sender
    api = APIS.get(request.api_key)
    name = "unknown" if api is None else api.name
    return (
        f"api={name} api_key={request.api_key} version={request.api_version}"
        f" correlation_id={request.correlation_id} client_id={request.client_id} {sender}"
    )


class ServerListener:
    """One listening socket and the connections it accepted.

    Args:
        sock: bound by `network`.
        resources: shared with other listeners; None: unlimited, and its own.
        admission: lets peers in before they are served; None: all of them, as they come.
        for_peers: only nodes of the cluster are expected here.
    """

    def __init__(
        self,
        name: str,
        sock: ListeningSocket,
        dispatcher: Dispatcher,
        limits: ServerLimits,
        network: Network = _SYSTEM_NETWORK,
        resources: ServerResources | None = None,
        *,
        admission: Admission | None = None,
        for_peers: bool = False,
    ) -> None:
        self.name = name
        self._admission = admission
        self._resources = ServerResources() if resources is None else resources
        self._quotas = self._resources.connections
        self._quotas.add(self)
        self._for_peers = for_peers
        self._network = network
        self._sock = sock
        self._dispatcher = dispatcher
        self._limits = limits
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._connections: dict[AcceptedConnection, None] = {}  # in the order they came in
        self._entering_count = 0  # connections that are not let in yet
        self._held_count = 0  # those that are not to be served
        self._limits_changed = trio.Event()
        self._accepted_count = 0
        self._refused_count = 0
        # Of connections that have ended.
        self._received_bytes = 0
        self._sent_bytes = 0

    def statistics(self) -> Statistics:
        """Connections, what came and went over them, and the requests of each API."""
        connections = self._connections
        return {
            "connections": self._open_count,
            "connections_accepted_total": self._accepted_count,
            "connections_refused_total": self._refused_count,
            "received_bytes_total": self._received_bytes
            + sum(connection.received_bytes for connection in connections),
            "sent_bytes_total": self._sent_bytes
            + sum(connection.sent_bytes for connection in connections),
            **self._dispatcher.statistics(),
        }

    @property
    def _open_count(self) -> int:
        """How many connections there are, those included that are not let in yet."""
        return len(self._connections) + self._entering_count

    def limit(self, limits: ServerLimits) -> None:
        """Apply other limits from now on; existing connections stay as they are."""
        self._limits = limits

    def limits_changed(self) -> None:
        """There may be room for a connection that waits."""
        self._limits_changed.set()

    def idle_since(self) -> float | None:
        """Since when the connection has been idle that has been so for longest."""
        return min((one.last_active for one in self._connections), default=None)

    def close_longest_idle(self) -> None:
        """Close that connection."""
        longest_idle = min(self._connections, key=lambda one: one.last_active)
        client = longest_idle.client
        _log.warning(
            "connection closed to make room for brokers client=%s:%d listener=%s"
            " reason=max.connections",
            client.host,
            client.port,
            self.name,
        )
        longest_idle.close()

    async def run(self) -> None:
        """Accept and serve until cancelled; then close every connection."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._close_idle_connections)
                await self._accept(nursery)
        finally:
            self._sock.close()

    async def _accept(self, nursery: trio.Nursery) -> None:
        while True:
            await self._wait_for_room()
            await self._network.wait_readable(self._sock)
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                _log.warning("cannot accept a connection listener=%s reason=%s", self.name, error)
                await trio.sleep(_ACCEPT_PAUSE_S)
                continue
            self._take(sock, address, nursery)

    async def _wait_for_room(self) -> None:
        """Wait until one more connection may come, and not too fast."""
        quotas = self._quotas
        while True:
            self._limits_changed = trio.Event()
            limit = quotas.limit_reached(self.name)
            if limit is not None:
                _log.warning(
                    "connection limit reached, others wait listener=%s limit=%d", self.name, limit
                )
                await self._limits_changed.wait()
                continue
            wait_s = quotas.wait_s(self.name, trio.current_time())
            if not wait_s:
                return
            with trio.move_on_after(min(wait_s, _PACE_CHECK_S)):
                await self._limits_changed.wait()

    def _take(self, sock: Socket, address: tuple[str, int], nursery: trio.Nursery) -> None:
        """Give an accepted connection its own task, unless its address has too many."""
        host, port = peer_host(address[0]), address[1]
        quotas, now_s = self._quotas, trio.current_time()
        hold_ms = quotas.hold_ms(host, now_s)
        if hold_ms:
            self._refuse(host, "connection_creation_rate")
            nursery.start_soon(self._hold, sock, hold_ms / 1000)
            return
        if not quotas.may_have_one_more(host):
            self._refuse(host, "max.connections.per.ip")
            sock.close()
            return
        limits = self._limits
        try:
            self._network.tune(
                sock, limits.socket_send_buffer_bytes, limits.socket_receive_buffer_bytes
            )
        except OSError as error:
            _log.debug("connection lost client=%s:%d reason=%s", host, port, error)
            sock.close()
            return
        client = ClientInfo(host, port, self.name, principal=ANONYMOUS, is_peer=self._for_peers)
        self._accepted_count += 1
        quotas.opened(self.name, host, now_s)
        if self._admission is None:
            nursery.start_soon(self._serve, self._connect(sock, client))
        else:
            self._entering_count += 1
            nursery.start_soon(self._admit, self._admission, sock, client)

    def _refuse(self, host: str, reason: str) -> None:
        self._refused_count += 1
        _log.warning("connections refused client=%s reason=%s", host, reason)

    async def _hold(self, sock: Socket, hold_s: float) -> None:
        """Close a connection after a while, without a word; at once if too many are held."""
        self._held_count += 1
        try:
            if self._held_count <= MOST_HELD:
                await trio.sleep(hold_s)
        finally:
            self._held_count -= 1
            sock.close()

    def _connect(self, sock: Socket, client: ClientInfo) -> AcceptedConnection:
        """Make the connection of a peer that is let in."""
        connection = AcceptedConnection(
            self._network,
            sock,
            client,
            self._dispatcher,
            self._limits,
            self._resources,
            self._scratch,
        )
        self._connections[connection] = None
        return connection

    async def _admit(self, admission: Admission, sock: Socket, client: ClientInfo) -> None:
        """Have a peer let in, and serve it; say why one is not."""
        connection: AcceptedConnection | None = None
        try:
            connection = self._connect(await admission.admit(sock, client), client)
        except AdmissionRefused as refusal:
            self._log_refusal(client, refusal)
        except OSError as error:
            _log.debug("connection lost client=%s:%d reason=%s", client.host, client.port, error)
        except Exception:
            _log.exception("admission failed, connection closed client=%s", client.host)
        finally:
            self._entering_count -= 1
            if connection is None:
                client.closed()
                self._forget(client)
        if connection is not None:
            await self._serve(connection)

    def _log_refusal(self, client: ClientInfo, refusal: AdmissionRefused) -> None:
        if refusal.mechanism is not None:
            login_refused(client.host, self.name, refusal.mechanism, str(refusal))
            return
        _log.info(
            "connection refused client=%s listener=%s reason=%s", client.host, self.name, refusal
        )

    async def _serve(self, connection: AcceptedConnection) -> None:
        client = connection.client
        try:
            await connection.serve()
        except* RemoteProtocolError as group:
            _log.info(
                "connection closed client=%s:%d software=%s/%s reason=%s",
                client.host,
                client.port,
                client.software_name,
                client.software_version,
                innermost(group),
            )
        except* (PeerGone, StoredBytesGone, trio.ClosedResourceError) as group:
            _log.debug(
                "connection lost client=%s:%d reason=%s", client.host, client.port, innermost(group)
            )
        except* Exception as group:
            _log.error(
                "request failed, connection closed %s",
                describe_request(connection.current, client),
                exc_info=innermost(group),
            )
        finally:
            del self._connections[connection]
            self._received_bytes += connection.received_bytes
            self._sent_bytes += connection.sent_bytes
            self._forget(client)

    def _forget(self, client: ClientInfo) -> None:
        """Count a connection no longer."""
        self._quotas.closed(self.name, client.host)

    async def _close_idle_connections(self) -> None:
        idle_s = self._limits.connections_max_idle_ms / 1000
        if idle_s <= 0:
            return
        while True:
            await trio.sleep(min(max(idle_s / 4, 0.05), 30))
            horizon = trio.current_time() - idle_s
            for connection in list(self._connections):
                if connection.last_active < horizon and connection.is_idle:
                    connection.close()


def bind(host: str, port: int) -> Any:
    """Open a listening socket of the operating system's (see `SystemNetwork.bind`)."""
    return _SYSTEM_NETWORK.bind(host, port)
