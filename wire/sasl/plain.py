"""PLAIN (RFC 4616): one message, with the user and the password in the clear.

Called by: both sides of an exchange, `net/sasl` and `broker/security/sasl`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftrio.wire.errors import RemoteProtocolError

PLAIN: Final = "PLAIN"

_PART_COUNT = 3


class PlainMessage(NamedTuple):
    """What a client says; `authorization_id` is the user it wants to act for, "" for itself."""

    authorization_id: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(user={self.user!r})"


def encode_plain(message: PlainMessage) -> bytes:
    """Return the message's bytes."""
    return "\0".join(message).encode()


def parse_plain(response: bytes) -> PlainMessage:
    """Read the message.

    Raises:
        RemoteProtocolError: there are not three parts, no user or no password, or it is not UTF-8.
    """
    try:
        parts = response.decode().split("\0")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("the PLAIN message is not UTF-8") from error
    if len(parts) != _PART_COUNT:
        raise RemoteProtocolError(
            f"Invalid SASL/PLAIN response: expected {_PART_COUNT} tokens, got {len(parts)}"
        )
    message = PlainMessage(*parts)
    if not message.user:
        raise RemoteProtocolError("Authentication failed: username not specified")
    if not message.password:
        raise RemoteProtocolError("Authentication failed: password not specified")
    return message
