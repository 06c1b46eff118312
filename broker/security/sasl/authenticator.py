"""The logins of one connection: the first, and those again while it lives (KIP-368).

Owns: `Authenticator`, sans-IO. The states, and what is legal in them (Kafka's
SaslServerAuthenticator):

    WAITING     nobody yet           handshake -> EXCHANGING
    EXCHANGING  tokens come          authenticate -> EXCHANGING, LOGGED_IN
    LOGGED_IN   somebody             requests; handshake -> EXCHANGING (again)
    FAILED      nobody, for good     nothing

Rules
1. A client that fails is refused for good: what comes after that ends the connection.
2. A login again must be by the same mechanism, and of the same user. It may begin once a second.
3. A login counts until its credential expires, or for `connections.max.reauth.ms`; a request after
   that, unless it begins the login again, ends the connection. Time is monotonic for this; that of
   credentials is the wall clock's.

Called by: `server/admission/sasl_admission` (the first login), `api/sasl` (those again),
`server/dispatch` (asks before each request).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from kraftrio.broker.security.principal import KafkaPrincipal
from kraftrio.broker.security.sasl.exchange import AuthenticatedUser, LoginFailed, ServerExchange
from kraftrio.broker.security.sasl.settings import ListenerSasl
from kraftrio.wire.errors import ErrorCode, RemoteProtocolError
from kraftrio.wire.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from kraftrio.wire.protocol.api import ApiKey

_LEAST_INTERVAL_MS: Final = 1000  # between two logins over one connection
_SHOWN = 100  # characters of a name
_LOGIN_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class AuthenticationRefused(Exception):
    """A login has failed.

    Attributes:
        reason: why, for this node's log.
        answer: sent to the client; None: its connection just ends.
        user: who it said it was, as far as it came to that.
    """

    def __init__(self, reason: str, answer: Any = None, user: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer
        self.user = user

    @property
    def described(self) -> str:
        """The reason on one line, with the user; what clients send does not fill logs."""
        return self.reason if self.user is None else f"{self.reason} user={self.user[:_SHOWN]!r}"


class _State(Enum):
    WAITING = "waiting"
    EXCHANGING = "exchanging"
    LOGGED_IN = "logged in"
    FAILED = "failed"


class Authenticator:
    """See the module.

    Args:
        wall_ms, monotonic_ms: the time, by each clock.
    """

    def __init__(
        self,
        sasl: ListenerSasl,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], float],
    ) -> None:
        self._sasl = sasl
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._state = _State.WAITING
        self._mechanism: str | None = None
        self._exchange: ServerExchange | None = None
        self._refused_mechanism: str | None = None  # a login again by another one
        self._login: AuthenticatedUser | None = None
        self._began_ms: float | None = None
        self._expires_at_ms: float | None = None

    @property
    def principal(self) -> KafkaPrincipal | None:
        """Who the client is; None: not authenticated, yet or any more."""
        if self._login is None or self._state is _State.FAILED:
            return None
        return KafkaPrincipal("User", self._login.user)

    @property
    def is_by_token(self) -> bool:
        """Whether the client has logged in by a delegation token."""
        return self._login is not None and self._login.is_by_token

    @property
    def is_exchanging(self) -> bool:
        """Whether a login is under way."""
        return self._state is _State.EXCHANGING

    @property
    def mechanism(self) -> str | None:
        """The mechanism of the login that there is, or is under way; None: none was agreed on."""
        return self._mechanism

    def check(self, api_key: int) -> None:
        """Raise RemoteProtocolError where a request may not be served now."""
        if self._state is _State.LOGGED_IN:
            expires_at_ms = self._expires_at_ms
            if (
                expires_at_ms is None
                or api_key == ApiKey.SASL_HANDSHAKE
                or self._monotonic_ms() < expires_at_ms
            ):
                return
            raise RemoteProtocolError("its login has expired")
        if self._state is _State.EXCHANGING and api_key in _LOGIN_APIS:
            return
        raise RemoteProtocolError(
            "its login failed" if self._state is _State.FAILED else "it logs in, and sends requests"
        )

    def handshake(self, mechanism: str) -> SaslHandshakeResponse:
        """Begin a login.

        Raises:
            AuthenticationRefused: the mechanism is not offered here.
        """
        if self._state not in (_State.WAITING, _State.LOGGED_IN):
            raise self._failed("SaslHandshake comes in the middle of a login")
        is_again = self._state is _State.LOGGED_IN
        now_ms = self._monotonic_ms()
        is_early = self._began_ms is not None and now_ms - self._began_ms < _LEAST_INTERVAL_MS
        if is_again and (self._expires_at_ms is None or is_early):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        names = self._sasl.names
        offered = self._sasl.mechanisms.get(mechanism)
        if offered is None:
            raise self._failed(
                f"the mechanism {mechanism[:40]!r} is not offered",
                SaslHandshakeResponse(
                    error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names
                ),
            )
        if is_again:
            self._began_ms = now_ms
        if is_again and mechanism != self._mechanism:
            self._refused_mechanism = mechanism
        else:
            self._mechanism = mechanism
            self._exchange = offered.new_exchange()
        self._state = _State.EXCHANGING
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=names)

    def authenticate(self, response: bytes) -> SaslAuthenticateResponse:
        """Take what the client says within SaslAuthenticate.

        Raises:
            AuthenticationRefused: the login has failed.
        """
        challenge = self.token(response)
        return SaslAuthenticateResponse(
            auth_bytes=challenge,
            error_message=None,
            session_lifetime_ms=0 if self.is_exchanging else self._lifetime_ms(),
        )

    def token(self, response: bytes) -> bytes:
        """Take what the client sent, as it is; return the answer.

        Raises:
            AuthenticationRefused: the login has failed.
        """
        if self._state is not _State.EXCHANGING:
            raise self._failed("a token comes when no login is under way")
        if self._refused_mechanism is not None:
            text = (
                f"SASL mechanism '{self._refused_mechanism}' requested by client is not supported"
                f" for re-authentication of mechanism '{self._mechanism}'"
            )
            raise self._refused(text, text)
        exchange = self._exchange
        assert exchange is not None, "a handshake makes it"
        try:
            challenge = exchange.evaluate(response, self._wall_ms())
        except LoginFailed as error:
            raise self._refused(error.reason, error.client_message, error.user) from error
        except RemoteProtocolError as error:
            raise self._refused(str(error), None) from error
        if exchange.login is not None:
            self._log_in(exchange.login)
        return challenge

    def _log_in(self, login: AuthenticatedUser) -> None:
        before = self._login
        if before is not None and (before.user, before.is_by_token) != (
            login.user,
            login.is_by_token,
        ):
            text = (
                f"Cannot change principals during re-authentication from User.{before.user}:"
                f" User.{login.user}"
            )
            raise self._refused(text, text, login.user)
        self._login = login
        self._exchange = None
        self._state = _State.LOGGED_IN
        lifetime_ms = self._lifetime_ms()
        has_end = login.expires_at_ms is not None or lifetime_ms > 0
        self._expires_at_ms = self._monotonic_ms() + lifetime_ms if has_end else None

    def _lifetime_ms(self) -> int:
        """How long the login counts from now on; 0 if it has no end, or is over already."""
        assert self._login is not None and self._mechanism is not None, "there is a login"
        max_reauth_ms = self._sasl.mechanisms[self._mechanism].max_reauth_ms
        if self._login.expires_at_ms is None:
            return max(max_reauth_ms, 0)
        left_ms = int(self._login.expires_at_ms - self._wall_ms())
        return max(min(left_ms, max_reauth_ms) if max_reauth_ms > 0 else left_ms, 0)

    def _refused(
        self, reason: str, client_message: str | None, user: str | None = None
    ) -> AuthenticationRefused:
        """The login failed by what the client sent; without a text it learns no details."""
        if client_message is None:
            which = "re-authentication" if self._login is not None else "authentication"
            client_message = (
                f"Authentication failed during {which} due to invalid credentials with SASL"
                f" mechanism {self._mechanism}"
            )
        answer = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=client_message,
            auth_bytes=b"",
        )
        return self._failed(reason, answer, user)

    def _failed(
        self, reason: str, answer: Any = None, user: str | None = None
    ) -> AuthenticationRefused:
        self._state = _State.FAILED
        self._exchange = None
        return AuthenticationRefused(reason, answer, user)
