"""Unsecured tokens, as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler checks them: for tests.

Behaviour: a token without a signature, whose claims are in time and name a user. Options of the
login module: unsecuredValidatorPrincipalClaimName, unsecuredValidatorScopeClaimName,
unsecuredValidatorRequiredScope, unsecuredValidatorAllowableClockSkewMs.

Called by: `settings` (makes it), `oauthbearer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftrio.broker.security.sasl.oauthbearer import TokenRefused, ValidToken
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.jws import UNSECURED, parse_jws

_PREFIX = "unsecuredValidator"


class UnsecuredTokens:
    """See the module; a `TokenValidator`.

    Raises:
        ValueError: an option is malformed; the message is one plain sentence.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        def option(name: str) -> str:
            return options.get(_PREFIX + name, "").strip()

        self._principal_claim = option("PrincipalClaimName") or "sub"
        self._scope_claim = option("ScopeClaimName") or "scope"
        self._required_scope = option("RequiredScope").split()
        skew = option("AllowableClockSkewMs") or "0"
        if not (skew.isascii() and skew.isdigit()):
            raise ValueError(
                f"the option {_PREFIX}AllowableClockSkewMs is {skew!r}, not a number of"
                " milliseconds"
            )
        self._skew_ms = int(skew)

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Check what the token claims."""
        try:
            return self._check(token, now_ms)
        except RemoteProtocolError as error:
            raise TokenRefused(str(error)) from error

    def _check(self, token: str, now_ms: int) -> ValidToken:
        parts = parse_jws(token)
        if parts.algorithm != UNSECURED or parts.signature:
            raise TokenRefused("the token is signed, which nobody here can check")
        user = parts.text(self._principal_claim)
        if user is None or not user.strip():
            raise TokenRefused(f"the token has no claim {self._principal_claim}")
        issued_s, expires_s = parts.number("iat"), parts.number("exp")
        if expires_s is None:
            raise TokenRefused("the token never expires")
        if issued_s is not None and issued_s * 1000 > now_ms + self._skew_ms:
            raise TokenRefused("the token is issued in the future")
        if now_ms - self._skew_ms >= expires_s * 1000:
            raise TokenRefused("the token has expired")
        if issued_s is not None and expires_s <= issued_s:
            raise TokenRefused("the token expires before it is issued")
        scope = parts.scope(self._scope_claim)
        if not set(self._required_scope) <= set(scope):
            wanted = ", ".join(self._required_scope)
            raise TokenRefused(f"the token lacks the scope {wanted}", f"[{wanted}]")
        return ValidToken(user, expires_s * 1000)
