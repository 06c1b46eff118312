"""The messages of SCRAM: the exchange of RFC 7677, names that need escapes, and what is refused."""

from __future__ import annotations

from base64 import b64decode

import pytest

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.scram import (
    ServerFinal,
    auth_message,
    client_final,
    client_first,
    encode_client_final,
    encode_client_first,
    encode_server_final,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    server_first,
)
from kraftrio.wire.sasl.scram_keys import (
    ScramMechanism,
    client_proof,
    credential_of,
    is_proof,
    salted_password,
    server_key_of,
    server_signature,
)

SHA_256 = ScramMechanism.SCRAM_SHA_256
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def test_the_exchange_of_the_rfc() -> None:
    """RFC 7677, section 3: each message and each key."""
    first = client_first("user", NONCE)
    assert encode_client_first(first) == b"n,,n=user,r=" + NONCE.encode()
    server = server_first(NONCE + SERVER_NONCE, SALT, 4096)
    assert server.text == f"r={NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    unsigned = client_final(first.header, server.nonce)
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    signed = auth_message(first, server, unsigned)
    proof = client_proof(SHA_256, salted, signed)
    assert encode_client_final(unsigned, proof) == (
        f"c=biws,r={NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    credential = credential_of(SHA_256, salted, SALT, 4096)
    assert is_proof(SHA_256, credential, proof, signed)
    signature = server_signature(SHA_256, credential.server_key, signed)
    assert signature == server_signature(SHA_256, server_key_of(SHA_256, salted), signed)
    assert encode_server_final(ServerFinal(signature)) == (
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


def test_a_message_is_read_as_it_was_written() -> None:
    first = client_first("a,b=c", "nonce", {"tokenauth": "true"})
    read = parse_client_first(encode_client_first(first))
    assert read == first
    assert read.is_token
    server = server_first("nonce2", b"salt", 8192)
    assert parse_server_first(server.text.encode()) == server
    final = parse_client_final(encode_client_final(client_final("n,,", "nonce2"), b"\x00" * 32))
    assert (final.header, final.nonce, final.proof) == (b"n,,", "nonce2", b"\x00" * 32)
    assert parse_server_final(b"e=other-error").error == "other-error"


def test_the_user_a_client_wants_to_act_for_is_read() -> None:
    assert parse_client_first(b"n,a=b=2Cob,n=alice,r=x").authorization_id == "b,ob"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"n,,n=,r=x",
        b"n,,n=user",
        b"y,,n=user,r=x",  # it knows channel bindings, and believes that we do not
        b"p=tls-unique,,n=user,r=x",
        b"n,,m=new,n=user,r=x",  # a mandatory extension
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=\xff",
        b"n,,n=user,r=x\n",
    ],
)
def test_no_first_message_of_a_client(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_client_first(text)


@pytest.mark.parametrize(
    "text", [b"r=x,s=c2FsdA==,i=0", b"r=x,s=c2FsdA==,i=99999999999", b"r=x,s=a===,i=1", b"r=x"]
)
def test_no_first_message_of_a_server(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_server_first(text)


@pytest.mark.parametrize("text", [b"c=biws,r=x", b"c=biws,r=x,p=abc", b"r=x,c=biws,p=YQ=="])
def test_no_final_message_of_a_client(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_client_final(text)
