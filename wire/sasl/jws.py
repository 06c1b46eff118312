"""JSON Web Tokens in their compact form (RFC 7515, RFC 7519): their parts, and unsecured ones.

Rule: what is read here is what the token says, not what is true: no signature has been checked.

Called by: `net/sasl` (makes unsecured tokens, looks when one expires) and the broker's
`security/sasl/` (checks tokens).
"""

from __future__ import annotations

import binascii
import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kraftrio.wire.errors import RemoteProtocolError

UNSECURED: Final = "none"

_MAX_NUMBER = 1e12  # the year 33,658


class Jws(NamedTuple):
    """A token's parts."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signature: bytes

    @property
    def algorithm(self) -> str:
        """How it is signed, `none` for an unsecured one."""
        return str(self.header.get("alg", ""))

    def number(self, claim: str) -> float | None:
        """Return a claim that is a time, in seconds since the epoch; None: there is none.

        Raises:
            RemoteProtocolError: it is not such a number.
        """
        value = self.claims.get(claim)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or abs(value) > _MAX_NUMBER or math.isnan(value):
            raise RemoteProtocolError(f"the token's claim {claim} is not a number of seconds")
        return float(value)

    def text(self, claim: str) -> str | None:
        """Return a claim that is a text; None: there is none.

        Raises:
            RemoteProtocolError: it is not a text.
        """
        value = self.claims.get(claim)
        if value is not None and not isinstance(value, str):
            raise RemoteProtocolError(f"the token's claim {claim} is not a text")
        return value

    def scope(self, claim: str) -> list[str]:
        """Return the scopes, which are a list of texts, or one text.

        Raises:
            RemoteProtocolError: they are neither.
        """
        value = self.claims.get(claim)
        if value is None:
            return []
        scopes = [value] if isinstance(value, str) else value
        if not isinstance(scopes, list) or not all(isinstance(one, str) for one in scopes):
            raise RemoteProtocolError(f"the token's claim {claim} is not a list of texts")
        return [one.strip() for one in scopes if one.strip()]


def parse_jws(token: str) -> Jws:
    """Read a token.

    Raises:
        RemoteProtocolError: there are not three parts, or they are not JSON objects in base64url.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise RemoteProtocolError(f"the token has {len(parts)} parts, not three")
    header, claims = (_object(part) for part in parts[:2])
    return Jws(header, claims, _bytes(parts[2]))


def encode_unsecured(claims: Mapping[str, Any]) -> str:
    """Return an unsecured token."""
    header = _base64({"alg": UNSECURED})
    return f"{header}.{_base64(claims)}."


def _base64(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _bytes(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError("the token is not base64url") from error


def _object(part: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_bytes(part))
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError("the token holds no JSON") from error
    if not isinstance(value, dict):
        raise RemoteProtocolError("the token holds no JSON object")
    return value
