"""Markers that a client writes, as an administrator does who ends a transaction that hangs.

The epochs of producer and coordinator decide, as the partition knows them, and a marker that is
written again changes nothing. A write that comes too late, after an abort, begins no transaction.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.conformance.broker_process import Broker
from tests.conformance.cases.calls import end_offset, fetch
from tests.conformance.cases.raw_client import RawClient
from tests.conformance.cases.transactional import (
    READ_COMMITTED,
    TransactionalProducer,
    committed,
    wait_stable,
)

NONE = ErrorCode.NONE
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
COORDINATOR_FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

NewProducer = Callable[..., TransactionalProducer]
NewTopic = Callable[..., str]


@pytest.fixture
def bootstrap(transaction_broker: Broker) -> str:
    """The broker that all tests of transactions share."""
    return transaction_broker.address


@pytest.fixture
def new_producer(client: RawClient, unique_name: Callable[[str], str]) -> NewProducer:
    """Make producers with an id of their own, and an epoch above 0: new_producer(version=1)."""

    def made(version: int = 2) -> TransactionalProducer:
        return TransactionalProducer(client, unique_name("id"), version).init().init()

    return made


def write_marker(
    producer: TransactionalProducer,
    topic: str,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
    partition: int = 0,
    api_version: int = 2,
) -> ErrorCode:
    """Abort in one partition; the epoch is relative to the producer's."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch + epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version if api_version >= 2 else 0,
    )
    response = producer.client.call(WriteTxnMarkersRequest(markers=[marker]), api_version)
    ((answer,),) = [one.partitions for one in response.markers[0].topics]
    assert response.markers[0].producer_id == producer.producer_id
    return ErrorCode(answer.error_code)


def is_stable(client: RawClient, topic: str) -> bool:
    answer = fetch(client, topic, 0, isolation_level=READ_COMMITTED)
    return answer.last_stable_offset == answer.high_watermark


@pytest.mark.parametrize("api_version", [1, 2])
def test_an_open_transaction_is_ended_by_hand(
    new_topic: NewTopic, new_producer: NewProducer, api_version: int
) -> None:
    producer, topic = new_producer(version=1), new_topic()
    producer.write(topic, b"a")
    assert write_marker(producer, topic, epoch=-1, api_version=api_version) is OLD_EPOCH
    assert not is_stable(producer.client, topic) and end_offset(producer.client, topic) == 1
    for count in (1, 2):
        assert write_marker(producer, topic, api_version=api_version) is NONE
        assert is_stable(producer.client, topic)
        assert end_offset(producer.client, topic) == 1 + count
    fenced = write_marker(producer, topic, coordinator_epoch=-1, api_version=api_version)
    assert fenced is COORDINATOR_FENCED
    assert write_marker(producer, topic, partition=7, api_version=api_version) is UNKNOWN
    assert write_marker(producer, "nowhere", api_version=api_version) is UNKNOWN
    assert committed(producer.client, topic) == []


def test_markers_of_version_2_have_an_epoch_of_their_own(
    new_topic: NewTopic, new_producer: NewProducer
) -> None:
    """So one that comes late does not end the producer's next transaction."""
    producer, topic = new_producer(), new_topic()
    producer.write(topic, b"a")
    assert write_marker(producer, topic, version=2) is OLD_EPOCH
    for _ in range(2):
        assert write_marker(producer, topic, epoch=1, version=2) is NONE
    assert is_stable(producer.client, topic)
    producer.end(commit=False)
    wait_stable(producer.client, topic)
    producer.write(topic, b"b")
    assert write_marker(producer, topic, version=2) is OLD_EPOCH
    producer.end(commit=True)
    wait_stable(producer.client, topic)
    assert committed(producer.client, topic) == [b"b"]


@pytest.mark.parametrize(
    ("version", "produce_version", "code"),
    [
        (1, 10, ErrorCode.INVALID_TXN_STATE),
        (1, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (2, 12, OLD_EPOCH),
    ],
)
def test_writes_that_come_after_the_abort(
    new_topic: NewTopic,
    new_producer: NewProducer,
    version: int,
    produce_version: int,
    code: ErrorCode,
) -> None:
    """They were held back in the network: nothing of them is appended, or nothing would end it."""
    producer, topic = new_producer(version=version), new_topic()
    producer.write(topic, b"a")
    late = producer.twin()
    producer.end(commit=False)
    end = wait_stable(producer.client, topic)
    for _ in range(2):
        answer = late.try_write(topic, b"late", version=produce_version)
        assert answer.error_code == code
    assert wait_stable(producer.client, topic) == end
    producer.write(topic, b"b")
    producer.end(commit=True)
    wait_stable(producer.client, topic)
    assert committed(producer.client, topic) == [b"b"]
