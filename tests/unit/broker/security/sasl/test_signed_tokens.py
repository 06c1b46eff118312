"""Signed tokens: which signatures count, and which claims have to hold."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from kraftrio.broker.security.sasl.oauthbearer import TokenRefused, ValidToken
from kraftrio.broker.security.sasl.signed_tokens import ExpectedClaims, JsonWebKeys, SignedTokens
from kraftrio.wire.sasl.jws import encode_unsecured

NOW_S = 1_700_000_000
GOOD: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 10}
ES_KEY = ec.derive_private_key(12345, ec.SECP256R1())


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def text_of(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def of_number(number: int, size: int) -> str:
    return text_of(number.to_bytes(size, "big"))


def rsa_jwk(**more: Any) -> dict[str, Any]:
    numbers = rsa_key().public_key().public_numbers()
    return {"kty": "RSA", "n": of_number(numbers.n, 256), "e": of_number(numbers.e, 3), **more}


def es_jwk(**more: Any) -> dict[str, Any]:
    numbers = ES_KEY.public_key().public_numbers()
    return {
        "kty": "EC",
        "crv": "P-256",
        "x": of_number(numbers.x, 32),
        "y": of_number(numbers.y, 32),
        **more,
    }


def keys_of(*entries: Any) -> JsonWebKeys:
    keys = JsonWebKeys()
    keys.replace(json.dumps({"keys": list(entries)}))
    return keys


def signed(claims: Mapping[str, Any], algorithm: str, **header: Any) -> str:
    head = text_of(json.dumps({"alg": algorithm, **header}).encode())
    text = f"{head}.{text_of(json.dumps(claims).encode())}"
    digest = hashes.SHA256()
    if algorithm == "ES256":
        r, s = decode_dss_signature(ES_KEY.sign(text.encode(), ec.ECDSA(digest)))
        return f"{text}.{text_of(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
    scheme: Any = padding.PKCS1v15()
    if algorithm == "PS256":
        scheme = padding.PSS(padding.MGF1(digest), 32)
    return f"{text}.{text_of(rsa_key().sign(text.encode(), scheme, digest))}"


def validate(token: str, keys: JsonWebKeys | None = None, **expected: Any) -> ValidToken:
    tokens = SignedTokens(keys or keys_of(es_jwk(kid="e"), rsa_jwk()), ExpectedClaims(**expected))
    return tokens.validate(token, NOW_S * 1000)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_a_token_signed_by_a_known_key_stands_for_its_subject(algorithm: str) -> None:
    assert validate(signed(GOOD, algorithm)) == ValidToken("alice", (NOW_S + 10) * 1000)


def test_a_key_is_chosen_by_its_id() -> None:
    token = signed(GOOD, "ES256", kid="new")
    assert validate(token, keys_of(rsa_jwk(kid="old"), es_jwk(kid="new"))).user == "alice"
    asked = []
    keys = keys_of(es_jwk(kid="old"))
    keys.on_unknown = lambda: asked.append(1)
    with pytest.raises(TokenRefused, match="no key"):
        validate(token, keys)
    assert asked == [1]


@pytest.mark.parametrize(
    "forge",
    [
        lambda token: token[:-8] + "AAAAAAAA",
        lambda token: token.rpartition(".")[0] + ".",
        lambda token: (
            f"{token.split('.')[0]}.{text_of(json.dumps({**GOOD, 'sub': 'root'}).encode())}"
            f".{token.split('.')[2]}"
        ),
        lambda _token: encode_unsecured(GOOD),
        lambda _token: signed(GOOD, "HS256"),
        lambda _token: signed(GOOD, "ES256", crit=["b64"]),
        lambda _token: "no token",
    ],
)
def test_a_token_with_a_forged_signature(forge: Any) -> None:
    with pytest.raises(TokenRefused):
        validate(forge(signed(GOOD, "ES256")))


def test_a_key_checks_what_it_is_for() -> None:
    """Not what another use, algorithm or curve says; and no weak one at all."""
    weak = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    useless = (
        es_jwk(use="enc"),
        es_jwk(alg="RS256"),
        es_jwk(crv="P-384"),
        {"kty": "RSA", "n": of_number(weak.n, 128), "e": "AQAB"},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "EC"},
        {"kty": "RSA", "n": "!", "e": 3},
        "no key",
    )
    keys = keys_of(*useless)
    for algorithm in ("ES256", "RS256", "HS256"):
        assert keys.candidates(None, algorithm) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exp": NOW_S - 30}, {}),
        ({"exp": None}, {}),
        ({"iat": None}, {}),
        ({"exp": "soon"}, {}),
        ({"nbf": NOW_S + 31}, {}),
        ({"sub": None}, {}),
        ({"sub": " "}, {}),
        ({"sub": 7}, {}),
        ({"iss": "other"}, {"issuer": "us"}),
        ({}, {"issuer": "us"}),
        ({"aud": "other"}, {"audiences": ("kafka",)}),
        ({}, {"audiences": ("kafka",)}),
        ({"aud": "kafka"}, {}),  # nobody said that this is us
        ({}, {"subject_claim": "client_id"}),
        ({"scope": ["a", "a"]}, {}),
        ({"scope": 5}, {}),
    ],
)
def test_a_claim_that_does_not_hold(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        validate(signed(GOOD | changes, "ES256"), **expected)


def test_claims_that_hold() -> None:
    claims = {
        "exp": NOW_S - 29,
        "nbf": NOW_S + 29,
        "iss": "us",
        "aud": ["other", "kafka"],
        "client_id": "bob",
        "scp": "a",
    }
    token = validate(
        signed(GOOD | claims, "ES256"),
        issuer="us",
        audiences=("kafka", "more"),
        subject_claim="client_id",
        scope_claim="scp",
    )
    assert token == ValidToken("bob", (NOW_S - 29) * 1000)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": {}}', "[" * 100_000])
def test_no_set_of_keys_leaves_those_there_were(text: str) -> None:
    keys = keys_of(es_jwk())
    with pytest.raises(ValueError, match="the set of keys"):
        keys.replace(text)
    assert len(keys) == 1
