"""The error codes and exceptions of `kraftrio.wire.errors`."""

from __future__ import annotations

import pytest

from kraftrio.wire.errors import (
    CorruptBatchError,
    ErrorCode,
    KafkaError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)


def test_codes_are_kafkas_without_a_gap() -> None:
    """Every code from -1 to 133 exists, as in Kafka 4.3."""
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode(42) is ErrorCode.INVALID_REQUEST
    assert ErrorCode.SHARE_SESSION_LIMIT_REACHED.value == 133


def test_every_code_has_a_text() -> None:
    """A code can always be explained, and no two codes alike."""
    texts = [code.text for code in ErrorCode]
    assert all(texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.CORRUPT_MESSAGE, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.STALE_BROKER_EPOCH, False),
        (ErrorCode.PRODUCER_FENCED, False),
    ],
)
def test_retriable_as_in_kafkas_clients(code: ErrorCode, retriable: bool) -> None:
    """Clients retry after the same errors as Kafka's own clients."""
    assert code.retriable is retriable


def test_kafka_error_carries_code_and_message() -> None:
    """The code may be given as a number; the text names both."""
    error = KafkaError(3, "no topic t1")
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error.message == "no topic t1"
    assert str(error) == "UNKNOWN_TOPIC_OR_PARTITION: no topic t1"


def test_kafka_error_without_message_explains_its_code() -> None:
    """The response's message field stays null, but the exception still reads well."""
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    assert error.message is None
    assert ErrorCode.NOT_CONTROLLER.text in str(error)


def test_unknown_code_is_refused() -> None:
    """An error cannot be made with a code that Kafka does not have."""
    with pytest.raises(ValueError, match="999"):
        KafkaError(999)


def test_peer_may_send_codes_that_only_a_newer_kafka_knows() -> None:
    """The number survives, is no success, and is not retried; ours are the members they are."""
    unknown = ErrorCode.of_peer(999)
    assert (unknown, unknown.name, unknown.retriable) == (999, "UNKNOWN_ERROR_999", False)
    assert unknown
    assert not unknown.is_known
    assert "999" in str(KafkaError(unknown))
    assert ErrorCode.of_peer(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of_peer(-1).is_known


def test_corrupt_record_is_a_kafka_error() -> None:
    """A corrupt record reaches a response as CORRUPT_MESSAGE."""
    error = CorruptBatchError("bad crc")
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.CORRUPT_MESSAGE


def test_protocol_errors_are_no_kafka_errors() -> None:
    """They have no code: the connection ends instead."""
    for cls in (RemoteProtocolError, LocalProtocolError):
        assert issubclass(cls, ProtocolError)
        assert not issubclass(cls, KafkaError)


def test_what_stands_beside_a_code_in_a_response() -> None:
    """Kafka's words where it has some, or else ours."""
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (refused.sentence, refused.text) == (
        "Topic authorization failed.",
        "not authorized for the topic",
    )
    assert ErrorCode.SASL_AUTHENTICATION_FAILED.sentence == "SASL authentication failed."
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE.sentence == "The coordinator is not available."
