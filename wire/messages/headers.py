"""The headers of requests and responses.

``api`` knows the header version of each version of an API. Protocol guide, "Request Header"
and "Response Header"; KIP-482 adds the tag section. The client id stays an old-style string even
in the flexible header, so that a server can read it before it knows the version (KIP-511).
"""

from __future__ import annotations

from kraftrio.wire.codec.message import int16, int32, message, string


@message("1-2", flexible="2+")
class RequestHeader:
    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string("1+", nullable="1+", ignorable=True, flexible="none")


@message("0-1", flexible="1+")
class ResponseHeader:
    correlation_id: int = int32()
