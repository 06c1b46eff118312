"""A SCRAM client for tests, made of the messages alone."""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.wire.sasl.scram import (
    ServerFirst,
    auth_message,
    client_final,
    client_first,
    encode_client_final,
    encode_client_first,
    parse_server_final,
    parse_server_first,
)
from kraftrio.wire.sasl.scram_keys import (
    ScramMechanism,
    client_proof,
    salted_password,
    server_key_of,
    server_signature,
)


class ScramTestClient:
    """What a client with a password says, step by step."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.password = password
        self.message = client_first(user, "client-nonce", extensions)
        self.nonce_before = ""  # what it puts before the server's
        self.nonce_instead: str | None = None
        self.signed = b""
        self.salted = b""

    def first(self) -> bytes:
        return encode_client_first(self.message)

    def final(self, challenge: bytes) -> bytes:
        server: ServerFirst = parse_server_first(challenge)
        assert server.nonce.startswith(self.message.nonce)
        self.salted = salted_password(self.mechanism, self.password, server.salt, server.iterations)
        nonce = self.nonce_before + (self.nonce_instead or server.nonce)
        unsigned = client_final(self.message.header, nonce)
        self.signed = auth_message(self.message, server, unsigned)
        return encode_client_final(unsigned, client_proof(self.mechanism, self.salted, self.signed))

    def trusts(self, challenge: bytes) -> bool:
        """Whether the server has shown that it knows the password, too."""
        key = server_key_of(self.mechanism, self.salted)
        expected = server_signature(self.mechanism, key, self.signed)
        return parse_server_final(challenge).signature == expected
