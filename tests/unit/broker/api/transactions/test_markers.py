"""Markers end transactions in the partitions they wrote to: committed, refused, or elsewhere."""

from __future__ import annotations

from kraftrio.base.deferred import Deferred, run_waiting
from kraftrio.broker.api.transactions.markers import MarkerHandlers
from kraftrio.broker.coordinator.outcome import ProducerOfBatch
from kraftrio.kraft_meta.metadata.records import PartitionRecord, TopicRecord
from kraftrio.wire.codec.message import decode, encode
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftrio.wire.primitives import TopicPartition
from kraftrio.wire.records.control import EndTransactionMarker
from tests.support.logs import batch, records_of
from tests.support.sliced import finish_counting
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.replica.replica_context import (
    OTHER_ID,
    TP,
    Broker,
    change,
    topic,
)

NONE = ErrorCode.NONE


class OffsetsTopic:
    """A coordinator that writes down what it is to end."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, ProducerOfBatch, EndTransactionMarker, int]] = []
        self.answers: list[Deferred[ErrorCode]] = []

    def end_transaction(
        self,
        partition: int,
        producer: ProducerOfBatch,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
    ) -> Deferred[ErrorCode]:
        self.ended.append((partition, producer, marker, transaction_version))
        self.answers.append(Deferred())
        return self.answers[-1]


class Side:
    """A broker's markers, and the producers before them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.offsets = OffsetsTopic()
        self.handlers = MarkerHandlers(
            broker.replicas, {"__consumer_offsets": self.offsets}, broker.clock, 1000
        )

    def send(self, producer_id: int = 7, epoch: int = 0, sequence: int = 0, index: int = 0) -> None:
        """Append a transactional batch of one record."""
        records = batch(
            b"x",
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=sequence,
            transactional=True,
        )
        self.broker.replicas.led.append_to_leader(TopicPartition("t", index), records)

    def write(
        self, *markers: WritableTxnMarker, version: int = 2
    ) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
        """Send a request as it comes over the wire."""
        data = memoryview(encode(WriteTxnMarkersRequest(markers=list(markers)), version))
        request, _ = decode(WriteTxnMarkersRequest, version, data)
        response = self.handlers.write_txn_markers(request, context(version))
        assert isinstance(response, WriteTxnMarkersResponse | Deferred)
        return response

    def codes(self, *markers: WritableTxnMarker, version: int = 2) -> list[ErrorCode]:
        """The codes of a request that is answered at once, in the order of its partitions."""
        response = self.write(*markers, version=version)
        assert isinstance(response, WriteTxnMarkersResponse)
        return codes_of(response)

    def last_stable_offset(self, index: int = 0) -> int:
        return self.broker.replicas.led.log(TopicPartition("t", index)).last_stable_offset


def marker(
    *indexes: int,
    producer_id: int = 7,
    epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 3,
    version: int = 0,
    name: str = "t",
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def codes_of(response: WriteTxnMarkersResponse) -> list[ErrorCode]:
    return [
        partition.error_code
        for producer in response.markers
        for one in producer.topics
        for partition in one.partitions
    ]


def side(partitions: int = 1) -> Side:
    broker = Broker()
    broker.publish(*topic(partitions))
    return Side(broker)


async def test_a_marker_ends_the_transaction_where_it_was_open() -> None:
    """The control batch is what Kafka writes, and read_committed goes on past it."""
    one = side(partitions=2)
    one.send(index=0)
    one.send(index=1)
    assert one.last_stable_offset(0) == 0
    assert one.codes(marker(0), marker(1, commit=False)) == [NONE, NONE]
    assert (one.last_stable_offset(0), one.last_stable_offset(1)) == (2, 2)
    log = one.broker.replicas.led.log(TopicPartition("t", 1))
    (ending,) = records_of(log.read(1, 1000, max_offset=2, min_one_batch=True).records)
    assert ending.key == b"\0\0\0\0" and ending.value == b"\0\0\0\0\0\3"
    (aborted,) = log.aborted_transactions(0, 2)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, 1)
    assert not one.broker.replicas.led.log(TP).aborted_transactions(0, 2)


async def test_a_repeated_marker_changes_nothing() -> None:
    """Its answer may have been lost: the coordinator must get a success."""
    for version in (0, 2):
        one = side()
        one.send()
        for _ in range(2):
            assert one.codes(marker(0, epoch=1, version=version)) == [NONE]
        assert one.last_stable_offset() == 3
        one.send(epoch=1)
        assert one.last_stable_offset() == 3, "the next transaction holds it back"
        again = one.codes(marker(0, epoch=1, version=version))
        if version == 2:
            assert again == [ErrorCode.INVALID_PRODUCER_EPOCH], "the next one is not ended by it"
            assert one.last_stable_offset() == 3


