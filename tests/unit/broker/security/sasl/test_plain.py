"""The server's side of PLAIN."""

from __future__ import annotations

import pytest

from kraftrio.broker.security.sasl.exchange import AuthenticatedUser, LoginFailed
from kraftrio.broker.security.sasl.plain import PlainExchange, plain_users

USERS = plain_users({"username": "broker", "password": "x", "user_alice": "secret", "user_ä": "ö"})


@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("ä", "ö")])
def test_a_user_with_the_password_is_let_in(user: str, password: str) -> None:
    exchange = PlainExchange(USERS)
    assert exchange.evaluate(f"\0{user}\0{password}".encode(), 0) == b""
    assert exchange.login == AuthenticatedUser(user)


@pytest.mark.parametrize(
    "message", ["\0alice\0secreT", "\0bob\0secret", "\0broker\0x", "bob\0alice\0secret"]
)
def test_others_are_not(message: str) -> None:
    """Those whom the JAAS text names without `user_` are no users; nobody acts for another."""
    exchange = PlainExchange(USERS)
    with pytest.raises(LoginFailed) as refused:
        exchange.evaluate(message.encode(), 0)
    assert exchange.login is None
    assert refused.value.client_message is not None
    assert "secret" not in refused.value.client_message + refused.value.reason
    if message.startswith("\0"):
        assert refused.value.client_message == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("\0alice\0a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        ("\0\0secret", "Authentication failed: username not specified"),
        ("\0alice\0", "Authentication failed: password not specified"),
    ],
)
def test_what_is_told_of_a_message_that_lacks_something(message: str, words: str) -> None:
    """In Kafka's words, so that an empty password in a client's file is seen there."""
    with pytest.raises(LoginFailed) as refused:
        PlainExchange(USERS).evaluate(message.encode(), 0)
    assert refused.value.client_message == words
