"""A listener on loopback on which clients log in, with a clock that a test sets."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from kraftrio.base.clock import Clock
from kraftrio.base.threads import run_in_worker_thread
from kraftrio.broker.api.sasl import SaslHandlers
from kraftrio.broker.security.sasl.scram import TokenCredential
from kraftrio.broker.security.sasl.settings import ListenerSasl, LoginPorts, listener_sasl
from kraftrio.broker.server.admission.sasl_admission import SaslAdmission
from kraftrio.broker.server.context import RequestContext
from kraftrio.broker.server.dispatch import Dispatcher
from kraftrio.broker.server.resources import ServerResources
from kraftrio.broker.server.server import ServerListener
from kraftrio.net.connection import Connection, open_connection
from kraftrio.net.sasl.credentials import client_credentials
from kraftrio.net.sasl.login import SaslLogin
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.sasl.scram_keys import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from tests.support.server_limits import LIMITS

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret" user_bob="b";',
    "connection.failed.authentication.delay.ms": "0",
}


class SetClock(Clock):
    """The real times, and what a test adds to them."""

    added_ms = 0.0

    def wall_ms(self) -> int:
        return super().wall_ms() + int(self.added_ms)

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.added_ms


class Users:
    """alice's password is `secret`, in any mechanism of SCRAM; a token of carol's has no end."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        if user != "alice":
            return None
        salted = salted_password(mechanism, "secret", b"salt", 4096)
        return credential_of(mechanism, salted, b"salt", 4096)

    def token(
        self, mechanism: ScramMechanism, token_id: str, now_ms: int
    ) -> TokenCredential | None:
        if token_id != "token-id":
            return None
        salted = salted_password(mechanism, "hmac", b"salt", 4096)
        return TokenCredential("carol", credential_of(mechanism, salted, b"salt", 4096), 1e15)


def sasl_of(**settings: str) -> ListenerSasl:
    """What a listener needs that has the settings above, and these (_ for Kafka's dots)."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    return listener_sasl("L", SETTINGS | named, LoginPorts(Users(), lambda: "server-nonce"))


class DueTimers:
    """Schedules nothing by itself."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        self.calls.append((delay_ms, callback))


class SaslServer:
    """The listener; Metadata is answered with who asks."""

    def __init__(self, sasl: ListenerSasl) -> None:
        self.clock = SetClock()
        self.timers = DueTimers()
        self.port = 0
        self.raw_streams: list[trio.SocketStream] = []
        self.dispatcher = Dispatcher(
            {
                ApiKey.METADATA: self._metadata,
                ApiKey.API_VERSIONS: self._api_versions,
                **SaslHandlers(self.timers).table(),
            }
        )
        self.admission = SaslAdmission(SystemNetwork(), sasl, self.dispatcher, self.clock)

    def _metadata(self, _request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        return MetadataResponse(cluster_id=str(context.principal))

    def _api_versions(
        self, _request: ApiVersionsRequest, _context: RequestContext
    ) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[ApiVersion(api_key=36, min_version=0, max_version=2)])

    @asynccontextmanager
    async def connection(
        self, mechanism: str, user: str, password: str, **settings: str
    ) -> AsyncIterator[Connection]:
        """A connection of a client that logs in."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        text = f'{module} required username="{user}" password="{password}";'
        async with self.connection_by(mechanism, settings.pop("jaas", text), **settings) as made:
            yield made

    @asynccontextmanager
    async def connection_by(
        self, mechanism: str, jaas: str, **settings: str
    ) -> AsyncIterator[Connection]:
        """As `connection`, by a whole JAAS text."""
        rng = random.Random(1)
        given = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas} | settings
        credentials = client_credentials(given, rng, self.clock.wall_ms)
        login = SaslLogin(credentials, run_in_worker_thread, rng, "client")
        network = SecuredNetwork(SystemNetwork(), login=login)
        async with open_connection(
            network, "127.0.0.1", self.port, client_id="client", connect_timeout_s=10
        ) as made:
            yield made

    async def raw(self) -> trio.SocketStream:
        """A connection without anything on it."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.raw_streams.append(stream)
        return stream


async def who_am_i(connection: Connection) -> str:
    """Ask the server who this is."""
    answer: MetadataResponse = await connection.call(MetadataRequest(), 9, 10)
    return str(answer.cluster_id)


@asynccontextmanager
async def sasl_server(**settings: str) -> AsyncIterator[SaslServer]:
    """Serve while the body runs."""
    server = SaslServer(sasl_of(**settings))
    network = SystemNetwork()
    sock = network.bind("127.0.0.1", 0)
    server.port = sock.getsockname()[1]
    listener = ServerListener(
        "L",
        sock,
        server.dispatcher,
        LIMITS,
        network,
        ServerResources(),
        admission=server.admission,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        try:
            yield server
        finally:
            for stream in server.raw_streams:
                stream.socket.close()
            nursery.cancel_scope.cancel()