async def test_the_version_of_a_request_without_one_is_old() -> None:
    """WriteTxnMarkers 1 has no transaction version: the epoch may be the transaction's own."""
    one = side()
    one.send()
    assert one.codes(marker(0, version=2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert one.codes(marker(0, version=2), version=1) == [NONE]


async def test_each_partition_has_its_own_error() -> None:
    """What is refused changes nothing, and the others are written all the same."""
    one = side(partitions=3)
    one.send(index=0, epoch=5)
    assert one.codes(marker(0, epoch=5, coordinator_epoch=4)) == [NONE]
    one.send(index=0, epoch=5, sequence=1)
    one.broker.publish(TopicRecord("far", OTHER_ID), PartitionRecord(OTHER_ID, 0, (2,), (2,), 2))
    end_offset = one.broker.replicas.led.log(TP).log_end_offset
    assert one.codes(
        marker(0, epoch=4, coordinator_epoch=4),
        marker(1, 9, epoch=4),
        marker(0, producer_id=8, name="far"),
        marker(0, producer_id=9, name="../x"),
        marker(0, producer_id=-1),
        marker(0, producer_id=10, epoch=-1),
    ) == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ]
    fenced = one.codes(marker(0, epoch=5, coordinator_epoch=3))
    assert fenced == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert one.broker.replicas.led.log(TP).log_end_offset == end_offset


async def test_markers_of_one_producer_are_answered_together() -> None:
    one = side(partitions=3)
    response = one.write(marker(0), marker(1, producer_id=8), marker(2), marker(4))
    assert isinstance(response, WriteTxnMarkersResponse)
    assert [producer.producer_id for producer in response.markers] == [7, 8]
    ((first,), (second,)) = [producer.topics for producer in response.markers]
    assert [entry.partition_index for entry in first.partitions] == [0, 2, 4]
    assert [entry.partition_index for entry in second.partitions] == [1]
    assert not WriteTxnMarkersResponse(markers=[]).markers
    assert one.codes() == []


async def test_markers_are_answered_once_they_are_committed() -> None:
    broker = Broker()
    broker.lead()
    one = Side(broker)
    one.send()
    response = one.write(marker(0))
    assert isinstance(response, Deferred) and not response.done
    broker.fetched(2, 2)
    assert not response.done, "one follower has not got it"
    broker.fetched(3, 2)
    assert codes_of(response.value) == [NONE]
    waiting = one.write(marker(0))
    assert isinstance(waiting, Deferred) and not waiting.done
    broker.publish(change(leader=2))
    assert codes_of(waiting.value) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert one.codes(marker(0)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_the_offsets_topic_gets_its_markers_from_its_coordinator() -> None:
    broker = Broker()
    broker.publish(
        *topic(1),
        TopicRecord("__consumer_offsets", OTHER_ID),
        PartitionRecord(OTHER_ID, 0, (1,), (1,), 1),
        PartitionRecord(OTHER_ID, 1, (2,), (2,), 2),
    )
    one = Side(broker)
    one.send()
    response = one.write(
        marker(0, epoch=1, version=2),
        marker(0, 1, epoch=1, commit=False, version=2, name="__consumer_offsets"),
    )
    assert isinstance(response, Deferred) and not response.done
    (asked,) = one.offsets.ended
    assert asked == (0, ProducerOfBatch(7, 1), EndTransactionMarker(False, 3), 2)
    one.offsets.answers[0].complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    run_waiting()
    assert codes_of(response.value) == [
        NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_many_markers_are_written_with_pauses() -> None:
    one = side(partitions=40)
    for index in range(40):
        one.send(index=index)
    markers = [marker(*range(40), producer_id=producer_id) for producer_id in range(7, 20)]
    work = one.handlers.write_txn_markers(WriteTxnMarkersRequest(markers=markers), context(2))
    assert not isinstance(work, WriteTxnMarkersResponse | Deferred)
    response, pauses = finish_counting(work)
    assert pauses > 13 * 3
    assert isinstance(response, WriteTxnMarkersResponse)
    assert codes_of(response) == [NONE] * 13 * 40
    assert one.last_stable_offset(39) == 1 + 13
