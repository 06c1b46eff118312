"""Requests whose principal the controller has to know, on their way to it: envelopes (KIP-590).

Owns: a `TokenRequest` as bytes, an EnvelopeRequest with the client's own request and its principal
in Kafka's form, and back; likewise its response. Other requests go as they are: that their client
may send them was checked by the broker that took them.

Pure. Called by: controller/client.py (wraps), api/envelope.py (unwraps).
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final, NamedTuple

from kraftrio.kraft_meta.controller.token_control import TOKEN_REQUESTS, TokenRequest
from kraftrio.wire.codec.message import decode, encode, spec_of
from kraftrio.wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftrio.wire.messages.headers import RequestHeader, ResponseHeader
from kraftrio.wire.messages.quorum import EnvelopeRequest, EnvelopeResponse
from kraftrio.wire.messages.security import DefaultPrincipalData
from kraftrio.wire.protocol.api import (
    APIS,
    ApiKey,
    decode_request,
    request_header_version,
    response_header_version,
)

ENVELOPE_VERSION: Final = 0

_VERSION = Struct(">h")
_PRINCIPAL_VERSION = 0
_NO_ADDRESS = b"\x7f\0\0\1"
_FIRST_BYTES = Struct(">hh")


class Unwrapped(NamedTuple):
    """What an envelope holds."""

    request: TokenRequest
    api_version: int
    correlation_id: int
    is_by_token: bool


def wrap(request: TokenRequest, api_version: int) -> EnvelopeRequest:
    """Return the envelope of a request."""
    key = _key(request)
    header = RequestHeader(
        request_api_key=key, request_api_version=api_version, correlation_id=0, client_id=""
    )
    principal = DefaultPrincipalData(type=request.principal_type, name=request.principal_name)
    return EnvelopeRequest(
        request_data=encode(header, request_header_version(key, api_version))
        + encode(request.message, api_version),
        request_principal=_VERSION.pack(_PRINCIPAL_VERSION) + encode(principal, _PRINCIPAL_VERSION),
        client_host_address=_NO_ADDRESS,
    )


def unwrap(envelope: EnvelopeRequest) -> Unwrapped:
    """Return what an envelope holds.

    Raises:
        KafkaError: it is malformed, or of a kind that needs none.
    """
    data, principal_data = bytes(envelope.request_data), bytes(envelope.request_principal or b"")
    try:
        key, api_version = _FIRST_BYTES.unpack_from(data)
        header_version = request_header_version(ApiKey(key), api_version)
        header, position = decode(RequestHeader, header_version, data)
        message = decode_request(APIS[ApiKey(key)], api_version, data, position)
        if _VERSION.unpack_from(principal_data)[0] != _PRINCIPAL_VERSION:
            raise RemoteProtocolError("the principal is of another version")
        principal, _ = decode(
            DefaultPrincipalData, _PRINCIPAL_VERSION, principal_data, _VERSION.size
        )
    except (error, ValueError, KeyError, RemoteProtocolError) as malformed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(malformed)) from malformed
    if not isinstance(message, TOKEN_REQUESTS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "brokers forward this without an envelope")
    return Unwrapped(
        TokenRequest(message, principal.type, principal.name),
        api_version,
        header.correlation_id,
        principal.token_authenticated,
    )


def wrap_response(response: Any, unwrapped: Unwrapped) -> EnvelopeResponse:
    """Return the envelope of a response."""
    version = unwrapped.api_version
    header = ResponseHeader(correlation_id=unwrapped.correlation_id)
    header_version = response_header_version(_key(unwrapped.request), version)
    return EnvelopeResponse(
        response_data=encode(header, header_version) + encode(response, version)
    )


def unwrap_response(request: TokenRequest, api_version: int, envelope: EnvelopeResponse) -> Any:
    """Return the response that an envelope holds, or one with the envelope's error."""
    key = _key(request)
    response_class = APIS[key].response
    if envelope.error_code != ErrorCode.NONE or envelope.response_data is None:
        return response_class(error_code=envelope.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
    data = bytes(envelope.response_data)
    _, position = decode(ResponseHeader, response_header_version(key, api_version), data)
    return decode(response_class, api_version, data, position)[0]


def _key(request: TokenRequest) -> ApiKey:
    key = spec_of(type(request.message)).api_key
    assert key is not None, "requests have a key"
    return ApiKey(key)
