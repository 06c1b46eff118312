"""Replicas and their logs: made soon or on demand, when the disk lets them, never over data."""

from __future__ import annotations

import errno
import gc

import pytest
import trio
import trio.testing

from kraftrio.broker.replica.partition import Partition
from kraftrio.kraft_meta.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.primitives import TopicPartition
from tests.support.logs import batch
from tests.unit.broker.replica.replica_context import (
    OTHER_ID,
    TOPIC_ID,
    TP,
    Broker,
    SteppingClock,
    topic,
)


async def test_logs_of_new_partitions_are_made_in_slices(autojump_clock: object) -> None:
    """Others get their turn in between, and in the end all are there."""
    broker = Broker(clock=SteppingClock())
    async with broker.running():
        broker.publish(*topic(20))
        assert broker.made() == 0
        seen = set()
        while broker.made() < 20:
            seen.add(broker.made())
            await trio.sleep(0.0001)
        assert len(seen) > 3


async def test_new_partitions_are_out_of_the_collectors_sight(autojump_clock: object) -> None:
    """A collection that looked at thousands would stop everybody; they are freed without one."""
    before = _partitions_seen()  # of other tests
    broker = Broker(freeze_objects=gc.freeze)
    async with broker.running():
        broker.publish(*topic(600))
        await trio.sleep(10)
        assert broker.made() == 600
        try:
            assert _partitions_seen() <= before + 250
        finally:
            gc.unfreeze()
        assert _partitions_seen() >= 600
        gc.collect()
        gc.disable()
        try:
            broker.publish(RemoveTopicRecord(TOPIC_ID))
            await trio.sleep(120)
            assert _partitions_seen() <= before
        finally:
            gc.enable()


def _partitions_seen() -> int:
    return sum(type(one) is Partition for one in gc.get_objects())


async def test_a_partition_that_is_asked_for_is_made_at_once() -> None:
    broker = Broker()
    broker.publish(*topic(20))
    assert broker.replicas.led.is_empty(TopicPartition("t", 7))
    info = broker.replicas.led.append_to_leader(TopicPartition("t", 7), batch(b"x"))
    assert info.base_offset == 0
    assert broker.replicas.hosted.leader(TopicPartition("t", 9)).state.is_leader
    codes: list[ErrorCode] = []
    broker.replicas.led.when_committed(TopicPartition("t", 3), 0, None, codes.append)
    assert codes == [ErrorCode.NONE]
    assert broker.made() == 3


async def test_unknown_partitions_are_refused() -> None:
    broker = Broker()
    broker.publish(*topic(1))
    with pytest.raises(KafkaError) as caught:
        broker.replicas.hosted.leader(TopicPartition("t", 1))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_full_disk_delays_new_logs(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA_STORAGE_ERROR until there is space; logged once, not with every request."""
    broker = Broker()
    async with broker.running():
        broker.fs.fail("write", "/a/", errno.ENOSPC)
        broker.publish(*topic(1))
        for _ in range(50):
            with pytest.raises(KafkaError) as caught:
                broker.replicas.led.append_to_leader(TP, batch(b"x"))
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await trio.sleep(3)
        assert sum("make the log" in line for line in caplog.messages) == 1
        broker.fs.heal()
        await trio.sleep(2)
        assert broker.made() == 1
        assert broker.replicas.led.append_to_leader(TP, batch(b"x")).base_offset == 0


async def test_no_new_log_where_the_old_one_may_be_on_a_failed_disk() -> None:
    """A partition that existed before is not made again, and empty, in another directory."""
    first = Broker(paths=("/a", "/b"))
    first.publish(*topic(1))
    first.replicas.led.append_to_leader(TP, batch(b"kept"))
    directory = first.replicas.led.log(TP).directory
    first.logs.close()
    lost = directory[:2]
    first.fs.fail("read", f"{lost}/meta.properties")
    second = Broker(first.fs, paths=("/a", "/b"))
    second.publish(*topic(1))
    with pytest.raises(KafkaError) as caught:
        second.replicas.led.append_to_leader(TP, batch(b"x"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert second.replicas.failures.offline_partitions() == [TP]
    # A topic that is really new goes to the directory that is left.
    second.publish(TopicRecord("new", OTHER_ID), PartitionRecord(OTHER_ID, 0, (1,), (1,), 1))
    new = TopicPartition("new", 0)
    assert second.replicas.led.append_to_leader(new, batch(b"x")).base_offset == 0
    second.logs.close()
    first.fs.heal()
    third = Broker(first.fs, paths=("/a", "/b"))
    third.publish(*topic(1))
    assert third.replicas.led.log(TP).log_end_offset == 1


async def test_found_logs_are_in_service_at_once() -> None:
    """After a restart nothing waits for a slice."""
    first = Broker()
    first.publish(*topic(3))
    for index in range(3):
        first.replicas.led.append_to_leader(TopicPartition("t", index), batch(b"x"))
    first.logs.close()
    second = Broker(first.fs)
    second.publish(*topic(3))
    assert {p.topic_partition.partition for p in second.replicas.hosted.partitions()} == {0, 1, 2}


async def test_topics_that_go_before_their_logs_were_made(autojump_clock: object) -> None:
    broker = Broker()
    async with broker.running():
        broker.publish(*topic(5))
        broker.publish(RemoveTopicRecord(TOPIC_ID), *topic(1, OTHER_ID))
        await trio.sleep(1)
        assert broker.made() == 1
        assert broker.replicas.led.log(TP).topic_id == OTHER_ID


async def test_an_epoch_that_cannot_be_saved_is_kept_in_memory() -> None:
    """A full disk while a leader is elected ends nothing: the next save takes the epoch along."""
    broker = Broker()
    broker.publish(*topic(1))
    broker.replicas.led.append_to_leader(TP, batch(b"x"))
    broker.fs.fail("write", "leader-epoch-checkpoint", errno.ENOSPC)
    broker.publish(PartitionRecord(TOPIC_ID, 0, (1,), (1,), 1, leader_epoch=4, partition_epoch=1))
    assert broker.replicas.led.log(TP).latest_epoch == 4
    broker.fs.heal()
    broker.replicas.led.log(TP).flush()
    assert b"4 1\n" in broker.fs.read_file("/a/t-0/leader-epoch-checkpoint")
