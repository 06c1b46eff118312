"""A log directory without room: leaders give way, followers wait for room."""

from __future__ import annotations

import errno

import pytest
import trio

from kraftrio.broker.log.log_config import LogConfig
from kraftrio.broker.replica.state.partition_state import Role
from kraftrio.kraft_meta.metadata.records import (
    PartitionRecord,
    TopicRecord,
)
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import records_of
from tests.unit.broker.replica.replica_context import (
    OTHER_ID,
    TOPIC_ID,
    TP,
    Broker,
    change,
    copied,
)


async def test_a_leader_without_room_gives_way_and_follows_once_there_is_some(
    autojump_clock: object,
) -> None:
    broker = Broker(config=LogConfig(min_insync_replicas=2))
    async with broker.running():
        partition = broker.lead()
        end = broker.append(3)
        broker.fetched(2, end)
        broker.fs.fail("write", "/a/", errno.ENOSPC)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                broker.append()
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.proposed == [], "broker 3 lacks a record"
        broker.fetched(3, end)
        for _ in range(2):
            with pytest.raises(KafkaError):
                broker.append()
        assert [[member.broker_id for member in p.isr] for p in broker.proposed] == [[2, 3]]
        broker.fetching.clear()
        broker.publish(change(leader=2, isr=(2, 3)))
        assert partition.state.role is Role.FOLLOWER
        await trio.sleep(10)
        assert broker.fetching == [(TP, b"", -1, -1)], "not followed while it could not write"
        broker.fs.heal()
        await trio.sleep(2)
        assert broker.fetching[1:] == [(TP, TOPIC_ID, 2, 1)]
        assert ".kraftrio-room" not in broker.fs.list_directory("/a")


async def test_a_full_directory_concerns_what_lies_in_it_alone(autojump_clock: object) -> None:
    """What is taken away, or led again, while it waits is not followed later."""
    broker = Broker(paths=("/a", "/b"))
    async with broker.running():
        led = broker.lead()
        end = broker.append(3)
        broker.fetched(2, end)
        broker.fetched(3, end)
        broker.fs.fail("write", led.log.directory[:2], errno.ENOSPC)
        with pytest.raises(KafkaError):
            broker.append()
        broker.publish(change(leader=2, isr=(2, 3)))
        broker.fetching.clear()
        broker.publish(
            TopicRecord("followed", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1, 2), (1, 2), 2)
        )
        await trio.sleep(1)
        assert broker.fetching == [(TopicPartition("followed", 0), OTHER_ID, 2, 0)]
        broker.publish(change(leader=1, isr=(1, 2, 3)))
        broker.fs.heal()
        await trio.sleep(3)
        assert (TP, TOPIC_ID, 2, 1) not in broker.fetching
        assert broker.append() == end + 1


async def test_a_full_disk_leaves_a_follower_in_service() -> None:
    broker = Broker()
    async with broker.running():
        partition = broker.follow_broker_2()
        broker.fs.fail("write", partition.log.directory, errno.ENOSPC)
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
        broker.fs.heal()
        broker.replicas.follower_writes.append_as_follower(
            TP,
            copied(b"a"),
            0,
            leader_high_watermark=1,
            leader_log_start_offset=0,
            topic_id=TOPIC_ID,
        )
        read = partition.log.read(0, 1000, max_offset=1, min_one_batch=True)
        assert [record.value for record in records_of(read.records)] == [b"a"]
