"""Listeners and connections: the only place where the broker touches client sockets.

Per connection one reader task and one writer task share a `ServerConnection`:

- The reader receives what is there, handles every whole request of it synchronously, and sends
  all responses that are ready with one call.  It waits only when the kernel has nothing more.
- The writer sleeps until a parked request (long poll, acks=all, a group join) gets its response
  or until a send was partial; then it sends what is ready, in request order.

Raw non-blocking sockets (the port `clients/transport.Network` makes and waits for them), no Trio
stream, no object per request but its slot: several times the requests per second of a stream with
one send per response.

Limits: frame size (`socket.request.max.bytes`), connections in all and by address, requests in
flight and unsent response bytes of a connection, idle time.  A peer that breaks the protocol
loses its own connection only.  An exception that we did not foresee is logged with the request
that met it and closes that connection; it is never answered with silence.

However a connection ends, also by the end of its listener, `ClientInfo.on_close` is called once.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from kraftrio.broker.context import ClientInfo
from kraftrio.broker.dispatch import Dispatcher
from kraftrio.clients.send_queue import SendQueue
from kraftrio.clients.transport import (
    ListeningSocket,
    Network,
    Socket,
    SystemNetwork,
    peer_host,
)
from kraftrio.kraft_meta.deferred import Deferred
from kraftrio.wire.api import APIS
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.framing import RequestStart, ResponseSlot, ServerConnection
from kraftrio.wire.primitives import Buffer

_log = logging.getLogger("kraftrio.server")

_SCRATCH_BYTES = 256 * 1024
_UNSENT_LIMIT_BYTES = 4 * 1024 * 1024  # a reader pauses while this much waits for its peer
_ACCEPT_PAUSE_S = 0.1
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SYSTEM_NETWORK = SystemNetwork()


class PeerGone(Exception):
    """The socket failed: the peer reset the connection, or cannot be reached any more."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one listener grants its clients (Kafka's names; 0 or less of a buffer size means the
    system's).
    """

    socket_request_max_bytes: int
    max_connections: int
    max_connections_per_ip: int
    connections_max_idle_ms: int
    max_in_flight_requests: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)

    def connections_of(self, host: str) -> int:
        """How many connections one address may have."""
        return self.max_connections_per_ip_overrides.get(host, self.max_connections_per_ip)


class Connection:
    """One client's socket with its reader and writer."""

    __slots__ = (
        "_closed",
        "_dispatcher",
        "_limits",
        "_network",
        "_protocol",
        "_room",
        "_sending",
        "_sock",
        "_unsent",
        "_wake_writer",
        "client",
        "current",
        "last_active",
    )

    def __init__(
        self,
        network: Network,
        sock: Socket,
        client: ClientInfo,
        dispatcher: Dispatcher,
        limits: ServerLimits,
        scratch: bytearray,
    ) -> None:
        self._network = network
        self._sock = sock
        self._dispatcher = dispatcher
        self._limits = limits
        self._protocol = ServerConnection(limits.socket_request_max_bytes, scratch)
        self._unsent = SendQueue(sock)
        self._sending = False  # the writer owns the socket's sending side
        self._wake_writer = trio.Event()
        self._room = trio.Event()
        self._closed = False
        self.client = client
        self.current: RequestStart | None = None  # being served or encoded; names a failure
        self.last_active = trio.current_time()

    async def serve(self) -> None:
        """Serve requests until the peer closes, breaks the protocol, or we are cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_parked_responses)
                await self._read_requests()
                nursery.cancel_scope.cancel()
        finally:
            self._closed = True
            self._unsent.clear()
            self._sock.close()
            self.client.closed()

    def close(self) -> None:
        """Make both tasks end soon (used for idle connections)."""
        if not self._closed:
            self._closed = True
            self._network.notify_closing(self._sock)
            self._wake_writer.set()
            self._room.set()

    @property
    def is_idle(self) -> bool:
        """True when no request of this connection is being served and nothing waits to be sent."""
        return not self._protocol.slots_in_flight and not self._unsent.size_bytes

    # -- reader ---------------------------------------------------------------------------------

    async def _read_requests(self) -> None:
        sock, protocol = self._sock, self._protocol
        while not self._closed:
            await trio.lowlevel.checkpoint()
            buffers = protocol.receive_buffers()
            try:
                count = sock.recvmsg_into(buffers)[0]
            except BlockingIOError:
                await self._network.wait_readable(sock)
                continue
            except OSError as error:
                raise PeerGone(str(error)) from error
            if count == 0:
                return
            self.last_active = trio.current_time()
            for frame in protocol.bytes_received(count, buffers):
                self._serve_request(frame)
                if self._must_pause():
                    self._send_ready()
                    await self._wait_for_room()
            self._send_ready()

    def _serve_request(self, frame: memoryview) -> None:
        start = self._dispatcher.start(frame)
        self.current = start
        answer = self._dispatcher.handle(frame, start, self.client)
        if answer is None:
            return
        slot = self._protocol.open_slot(start)
        if isinstance(answer, Deferred):
            answer.then(lambda encode: self._fill(slot, encode))
        else:
            slot.encode = answer

    def _fill(self, slot: ResponseSlot, encode: Callable[[], list[Buffer]]) -> None:
        slot.encode = encode
        self._wake_writer.set()

    def _must_pause(self) -> bool:
        return (
            self._protocol.slots_in_flight >= self._limits.max_in_flight_requests
            or self._unsent.size_bytes >= _UNSENT_LIMIT_BYTES
        )

    async def _wait_for_room(self) -> None:
        while self._must_pause() and not self._closed:
            self._room = trio.Event()
            await self._room.wait()

    # -- writer ---------------------------------------------------------------------------------

    def _encode_ready(self) -> None:
        while self._unsent.size_bytes < _UNSENT_LIMIT_BYTES:
            slot = self._protocol.take_ready()
            if slot is None:
                return
            assert slot.encode is not None
            self.current = slot.request
            self._unsent.append(slot.encode())

    def _send_ready(self) -> None:
        """Send what is ready without waiting; what the kernel does not take is the writer's."""
        if self._sending:
            self._wake_writer.set()
            return
        self._encode_ready()
        while self._unsent.size_bytes:
            if not self._push():
                self._sending = True
                self._wake_writer.set()
                return
            self._encode_ready()

    def _push(self) -> bool:
        """Push unsent bytes into the socket; True when all went out."""
        try:
            return self._unsent.push()
        except OSError as error:
            raise PeerGone(str(error)) from error

    async def _write_parked_responses(self) -> None:
        while not self._closed:
            await self._wake_writer.wait()
            self._wake_writer = trio.Event()
            self._sending = True
            self._encode_ready()
            while self._unsent.size_bytes and not self._closed:
                if self._push():
                    self._encode_ready()
                else:
                    await self._network.wait_writable(self._sock)
            self._sending = False
            self.last_active = trio.current_time()
            if not self._must_pause():
                self._room.set()


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


