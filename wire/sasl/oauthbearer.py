"""OAUTHBEARER (RFC 7628): a bearer token from the client, and a refusal as JSON from the server.

Rules (Kafka's)
- Extensions (KIP-342) are names of letters with printable values; `auth` is not one.
- A server that refuses a token says so in a challenge; the client answers with one byte, 0x01, and
  then the exchange has failed.

Called by: both sides of an exchange, `net/sasl` and `broker/security/sasl`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftrio.wire.errors import RemoteProtocolError

OAUTHBEARER: Final = "OAUTHBEARER"
ERROR_TAKEN: Final = b"\x01"

_SEPARATOR = "\x01"
_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_VALUE = r"[\x20-\x7e\t\r\n]+"
_PAIR = rf"[A-Za-z]+={_VALUE}{_SEPARATOR}"
_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,{_SEPARATOR}(?P<pairs>(?:{_PAIR})*){_SEPARATOR}"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.A-Za-z0-9]+=*)", re.ASCII)
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(_VALUE)


class BearerMessage(NamedTuple):
    """What a client says."""

    token: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"BearerMessage(authorization_id={self.authorization_id!r})"


def check_extension(name: str, value: str) -> None:
    """Raise ValueError unless a client may send this extension."""
    if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of a SASL extension")
    if not _EXTENSION_VALUE.fullmatch(value):
        raise ValueError(f"the SASL extension {name} has a value that cannot be sent")


def encode_bearer(message: BearerMessage) -> bytes:
    """Return the message's bytes."""
    who = f"a={message.authorization_id}" if message.authorization_id else ""
    pairs = {"auth": f"Bearer {message.token}", **message.extensions}
    fields = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
    return f"n,{who},{_SEPARATOR}{fields}{_SEPARATOR}".encode()


def parse_bearer(response: bytes) -> BearerMessage:
    """Read the message.

    Raises:
        RemoteProtocolError: it is not a first message of OAUTHBEARER with a bearer token.
    """
    try:
        match = _FIRST.fullmatch(response.decode())
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("the OAUTHBEARER message is not UTF-8") from error
    if match is None:
        raise RemoteProtocolError("this is not a first message of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR) if pair)
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise RemoteProtocolError("the OAUTHBEARER message has no bearer token")
    authorization_id = (match["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(auth["token"], authorization_id, pairs)


def encode_refusal(status: str, scope: str | None = None) -> bytes:
    """Return the challenge that refuses a token, in the form of Kafka's."""
    text = f'{{"status":{json.dumps(status)}'
    if scope is not None:
        text += f', "scope":{json.dumps(scope)}'
    return f"{text}}}".encode()
