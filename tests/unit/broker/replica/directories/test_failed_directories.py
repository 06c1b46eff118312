"""A log directory that fails takes its own replicas out of service."""

from __future__ import annotations

import errno

import pytest
import trio

from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.records import (
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.unit.broker.replica.replica_context import (
    OTHER_ID,
    TOPIC_ID,
    TP,
    Broker,
    change,
    copied,
)


async def test_a_failed_directory_takes_its_replicas_alone(autojump_clock: object) -> None:
    broker = Broker(paths=("/a", "/b"))
    async with broker.running():
        broker.lead()
        broker.publish(
            TopicRecord("followed", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1, 2), (1, 2), 2)
        )
        await trio.sleep(1)
        followed = broker.replicas.hosted.partition(TopicPartition("followed", 0))
        led = broker.replicas.hosted.partition(TP)
        assert led is not None and followed is not None
        assert led.log.directory[:2] != followed.log.directory[:2]
        codes: list[ErrorCode] = []
        broker.replicas.led.when_committed(TP, broker.append(), None, codes.append)
        broker.fs.fail("write", led.log.directory, errno.EIO)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                broker.append()
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert broker.replicas.failures.offline_partitions() == [TP]
        assert followed.state.role is Role.FOLLOWER
        broker.fetching.clear()
        broker.publish(change(leader=2))
        assert broker.fetching == []


async def test_a_followed_replica_on_a_failed_disk_is_fetched_no_more() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        broker.fs.fail("write", partition.log.directory, errno.EIO)
        with pytest.raises(KafkaError) as caught:
            broker.replicas.follower_writes.append_as_follower(
                TP,
                copied(b"a"),
                0,
                leader_high_watermark=1,
                leader_log_start_offset=0,
                topic_id=TOPIC_ID,
            )
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetching[-1] == (TP, b"", -1, -1)
        broker.publish(change(leader=3))
        assert broker.fetching[-1] == (TP, b"", -1, -1)
