"""ListOffsets and DeleteRecords of a partition with followers, and requests that wait for it."""

from __future__ import annotations

import pytest
import trio

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from kraftrio.broker.log.producers.producer_state import AppendOrigin
from kraftrio.kraft_meta.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraftrio.wire.records.control import EndTransactionMarker, build_end_transaction_batch
from tests.support.logs import NOW_MS, batch
from tests.support.sliced import finish
from tests.unit.broker.api.cluster_context import context
from tests.unit.broker.api.data_context import Handlers, part
from tests.unit.broker.replica.replica_context import TOPIC_ID, TP, Broker, topic


async def test_latest_offsets_after_an_election() -> None:
    """KIP-207: nobody sees the end of the log go back while the new leader finds out."""
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        broker.replicas.follower_writes.append_as_follower(
            TP,
            batch(b"a", b"b"),
            0,
            leader_high_watermark=1,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1, isr=(1, 3)))
        handlers = Handlers(broker)
        future = 2**60
        for timestamp in (LATEST, future):
            assert handlers.list_offsets(timestamp).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            old = handlers.list_offsets(timestamp, version=4)
            assert old.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert handlers.list_offsets(EARLIEST).offset == 0
        assert handlers.list_offsets(0).offset == 0
        assert handlers.list_offsets(LATEST, replica_id=3).offset == 2
        broker.fetched(3, 2)
        assert partition.state.high_watermark == 2
        latest = handlers.list_offsets(LATEST)
        assert (latest.error_code, latest.offset, latest.leader_epoch) == (ErrorCode.NONE, 2, 1)
        assert handlers.list_offsets(future).offset == -1


def transactional(sequence: int, *, base_offset: int = 0) -> bytearray:
    """A batch of one record in a transaction of producer 7."""
    return batch(
        b"t",
        timestamps=[NOW_MS + 10 * sequence],
        producer_id=7,
        producer_epoch=0,
        sequence=sequence,
        transactional=True,
        base_offset=base_offset,
    )


def marker(*, base_offset: int = 0, commit: bool = True) -> bytearray:
    """The end of that transaction."""
    return build_end_transaction_batch(
        7, 0, EndTransactionMarker(commit, 0), timestamp=NOW_MS, base_offset=base_offset
    )


async def test_readers_of_committed_records_see_no_offset_of_an_open_transaction() -> None:
    """Neither the latest one, nor one found by its time; deleted records hold nothing back."""
    broker = Broker()
    broker.publish(*topic(1))
    handlers, led = Handlers(broker), broker.replicas.led
    led.append_to_leader(TP, batch(b"a", timestamps=[NOW_MS]))
    led.append_to_leader(TP, transactional(0))
    led.append_to_leader(TP, transactional(1))

    def committed(timestamp: int) -> int:
        return handlers.list_offsets(timestamp, isolation_level=1).offset

    assert (handlers.list_offsets(LATEST).offset, committed(LATEST)) == (3, 1)
    assert (handlers.list_offsets(NOW_MS + 5).offset, committed(NOW_MS + 5)) == (2, -1)
    assert (committed(NOW_MS), committed(EARLIEST), committed(MAX_TIMESTAMP)) == (0, 0, -1)
    partition = broker.replicas.hosted.leader(TP)
    broker.replicas.deletions.delete_records(partition, 2)
    assert (committed(EARLIEST), committed(LATEST)) == (2, 2)
    led.append_to_leader(TP, marker(), origin=AppendOrigin.COORDINATOR)
    assert committed(LATEST) == 4
    assert partition.log.producer_state.first_unstable_offset is None