class Listener:
    """One listening socket and the connections it accepted.

    Args:
        sock: bound by `network`.
    """

    def __init__(
        self,
        name: str,
        sock: ListeningSocket,
        dispatcher: Dispatcher,
        limits: ServerLimits,
        network: Network = _SYSTEM_NETWORK,
    ) -> None:
        self.name = name
        self._network = network
        self._sock = sock
        self._dispatcher = dispatcher
        self._limits = limits
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._connections: dict[Connection, None] = {}  # in the order of their coming
        self._per_ip: Counter[str] = Counter()
        self._below_limit = trio.Event()

    def limit(self, limits: ServerLimits) -> None:
        """Grant something else from now on; connections that are there stay as they are."""
        self._limits = limits
        self._below_limit.set()

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
            while len(self._connections) >= self._limits.max_connections:
                _log.warning(
                    "connection limit reached, others wait listener=%s limit=%d",
                    self.name,
                    self._limits.max_connections,
                )
                self._below_limit = trio.Event()
                await self._below_limit.wait()
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
            self._admit(sock, address, nursery)

    def _admit(self, sock: Socket, address: tuple[str, int], nursery: trio.Nursery) -> None:
        host, port = peer_host(address[0]), address[1]
        if self._per_ip[host] >= self._limits.connections_of(host):
            _log.warning("connections refused client=%s reason=max.connections.per.ip", host)
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
        client = ClientInfo(host=host, port=port, listener_name=self.name)
        connection = Connection(
            self._network, sock, client, self._dispatcher, limits, self._scratch
        )
        self._connections[connection] = None
        self._per_ip[host] += 1
        nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
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
        except* (PeerGone, trio.ClosedResourceError) as group:
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
            self._per_ip[client.host] -= 1
            if not self._per_ip[client.host]:
                del self._per_ip[client.host]
            self._below_limit.set()

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


def innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first plain exception of a group: what really happened."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def bind(host: str, port: int) -> Any:
    """Open a listening socket of the operating system's (see `SystemNetwork.bind`)."""
    return _SYSTEM_NETWORK.bind(host, port)
