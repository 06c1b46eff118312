"""A secured network: its steps in their order, and what a step that fails comes to."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraftrio.base.backoff import NO_BACKOFF, ExponentialBackoff
from kraftrio.net.connection import (
    AuthenticationFailed,
    Connection,
    ConnectionLost,
    HandshakeFailed,
    open_connection,
)
from kraftrio.net.link import Link, LinkSettings
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.security_errors import LoginRefused, TlsHandshakeFailed
from kraftrio.net.security_protocol import SecurityProtocol
from kraftrio.wire.messages.cluster import MetadataRequest
from tests.unit.net.test_connection import VERSION
from tests.unit.net.test_connection_ends import Line


class Step:
    """A TLS client or a login that says what it was given, or fails."""

    def __init__(self, name: str, failure: OSError | None = None) -> None:
        self.name = name
        self.failure = failure
        self.given: list[tuple[Any, Any, str]] = []

    async def secure(self, network: Any, sock: Any, host: str) -> Any:
        await trio.lowlevel.checkpoint()
        self.given.append((network, sock, host))
        if self.failure is not None:
            raise self.failure
        return f"{self.name}({sock})"

    async def log_in(self, network: Any, sock: Any, host: str) -> None:
        await self.secure(network, sock, host)


class Plain:
    """A network whose sockets are texts."""

    async def connect(self, host: str, port: int) -> Any:
        await trio.lowlevel.checkpoint()
        return f"tcp:{host}:{port}"


async def test_tls_comes_before_the_login() -> None:
    """The login waits for its socket by the network that knows what is below it."""
    plain: Any = Plain()
    tls, login = Step("tls"), Step("login")
    network = SecuredNetwork(plain, tls, login)
    sock = await network.connect("broker", 9093)
    assert sock == "tls(tcp:broker:9093)"
    assert tls.given == [(plain, "tcp:broker:9093", "broker")]
    assert login.given == [(network, "tls(tcp:broker:9093)", "broker")]


async def test_without_steps_it_is_the_inner_network() -> None:
    plain: Any = Plain()
    assert await SecuredNetwork(plain).connect("broker", 1) == "tcp:broker:1"


async def test_the_lowest_socket_is_waited_for() -> None:
    """What is encrypted cannot go from a file to the socket, either."""

    class Carried:
        def __init__(self, below: Any) -> None:
            self.below = below

    class Asked(Plain):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        async def wait_readable(self, sock: Any) -> None:
            await trio.lowlevel.checkpoint()
            self.seen.append(sock)

        wait_writable = wait_readable

        def notify_closing(self, sock: Any) -> None:
            self.seen.append(sock)

        def file_sender(self, sock: Any) -> Any:
            return f"file sender of {sock}"

    asked: Any = Asked()
    network = SecuredNetwork(asked)
    sock = Carried(Carried("tcp"))
    await network.wait_readable(sock)
    await network.wait_writable(sock)
    network.notify_closing(sock)
    assert asked.seen == ["tcp"] * 3
    assert network.file_sender(sock) is None
    assert network.file_sender("tcp") == "file sender of tcp"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (TlsHandshakeFailed("unknown ca"), HandshakeFailed),
        (LoginRefused("bad password"), AuthenticationFailed),
        (ConnectionResetError("reset"), ConnectionLost),
    ],
)
async def test_the_kind_of_loss_says_what_failed(
    failure: OSError, kind: type[ConnectionLost]
) -> None:
    plain: Any = Plain()
    network = SecuredNetwork(plain, Step("tls", failure))
    with pytest.raises(ConnectionLost) as caught:
        async with open_connection(network, "b", 1, client_id="c", connect_timeout_s=5):
            pass
    assert type(caught.value) is kind
    assert caught.value.reason.endswith(str(failure))


@pytest.mark.parametrize("is_first_read", [True, False])
async def test_a_refusal_may_come_after_the_connection_is_made(is_first_read: bool) -> None:
    """TLS 1.3: a server that does not believe its client says so when that has gone on already."""
    line = Line()
    refusal = TlsHandshakeFailed("certificate required")

    def refuse(_buffers: Any) -> Any:
        raise refusal

    network: Any = line
    async with open_connection(network, "b", 1, client_id="c", connect_timeout_s=5) as connection:
        if is_first_read:
            line.__dict__["recvmsg_into"] = refuse
            line.readable.set()
        else:
            line.send_error = refusal
        reply = connection.send(MetadataRequest(), VERSION)
        with pytest.raises(HandshakeFailed, match="certificate required"):
            await reply.wait()
        assert connection.loss_kind is HandshakeFailed
        with pytest.raises(HandshakeFailed):
            connection.send(MetadataRequest(), VERSION)


@pytest.mark.parametrize(
    ("failure", "expected"), [(LoginRefused("no"), True), (ConnectionResetError("no"), False)]
)
async def test_a_link_knows_whether_it_was_let_in(failure: OSError, expected: bool) -> None:
    plain: Any = Plain()
    settings = LinkSettings("c", ExponentialBackoff(1000, 1000), NO_BACKOFF)
    link = Link(SecuredNetwork(plain, Step("s", failure)), lambda: ("b", 1), settings)

    async def use(_connection: Connection) -> None:
        await trio.sleep_forever()

    loss = await link.attempt(use)
    assert loss is not None and loss.authentication_failed is expected


def test_protocols_say_what_they_do() -> None:
    assert {one.name: (int(one), one.uses_tls, one.uses_sasl) for one in SecurityProtocol} == {
        "PLAINTEXT": (0, False, False),
        "SSL": (1, True, False),
        "SASL_PLAINTEXT": (2, False, True),
        "SASL_SSL": (3, True, True),
    }
