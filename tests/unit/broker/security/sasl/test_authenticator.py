"""The logins of one connection: states, answers, how long they count, who comes again."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.broker.security.sasl.authenticator import AuthenticationRefused, Authenticator
from kraftrio.broker.security.sasl.exchange import AuthenticatedUser, LoginFailed
from kraftrio.broker.security.sasl.settings import ListenerSasl, Mechanism
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.protocol.api import ApiKey

GENERIC = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism A"
)


class Exchange:
    """Takes `more` any number of times, then `USER` or `USER until TIME`; fails on `wrong`."""

    def __init__(self) -> None:
        self.login: AuthenticatedUser | None = None

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        text = response.decode()
        if text == "more":
            return b"go on"
        if text == "wrong":
            raise LoginFailed("wrong password", user="alice")
        if text == "explained":
            raise LoginFailed("another user", "you may know")
        if text == "malformed":
            raise RemoteProtocolError("malformed bytes")
        user, _, end = text.partition(" until ")
        self.login = AuthenticatedUser(
            user, float(end) if end else None, is_by_token=user == "token"
        )
        return b"done"


class Logins:
    """An authenticator whose clocks a test sets."""

    def __init__(self, max_reauth_ms: int = 0) -> None:
        self.wall_ms = 1_000_000
        self.monotonic_ms = 0.0
        mechanisms = {
            name: Mechanism(Exchange, max_reauth_ms if name == "A" else 0) for name in ("A", "B")
        }
        self.it = Authenticator(
            ListenerSasl(mechanisms), lambda: self.wall_ms, lambda: self.monotonic_ms
        )

    def log_in(self, *tokens: str, mechanism: str = "A") -> Any:
        assert self.it.handshake(mechanism).error_code == ErrorCode.NONE
        response: Any = None
        for token in tokens:
            response = self.it.authenticate(token.encode())
        return response

    def sleep(self, duration_ms: int) -> None:
        self.wall_ms += duration_ms
        self.monotonic_ms += duration_ms


def test_a_login_is_done_by_its_last_step() -> None:
    logins = Logins()
    handshake = logins.it.handshake("A")
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.NONE, ["A", "B"])
    step = logins.it.authenticate(b"more")
    assert (step.auth_bytes, step.session_lifetime_ms, logins.it.principal) == (b"go on", 0, None)
    with pytest.raises(RemoteProtocolError):
        logins.it.check(ApiKey.METADATA)
    assert logins.it.authenticate(b"alice").auth_bytes == b"done"
    assert logins.it.principal == KafkaPrincipal("User", "alice")
    logins.it.check(ApiKey.METADATA)


@pytest.mark.parametrize(
    ("token", "reason", "message"),
    [
        ("wrong", "wrong password", GENERIC),
        ("explained", "another user", "you may know"),
        ("malformed", "malformed bytes", GENERIC),
    ],
)
def test_a_login_that_fails_fails_for_good(token: str, reason: str, message: str) -> None:
    logins = Logins()
    with pytest.raises(AuthenticationRefused) as refused:
        logins.log_in("more", token)
    assert refused.value.reason == reason
    answer = refused.value.answer
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        message,
        b"",
    )
    for go_on in (
        lambda: logins.it.authenticate(b"alice"),
        lambda: logins.it.handshake("A"),
        lambda: logins.it.token(b"alice"),
    ):
        with pytest.raises(AuthenticationRefused):
            go_on()
    with pytest.raises(RemoteProtocolError):
        logins.it.check(ApiKey.METADATA)
    assert logins.it.principal is None


def test_a_mechanism_that_is_not_offered() -> None:
    logins = Logins()
    with pytest.raises(AuthenticationRefused) as refused:
        logins.it.handshake("C")
    assert refused.value.answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert refused.value.answer.mechanisms == ["A", "B"]


@pytest.mark.parametrize(
    ("max_reauth_ms", "token", "lifetime_ms", "expires"),
    [
        (0, "alice", 0, False),
        (5000, "alice", 5000, True),
        (5000, "alice until 1002000", 2000, True),
        (5000, "alice until 1009000", 5000, True),
        (0, "alice until 1002000", 2000, True),
        (0, "alice until 999000", 0, True),
    ],
)
def test_how_long_a_login_counts(
    max_reauth_ms: int, token: str, lifetime_ms: int, expires: bool
) -> None:
    """KIP-368: the shorter of what the broker allows and what is left of the credential."""
    logins = Logins(max_reauth_ms)
    assert logins.log_in(token).session_lifetime_ms == lifetime_ms
    logins.sleep(max(lifetime_ms - 1, 0))
    if lifetime_ms or not expires:
        logins.it.check(ApiKey.FETCH)
    logins.sleep(1)
    if expires:
        with pytest.raises(RemoteProtocolError, match="expired"):
            logins.it.check(ApiKey.FETCH)
    else:
        logins.it.check(ApiKey.FETCH)
    logins.it.check(ApiKey.SASL_HANDSHAKE)


def test_a_wall_clock_that_jumps_ends_no_session() -> None:
    logins = Logins(5000)
    logins.log_in("alice")
    logins.wall_ms += 1_000_000
    logins.it.check(ApiKey.FETCH)


def test_the_same_user_may_log_in_again() -> None:
    logins = Logins(5000)
    logins.log_in("alice")
    logins.sleep(4900)
    logins.it.handshake("A")
    assert logins.it.principal is not None
    logins.it.check(ApiKey.SASL_AUTHENTICATE)
    with pytest.raises(RemoteProtocolError):  # nothing else is served in the middle of it
        logins.it.check(ApiKey.FETCH)
    assert logins.it.authenticate(b"alice").session_lifetime_ms == 5000
    logins.sleep(4900)
    logins.it.check(ApiKey.FETCH)


def test_nobody_logs_in_again_where_sessions_have_no_end() -> None:
    logins = Logins()
    logins.log_in("alice")
    logins.sleep(5000)
    refusal = logins.it.handshake("A")
    assert (refusal.error_code, refusal.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    logins.it.check(ApiKey.FETCH)


def test_a_login_again_begins_once_a_second() -> None:
    logins = Logins(5000)
    logins.log_in("alice")
    logins.log_in("alice")
    logins.sleep(999)
    assert logins.it.handshake("A").error_code == ErrorCode.ILLEGAL_SASL_STATE
    logins.it.check(ApiKey.FETCH)
    logins.sleep(1)
    logins.log_in("alice")


@pytest.mark.parametrize(
    ("first", "again", "mechanism", "message"),
    [
        (
            "alice",
            "bob",
            "A",
            "Cannot change principals during re-authentication from User.alice: User.bob",
        ),
        (
            "alice",
            "alice",
            "B",
            "SASL mechanism 'B' requested by client is not supported for re-authentication of"
            " mechanism 'A'",
        ),
        ("alice", "wrong", "A", GENERIC.replace(" authentication ", " re-authentication ")),
    ],
)
def test_who_may_not_log_in_again(first: str, again: str, mechanism: str, message: str) -> None:
    logins = Logins(5000)
    logins.log_in(first)
    with pytest.raises(AuthenticationRefused) as refused:
        logins.log_in(again, mechanism=mechanism)
    assert refused.value.answer.error_message == message
    with pytest.raises(RemoteProtocolError):
        logins.it.check(ApiKey.FETCH)
    assert logins.it.principal is None


def test_a_handshake_in_the_middle_of_a_login() -> None:
    logins = Logins()
    logins.it.handshake("A")
    with pytest.raises(AuthenticationRefused):
        logins.it.handshake("A")


def test_a_login_by_a_token_is_known_as_one() -> None:
    logins = Logins()
    logins.log_in("token")
    assert logins.it.is_by_token
