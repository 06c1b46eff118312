"""What followers write: to the byte, of one leadership, and how far it is committed."""

from __future__ import annotations

import errno

import pytest

from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.records import (
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch
from tests.unit.broker.replica.replica_context import OTHER_ID, TOPIC_ID, TP, Broker, copied


async def test_followers_keep_what_leaders_sent() -> None:
    """To the byte; with the leader's high watermark and log start as far as we have come."""
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2(epoch=3)
        assert broker.fetching == [(TP, TOPIC_ID, 2, 3)]
        assert partition.state.role is Role.FOLLOWER
        sent = bytes(copied(b"a", b"b", leader_epoch=3))
        broker.replicas.follower_writes.append_as_follower(
            TP,
            bytearray(sent),
            3,
            leader_high_watermark=7,
            leader_log_start_offset=1,
            topic_id=TOPIC_ID,
        )
        log = partition.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 2, 2)
        assert partition.state.high_watermark == 2
        read = log.read(1, 1000, max_offset=2, min_one_batch=True)
        assert bytes(read.records) == sent
        broker.replicas.follower_writes.append_as_follower(
            TP,
            b"",
            3,
            leader_high_watermark=1,
            leader_log_start_offset=9,
            topic_id=TOPIC_ID,
        )
        assert (log.log_start_offset, log.high_watermark) == (2, 2)


@pytest.mark.parametrize(
    ("epoch", "topic_id", "expected"),
    [
        (2, TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH),
        (4, TOPIC_ID, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, OTHER_ID, ErrorCode.INCONSISTENT_TOPIC_ID),
    ],
)
async def test_followers_take_nothing_of_another_leadership(
    epoch: int, topic_id: bytes, expected: ErrorCode
) -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2(epoch=3)
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.append_as_follower(
                TP, copied(b"a", leader_epoch=2), epoch,
                leader_high_watermark=1, leader_log_start_offset=0, topic_id=topic_id,
            )  # fmt: skip
        assert caught.value.code is expected
        for cut in (
            broker.replicas.follower_writes.truncate,
            broker.replicas.follower_writes.truncate_fully_and_start_at,
        ):
            with pytest.raises(KafkaError) as caught:
                cut(TP, 0, epoch, topic_id)
            assert caught.value.code is expected
        assert partition.log.log_end_offset == 0


async def test_a_leader_is_no_follower() -> None:
    broker = Broker()
    async with broker.running():
        broker.lead()
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.truncate(TP, 0, 0, TOPIC_ID)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.truncate(TopicPartition("none", 0), 0, 0, TOPIC_ID)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_truncation_takes_the_high_watermark_along() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        for offset in range(5):
            broker.replicas.follower_writes.append_as_follower(
                TP, copied(b"x", base_offset=offset), 0,
                leader_high_watermark=5, leader_log_start_offset=0, topic_id=TOPIC_ID,
            )  # fmt: skip
        broker.replicas.follower_writes.truncate(TP, 3, 0, TOPIC_ID)
        assert (partition.state.high_watermark, partition.log.log_end_offset) == (3, 3)
        broker.replicas.follower_writes.truncate_fully_and_start_at(TP, 40, 0, TOPIC_ID)
        assert (partition.state.high_watermark, partition.log.log_end_offset) == (40, 40)


async def test_a_cut_that_the_disk_stops_takes_the_high_watermark_along() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        for offset in range(5):
            broker.replicas.follower_writes.append_as_follower(
                TP, copied(b"x", base_offset=offset), 0,
                leader_high_watermark=5, leader_log_start_offset=0, topic_id=TOPIC_ID,
            )  # fmt: skip
        broker.fs.fail("sync", partition.log.directory, errno.ENOSPC)
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.truncate(TP, 3, 0, TOPIC_ID)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (3, 3)
        assert partition.state.high_watermark == 3


async def test_a_high_watermark_outlives_a_restart() -> None:
    """Of leaders and of followers, by replication-offset-checkpoint."""
    first = Broker()
    async with first.running():
        first.follow_broker_2()
        first.replicas.follower_writes.append_as_follower(
            TP,
            copied(b"a", b"b", b"c"),
            0,
            leader_high_watermark=2,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        first.publish(TopicRecord("led", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1, 2), (1, 2), 1))
        led = TopicPartition("led", 0)
        for _ in range(3):
            first.replicas.led.append_to_leader(led, batch(b"x"))
        first.replicas.isrs.on_follower_fetch(first.replicas.hosted.leader(led), 2, 20, 1, 0, 0)
        first.logs.write_checkpoints()
        assert b"\nled 0 1\n" in first.fs.read_file("/a/replication-offset-checkpoint")
        assert b"\nt 0 2\n" in first.fs.read_file("/a/replication-offset-checkpoint")
        first.logs.close()
        second = Broker(first.fs)
        second.publish(
            TopicRecord("t", TOPIC_ID),
            PartitionRecord(TOPIC_ID, 0, (1, 2, 3), (1, 2, 3), 1, leader_epoch=5),
        )
        assert second.replicas.hosted.leader(TP).state.high_watermark == 2
