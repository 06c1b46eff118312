"""Messages of authentication and authorization."""

from __future__ import annotations

from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.messages.security import (
    DescribeAclsRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)


def test_handshake_is_never_flexible() -> None:
    """Its newest version still has old-style strings and no tags."""
    assert encode(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1).hex() == (
        "0000" + "00000001" + "0005" + b"PLAIN".hex()
    )


def test_session_lifetime_is_left_out_for_old_clients() -> None:
    """Clients before version 1 are not told when to authenticate again."""
    response = SaslAuthenticateResponse(auth_bytes=b"ok", session_lifetime_ms=1000)
    assert decode(SaslAuthenticateResponse, 0, encode(response, 0))[0].session_lifetime_ms == 0
    assert decode(SaslAuthenticateResponse, 2, encode(response, 2))[0] == response


def test_acl_patterns_are_literal_by_default() -> None:
    """The default of a filter is the literal pattern type, and null matches any name."""
    request = DescribeAclsRequest(resource_name_filter=None)
    decoded, _ = decode(DescribeAclsRequest, 3, encode(request, 3))
    assert decoded.pattern_type_filter == 3
    assert decoded.resource_name_filter is None
