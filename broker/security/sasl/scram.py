"""The server's side of SCRAM (RFC 5802): users by their credentials, tokens by their HMAC.

Rules
1. The exchange is done only by a proof that fits the credential which it began with, and which the
   user still has.
2. A user who has no credential is refused at once, as by Apache Kafka's ScramSaslServer; the
   client gets the answer to a wrong password.
3. With `tokenauth=true` the user is the id of a delegation token (KIP-48); the login is its
   owner's, and expires with it.

Called by: `settings`, for each login.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kraftrio.broker.security.sasl.exchange import (
    OTHER_AUTHORIZATION_ID,
    AuthenticatedUser,
    LoginFailed,
)
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.scram import (
    ClientFirst,
    ServerFinal,
    ServerFirst,
    auth_message,
    encode_server_final,
    parse_client_final,
    parse_client_first,
    server_first,
)
from kraftrio.wire.sasl.scram_keys import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
    is_proof,
    server_signature,
)


class TokenCredential(NamedTuple):
    """What a login by a delegation token is checked with."""

    owner: str
    credential: ScramCredential
    expires_at_ms: float


class ScramCredentials(Protocol):
    """Where credentials come from: the newest metadata."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential; None: it has none."""

    def token(
        self, mechanism: ScramMechanism, token_id: str, now_ms: int
    ) -> TokenCredential | None:
        """Return what goes with a delegation token that is valid; None: there is none."""


class _Begun(NamedTuple):
    """What the first step leaves for the second."""

    first: ClientFirst
    answer: ServerFirst
    credential: ScramCredential
    login: AuthenticatedUser


class ScramExchange:
    """See the module; a `ServerExchange`.

    Args:
        new_nonce: returns a random text of printable characters without commas.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: ScramCredentials,
        new_nonce: Callable[[], str],
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._new_nonce = new_nonce
        self._begun: _Begun | None = None
        self.login: AuthenticatedUser | None = None

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Take the client's first message, then its final one."""
        if self._begun is None:
            return self._begin(parse_client_first(response), now_ms)
        begun, self._begun = self._begun, None  # a client that fails starts over
        return self._finish(begun, response, now_ms)

    def _begin(self, first: ClientFirst, now_ms: int) -> bytes:
        login, credential = self._find(first, now_ms)
        if first.authorization_id not in ("", first.user):
            raise LoginFailed(
                "the user wants to act for another", OTHER_AUTHORIZATION_ID, first.user
            )
        if credential.iterations < MIN_ITERATIONS:
            raise LoginFailed("the credential has too few iterations", user=first.user)
        answer = server_first(
            first.nonce + self._new_nonce(), credential.salt, credential.iterations
        )
        self._begun = _Begun(first, answer, credential, login)
        return answer.text.encode()

    def _find(self, first: ClientFirst, now_ms: int) -> tuple[AuthenticatedUser, ScramCredential]:
        if first.is_token:
            token = self._credentials.token(self._mechanism, first.user, now_ms)
            if token is None:
                raise LoginFailed("no such delegation token", user=first.user)
            return AuthenticatedUser(
                token.owner, token.expires_at_ms, is_by_token=True
            ), token.credential
        credential = self._credentials.credential(self._mechanism, first.user)
        if credential is None:
            raise LoginFailed("the user has no credential of this mechanism", user=first.user)
        return AuthenticatedUser(first.user), credential

    def _finish(self, begun: _Begun, response: bytes, now_ms: int) -> bytes:
        final = parse_client_final(response)
        if final.header != begun.first.header.encode():
            raise RemoteProtocolError("the final message of SCRAM is about another first one")
        # librdkafka before 2.10.1 puts its own nonce before that once more, and signs it so. What
        # counts is that this server's part, new for each login, is signed.
        if not final.nonce.endswith(begun.answer.nonce):
            raise RemoteProtocolError("the final message of SCRAM has another nonce")
        signed = auth_message(begun.first, begun.answer, final.unsigned)
        if not is_proof(self._mechanism, begun.credential, final.proof, signed):
            raise LoginFailed("wrong password", user=begun.first.user)
        if self._find(begun.first, now_ms) != (begun.login, begun.credential):
            raise LoginFailed("the credential was changed meanwhile", user=begun.first.user)
        self.login = begun.login
        key = begun.credential.server_key
        return encode_server_final(ServerFinal(server_signature(self._mechanism, key, signed)))
