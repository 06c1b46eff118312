"""The messages of OAUTHBEARER."""

from __future__ import annotations

import pytest

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.oauthbearer import (
    BearerMessage,
    check_extension,
    encode_bearer,
    encode_refusal,
    parse_bearer,
)


def test_a_message_is_read_as_it_was_written() -> None:
    message = BearerMessage("a.b-c_d==", "alice", {"traceId": "12 3"})
    assert parse_bearer(encode_bearer(message)) == message
    assert encode_bearer(BearerMessage("t.k.n")) == b"n,,\x01auth=Bearer t.k.n\x01\x01"
    assert "a.b" not in repr(message)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_no_message(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_bearer(text)


def test_a_refusal_is_json() -> None:
    assert encode_refusal("invalid_token") == b'{"status":"invalid_token"}'
    assert encode_refusal("insufficient_scope", "kafka") == (
        b'{"status":"insufficient_scope", "scope":"kafka"}'
    )


@pytest.mark.parametrize(("name", "value"), [("auth", "x"), ("a1", "x"), ("a", ""), ("a", "\x01")])
def test_no_extension(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="extension"):
        check_extension(name, value)
