"""The server's side of OAUTHBEARER: its course, whatever validates tokens."""

from __future__ import annotations

import pytest

from kraftrio.broker.security.sasl.exchange import AuthenticatedUser, LoginFailed
from kraftrio.broker.security.sasl.oauthbearer import BearerExchange, TokenRefused, ValidToken
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.oauthbearer import BearerMessage, encode_bearer


class OneToken:
    """Knows one token."""

    def validate(self, token: str, now_ms: int) -> ValidToken:
        if token == "narrow":
            raise TokenRefused("the token lacks the scope kafka", "[kafka]")
        if token != "good":
            raise TokenRefused("no such token")
        return ValidToken("alice", 7000.0)


def say(token: str, authorization_id: str = "") -> bytes:
    return encode_bearer(BearerMessage(token, authorization_id, {"trace": "1"}))


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_a_valid_token_lets_its_user_in(authorization_id: str) -> None:
    exchange = BearerExchange(OneToken())
    assert exchange.evaluate(say("good", authorization_id), 0) == b""
    assert exchange.login == AuthenticatedUser("alice", 7000.0)


@pytest.mark.parametrize(
    ("token", "answered"),
    [
        ("bad", b'{"status":"invalid_token"}'),
        ("narrow", b'{"status":"insufficient_scope", "scope":"[kafka]"}'),
    ],
)
def test_a_refused_token_fails_the_exchange(token: str, answered: bytes) -> None:
    exchange = BearerExchange(OneToken())
    assert exchange.evaluate(say(token), 0) == answered
    with pytest.raises(LoginFailed) as refused:
        exchange.evaluate(b"\x01", 0)
    assert (refused.value.client_message, exchange.login) == (answered.decode(), None)


def test_a_client_that_goes_on_after_its_token_was_refused() -> None:
    exchange = BearerExchange(OneToken())
    exchange.evaluate(say("bad"), 0)
    with pytest.raises(RemoteProtocolError):
        exchange.evaluate(say("good"), 0)
    assert exchange.login is None


def test_a_user_acts_for_itself_only() -> None:
    with pytest.raises(LoginFailed) as refused:
        BearerExchange(OneToken()).evaluate(say("good", "bob"), 0)
    assert "(bob)" in str(refused.value.client_message)
