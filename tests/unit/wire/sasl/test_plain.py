"""The message of PLAIN."""

from __future__ import annotations

import pytest

from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.sasl.plain import PlainMessage, encode_plain, parse_plain


def test_a_message_is_read_as_it_was_written() -> None:
    message = PlainMessage("", "älice", "pass word")
    assert encode_plain(message) == "\0älice\0pass word".encode()
    assert parse_plain(encode_plain(message)) == message
    assert "pass word" not in repr(message)


@pytest.mark.parametrize(
    "text", [b"", b"\0user", b"\0\0password", b"\0user\0", b"\0a\0b\0c", b"\0\xff\0b"]
)
def test_no_message(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        parse_plain(text)
    assert "password" not in str(refused.value).replace("password not specified", "")
