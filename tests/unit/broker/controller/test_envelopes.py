"""Envelopes: what a controller gets of a request, its principal, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from kraftrio.broker.controller.envelopes import unwrap, unwrap_response, wrap, wrap_response
from kraftrio.kraft_meta.controller.mutation_quota import RequestSender
from kraftrio.kraft_meta.controller.security.token_control import TokenRequest
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.admin import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    ElectLeadersRequest,
)
from kraftrio.wire.messages.quorum import EnvelopeRequest, EnvelopeResponse
from kraftrio.wire.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
)

EXAMPLES: list[tuple[Any, int]] = [
    (CreateDelegationTokenRequest(max_lifetime_ms=5), 1),
    (CreateDelegationTokenRequest(max_lifetime_ms=5, owner_principal_name="bob"), 3),
    (RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=7), 2),
    (ExpireDelegationTokenRequest(hmac=b"h", expiry_time_period_ms=-1), 1),
]


@pytest.mark.parametrize(("message", "version"), EXAMPLES)
def test_a_request_comes_out_as_it_went_in(message: Any, version: int) -> None:
    request = TokenRequest(message, "User", "älice")
    envelope, _ = decode(EnvelopeRequest, 0, encode(wrap(request, version), 0))
    unwrapped = unwrap(envelope)
    assert (unwrapped.request, unwrapped.api_version) == (request, version)


def test_a_response_comes_out_as_it_went_in() -> None:
    request = TokenRequest(EXAMPLES[1][0], "User", "alice")
    response = CreateDelegationTokenResponse(token_id="id", hmac=b"h", issue_timestamp_ms=3)
    unwrapped = unwrap(wrap(request, 3))
    envelope, _ = decode(EnvelopeResponse, 0, encode(wrap_response(response, unwrapped), 0))
    assert unwrap_response(request, 3, envelope) == response


def test_an_envelope_s_error_is_the_request_s() -> None:
    request = TokenRequest(EXAMPLES[3][0], "User", "alice")
    refused = EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    answer = unwrap_response(request, 1, refused)
    assert isinstance(answer, ExpireDelegationTokenResponse)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "change",
    [
        {"request_data": b""},
        {"request_data": b"\x7f\xff\0\0\0\0\0\0\0\0"},
        {"request_data": b"\0\x26\0\x09\0\0\0\0\0\0"},
        {"request_principal": None},
        {"request_principal": b"\0\1"},
        {"request_principal": b"\0\0"},
    ],
)
def test_an_envelope_that_holds_nothing(change: dict[str, Any]) -> None:
    envelope = wrap(TokenRequest(EXAMPLES[2][0], "User", "alice"), 2)
    for name, value in change.items():
        setattr(envelope, name, value)
    with pytest.raises(KafkaError) as refused:
        unwrap(envelope)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_what_needs_no_envelope_is_refused_in_one() -> None:
    with pytest.raises(KafkaError):
        unwrap(wrap(TokenRequest(ElectLeadersRequest(), "User", "alice"), 2))


ALICE = RequestSender("älice", "app", "10.1.2.3")
CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3)])


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_a_request_that_is_counted_comes_with_its_sender(version: int) -> None:
    envelope = wrap(CREATE, version, ALICE)
    assert envelope.client_host_address == bytes([10, 1, 2, 3])
    unwrapped = unwrap(envelope)
    assert unwrapped.sender == RequestSender("älice", "app")
    assert (unwrapped.api_version, unwrapped.request.topics[0].name) == (version, "t")
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t")], throttle_time_ms=7)
    answer = unwrap_response(CREATE, version, wrap_response(response, unwrapped))
    assert (answer.topics[0].name, answer.throttle_time_ms) == ("t", 7)


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (
            EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        (EnvelopeResponse(response_data=None), ErrorCode.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0\0\0\x01\0\x7f"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_each_item(
    envelope: EnvelopeResponse, code: ErrorCode
) -> None:
    (topic,) = unwrap_response(CREATE, 7, envelope).topics
    assert (topic.name, topic.error_code) == ("t", code)
