"""Logins over connections that are served already (KIP-368)."""

from __future__ import annotations

import logging

import pytest
import trio

from kraftrio.net.connection import AuthenticationFailed, ConnectionLost
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.cluster import MetadataRequest
from kraftrio.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.unit.broker.server.sasl_context import SaslServer, Users, sasl_server, who_am_i

ALICE = ("SCRAM-SHA-256", "alice", "secret")


async def test_a_client_logs_in_again_before_its_session_ends() -> None:
    """And nobody who uses the connection notices."""
    async with (
        sasl_server(connections_max_reauth_ms="1500") as server,
        server.connection(*ALICE) as connection,
    ):
        requests: dict[str, float] = {}
        with trio.fail_after(10):
            while requests.get("sasl_authenticate_requests_total", 0) < 2:
                assert await who_am_i(connection) == "User:alice"
                requests = dict(server.dispatcher.statistics())
        assert await who_am_i(connection) == "User:alice"
        assert requests["sasl_handshake_requests_total"] == 1


async def test_requests_wait_while_a_login_is_renewed() -> None:
    """Those that were sent in the middle of it come after it, and in order."""
    async with (
        sasl_server(connections_max_reauth_ms="1500") as server,
        server.connection(*ALICE) as connection,
    ):
        while connection._held is None:
            await trio.lowlevel.checkpoint()
        replies = [connection.send(MetadataRequest(), 9, 10) for _ in range(3)]
        assert connection.requests_in_flight >= 3
        for reply in replies:
            assert (await reply.wait()).cluster_id == "User:alice"
        assert server.dispatcher.statistics()["metadata_requests_total"] == 3


async def test_a_session_that_was_not_renewed_ends_with_the_next_request() -> None:
    async with (
        sasl_server(connections_max_reauth_ms="60000") as server,
        server.connection(*ALICE) as connection,
    ):
        server.clock.added_ms = 60_000
        with pytest.raises(ConnectionLost):
            await who_am_i(connection)


async def test_a_client_that_is_refused_later_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        sasl_server(connections_max_reauth_ms="1500") as server,
        server.connection(*ALICE) as connection,
    ):
        monkeypatch.setattr(Users, "credential", lambda *_: None)
        reply = None
        with pytest.raises(AuthenticationFailed, match="during re-authentication"):
            while True:
                reply = connection.send(MetadataRequest(), 9, 10)
                await reply.wait()
        assert connection.loss_kind is AuthenticationFailed


async def log_in_by_hand(server: SaslServer, token: bytes, mechanism: str = "PLAIN") -> None:
    """Log in again as a client of its own making does, and be refused."""
    async with server.connection("PLAIN", "alice", "secret") as connection:
        handshake = await connection.call(SaslHandshakeRequest(mechanism=mechanism), 1, 10)
        assert handshake.error_code == ErrorCode.NONE
        refused = await connection.call(SaslAuthenticateRequest(auth_bytes=token), 2, 10)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.auth_bytes == b""
        [(_, end)] = server.timers.calls
        server.timers.calls.clear()
        end()
        with trio.fail_after(10):
            await connection.wait_closed()


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0bob\0b", b"malformed"])
async def test_a_client_that_fails_to_log_in_again_is_answered_and_disconnected(
    token: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that logs in as another user. The audit log has it."""
    with caplog.at_level(logging.INFO, "kraftrio.audit"):
        async with sasl_server(connections_max_reauth_ms="60000") as server:
            await log_in_by_hand(server, token)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("login refused host=127.0.0.1 listener=L mechanism=PLAIN reason=")


async def test_a_client_that_changes_the_mechanism_is_answered_and_disconnected() -> None:
    async with sasl_server(connections_max_reauth_ms="60000") as server:
        await log_in_by_hand(server, b"n,,n=alice,r=x", "SCRAM-SHA-256")


async def test_nothing_else_is_served_in_the_middle_of_a_login() -> None:
    async with (
        sasl_server(connections_max_reauth_ms="60000") as server,
        server.connection("PLAIN", "alice", "secret") as connection,
    ):
        await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1, 10)
        with pytest.raises(ConnectionLost):
            await who_am_i(connection)


async def test_a_login_again_in_the_same_second_is_not_taken() -> None:
    async with (
        sasl_server(connections_max_reauth_ms="60000") as server,
        server.connection("PLAIN", "alice", "secret") as connection,
    ):
        for _ in range(2):
            handshake = await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), 1, 10)
            if handshake.error_code == ErrorCode.NONE:
                await connection.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2, 10)
        assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = await connection.call(SaslAuthenticateRequest(auth_bytes=b""), 2, 10)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await who_am_i(connection) == "User:alice"