async def test_the_stable_offset_right_after_an_election() -> None:
    """A follower has kept count: it does not go back, nor past what is open or undecided."""
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        handlers = Handlers(broker)
        replicated = [
            batch(b"a", base_offset=0),
            transactional(0, base_offset=1),
            marker(base_offset=2, commit=False),
            transactional(1, base_offset=3),
        ]
        seen = []
        for high_watermark, records in enumerate(replicated):
            broker.replicas.follower_writes.append_as_follower(
                TP,
                records,
                0,
                leader_high_watermark=high_watermark,
                leader_log_start_offset=0,
                topic_id=TOPIC_ID,
            )
            seen.append(partition.log.last_stable_offset)
        assert seen == [0, 1, 1, 3]
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1, isr=(1, 3)))
        answer = handlers.fetch(0, isolation_level=1)
        assert part(answer).last_stable_offset == 3
        aborted = part(answer).aborted_transactions
        assert aborted is not None
        assert [(one.producer_id, one.first_offset) for one in aborted] == [(7, 1)]
        broker.fetched(3, 4)
        assert handlers.list_offsets(LATEST, isolation_level=1).offset == 3
        broker.replicas.led.append_to_leader(TP, marker(), origin=AppendOrigin.COORDINATOR)
        assert partition.log.last_stable_offset == 3, "not all have the marker"
        broker.fetched(3, 5)
        assert partition.log.last_stable_offset == 5


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_offsets_are_found_in_the_leader_epoch_asked(
    leader_epoch: int, expected: ErrorCode
) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead(isr=(1,))
        broker.publish(PartitionChangeRecord(TOPIC_ID, 0, leader=1))
        answer = Handlers(broker).list_offsets(EARLIEST, leader_epoch=leader_epoch)
        assert answer.error_code == expected


def delete_records(
    handlers: Handlers, *, offset: int, timeout_ms: int
) -> Deferred[tuple[ErrorCode, int]]:
    """Delete the records of t-0 before an offset, which followers have to do, too."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ],
        timeout_ms=timeout_ms,
    )
    response = finish(handlers.offsets.delete_records(request, context(2)))
    answer: Deferred[tuple[ErrorCode, int]] = Deferred()
    assert isinstance(response, Deferred), "followers have to delete, too"
    response.then(
        lambda value: answer.complete(
            (
                ErrorCode(value.topics[0].partitions[0].error_code),
                value.topics[0].partitions[0].low_watermark,
            )
        )
    )
    return answer


async def test_delete_records_answers_with_the_low_watermark(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        end = broker.append(5)
        broker.fetched(2, end)
        broker.fetched(3, end)

        first = delete_records(handlers, offset=3, timeout_ms=1000)
        handlers.fetch(end, 2, log_start_offset=4)
        assert not first.done
        handlers.fetch(end, 3, log_start_offset=3)
        assert first.done and first.value == (ErrorCode.NONE, 3)
        second = delete_records(handlers, offset=-1, timeout_ms=100)
        await trio.sleep(1)
        assert second.value == (ErrorCode.REQUEST_TIMED_OUT, -1)


_MOVED_AWAY = PartitionChangeRecord(
    TOPIC_ID, 0, leader=2, isr=(2, 3), replicas=(2, 3), removing_replicas=()
)
_DELETED = RemoveTopicRecord(TOPIC_ID)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_MOVED_AWAY, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (PartitionChangeRecord(TOPIC_ID, 0, leader=2), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_DELETED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["replica moved away", "another replica leads", "topic deleted"],
)
async def test_waiting_requests_learn_where_the_partition_went(
    autojump_clock: object, change: MetadataRecord, expected: ErrorCode
) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION says that a topic is gone; one that moved is looked for."""
    broker = Broker()
    async with broker.running():
        broker.lead()
        handlers = Handlers(broker)
        broker.append(3)
        for follower in (2, 3):
            broker.fetched(follower, 3)
        produced = handlers.produce("t")
        deleted = delete_records(handlers, offset=2, timeout_ms=1000)
        confirmed: list[ErrorCode] = []
        broker.replicas.led.when_confirmed(TP, 1000, confirmed.append)
        consumed = handlers.fetch(3, leader_epoch=0)
        followed = handlers.fetch(4, 2)
        assert not produced.done and not deleted.done and not confirmed
        broker.publish(change)
        assert produced.done and produced.value == [(expected, -1)]
        assert deleted.done and deleted.value == (expected, -1)
        assert confirmed == [expected]
        still_here = isinstance(change, PartitionChangeRecord) and not change.replicas
        for fetched in (consumed, followed):
            answer = part(fetched)
            if still_here and fetched is consumed:  # it could go on reading here (KIP-392)
                assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
            else:
                assert answer.error_code == expected
            leader = -1 if expected is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else 2
            assert ((answer.current_leader and answer.current_leader.leader_id) or -1) == leader
