"""No batch of an idempotent producer overtakes one that it has to send again."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.produce.produce import ProduceHandlers
from kraftrio.broker.api.produce.refused_batches import (
    MOST_REMEMBERED,
    RECENT_MS,
    REMEMBERED_MS,
    RefusedBatches,
    Sequenced,
    sequenced,
)
from kraftrio.broker.replica.append_gate import RequestedPartition
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.logs import batch
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.replica.replica_context import TOPIC_ID, Broker, topic

PLACE: RequestedPartition = ("t", 0)
FULL = ErrorCode.KAFKA_STORAGE_ERROR
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def a_batch(sequence: int, epoch: int = 0, producer_id: int = 7) -> Sequenced:
    return Sequenced(producer_id, epoch, sequence)


def test_later_sequences_wait_for_the_oldest_refused_one() -> None:
    """Of one producer in one partition; whatever is refused beside it, and until it is accepted."""
    refused = RefusedBatches()
    assert not refused
    refused.note(PLACE, a_batch(10), FULL, 0)
    refused.note(PLACE, a_batch(14), FULL, 0)
    assert refused
    assert refused.why_overtaking(PLACE, a_batch(11), 1) is FULL
    assert refused.why_overtaking(PLACE, a_batch(10), 1) is None
    assert refused.why_overtaking(("t", 1), a_batch(11), 1) is None
    assert refused.why_overtaking(PLACE, a_batch(11, producer_id=8), 1) is None
    refused.note(PLACE, a_batch(5), FULL, 2)
    assert refused.why_overtaking(PLACE, a_batch(10), 3) is FULL
    refused.accepted(PLACE, a_batch(5))
    assert refused.why_overtaking(PLACE, a_batch(10), 4) is None
    assert not refused


def test_an_earlier_batch_that_is_repeated_lets_nothing_overtake() -> None:
    """It was in the log already: the refused one is still to come."""
    refused = RefusedBatches()
    refused.note(PLACE, a_batch(10), FULL, 0)
    refused.accepted(PLACE, a_batch(9))
    assert refused.why_overtaking(PLACE, a_batch(11), 1) is FULL
    refused.accepted(PLACE, a_batch(0, epoch=1))
    assert not refused


def test_sequences_go_round() -> None:
    """0 is later than 2^31-1."""
    refused = RefusedBatches()
    refused.note(PLACE, a_batch(2**31 - 1), FULL, 0)
    assert refused.why_overtaking(PLACE, a_batch(0), 1) is FULL
    refused.note(PLACE, a_batch(3), FULL, 1)
    assert refused.why_overtaking(PLACE, a_batch(0), 1) is FULL
    assert refused.why_overtaking(PLACE, a_batch(2**31 - 5), 1) is None


def test_what_was_refused_is_forgotten() -> None:
    """With a new epoch, after a long time, and when there is too much of it."""
    refused = RefusedBatches()
    refused.note(PLACE, a_batch(1), FULL, 0)
    assert refused.why_overtaking(PLACE, a_batch(5, epoch=1), 1) is None
    refused.note(PLACE, a_batch(1), FULL, 0)
    assert refused.why_overtaking(PLACE, a_batch(5), RECENT_MS) is FULL
    assert refused.why_overtaking(PLACE, a_batch(5), REMEMBERED_MS) is OUT_OF_ORDER
    assert refused.why_overtaking(PLACE, a_batch(5), REMEMBERED_MS + 1) is None
    for producer_id in range(MOST_REMEMBERED + 1):
        refused.note(PLACE, a_batch(1, producer_id=producer_id), FULL, 0)
    assert refused.why_overtaking(PLACE, a_batch(5, producer_id=0), 1) is None
    assert refused.why_overtaking(PLACE, a_batch(5, producer_id=1), 1) is FULL


def test_what_has_a_sequence() -> None:
    """Neither batches without one, nor what is not a batch."""
    data = batch(b"x", producer_id=7, producer_epoch=2, sequence=9)
    assert sequenced(memoryview(data)) == (7, 2, 9)
    for other in (batch(b"x"), data[:60], data[:16] + b"\x01" + data[17:], b""):
        assert sequenced(memoryview(other)) is None
    assert sequenced(None) is None


def unknown_topic(broker: Broker) -> Callable[[], None]:
    """The metadata of the topic comes between the first batch and the second."""
    return lambda: broker.publish(*topic(1))


def full_disk(broker: Broker) -> Callable[[], None]:
    """The disk has no room for the first batch, but for the second."""
    broker.publish(*topic(1))
    broker.fs.fail("write", "/a/", errno.ENOSPC)
    return broker.fs.heal


class Producer:
    """Sends batches of one record to a broker, and returns (error, base offset)."""

    def __init__(self, broker: Broker) -> None:
        self._handlers = ProduceHandlers(broker.replicas, broker.metadata, broker.clock)

    def send(self, sequence: int, producer_id: int = 7) -> tuple[ErrorCode, int]:
        data = batch(b"x", producer_id=producer_id, producer_epoch=0, sequence=sequence)
        part = PartitionProduceData(index=0, records=memoryview(data))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=[part])],
        )
        response = self._handlers.produce(request, context(13))
        if isinstance(response, Deferred):
            response = response.value
        assert isinstance(response, ProduceResponse)
        (answer,) = response.responses[0].partition_responses
        return ErrorCode(answer.error_code), answer.base_offset


@pytest.mark.parametrize("obstacle", [unknown_topic, full_disk])
async def test_a_producer_that_is_not_known_begins_with_its_first_batch(
    obstacle: Callable[[Broker], Callable[[], None]],
) -> None:
    """Its second batch, under way already, is refused as the first until that was sent again."""
    broker = Broker()
    producer = Producer(broker)
    remove = obstacle(broker)
    code, _ = producer.send(0)
    assert code.retriable
    remove()
    assert producer.send(1) == (code, -1)
    assert producer.send(5, producer_id=8) == (ErrorCode.NONE, 0), "others may begin anywhere"
    assert producer.send(0) == (ErrorCode.NONE, 1)
    assert producer.send(1) == (ErrorCode.NONE, 2)
    assert producer.send(3) == (OUT_OF_ORDER, -1)


async def test_a_known_producer_gets_no_sequence_error_that_a_refusal_caused() -> None:
    """The batch behind a refused one is refused alike: to librdkafka the sequence is an end."""
    broker = Broker()
    producer = Producer(broker)
    broker.publish(*topic(1))
    assert producer.send(0) == (ErrorCode.NONE, 0)
    broker.fs.fail("write", "/a/", errno.ENOSPC)
    assert producer.send(1) == (FULL, -1)
    broker.fs.heal()
    assert producer.send(2) == (FULL, -1)
    assert producer.send(1) == (ErrorCode.NONE, 1)
    assert producer.send(2) == (ErrorCode.NONE, 2)
    assert producer.send(4) == (OUT_OF_ORDER, -1)
