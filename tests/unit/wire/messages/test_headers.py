"""The request and response headers."""

from __future__ import annotations

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.headers import RequestHeader, ResponseHeader


def test_client_id_is_an_old_style_string_in_the_flexible_header() -> None:
    """Only the tag section is new in version 2."""
    header = RequestHeader(
        request_api_key=18, request_api_version=3, correlation_id=7, client_id="me"
    )
    assert encode(header, 1).hex() == "0012" + "0003" + "00000007" + "0002" + "6d65"
    assert encode(header, 2) == encode(header, 1) + b"\0"


def test_client_id_may_be_null() -> None:
    """A client need not have an id."""
    header = RequestHeader(correlation_id=1, client_id=None)
    data = encode(header, 2)
    assert data[8:10] == b"\xff\xff"
    assert decode(RequestHeader, 2, data) == (header, len(data))


def test_response_header() -> None:
    """It is the correlation id, and tags in version 1."""
    assert encode(ResponseHeader(correlation_id=9), 0).hex() == "00000009"
    assert encode(ResponseHeader(correlation_id=9), 1).hex() == "0000000900"
