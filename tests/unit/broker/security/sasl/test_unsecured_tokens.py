"""Unsecured tokens: what they have to claim."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.security.sasl.oauthbearer import TokenRefused, ValidToken
from kraftrio.broker.security.sasl.unsecured_tokens import UnsecuredTokens
from kraftrio.wire.sasl.jws import encode_unsecured

NOW_S = 1_700_000_000
GOOD: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 10, "scope": ["a", "b"]}


def validate(token: str, **options: str) -> ValidToken:
    tokens = UnsecuredTokens({f"unsecuredValidator{name}": text for name, text in options.items()})
    return tokens.validate(token, NOW_S * 1000)


def test_a_token_in_time_stands_for_its_subject() -> None:
    assert validate(encode_unsecured(GOOD)) == ValidToken("alice", (NOW_S + 10) * 1000)
    assert validate(encode_unsecured({"sub": "alice", "exp": NOW_S + 1})).user == "alice"


def test_options_say_which_claims_count() -> None:
    token = encode_unsecured({"who": "bob", "exp": NOW_S - 1, "scp": "x"})
    options = {"PrincipalClaimName": "who", "ScopeClaimName": "scp", "RequiredScope": "x"}
    assert validate(token, **options, AllowableClockSkewMs="1001").user == "bob"
    with pytest.raises(TokenRefused):
        validate(token, **options, AllowableClockSkewMs="1000")


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": None},
        {"sub": " "},
        {"sub": 5},
        {"exp": None},
        {"exp": NOW_S},
        {"exp": "soon"},
        {"iat": NOW_S + 1},
        {"iat": NOW_S + 10, "exp": NOW_S + 10},
    ],
)
def test_a_token_that_does_not_hold(changes: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused) as refused:
        validate(encode_unsecured(GOOD | changes))
    assert refused.value.scope is None


def test_a_token_without_the_scope_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(TokenRefused) as refused:
        validate(encode_unsecured(GOOD), RequiredScope="a c")
    assert refused.value.scope == "[a, c]"


def test_a_signed_token_is_no_unsecured_one() -> None:
    header = "eyJhbGciOiJSUzI1NiJ9"  # RS256
    token = encode_unsecured(GOOD)
    for forged in (f"{header}.{token.split('.')[1]}.", f"{token}c2lnbmF0dXJl", "no token"):
        with pytest.raises(TokenRefused):
            validate(forged)


@pytest.mark.parametrize("skew", ["-1", "1.5", "long"])
def test_a_malformed_option_is_refused_in_one_sentence(skew: str) -> None:
    with pytest.raises(ValueError, match="unsecuredValidatorAllowableClockSkewMs is"):
        validate(encode_unsecured(GOOD), AllowableClockSkewMs=skew)
