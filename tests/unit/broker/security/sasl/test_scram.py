"""The server's side of SCRAM: who is let in, and what the others are answered."""

from __future__ import annotations

import pytest

from kraftrio.broker.security.sasl.exchange import AuthenticatedUser, LoginFailed
from kraftrio.broker.security.sasl.scram import ScramExchange, TokenCredential
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.scram_keys import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from tests.unit.broker.security.sasl.scram_client import ScramTestClient

SHA_256, SHA_512 = ScramMechanism


def credential(
    password: str, mechanism: ScramMechanism = SHA_256, iterations: int = 4096
) -> ScramCredential:
    salted = salted_password(mechanism, password, b"salt", iterations)
    return credential_of(mechanism, salted, b"salt", iterations)


class FixedCredentials:
    """alice has credentials of both mechanisms; a token of carol's is valid up to a time."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        if user == "weak":
            return credential("pw", mechanism, 100)
        return credential("secret", mechanism) if user == "alice" else None

    def token(
        self, mechanism: ScramMechanism, token_id: str, now_ms: int
    ) -> TokenCredential | None:
        if token_id != "token-id" or now_ms >= 5000:
            return None
        return TokenCredential("carol", credential("hmac", mechanism), 5000)


def exchange(mechanism: ScramMechanism = SHA_256) -> ScramExchange:
    return ScramExchange(mechanism, FixedCredentials(), lambda: "server-nonce")


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_user_with_the_password_is_let_in(mechanism: ScramMechanism) -> None:
    server, client = exchange(mechanism), ScramTestClient(mechanism, "alice", "secret")
    challenge = server.evaluate(client.first(), 0)
    assert server.login is None
    assert client.trusts(server.evaluate(client.final(challenge), 0))
    assert server.login == AuthenticatedUser("alice")


def test_a_wrong_password_is_refused() -> None:
    """And the exchange is over: a client that goes on after the error begins again at best."""
    server, client = exchange(), ScramTestClient(SHA_256, "alice", "guess")
    final = client.final(server.evaluate(client.first(), 0))
    with pytest.raises(LoginFailed) as refused:
        server.evaluate(final, 0)
    assert (refused.value.client_message, refused.value.user, server.login) == (None, "alice", None)
    with pytest.raises(RemoteProtocolError):
        server.evaluate(final, 0)
    assert server.login is None


@pytest.mark.parametrize("user", ["bob", "weak"])
def test_a_user_without_a_usable_credential_is_refused(user: str) -> None:
    server = exchange()
    with pytest.raises(LoginFailed) as refused:
        server.evaluate(ScramTestClient(SHA_256, user, "pw").first(), 0)
    assert refused.value.client_message is None


def test_librdkafka_names_its_nonce_twice() -> None:
    """Versions before 2.10.1 do, and are let in by Apache Kafka, too."""
    server, client = exchange(), ScramTestClient(SHA_256, "alice", "secret")
    challenge = server.evaluate(client.first(), 0)
    client.nonce_before = "client-nonce"
    assert client.trusts(server.evaluate(client.final(challenge), 0))
    assert server.login == AuthenticatedUser("alice")
    server = exchange()
    client.nonce_before, client.nonce_instead = "", "client-nonceother-nonce"
    with pytest.raises(RemoteProtocolError):
        server.evaluate(client.final(server.evaluate(client.first(), 0)), 0)


def test_a_user_acts_for_itself_only() -> None:
    server = exchange()
    with pytest.raises(LoginFailed) as refused:
        server.evaluate(b"n,a=bob,n=alice,r=nonce", 0)
    assert refused.value.client_message is not None


def test_a_token_lets_its_owner_in_until_it_expires() -> None:
    client = ScramTestClient(SHA_256, "token-id", "hmac", {"tokenauth": "true"})
    server = exchange()
    client.trusts(server.evaluate(client.final(server.evaluate(client.first(), 0)), 0))
    assert server.login == AuthenticatedUser("carol", 5000, is_by_token=True)
    with pytest.raises(LoginFailed):
        exchange().evaluate(client.first(), 5000)
    with pytest.raises(LoginFailed):  # without the extension it is a user of that name
        exchange().evaluate(ScramTestClient(SHA_256, "token-id", "hmac").first(), 0)


@pytest.mark.parametrize(
    "change", [(b"c=biws", b"c=eSws"), (b"server-nonce", b"server-nonc"), (b"p=", b"p=AAAA")]
)
def test_a_final_message_about_something_else(change: tuple[bytes, bytes]) -> None:
    server, client = exchange(), ScramTestClient(SHA_256, "alice", "secret")
    final = client.final(server.evaluate(client.first(), 0))
    with pytest.raises((RemoteProtocolError, LoginFailed)):
        server.evaluate(final.replace(*change), 0)
    assert server.login is None
