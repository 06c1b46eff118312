"""Error codes are found wherever a response has them."""

from __future__ import annotations

from kraftrio.broker.server.response_errors import error_codes
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.admin import CreatableTopicResult, CreateTopicsResponse
from kraftrio.wire.messages.data import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kraftrio.wire.messages.groups import HeartbeatResponse


def produced(*codes: ErrorCode) -> ProduceResponse:
    answers = [PartitionProduceResponse(index=0, error_code=code) for code in codes]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])


def test_none_is_no_error() -> None:
    assert error_codes(produced(ErrorCode.NONE, ErrorCode.NONE)) == []


def test_each_entry_counts() -> None:
    stale, full = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR
    assert error_codes(produced(stale, ErrorCode.NONE, full, stale)) == [stale, full, stale]


def test_codes_of_the_whole_response_and_of_entries_count() -> None:
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert error_codes(HeartbeatResponse(error_code=unknown)) == [unknown]
    partition = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    topic = FetchableTopicResponse(topic="t", partitions=[partition])
    response = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[topic])
    assert sorted(error_codes(response)) == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ]
    assert error_codes(response, nested=False) == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]


def test_an_entry_may_have_two() -> None:
    topic = CreatableTopicResult(
        name="t",
        error_code=ErrorCode.TOPIC_ALREADY_EXISTS,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    assert len(error_codes(CreateTopicsResponse(topics=[topic]))) == 2
