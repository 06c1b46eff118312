"""The client's side of the mechanisms: which servers are believed, and what takes long."""

from __future__ import annotations

import pytest

from kraftrio.base.secret import Secret
from kraftrio.net.sasl.client_exchanges import (
    BearerClient,
    ClientExchange,
    PlainClient,
    SaltedPassword,
    ScramClient,
)
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.scram import server_first
from kraftrio.wire.sasl.scram_keys import ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256


def scram(password: SaltedPassword | None = None) -> ScramClient:
    known = password or SaltedPassword(SHA_256, Secret("pencil"))
    return ScramClient("user", known, lambda: "nonce", {})


def challenge(iterations: int = 4096, nonce: str = "nonce+", salt: bytes = b"salt") -> bytes:
    return server_first(nonce, salt, iterations).text.encode()


def test_a_server_without_the_password_is_not_believed() -> None:
    client = scram()
    assert client.begin() == b"n,,n=user,r=nonce"
    final = client.respond(challenge())
    assert final is not None and final.startswith(b"c=biws,r=nonce+,p=")
    for answer in (b"v=AAAA", b"e=other-error", b"", b"odd"):
        with pytest.raises(RemoteProtocolError):
            client.respond(answer)
        assert not client.is_done


@pytest.mark.parametrize(
    "wrong",
    [
        challenge(nonce="other+"),
        challenge(nonce="nonce"),
        challenge(iterations=4095),
        challenge(iterations=99_000_000),
        b"",
    ],
)
def test_a_server_that_breaks_the_rules_gets_no_proof(wrong: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        scram().respond(wrong)


def test_many_iterations_take_long_once() -> None:
    password = SaltedPassword(SHA_256, Secret("pencil"))
    assert not scram(password).takes_long(challenge())
    assert scram(password).takes_long(challenge(16_384))
    scram(password).respond(challenge(16_384))
    assert not scram(password).takes_long(challenge(16_384))
    assert scram(password).takes_long(challenge(16_384, salt=b"pepper"))


def test_plain_is_done_by_its_one_message() -> None:
    client: ClientExchange = PlainClient("user", Secret("pencil"))
    assert client.begin() == b"\0user\0pencil"
    assert client.respond(b"") is None and client.is_done


def test_a_token_is_accepted_without_words_or_refused() -> None:
    accepted = BearerClient(Secret("a.b.c"), {"x": "y"})
    assert accepted.begin() == b"n,,\x01auth=Bearer a.b.c\x01x=y\x01\x01"
    assert accepted.respond(b"") is None and accepted.is_done
    refused = BearerClient(Secret("a.b.c"), {})
    assert refused.respond(b'{"status":"invalid_token"}') == b"\x01" and not refused.is_done
