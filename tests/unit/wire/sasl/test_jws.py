"""The parts of JSON Web Tokens."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.jws import encode_unsecured, parse_jws


def test_an_unsecured_token_is_read_as_it_was_written() -> None:
    token = encode_unsecured({"sub": "alice", "exp": 12.5, "scope": ["a", " b "]})
    read = parse_jws(token)
    assert (read.algorithm, read.signature) == ("none", b"")
    assert (read.text("sub"), read.number("exp"), read.scope("scope")) == (
        "alice",
        12.5,
        ["a", "b"],
    )
    assert (read.text("iss"), read.number("iat"), read.scope("scp")) == (None, None, [])


def test_one_scope_may_be_a_text() -> None:
    assert parse_jws(encode_unsecured({"scope": "kafka"})).scope("scope") == ["kafka"]


def _part(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "!.!.", f"{_part('[]')}.{_part('{}')}.", f"{_part('{}')}.{_part('{')}.",
     f"{_part('{}')}.{_part('[' * 100_000)}."],
)  # fmt: skip
def test_no_token(token: str) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_jws(token)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1e300, 10**400])
def test_no_time(number: float) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_jws(encode_unsecured({"exp": number})).number("exp")


def test_claims_of_the_wrong_type() -> None:
    token = parse_jws(encode_unsecured({"sub": 1, "exp": True, "scope": [1]}))
    for read in (
        lambda: token.text("sub"),
        lambda: token.number("exp"),
        lambda: token.scope("scope"),
    ):
        with pytest.raises(RemoteProtocolError):
            read()
