"""Requests whose principal the controller has to know, on their way to it: envelopes (KIP-590).

Owns: a `TokenRequest`, or a request that is counted for its sender, as bytes: an EnvelopeRequest
with the client's own request and its principal in Kafka's form, and back; the same for its
response. Other requests go as they are: that their client may send them was checked by the broker
that took them.

Pure. Called by: controller/client.py (wraps), api/envelope.py (unwraps).
"""

from __future__ import annotations

from ipaddress import ip_address
from struct import Struct, error
from typing import Any, Final, NamedTuple

from kraftrio.kraft_meta.controller.error_responses import error_response
from kraftrio.kraft_meta.controller.mutation_quota import STRICT_SINCE, RequestSender
from kraftrio.kraft_meta.controller.security.token_control import TOKEN_REQUESTS, TokenRequest
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
_USER_TYPE = "User"
_NO_ADDRESS = b"\x7f\0\0\1"
_FIRST_BYTES = Struct(">hh")


class Unwrapped(NamedTuple):
    """What an envelope holds; `sender` is who sends it, where it is counted."""

    request: Any
    sender: RequestSender
    api_version: int
    correlation_id: int


def wrap(request: Any, api_version: int, sender: RequestSender | None = None) -> EnvelopeRequest:
    """Return the envelope of a request, of one that is not about tokens with its sender."""
    key = _key(request)
    client_id, address = "", _NO_ADDRESS
    if isinstance(request, TokenRequest):
        principal = DefaultPrincipalData(type=request.principal_type, name=request.principal_name)
    else:
        assert sender is not None, "a request that is counted for somebody"
        principal = DefaultPrincipalData(type=_USER_TYPE, name=sender.user)
        client_id, address = sender.client_id, _address(sender.host)
    header = RequestHeader(
        request_api_key=key, request_api_version=api_version, correlation_id=0, client_id=client_id
    )
    return EnvelopeRequest(
        request_data=encode(header, request_header_version(key, api_version))
        + encode(_message(request), api_version),
        request_principal=_VERSION.pack(_PRINCIPAL_VERSION) + encode(principal, _PRINCIPAL_VERSION),
        client_host_address=address,
    )


def _address(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError:  # a name
        return _NO_ADDRESS


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
    request: Any = message
    if isinstance(message, TOKEN_REQUESTS):
        request = TokenRequest(message, principal.type, principal.name)
    elif type(message) not in STRICT_SINCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "brokers forward this without an envelope")
    return Unwrapped(
        request,
        RequestSender(principal.name, header.client_id or ""),
        api_version,
        header.correlation_id,
    )


def wrap_response(response: Any, unwrapped: Unwrapped) -> EnvelopeResponse:
    """Return the envelope of a response."""
    version = unwrapped.api_version
    header = ResponseHeader(correlation_id=unwrapped.correlation_id)
    header_version = response_header_version(_key(unwrapped.request), version)
    return EnvelopeResponse(
        response_data=encode(header, header_version) + encode(response, version)
    )


def unwrap_response(request: Any, api_version: int, envelope: EnvelopeResponse) -> Any:
    """Return the response that an envelope holds, or one with the envelope's error."""
    key = _key(request)
    code = envelope.error_code
    if code is ErrorCode.NONE:
        data = bytes(envelope.response_data or b"")
        try:
            _, position = decode(ResponseHeader, response_header_version(key, api_version), data)
            return decode(APIS[key].response, api_version, data, position)[0]
        except RemoteProtocolError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
    return error_response(request, code)


def _message(request: Any) -> Any:
    return request.message if isinstance(request, TokenRequest) else request


def _key(request: Any) -> ApiKey:
    key = spec_of(type(_message(request))).api_key
    assert key is not None, "requests have a key"
    return ApiKey(key)
