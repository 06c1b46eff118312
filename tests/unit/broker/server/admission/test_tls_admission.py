"""A listener with TLS over loopback: who is served as whom, and what becomes of all others."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kraftrio.broker.security.tls.principal_rules import PrincipalRules
from kraftrio.broker.server.admission.handshake_slots import HandshakeSlots
from kraftrio.broker.server.admission.tls_admission import TlsAdmission
from kraftrio.broker.server.server import ServerListener
from kraftrio.net.connection import HandshakeFailed, open_connection
from kraftrio.net.secured_network import SecuredNetwork
from kraftrio.net.tls.client import TlsConnector
from kraftrio.net.tls.contexts import TlsMaterial
from kraftrio.net.transport import SystemNetwork
from kraftrio.wire.messages.cluster import ApiVersionsRequest
from tests.security.certificates import Authority
from tests.support.server_limits import LIMITS
from tests.unit.broker.server.server_context import Handlers
from tests.unit.net.tls.in_memory import CA, CLIENT, SERVER, material

SYSTEM = SystemNetwork()


@asynccontextmanager
async def listening_with_tls(
    server: TlsMaterial, *, rules: str = "DEFAULT", timeout_s: float = 5, **slots: int
) -> AsyncIterator[tuple[ServerListener, int]]:
    context = server.server_context()
    admission = TlsAdmission(
        SYSTEM,
        lambda: context,
        PrincipalRules(rules).principal_of,
        HandshakeSlots(**slots),
        timeout_s=timeout_s,
    )
    sock = SYSTEM.bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    network = SecuredNetwork(SYSTEM)
    dispatcher = Handlers().dispatcher()
    listener = ServerListener("SSL", sock, dispatcher, LIMITS, network, admission=admission)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        with trio.fail_after(20):
            yield listener, port
        nursery.cancel_scope.cancel()


def dialling(client: TlsMaterial) -> SecuredNetwork:
    context = client.client_context()
    return SecuredNetwork(SYSTEM, TlsConnector(lambda: context))


@asynccontextmanager
async def connected(client: TlsMaterial, port: int, host: str = "127.0.0.1") -> AsyncIterator[Any]:
    async with open_connection(
        dialling(client), host, port, client_id="c", connect_timeout_s=5
    ) as connection:
        yield connection


async def test_a_client_is_served_as_its_certificate_says() -> None:
    server = material(SERVER, CA, client_auth="required")
    rules = "RULE:^CN=(.*)$/the-$1/"
    async with (
        listening_with_tls(server, rules=rules) as (listener, port),
        connected(material(CLIENT, CA), port) as connection,
    ):
        await connection.call(ApiVersionsRequest(), 0, 5)
        [served] = listener._connections
        assert str(served.client.principal) == "User:the-alice"


async def test_many_clients_at_once() -> None:
    async with listening_with_tls(material(SERVER, CA)) as (listener, port):
        client = material(None, CA)

        async def ask() -> None:
            async with connected(client, port) as connection:
                for _ in range(20):
                    await connection.call(ApiVersionsRequest(), 0, 5)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        while listener.statistics()["connections"]:
            await trio.lowlevel.checkpoint()
        assert listener.statistics()["requests_total"] == 400


@pytest.mark.parametrize("fault", ["stranger", "none", "unmapped"])
async def test_who_is_not_let_in_learns_why(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    server = material(SERVER, CA, client_auth="required")
    client, rules, reason = {
        "stranger": (material(Authority().client("m"), CA), "", "TLS: the certificate of the peer"),
        "none": (material(None, CA), "", "TLS: peer did not return a certificate"),
        "unmapped": (
            material(CLIENT, CA),
            "RULE:^CN=x$/x/",
            "the certificate of the peer: no rule",
        ),
    }[fault]
    with caplog.at_level(logging.INFO, "kraftrio.server"):
        async with listening_with_tls(server, rules=rules) as (listener, port):
            with pytest.raises(Exception) as caught:
                async with connected(client, port) as connection:
                    await connection.call(ApiVersionsRequest(), 0, 5)
            if fault != "unmapped":
                assert isinstance(caught.value, HandshakeFailed), caught.value
            while listener.statistics()["connections"]:
                await trio.lowlevel.checkpoint()
            assert not listener.statistics()["requests_total"]
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("connection refused client=127.0.0.1 listener=SSL reason=" + reason)


async def test_a_slow_handshake_ends_and_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening_with_tls(material(SERVER, CA), timeout_s=0.5) as (listener, port):
        slow = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(20)]
        await slow[0].send_all(b"\x16\x03\x01\x01")
        async with connected(material(None, CA), port) as connection:
            await connection.call(ApiVersionsRequest(), 0, 5)
            assert listener.statistics()["connections"] == 21
            with caplog.at_level(logging.INFO, "kraftrio.server"):
                for stream in slow:
                    async with stream:
                        assert await stream.receive_some() == b""
            assert caplog.records[0].getMessage().endswith("no TLS handshake within 0.5 s")


async def test_a_crowd_of_one_address_waits_for_its_turn() -> None:
    """More handshakes than may go on at a time: all are served, one after the other."""
    server = material(SERVER, CA)
    async with listening_with_tls(server, of_one_address=2, in_one_turn=1) as (_, port):
        client, served = material(None, CA), []

        async def ask(number: int) -> None:
            async with connected(client, port) as connection:
                await connection.call(ApiVersionsRequest(), 0, 5)
                served.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(ask, number)
        assert sorted(served) == list(range(30))


async def test_plaintext_at_a_listener_with_tls_is_cut_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "kraftrio.server"):
        async with listening_with_tls(material(SERVER, CA)) as (_, port):
            begin = trio.current_time()
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(bytes.fromhex("00000013001200040000000100036162630000"))
                assert await stream.receive_some() == b""
            assert trio.current_time() - begin < 1
    [line] = [record.getMessage() for record in caplog.records]
    assert line.endswith("listener=SSL reason=TLS: the peer does not speak TLS")


async def test_a_name_that_is_none_is_a_failed_handshake() -> None:
    async with listening_with_tls(material(SERVER, CA)) as (_, port):
        connector = TlsConnector(lambda: material(None, CA).client_context())
        sock = await SYSTEM.connect("127.0.0.1", port)
        with pytest.raises(OSError, match="is not a name that a certificate has"):
            await connector.secure(SYSTEM, sock, ".example")
        assert sock.fileno() == -1


async def test_a_cancelled_handshake_closes_its_socket() -> None:
    here, there = socket.socketpair()
    with there:
        here.setblocking(False)
        connector = TlsConnector(lambda: material(None, CA).client_context())
        with trio.move_on_after(0.05):
            await connector.secure(SYSTEM, here, "localhost")
        assert here.fileno() == -1
