"""The server's side of OAUTHBEARER (RFC 7628): a bearer token, and who it says the client is.

Behaviour (Apache Kafka's OAuthBearerSaslServer): a token that is refused is answered with JSON that
says so; the client's answer to that fails the exchange.

Called by: `settings`, for each login.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kraftrio.broker.security.sasl.exchange import AuthenticatedUser, LoginFailed
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.oauthbearer import (
    ERROR_TAKEN,
    check_extension,
    encode_refusal,
    parse_bearer,
)

INVALID_TOKEN = "invalid_token"
INSUFFICIENT_SCOPE = "insufficient_scope"


class ValidToken(NamedTuple):
    """Whom a token stands for, and until when by the wall clock."""

    user: str
    expires_at_ms: float


class TokenRefused(Exception):
    """A token is not valid.

    Attributes:
        reason: why, for the log of this node.
        scope: what it lacks; None: that is not why.
    """

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.scope = scope


class TokenValidator(Protocol):
    """Says whether tokens are valid."""

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Check a token.

        Raises:
            TokenRefused: it is not valid.
        """


class BearerExchange:
    """See the module; a `ServerExchange`."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: tuple[str, str] | None = None
        self.login: AuthenticatedUser | None = None

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Check the token."""
        if self._refusal is not None:
            reason, client_message = self._refusal
            if response == ERROR_TAKEN:
                raise LoginFailed(reason, client_message)
            raise RemoteProtocolError("the client goes on after its token was refused")
        message = parse_bearer(response)
        for name, value in message.extensions.items():
            try:
                check_extension(name, value)
            except ValueError as error:
                raise RemoteProtocolError(str(error)) from error
        try:
            token = self._validator.validate(message.token, now_ms)
        except TokenRefused as error:
            status = INVALID_TOKEN if error.scope is None else INSUFFICIENT_SCOPE
            refusal = encode_refusal(status, error.scope)
            self._refusal = error.reason, refusal.decode()
            return refusal
        if message.authorization_id not in ("", token.user):
            raise LoginFailed(
                "the user wants to act for another",
                "Authentication failed: Client requested an authorization id"
                f" ({message.authorization_id}) that is different from the token's principal name"
                f" ({token.user})",
                token.user,
            )
        self.login = AuthenticatedUser(token.user, token.expires_at_ms)
        return b""
