"""The four messages of SCRAM (RFC 5802): texts to values and back.

Rules
1. There is no channel binding: the GS2 header is `n,,`, or `n,a=USER,`.
2. Each message keeps the text that both sides sign (`auth_message`), as it came.
3. The extension `tokenauth=true` of the first message says that the user is the id of a delegation
   token (KIP-48); others are ignored, but for mandatory ones (`m=`), which are refused.

Called by: both sides of an exchange, `net/sasl` and `broker/security/sasl`.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftrio.wire.errors import RemoteProtocolError

TOKEN_EXTENSION: Final = "tokenauth"

_MAX_ITERATIONS_DIGITS = 9

_NAME = r"(?:[^\x00=,]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"

_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unsigned>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^,]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ClientFirst(NamedTuple):
    """Who the client is; `bare` is what is signed of it."""

    user: str
    nonce: str
    authorization_id: str
    extensions: Mapping[str, str]
    header: str
    bare: str

    @property
    def is_token(self) -> bool:
        """Whether the user is the id of a delegation token."""
        return self.extensions.get(TOKEN_EXTENSION, "").lower() == "true"


class ServerFirst(NamedTuple):
    """How to salt the password; the nonce begins with the client's."""

    nonce: str
    salt: bytes
    iterations: int
    text: str


class ClientFinal(NamedTuple):
    """The proof; `unsigned` is what is signed of it."""

    header: bytes
    nonce: str
    proof: bytes
    unsigned: str


class ServerFinal(NamedTuple):
    """The server's signature, or why it refuses."""

    signature: bytes
    error: str | None = None


def client_first(user: str, nonce: str, extensions: Mapping[str, str] | None = None) -> ClientFirst:
    """Return a client's first message."""
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    for name, value in (extensions or {}).items():
        bare += f",{name}={value}"
    return ClientFirst(user, nonce, "", dict(extensions or {}), "n,,", bare)


def encode_client_first(message: ClientFirst) -> bytes:
    """Return the message's bytes."""
    return (message.header + message.bare).encode()


def parse_client_first(response: bytes) -> ClientFirst:
    """Read a client's first message (RemoteProtocolError: it is malformed)."""
    match = _match(_CLIENT_FIRST, response, "first message of a client")
    return ClientFirst(
        user=_user(match["user"]),
        nonce=match["nonce"],
        authorization_id=_user(match["authorization_id"] or ""),
        extensions=_extensions(match["extensions"]),
        header=match["header"],
        bare=match["bare"],
    )


def server_first(nonce: str, salt: bytes, iterations: int) -> ServerFirst:
    """Return a server's first message."""
    text = f"r={nonce},s={b64encode(salt).decode()},i={iterations}"
    return ServerFirst(nonce, salt, iterations, text)


def parse_server_first(challenge: bytes) -> ServerFirst:
    """Read a server's first message (RemoteProtocolError: it is malformed)."""
    match = _match(_SERVER_FIRST, challenge, "first message of a server")
    digits = match["iterations"]
    if len(digits) > _MAX_ITERATIONS_DIGITS or int(digits) <= 0:
        raise RemoteProtocolError(f"a SCRAM server asks for {digits[:12]} iterations")
    return ServerFirst(match["nonce"], _bytes(match["salt"]), int(digits), match[0])


def client_final(header: str, nonce: str) -> str:
    """Return a client's final message without its proof."""
    return f"c={b64encode(header.encode()).decode()},r={nonce}"


def encode_client_final(unsigned: str, proof: bytes) -> bytes:
    """Return the bytes of a client's final message."""
    return f"{unsigned},p={b64encode(proof).decode()}".encode()


def parse_client_final(response: bytes) -> ClientFinal:
    """Read a client's final message (RemoteProtocolError: it is malformed)."""
    match = _match(_CLIENT_FINAL, response, "final message of a client")
    return ClientFinal(
        _bytes(match["binding"]), match["nonce"], _bytes(match["proof"]), match["unsigned"]
    )


def encode_server_final(message: ServerFinal) -> bytes:
    """Return the bytes of a server's final message."""
    if message.error is not None:
        return f"e={message.error}".encode()
    return b"v=" + b64encode(message.signature)


def parse_server_final(challenge: bytes) -> ServerFinal:
    """Read a server's final message (RemoteProtocolError: it is malformed)."""
    match = _match(_SERVER_FINAL, challenge, "final message of a server")
    return ServerFinal(_bytes(match["signature"] or ""), match["error"])


def auth_message(first: ClientFirst, server: ServerFirst, unsigned: str) -> bytes:
    """Return what both sides sign."""
    return f"{first.bare},{server.text},{unsigned}".encode()


def _match(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"the {what} of SCRAM is not UTF-8") from error
    if match is None:
        raise RemoteProtocolError(f"this is no {what} of SCRAM")
    return match


def _user(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _extensions(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise RemoteProtocolError("a SCRAM message has no valid base64") from error
