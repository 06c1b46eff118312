"""The server's side of PLAIN: users and passwords from the listener's JAAS text.

Behaviour (Apache Kafka's PlainSaslServer): a wrong user and a wrong password get the same answer.

Called by: `settings`, for each login.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kraftrio.broker.security.sasl.exchange import (
    OTHER_AUTHORIZATION_ID,
    AuthenticatedUser,
    LoginFailed,
)
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.plain import parse_plain

_USER_PREFIX = "user_"
_REFUSED = "Authentication failed: Invalid username or password"


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """Return the users with their passwords of a JAAS entry: its options `user_NAME`."""
    return {
        name.removeprefix(_USER_PREFIX): password
        for name, password in options.items()
        if name.startswith(_USER_PREFIX)
    }


class PlainExchange:
    """See the module; a `ServerExchange`."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.login: AuthenticatedUser | None = None

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Check the password."""
        try:
            message = parse_plain(response)
        except RemoteProtocolError as error:
            raise LoginFailed(str(error), str(error)) from error
        password = self._users.get(message.user)
        # Compared in any case, in a time that says nothing about the password.
        is_right = hmac.compare_digest((password or "").encode(), message.password.encode())
        if password is None or not is_right:
            reason = "no such user" if password is None else "wrong password"
            raise LoginFailed(reason, _REFUSED, message.user)
        if message.authorization_id not in ("", message.user):
            raise LoginFailed(
                "the user wants to act for another", OTHER_AUTHORIZATION_ID, message.user
            )
        self.login = AuthenticatedUser(message.user)
        return b""
