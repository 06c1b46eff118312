"""What the mechanisms have in common: `ServerExchange`, and how it ends.

Rules
1. An exchange serves one login. It is done when `login` is there; until then the client is
   not authenticated.
2. A failure says why in two forms: `reason` for the log of this node, and `client_message`
   for the client, which without it learns only that its credentials are invalid: it is not to
   find out whether a user exists.

Called by: `authentication`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class AuthenticatedUser(NamedTuple):
    """Who a client has shown to be.

    Attributes:
        expires_at_ms: when its credential expires, by the wall clock; None: never.
        is_by_token: it came with a delegation token.
    """

    user: str
    expires_at_ms: float | None = None
    is_by_token: bool = False


class LoginFailed(Exception):
    """The client has not shown who it is."""

    def __init__(
        self, reason: str, client_message: str | None = None, user: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.client_message = client_message
        self.user = user


class ServerExchange(Protocol):
    """One login by one mechanism."""

    @property
    def login(self) -> AuthenticatedUser | None:
        """Who the client is; None: not known yet."""

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Take what the client sent; return the answer.

        Args:
            now_ms: the wall clock's time.

        Raises:
            LoginFailed: this exchange is over.
            RemoteProtocolError: the same, since the client breaks the rules of the mechanism.
        """


OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
