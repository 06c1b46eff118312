"""Logins over loopback: who is let in, what others are answered, and what nobody may do before."""

from __future__ import annotations

import logging
import struct

import pytest
import trio

from kraftrio.broker.server.admission.admission import AdmissionRefused
from kraftrio.broker.server.context import ClientInfo
from kraftrio.net.connection import AuthenticationFailed
from tests.unit.broker.server.sasl_context import (
    BEARER_MODULE,
    SaslServer,
    sasl_of,
    sasl_server,
    who_am_i,
)
from tests.unit.broker.server.server_context import Client

PLAIN_ALICE = b"\0alice\0secret"
HANDSHAKE_PLAIN = struct.pack(">h", 5) + b"PLAIN"
REFUSED = "Authentication failed: Invalid username or password"


async def client_of(server: SaslServer) -> Client:
    return Client(await server.raw())


def auth_bytes(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_client_that_knows_the_password_is_served(mechanism: str) -> None:
    async with (
        sasl_server() as server,
        server.connection(mechanism, "alice", "secret") as connection,
    ):
        assert await who_am_i(connection) == "User:alice"


async def test_a_client_with_a_token_is_served() -> None:
    jaas = f'{BEARER_MODULE} required unsecuredLoginStringClaim_sub="dave";'
    async with (
        sasl_server() as server,
        server.connection_by("OAUTHBEARER", jaas) as connection,
    ):
        assert await who_am_i(connection) == "User:dave"


async def test_a_delegation_token_stands_for_its_owner() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="token-id" password="hmac" tokenauth="true";'
    async with (
        sasl_server() as server,
        server.connection_by("SCRAM-SHA-256", jaas) as connection,
    ):
        assert await who_am_i(connection) == "User:carol"


@pytest.mark.parametrize(
    ("mechanism", "user", "answered"),
    [
        ("PLAIN", "alice", REFUSED),
        ("PLAIN", "nobody", REFUSED),
        (
            "SCRAM-SHA-256",
            "alice",
            "Authentication failed during authentication due to invalid credentials with SASL"
            " mechanism SCRAM-SHA-256",
        ),
        (
            "SCRAM-SHA-512",
            "nobody",
            "Authentication failed during authentication due to invalid credentials with SASL"
            " mechanism SCRAM-SHA-512",
        ),
    ],
)
async def test_a_wrong_password_is_refused_and_not_logged(
    mechanism: str, user: str, answered: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with sasl_server() as server:
            with pytest.raises(AuthenticationFailed) as refused:
                async with server.connection(mechanism, user, "guessed"):
                    pass
    assert refused.value.reason.endswith(answered)
    [line] = [record.getMessage() for record in caplog.records if "refused" in record.msg]
    assert line.startswith(f"login refused host=127.0.0.1 listener=L mechanism={mechanism} reason=")
    assert line.endswith(f" user={user!r}")
    assert "guessed" not in caplog.text and "secret" not in caplog.text


async def test_a_mechanism_that_is_not_offered() -> None:
    async with sasl_server(sasl_enabled_mechanisms="SCRAM-SHA-256") as server:
        with pytest.raises(AuthenticationFailed, match="it offers SCRAM-SHA-256"):
            async with server.connection("PLAIN", "alice", "secret"):
                pass
        client = await client_of(server)
        await client.send(17, 1, 7, HANDSHAKE_PLAIN)
        assert await client.receive() == (
            7,
            struct.pack(">hih", 33, 1, 13) + b"SCRAM-SHA-256",
        )
        assert await client.is_closed()


async def test_version_0_has_bare_tokens_and_then_requests() -> None:
    """KIP-43: as kafka-python and sarama do by default."""
    async with sasl_server() as server:
        client = await client_of(server)
        await client.send(17, 0, 7, HANDSHAKE_PLAIN)
        correlation_id, body = await client.receive()
        assert (correlation_id, body[:2]) == (7, b"\0\0")
        await client.send_raw(PLAIN_ALICE)
        await client.stream.send_all(b"")
        assert await _bare(client) == b""
        await client.send(3, 0, 8, struct.pack(">i", 0))
        assert (await client.receive())[0] == 8


async def _bare(client: Client) -> bytes:
    while len(client.buffer) < 4:
        client.buffer += await client.stream.receive_some()
    size = client.length()
    while len(client.buffer) < 4 + size:
        client.buffer += await client.stream.receive_some()
    token = bytes(client.buffer[4 : 4 + size])
    del client.buffer[: 4 + size]
    return token


async def test_version_0_with_a_wrong_password_is_just_closed() -> None:
    async with sasl_server() as server:
        client = await client_of(server)
        await client.send(17, 0, 7, HANDSHAKE_PLAIN)
        await client.receive()
        await client.send_raw(b"\0alice\0wrong")
        assert await client.is_closed()


@pytest.mark.parametrize("version", [0, 1])
async def test_a_refusal_has_an_error_and_bytes_that_are_not_null(version: int) -> None:
    async with sasl_server() as server:
        client = await client_of(server)
        await client.send(17, 1, 7, HANDSHAKE_PLAIN)
        await client.receive()
        await client.send(36, version, 8, auth_bytes(b"\0alice\0wrong"))
        _, body = await client.receive()
        text = struct.pack(">h", len(REFUSED)) + REFUSED.encode()
        end = struct.pack(">i", 0) + (struct.pack(">q", 0) if version else b"")
        assert body == struct.pack(">h", 58) + text + end
        assert await client.is_closed()


async def test_a_refused_client_waits_for_its_answer() -> None:
    async with sasl_server(connection_failed_authentication_delay_ms="150") as server:
        client = await client_of(server)
        await client.send(17, 1, 7, HANDSHAKE_PLAIN)
        await client.receive()
        began = trio.current_time()
        await client.send(36, 1, 8, auth_bytes(b"\0alice\0wrong"))
        await client.receive()
        assert trio.current_time() - began >= 0.15


@pytest.mark.parametrize("is_refused_first", [True, False])
async def test_a_peer_that_goes_on_after_a_refusal_or_without_a_login_is_not_served(
    is_refused_first: bool,
) -> None:
    """Also where the request comes in one packet with the login that fails."""
    async with sasl_server() as server:
        client = await client_of(server)
        if is_refused_first:
            await client.send(17, 1, 7, HANDSHAKE_PLAIN)
            await client.send(36, 1, 8, auth_bytes(b"\0alice\0wrong"))
        await client.send(3, 0, 9, struct.pack(">i", 0))
        answers = []
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            while True:
                answers.append((await client.receive())[0])
        assert answers == ([7, 8] if is_refused_first else [])


async def test_requests_behind_a_login_that_holds_are_served() -> None:
    async with sasl_server() as server:
        client = await client_of(server)
        await client.send(18, 0, 6, b"")
        await client.send(17, 1, 7, HANDSHAKE_PLAIN)
        await client.send(36, 1, 8, auth_bytes(PLAIN_ALICE))
        await client.send(3, 0, 9, struct.pack(">i", 0))
        assert [(await client.receive())[0] for _ in range(4)] == [6, 7, 8, 9]


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\0\x12"],
        [struct.pack(">hhih", 17, 9, 1, -1) + HANDSHAKE_PLAIN],
        [struct.pack(">hhih", 17, 1, 1, -1) + b"\x7f\xff"],
        [struct.pack(">hhih", 36, 1, 1, -1) + auth_bytes(PLAIN_ALICE)],
        [struct.pack(">hhih", 17, 1, 1, -1) + HANDSHAKE_PLAIN] * 2,
        [struct.pack(">hhih", 18, 0, 1, -1)] * 10,
        [struct.pack(">hhih", 18, 0, 1, -1) + bytes(300_000)],
        [b"GET / HTTP/1.1\r\n\r\n"],
    ],
)
async def test_what_is_no_login_ends_the_connection(
    frames: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with sasl_server() as server:
        client = await client_of(server)
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            for frame in frames:
                await client.send_raw(frame)
            while True:
                with trio.fail_after(5):
                    await client.receive()
        assert "admission failed" not in caplog.text


@pytest.mark.parametrize("size", [-1, 1001, 1 << 30])
async def test_a_message_of_an_impossible_size_is_not_waited_for(size: int) -> None:
    async with sasl_server(sasl_server_max_receive_size="1000") as server:
        client = await client_of(server)
        await client.stream.send_all(struct.pack(">i", size))
        assert await client.is_closed()


async def test_a_peer_that_speaks_tls_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with sasl_server() as server:
            client = await client_of(server)
            await client.stream.send_all(b"\x16\x03\x01\x02\0\x01")
            assert await client.is_closed()
    assert "the peer speaks TLS, and this side does not" in caplog.text


async def test_a_login_that_stalls_ends(autojump_clock: trio.testing.MockClock) -> None:
    class Silent:
        closed = False

        def recv_into(self, _buffer: object) -> int:
            raise BlockingIOError

        def close(self) -> None:
            self.closed = True

    class Waiting:
        async def wait_readable(self, _sock: object) -> None:
            await trio.sleep_forever()

    server = SaslServer(sasl_of())
    server.admission._network = Waiting()  # type: ignore[assignment]
    sock = Silent()
    began = trio.current_time()
    with pytest.raises(AdmissionRefused, match="within 30 s"):
        await server.admission.admit(sock, ClientInfo("h", 1, "L"))  # type: ignore[arg-type]
    assert sock.closed
    assert trio.current_time() - began == pytest.approx(30)


@pytest.mark.parametrize("said", [b"", b"\0\0\0\x0a\0\x12"])
async def test_a_probe_of_the_port_is_not_logged(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Load balancers do, again and again."""
    with caplog.at_level(logging.INFO):
        async with sasl_server() as server:
            client = await client_of(server)
            await client.stream.send_all(said)
            await client.stream.send_eof()
            assert await client.is_closed()
    assert not caplog.records
