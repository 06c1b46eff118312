"""Signed tokens (RFC 7515, RFC 7519): whether a key of the provider's has signed them, and whether
what they claim holds.

Behaviour (Kafka's BrokerJwtValidator): the token names when it was issued and when it expires, and
a subject; audience and issuer are those that the settings expect. A token for some audience is
refused where none is expected. Only signatures with a public key count (RS, PS and ES): a key that
checks is nothing that could sign.

Called by: `settings` (makes it), `oauthbearer`. The keys are put in by the reader of the file or
asks the provider (`JsonWebKeys.replace`).
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from kraftrio.broker.security.sasl.oauthbearer import TokenRefused, ValidToken
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.jws import Jws, parse_jws

_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_CURVES: Final[Mapping[str, tuple[ec.EllipticCurve, str]]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}
_MIN_RSA_BITS = 2048


class _Key(NamedTuple):
    """A public key, and which signatures it may check."""

    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    algorithms: frozenset[str]


class JsonWebKeys:
    """The provider's keys by their ids (RFC 7517).

    Args:
        on_unknown: called when a token names a key that is not here: there may be new ones.
    """

    def __init__(self, on_unknown: Callable[[], object] = lambda: None) -> None:
        self.on_unknown = on_unknown
        self._keys: list[tuple[str | None, _Key]] = []

    def replace(self, text: str | bytes) -> None:
        """Take these keys in the place of all others; those of other kinds are passed over.

        Raises:
            ValueError: the text is not a set of keys; the message is one plain sentence.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("the set of keys is no JSON") from error
        entries = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(entries, list):
            raise ValueError("the set of keys has no list of keys")
        keys = [_key(entry) for entry in entries if isinstance(entry, dict)]
        self._keys = [key for key in keys if key is not None]

    def __len__(self) -> int:
        return len(self._keys)

    def candidates(self, key_id: object, algorithm: str) -> list[_Key]:
        """Return the keys that may have signed a token."""
        found = [
            key
            for known_id, key in self._keys
            if algorithm in key.algorithms and (key_id is None or key_id == known_id)
        ]
        if not found:
            self.on_unknown()
        return found


@dataclass(frozen=True, slots=True)
class ExpectedClaims:
    """What tokens have to claim: the settings `sasl.oauthbearer.*`."""

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: float = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class SignedTokens:
    """See the module; a `TokenValidator`."""

    def __init__(self, keys: JsonWebKeys, expected: ExpectedClaims) -> None:
        self._keys = keys
        self._expected = expected

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Check the signature, then the claims."""
        try:
            parts = parse_jws(token)
            self._check_signature(parts, token)
            return self._check_claims(parts, now_ms / 1000)
        except RemoteProtocolError as error:
            raise TokenRefused(str(error)) from error

    def _check_signature(self, parts: Jws, token: str) -> None:
        if "crit" in parts.header:
            raise TokenRefused("the token's header demands what is not known here")
        signed = token.rpartition(".")[0].encode()
        keys = self._keys.candidates(parts.header.get("kid"), parts.algorithm)
        if not keys:
            raise TokenRefused("no key of the provider's fits the token")
        if not any(_is_signed(key, parts.algorithm, parts.signature, signed) for key in keys):
            raise TokenRefused("the token's signature is wrong")

    def _check_claims(self, parts: Jws, now_s: float) -> ValidToken:
        expected, skew_s = self._expected, self._expected.clock_skew_s
        expires_s, issued_s = parts.number("exp"), parts.number("iat")
        not_before_s = parts.number("nbf")
        if expires_s is None or issued_s is None:
            raise TokenRefused("the token does not say when it was issued, and when it expires")
        if now_s - skew_s >= expires_s:
            raise TokenRefused("the token has expired")
        if not_before_s is not None and now_s + skew_s < not_before_s:
            raise TokenRefused("the token is not valid yet")
        if expected.issuer is not None and parts.text("iss") != expected.issuer:
            raise TokenRefused("the token is of another issuer")
        audience = parts.claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if audience is None:
            if expected.audiences:
                raise TokenRefused("the token names no audience")
        elif not any(one in expected.audiences for one in audiences):
            raise TokenRefused("the token is for another audience")
        scope = parts.scope(expected.scope_claim)
        if len(set(scope)) != len(scope):
            raise TokenRefused("the token names a scope twice")
        user = parts.text(expected.subject_claim)
        if user is None or not user.strip():
            raise TokenRefused(f"the token has no claim {expected.subject_claim}")
        return ValidToken(user.strip(), expires_s * 1000)


def _is_signed(key: _Key, algorithm: str, signature: bytes, signed: bytes) -> bool:
    kind, digest = algorithm[:2], _HASHES[algorithm[2:]]
    try:
        if isinstance(key.key, rsa.RSAPublicKey):
            scheme: Any = (
                padding.PSS(padding.MGF1(digest), digest.digest_size)
                if kind == "PS"
                else padding.PKCS1v15()
            )
            key.key.verify(signature, signed, scheme, digest)
            return True
        # r and s side by side (RFC 7518, section 3.4)
        size = (key.key.key_size + 7) // 8
        if len(signature) != 2 * size:
            return False
        numbers = (int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big"))
        key.key.verify(encode_dss_signature(*numbers), signed, ec.ECDSA(digest))
    except InvalidSignature:
        return False
    return True


def _key(entry: Mapping[str, Any]) -> tuple[str | None, _Key] | None:
    """Read one key; None: it is of another kind, for another use, or malformed."""
    if entry.get("use", "sig") != "sig":
        return None
    try:
        key = _public_key(entry)
    except (KeyError, ValueError, TypeError, binascii.Error):
        return None
    if key is None:
        return None
    named = entry.get("alg")
    if named is not None:
        key = key._replace(algorithms=key.algorithms & {str(named)})
    key_id = entry.get("kid")
    return (key_id if isinstance(key_id, str) else None), key


def _public_key(entry: Mapping[str, Any]) -> _Key | None:
    if entry["kty"] == "RSA":
        key = rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key()
        if key.key_size < _MIN_RSA_BITS:
            return None
        return _Key(key, frozenset(kind + size for kind in ("RS", "PS") for size in _HASHES))
    if entry["kty"] == "EC":
        curve, algorithm = _CURVES[entry["crv"]]
        numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), curve)
        return _Key(numbers.public_key(), frozenset({algorithm}))
    return None


def _number(text: str) -> int:
    return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
