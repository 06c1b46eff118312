"""The client's side of the mechanisms: PLAIN, SCRAM and OAUTHBEARER.

Rules
1. An exchange serves one login: `begin`, then `respond` to each challenge until `is_done`. What the
   server sends after that is not a challenge.
2. A SCRAM server has to show that it knows the password, too, before the exchange is done.
3. Salting a password takes a server's iterations: `takes_long` says that the next step belongs in
   a thread. What was salted once is kept, since links to a broker come back.

Sans-IO. Made by `credentials`; driven by `login`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kraftrio.base.secret import Secret
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.oauthbearer import ERROR_TAKEN, BearerMessage, encode_bearer
from kraftrio.wire.sasl.plain import PlainMessage, encode_plain
from kraftrio.wire.sasl.scram import (
    auth_message,
    client_final,
    client_first,
    encode_client_final,
    encode_client_first,
    parse_server_final,
    parse_server_first,
)
from kraftrio.wire.sasl.scram_keys import (
    MIN_ITERATIONS,
    ScramMechanism,
    client_proof,
    salted_password,
    server_key_of,
    server_signature,
)

_QUICK_ITERATIONS: Final = 8192  # some milliseconds
_MOST_ITERATIONS: Final = 10_000_000
_SALTED_KEPT = 16


class ClientExchange(Protocol):
    """One login by one mechanism."""

    @property
    def is_done(self) -> bool:
        """Whether this side has nothing more to say."""

    def begin(self) -> bytes:
        """Return the first message."""

    def takes_long(self, challenge: bytes) -> bool:
        """Whether `respond` takes more than some milliseconds."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the answer to a challenge; None: there is none, the exchange is done.

        Raises:
            RemoteProtocolError: the server breaks the rules, or is not who it says it is.
        """


class PlainClient:
    """PLAIN: user and password at once."""

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password
        self.is_done = False

    def begin(self) -> bytes:
        """Return the one message."""
        return encode_plain(PlainMessage("", self._user, self._password.reveal()))

    def takes_long(self, challenge: bytes) -> bool:
        return False

    def respond(self, challenge: bytes) -> bytes | None:
        """Take the server's word for it."""
        self.is_done = True
        return None


class SaltedPassword:
    """The password of a user, salted as servers ask for it."""

    def __init__(self, mechanism: ScramMechanism, password: Secret) -> None:
        self.mechanism = mechanism
        self._password = password
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def is_known(self, salt: bytes, iterations: int) -> bool:
        """Whether it was salted so before."""
        return (salt, iterations) in self._salted

    def salted(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password."""
        known = self._salted.get((salt, iterations))
        if known is None:
            known = salted_password(self.mechanism, self._password.reveal(), salt, iterations)
            if len(self._salted) >= _SALTED_KEPT:
                self._salted.clear()
            self._salted[salt, iterations] = known
        return known


class ScramClient:
    """SCRAM (RFC 5802).

    Args:
        extensions: `tokenauth=true`, where the user is the id of a delegation token.
    """

    def __init__(
        self,
        user: str,
        password: SaltedPassword,
        new_nonce: Callable[[], str],
        extensions: Mapping[str, str],
    ) -> None:
        self._password = password
        self._first = client_first(user, new_nonce(), extensions)
        self._signature: bytes | None = None  # what the server has to show
        self.is_done = False

    def begin(self) -> bytes:
        """Return the first message."""
        return encode_client_first(self._first)

    def takes_long(self, challenge: bytes) -> bool:
        """Whether the password has to be salted with many iterations."""
        if self._signature is not None:
            return False
        server = parse_server_first(challenge)
        return server.iterations > _QUICK_ITERATIONS and not self._password.is_known(
            server.salt, server.iterations
        )

    def respond(self, challenge: bytes) -> bytes | None:
        """Prove the password, then have the server prove that it knows it."""
        if self._signature is not None:
            self._check(challenge, self._signature)
            self.is_done = True
            return None
        server = parse_server_first(challenge)
        if not server.nonce.startswith(self._first.nonce) or server.nonce == self._first.nonce:
            raise RemoteProtocolError("the server's nonce is not made of the client's")
        if not MIN_ITERATIONS <= server.iterations <= _MOST_ITERATIONS:
            raise RemoteProtocolError(f"the server asks for {server.iterations} iterations")
        mechanism = self._password.mechanism
        salted = self._password.salted(server.salt, server.iterations)
        unsigned = client_final(self._first.header, server.nonce)
        signed = auth_message(self._first, server, unsigned)
        self._signature = server_signature(mechanism, server_key_of(mechanism, salted), signed)
        return encode_client_final(unsigned, client_proof(mechanism, salted, signed))

    def _check(self, challenge: bytes, expected: bytes) -> None:
        final = parse_server_final(challenge)
        if final.error is not None:
            raise RemoteProtocolError(f"the server ends the exchange: {final.error}")
        if not hmac.compare_digest(final.signature, expected):
            raise RemoteProtocolError("the server does not know the password")


class BearerClient:
    """OAUTHBEARER (RFC 7628)."""

    def __init__(self, token: Secret, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self.is_done = False

    def begin(self) -> bytes:
        """Return the token."""
        return encode_bearer(BearerMessage(self._token.reveal(), extensions=self._extensions))

    def takes_long(self, challenge: bytes) -> bool:
        return False

    def respond(self, challenge: bytes) -> bytes | None:
        """Take that it was accepted; or take the refusal, upon which the server ends it."""
        if challenge:
            return ERROR_TAKEN
        self.is_done = True
        return None
