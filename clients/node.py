"""The way to one broker: connects on demand, agrees on versions, backs off, closes when idle.

Owns the connection to one address. Rules:
1. There is at most one connection and one attempt at a time. After a failure the next attempt
   waits reconnect_backoff_ms, twice as long each time up to reconnect_backoff_max_ms, with 20%
   jitter; the time to set up a connection grows in the same way, up to its own maximum.
2. A connection is ready once versions are agreed on (ApiVersions); no request uses it before.
3. A broker that asks to be left alone for a while (throttle_time_ms, KIP-219) is not ready for
   that time.
4. `on_change` is called, synchronously, when the node becomes ready and when it is lost.

Called by: `cluster`, in whose nursery the connection's tasks run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from kraftrio import __version__
from kraftrio.base.background import run_aside
from kraftrio.base.backoff import ExponentialBackoff
from kraftrio.clients.config import ClientConfig
from kraftrio.clients.errors import (
    ClosedError,
    InvalidValueError,
    KafkaClientError,
    NetworkError,
    SaslAuthenticationError,
    SslAuthenticationError,
    TimedOutError,
    UnsupportedVersionError,
    error_for,
    renewed,
)
from kraftrio.clients.versions import NodeVersions, our_range
from kraftrio.net.connection import (
    AuthenticationFailed,
    Connection,
    ConnectionLost,
    HandshakeFailed,
    Reply,
    RequestTimedOut,
)
from kraftrio.net.link import Address, Link, LinkSettings
from kraftrio.net.transport import Network
from kraftrio.wire.codec.message import spec_of
from kraftrio.wire.errors import ErrorCode, LocalProtocolError, MissingFieldError
from kraftrio.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from kraftrio.wire.protocol.api import APIS, ApiKey

SOFTWARE_NAME = "kraftrio-python"

# A consumer works on one Fetch response, has the next, and receives a third.
_SPARE_FRAMES = 3


class BrokerNode:
    """One broker's address and the connection to it, when there is one.

    Args:
        on_change: called when it becomes ready or is lost.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        config: ClientConfig,
        network: Network,
        nursery: trio.Nursery,
        rng: random.Random,
        on_change: Callable[[BrokerNode], None],
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.failure: KafkaClientError | None = None  # why the last attempt failed
        self._config = config
        self._nursery = nursery
        self._on_change = on_change
        self._link = Link(
            network, self._address, _link_settings(config), prepare=self._agree, rng=rng
        )
        self._versions = NodeVersions()
        self._attempt: trio.Event | None = None
        self._muted_until = 0.0
        self._chosen: dict[tuple[int, int, int | None], int] = {}
        self._used_at = -math.inf
        self._unreachable_since: float | None = None  # the first attempt in a row that failed

    def __repr__(self) -> str:
        return f"<Node {self.node_id} at {self.host}:{self.port}>"

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent now, or as soon as the broker's throttle is over."""
        return self._link.connection is not None

    @property
    def is_ready(self) -> bool:
        """Whether requests should be sent now."""
        if self._link.connection is None:
            return False
        return not self._muted_until or self._muted_until <= trio.current_time()

    @property
    def unreachable_s(self) -> float:
        """For how long no connection could be made; 0 if the last attempt has made one."""
        since = self._unreachable_since
        return 0.0 if since is None else trio.current_time() - since

    @property
    def is_connecting(self) -> bool:
        return self._attempt is not None

    @property
    def ready_at(self) -> float:
        """When it makes sense to use it, or to connect: Trio's time."""
        return self._muted_until if self.is_connected else self._link.retry_at

    @property
    def requests_in_flight(self) -> int:
        connection = self._link.connection
        return 0 if connection is None else connection.requests_in_flight

    @property
    def unsent_bytes(self) -> int:
        """How much the broker has not taken yet."""
        connection = self._link.connection
        return 0 if connection is None else connection.unsent_bytes

    @property
    def versions(self) -> NodeVersions:
        """What the broker serves; nothing before it was connected for the first time."""
        return self._versions

    # -- requests -------------------------------------------------------------------------------

    def send(
        self,
        request: Any,
        timeout_s: float,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        at_once: bool = False,
    ) -> Reply:
        """Send a request in the newest version both sides know; the node is connected.

        Args:
            at_once: see `Connection.send`; the caller then calls `throttle` itself.

        The reply's `value` raises what `connection` raises; `client_error` translates it.

        Raises:
            NetworkError: the connection is gone.
            UnsupportedVersionError: no common version, or the request needs a newer one.
            InvalidValueError: the request holds what cannot be sent.
        """
        connection, version = self._route(request, min_version, max_version)
        try:
            reply = connection.send(request, version, timeout_s, at_once=at_once)
        except ConnectionLost as error:
            raise self.client_error(error) from None
        except LocalProtocolError as error:
            raise _refusal(error) from error
        if not at_once:
            reply.then(self._note_throttle)
        return reply

    def send_oneway(
        self,
        request: Any,
        when_sent: Callable[[KafkaClientError | None], object],
        *,
        max_version: int | None = None,
    ) -> None:
        """Send a request that is not answered: a Produce with acks=0.

        Args:
            when_sent: called with None once the system has taken it, with an error if the
                connection ended before; if it ends later, it is unknown what the broker got.

        Raises:
            NetworkError, UnsupportedVersionError: as `send`.
        """
        connection, version = self._route(request, 0, max_version)

        def on_sent(lost: ConnectionLost | None) -> None:
            when_sent(None if lost is None else self.client_error(lost))

        try:
            connection.send_oneway(request, version, on_sent, at_once=True)
        except ConnectionLost as error:
            raise self.client_error(error) from None
        except LocalProtocolError as error:
            raise _refusal(error) from error

    async def request(
        self,
        request: Any,
        timeout_s: float,
        *,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> Any:
        """Connect if need be, send and wait for the response.

        Raises:
            NetworkError, TimedOutError: it did not come.
            AuthenticationError: as `connect`.
            UnsupportedVersionError: as `send`.
        """
        deadline = trio.current_time() + timeout_s
        with trio.move_on_at(deadline) as scope:
            await self.connect()
            if self._muted_until > trio.current_time():
                await trio.sleep_until(self._muted_until)
        if scope.cancelled_caught:
            raise TimedOutError(f"cannot connect to {self.host}:{self.port} in time")
        left_s = max(deadline - trio.current_time(), 0.001)
        reply = self.send(request, left_s, min_version=min_version, max_version=max_version)
        try:
            return await reply.wait()
        except ConnectionLost as error:
            raise self.client_error(error) from None

    def client_error(self, error: ConnectionLost) -> KafkaClientError:
        """Return the clients' error for a connection's."""
        if isinstance(error, RequestTimedOut):
            return TimedOutError(f"{self.host}:{self.port} did not answer in time")
        return _error_class(type(error))(f"{self.host}:{self.port}: {error.reason}")

    def _route(
        self, request: Any, min_version: int, max_version: int | None
    ) -> tuple[Connection, int]:
        connection = self._link.connection
        if connection is None:
            raise NetworkError(f"{self.host}:{self.port}: not connected")
        key = spec_of(type(request)).api_key
        assert key is not None, f"{type(request).__name__} is not a request"
        self._used_at = trio.current_time()
        wanted = (key, min_version, max_version)
        version = self._chosen.get(wanted)
        if version is None:
            version = self._chosen[wanted] = self._versions.choose(
                key, min_version=min_version, max_version=max_version
            )
        return connection, version

    def _note_throttle(self, reply: Reply) -> None:
        if not reply.failed:
            self.throttle(getattr(reply.value(), "throttle_time_ms", 0))

    def throttle(self, throttle_time_ms: int) -> None:
        """Take note of what a response says: that long the broker wants to be left alone."""
        if throttle_time_ms > 0:
            self._muted_until = trio.current_time() + throttle_time_ms / 1000

    # -- connecting -----------------------------------------------------------------------------

    def start_connecting(self) -> bool:
        """Begin to connect unless it is connected, at it, or backing off; True: it is at it."""
        if self.is_connected:
            return False
        if self._attempt is None:
            if trio.current_time() < self._link.retry_at:
                return False
            self._attempt = trio.Event()
            self._nursery.start_soon(run_aside, self._run, self._attempt)
        return True

    async def connect(self) -> None:
        """Wait until it is connected; makes at most one attempt, after the backoff.

        Raises:
            ClosedError: the client was closed meanwhile.
            NetworkError: the attempt failed.
            SslAuthenticationError, SaslAuthenticationError: one side does not accept the other.
            UnsupportedVersionError: the broker answered, but cannot be talked to.
        """
        while not self.is_connected:
            if self._nursery.cancel_scope.cancel_called:
                raise ClosedError(f"{self.host}:{self.port}: the client is being closed")
            if not self.start_connecting():
                await trio.sleep_until(self._link.retry_at)
                continue
            attempt = self._attempt
            assert attempt is not None
            await attempt.wait()
            if not self.is_connected:
                # Without a failure it was connected, and lost before this task could run.
                raise renewed(self.failure or self._lost(self._link.loss))

    def _lost(
        self, reason: str | None, kind: type[ConnectionLost] = ConnectionLost
    ) -> KafkaClientError:
        return _error_class(kind)(f"{self.host}:{self.port}: {reason or 'the connection was lost'}")

    def close(self) -> None:
        """Close the connection, if there is one; it may be opened again."""
        connection = self._link.connection
        if connection is not None:
            connection.close()

    def _address(self) -> Address:
        return self.host, self.port  # metadata may name another one

    async def _run(self, attempt: trio.Event) -> None:
        """Connect, and stay while the connection lives and is used."""
        began_at = trio.current_time()
        try:
            loss = await self._link.attempt(partial(self._stay, attempt))
            if loss is None:
                self.failure = self._lost(None)
            elif loss.was_ready:
                self.failure = self._lost(loss.reason, loss.kind)
            else:
                self._not_reached(_error_class(loss.kind)(loss.reason), began_at)
        except KafkaClientError as error:
            self._not_reached(error, began_at)
        except trio.Cancelled:
            self.failure = ClosedError(f"{self.host}:{self.port}: the client is being closed")
            raise
        finally:
            self._end_attempt(attempt)

    def _not_reached(self, failure: KafkaClientError, began_at: float) -> None:
        self.failure = failure
        if self._unreachable_since is None:
            self._unreachable_since = began_at

    def _end_attempt(self, attempt: trio.Event) -> None:
        if self._attempt is attempt:
            self._attempt = None
        attempt.set()
        self._on_change(self)

    async def _stay(self, attempt: trio.Event, connection: Connection) -> None:
        """Wait until the connection ends, or has not been used for connections_max_idle_ms."""
        self._link.succeeded()
        self._unreachable_since = None
        self._used_at = trio.current_time()
        self.failure = None
        self._end_attempt(attempt)
        idle_s = self._config.connections_max_idle_ms / 1000
        while not connection.is_closed:
            with trio.move_on_at(self._used_at + idle_s):
                await connection.wait_closed()
                return
            if connection.requests_in_flight:
                self._used_at = trio.current_time()
            elif self._used_at + idle_s <= trio.current_time():
                return

    async def _agree(self, connection: Connection) -> None:
        """Ask which versions the broker serves."""
        timeout_s = self._config.request_timeout_ms / 1000
        _, version = our_range(APIS[ApiKey.API_VERSIONS])
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        response: ApiVersionsResponse = await connection.call(request, version, timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = NodeVersions.of(response).ranges.get(ApiKey.API_VERSIONS, (0, 0))
            version = max(min(version, theirs[1]), 0)
            response = await connection.call(request, version, timeout_s)
        if response.error_code != ErrorCode.NONE:
            raise error_for(
                response.error_code,
                f"{self.host}:{self.port} does not say which versions it serves:"
                f" {error_for(response.error_code)}",
            )
        self._versions = NodeVersions.of(response)
        self._chosen.clear()


def _error_class(kind: type[ConnectionLost]) -> type[KafkaClientError]:
    """As what the clients raise the loss of a connection."""
    if issubclass(kind, HandshakeFailed):
        return SslAuthenticationError
    return SaslAuthenticationError if issubclass(kind, AuthenticationFailed) else NetworkError


def _link_settings(config: ClientConfig) -> LinkSettings:
    return LinkSettings(
        client_id=config.client_id,
        connect_timeout=ExponentialBackoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
        ),
        backoff=ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
        spare_frames=_SPARE_FRAMES,
    )


def _refusal(error: LocalProtocolError) -> KafkaClientError:
    """Return the clients' error for a request that cannot be encoded."""
    if isinstance(error, MissingFieldError):
        return UnsupportedVersionError(str(error))
    return InvalidValueError(f"this cannot be sent: {error}")
